"""Damaged files again, but coverage tells atheris which damage leads to code not seen before.

    python tests/fuzz/coverage_guided.py SECONDS   # for each format; `make fuzz` does it

An input that ends in anything but a result or the project's own error stops it, and is kept.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
READING = ["labelnoise", "numpy.lib", "zipfile", "csv", "json"]
LIMITS = ["-rss_limit_mb=4096", "-timeout=20", "-max_len=8192"]


def fuzz(name: str, folder: Path, options: list[str]) -> None:
    """Fuzz one format in this process, as libFuzzer's options say."""
    import atheris  # which comes with `make fuzz`

    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=READING):
        from tests.fuzz.test_readers import read_all, write_files

    corpus, damaged = folder / "corpus", folder / "damaged"
    for new in (corpus, damaged):
        new.mkdir()
        write_files(new)
    for other in corpus.iterdir():
        if other.name != name:
            other.unlink()

    def read(content: bytes) -> None:
        (damaged / name).write_bytes(content)
        read_all(damaged / name)

    atheris.Setup([name, str(corpus), *LIMITS, *options], read)
    atheris.Fuzz()


def fuzz_all(seconds: str) -> None:
    """Fuzz the formats one after another, each in a process of its own."""
    from tests.fuzz.test_readers import FILES

    for name in FILES:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, name, folder, f"-max_total_time={seconds}"]
            command.append(f"-artifact_prefix={os.getcwd()}/fuzz-{name}-")
            found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode:
            sys.exit(f"{name}: {found.stdout}\n{found.stderr[-3000:]}")
        said = found.stderr.splitlines()
        print(name, *(line for line in said if line.startswith("Done ")), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        fuzz_all(sys.argv[1])
    else:
        fuzz(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
