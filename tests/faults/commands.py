"""Commands in processes of their own, which a fault befalls."""

import contextlib
import io
import multiprocessing
import os
import resource
import sys
import time

from labelnoise import cli
from tests.fuzz.trials import FACTOR

# Forked from a server that has imported what they need: a kill then falls on the work itself.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["labelnoise.cli", "labelnoise.io.labels", "labelnoise.hoc", "labelnoise.report"]
    + ["rich.console", "rich.progress"]
    + ["labelnoise.training"] * (FACTOR > 1)
)
LONGEST = 120  # seconds


def start(arguments, folder, fault=None):
    """Begin a command in a folder; its output goes to the file `said` there."""
    process = SERVER.Process(target=_run, args=(arguments, str(folder), fault))
    process.start()
    return process


def finish(arguments, folder, fault=None):
    """Run a command to its end: status, seconds, and what it said."""
    begin = time.perf_counter()
    process = start(arguments, folder, fault)
    process.join(LONGEST)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"it did not end: labelnoise {' '.join(arguments)}")
    with open(os.path.join(folder, "said")) as file:
        return process.exitcode, time.perf_counter() - begin, file.read()


def _run(arguments, folder, fault):
    os.chdir(folder)
    if arguments[0] == "train":
        from labelnoise import training

        schedule = training.Schedule(((0.1, 4),), batch_size=4)
        training.PLANS["tiny"] = training.Plan(schedule, schedule, schedule)
    sys.argv = ["labelnoise", *arguments]
    said = io.StringIO()
    status = 0
    if fault:
        FAULTS[fault[0]](*fault[1:])
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main()
    except SystemExit as stop:
        status = stop.code or 0
    finally:
        for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS):
            resource.setrlimit(limit, (resource.RLIM_INFINITY,) * 2)
        os.seteuid(os.getuid())
        with open("said", "w") as file:
            file.write(said.getvalue())
    sys.exit(status)


def _little_disk(n_bytes):
    """No file may become larger, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))


def _nobody():
    """A user who may read the folder, and not write to it."""
    os.seteuid(65534)


def _little_memory(n_bytes):
    """No more address space than there is, and so much."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


FAULTS = {"disk": _little_disk, "nobody": _nobody, "memory": _little_memory}
