"""The paper's tables of methods, measured; with the paper's numbers beside.

    export LABELNOISE_DATA=...
    python benchmarks/paper_tables.py labels                     # noisy labels, once; needs Pillow
    python benchmarks/paper_tables.py run --minutes 9 --jobs 16  # again and again; no GPU
    python benchmarks/paper_tables.py render                     # results/paper_tables.md

A cell is a method on a data set with one kind of labels and one seed. Each finished cell is a line
of results/paper_cells.jsonl and is not done again, so several occasions add up; `--out` writes the
new lines to another file. One thread a process. A machine without Pillow needs LABELNOISE_CACHE, a
folder with the file of labels. Where there are a GPU and Pillow, `run --data
pixels --network resnet18 --plan brief` does the cells on images, the figure and the extractors.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import queue
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from paper_methods import VARIANTS, feasible_shares, make_method

from labelnoise import noise, transition_error
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.datasets import ImageData, load, load_arrays
from labelnoise.scores import true_transition_matrix
from labelnoise.training import METHODS, Run, plan_named

RESULTS = Path(__file__).parent / "results"
CELLS = RESULTS / "paper_cells.jsonl"
CACHE = Path(os.environ.get("LABELNOISE_CACHE", Path(__file__).parent / "cache"))
LABELS_FILE = CACHE / "paper_labels.npz"
PAGE = RESULTS / "paper_tables.md"

DATA = ("lite2", "lite0", "made100", "pixels")
FEATURES = {name: f"cifar10/efficientnet_{name}_{{}}.npy" for name in ("lite2", "lite0")}
INSTANCE = ("instance .2", "instance .4", "instance .6")
LABELS = (*INSTANCE, "paper .6", "symmetric .4", "human", "worst")
OF_MADE = ("human 100", "symmetric .4")
SEEDS = (0, 1, 2)
N_TEST = 10_000  # examples of lite0, whose test features do not exist, and of made100
ON_PIXELS = ("feasibility", "figure 3")
SLOW = ("hoc-local", "hoc-global", "ptd-r-v", "t-revision")  # begun first
LONGEST = 100.0  # seconds; until a cell has taken longer


@dataclass(frozen=True)
class Cell:
    """A method on data with one kind of labels and one seed."""

    method: str
    labels: str
    seed: int = 0
    data: str = "lite2"
    network: str = "mlp"
    plan: str = "features"


def all_cells() -> list[Cell]:
    """All cells without a GPU: the main features, then the second, then many classes."""
    methods = [*METHODS, *VARIANTS]
    methods.sort(key=lambda name: not name.startswith(SLOW))
    return [
        Cell(method, labels, seed, data)
        for data, kinds in (("lite2", LABELS), ("lite0", LABELS), ("made100", OF_MADE))
        for seed in SEEDS
        for labels in kinds
        for method in methods
    ]


def make_labels() -> None:
    """Write clean and noisy labels of CIFAR-10 to one small file, which needs no images to read."""
    folder = Path(os.environ["LABELNOISE_DATA"])
    with np.load(folder / "cifar10" / "cifar10.npz") as archive:
        kept = {name: archive[f"{name}_clean"] for name in ("train", "test")}
        kept["human"] = archive["train_human"]
        kept["worst"] = archive["train_cifar10n_worst"]
    with np.load(folder / "paper_instance_06.npz") as archive:
        kept["paper .6"] = archive["cifar10"]
    pixels = load("cifar10", folder).train.array.reshape(len(kept["train"]), -1).astype(np.float32)
    for seed in SEEDS:
        for kind in INSTANCE:
            made = noise.instance_dependent(
                pixels, kept["train"], float(kind.split()[1]), scale="raw", random_state=seed
            )
            kept[f"{kind}/{seed}"] = made.labels
    LABELS_FILE.parent.mkdir(exist_ok=True)
    with write_then_rename(LABELS_FILE) as file:
        np.savez_compressed(file, **{name: y.astype(np.uint8) for name, y in kept.items()})


class Worker:
    """Does cells, one after another, with the data loaded once."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        self._clean: dict[str, ImageData] = {}

    def clean(self, name: str) -> ImageData:
        """Give a data set with clean training labels."""
        if name not in self._clean:
            self._clean[name] = _load(name)
        return self._clean[name]

    def labels(self, cell: Cell) -> np.ndarray:
        """Noisy training labels; synthetic ones differ from seed to seed."""
        clean = self.clean(cell.data).labels
        kind, _, rate = cell.labels.partition(" ")
        if kind == "symmetric":
            return noise.symmetric(clean, float(rate), random_state=cell.seed).labels
        if cell.labels == "human 100":
            return _cifar100n()["noisy"]
        if cell.labels == "clean":
            return clean
        with np.load(LABELS_FILE) as file:
            y = file[f"{cell.labels}/{cell.seed}" if kind == "instance" else cell.labels]
        return y.astype(np.int64)[_rows_of(cell.data)]

    def __call__(self, cell: Cell) -> dict[str, Any]:
        """Do a cell; what to keep of it."""
        began = time.perf_counter()
        data, labels = self.clean(cell.data), self.labels(cell)
        K = len(data.classes)
        truth = true_transition_matrix(data.labels, labels, K)
        rate = float((labels != data.labels).mean())
        run = Run(
            data if cell.method == "ce, clean labels" else data.with_labels(labels),
            plan_named(cell.plan),
            network=cell.network,
            seed=cell.seed,
            validation=0.1 if cell.method.endswith("stopped early") else 0.0,
            features=self.clean("lite2").train.array if cell.data == "pixels" else None,
        )
        learnt = make_method(cell.method, truth, rate).fit(run)
        final = [entry for entry in run.log if entry["phase"] == "final"]
        accuracies = [entry["test_accuracy"] for entry in final]
        kept = {
            "best": round(max(accuracies), 4),
            "last": round(accuracies[-1], 4),
            "noise_rate": round(rate, 4),
            "seconds": round(time.perf_counter() - began, 1),
        }
        if run.validation:  # the epoch that is kept is the result
            chosen = max(final, key=lambda entry: entry["agreement"])
            kept["last"] = round(chosen["test_accuracy"], 4)
        if (T := learnt.pop("transition_matrix", None)) is not None:
            kept["transition_error"] = round(transition_error(T, truth), 4)
        if cell.method == "feasibility":
            kept |= feasible_shares(run.representations(), data.labels)
            kept["fitted"] = float((run.posteriors().argmax(axis=1) == labels).mean())
        return kept | {name: learnt[name] for name in learnt if name != "noise_rate"}


def _load(name: str) -> ImageData:
    if name == "pixels":
        return load("cifar10")
    if name == "made100":
        return _made_of_clusters()
    with np.load(LABELS_FILE) as file:
        clean, test_clean = file["train"].astype(np.int64), file["test"].astype(np.int64)
    folder = Path(os.environ["LABELNOISE_DATA"])
    X = np.load(folder / FEATURES[name].format("train")).astype(np.float32)
    rows, test = _rows_of(name), folder / FEATURES[name].format("test")
    if test.exists():
        return load_arrays(X, clean, np.load(test).astype(np.float32), test_clean)
    out = np.setdiff1d(np.arange(len(X)), rows)
    return load_arrays(X[rows], clean[rows], X[out], clean[out])


def _rows_of(name: str) -> np.ndarray:
    """Training rows of CIFAR-10: of lite0, a fifth is the test set."""
    if name != "lite0":
        return np.arange(50_000)
    return np.sort(np.random.default_rng(0).permutation(50_000)[N_TEST:])


def _cifar100n() -> dict[str, np.ndarray]:
    with np.load(Path(os.environ["LABELNOISE_DATA"]) / "cifar100n_labels.npz") as file:
        return {name: file[name].astype(np.int64) for name in ("clean", "noisy")}


def _made_of_clusters() -> ImageData:
    """Gaussian clusters for the classes of CIFAR-100, whose images are not at hand."""
    random = np.random.default_rng(0)
    clean = _cifar100n()["clean"]
    test = random.integers(0, 100, N_TEST)
    centres = random.standard_normal((100, 128))
    train_X, test_X = (
        (centres[y] + 2.5 * random.standard_normal((len(y), 128))).astype(np.float32)
        for y in (clean, test)
    )
    return load_arrays(train_X, clean, test_X, test)


def work(waiting: mp.Queue, results: mp.Queue, deadline: float) -> None:
    """In a process of its own: do cells until there are none, or time is short."""
    worker, longest = Worker(), LONGEST
    while True:
        try:
            cell = waiting.get(timeout=1)
        except queue.Empty:
            return
        began = time.time()
        if began + longest > deadline:
            return
        try:
            results.put((cell, worker(cell)))
        except Exception as error:
            results.put((cell, error))
        longest = max(longest, time.time() - began)


def run(cells: list[Cell], minutes: float, jobs: int, out: Path) -> None:
    """Do what is missing, for this many minutes."""
    deadline = time.time() + 60 * minutes
    done = {cell for path in {CELLS, out} for cell, _ in finished(path)}
    missing = [cell for cell in cells if cell not in done]
    print(f"{len(cells) - len(missing)} cells are done, {len(missing)} missing", flush=True)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # of the processes to come
    context = mp.get_context("spawn")
    waiting, results = context.Queue(), context.Queue()
    for cell in missing:
        waiting.put(cell)
    workers = [
        context.Process(target=work, args=(waiting, results, deadline), daemon=True)
        for _ in range(min(jobs, len(missing)))
    ]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers) or not results.empty():
        try:
            cell, kept = results.get(timeout=1)
        except queue.Empty:
            if time.time() > deadline:
                break
            continue
        if isinstance(kept, Exception):
            print(f"FAILED {cell}: {kept!r}", flush=True)
            continue
        with out.open("a") as file:
            file.write(json.dumps({**asdict(cell), **kept}) + "\n")
        print(round(deadline - time.time()), *asdict(cell).values(), kept, flush=True)


def finished(path: Path = CELLS) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Give the cells that were done, with what was kept of them."""
    names = Cell.__dataclass_fields__
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        yield Cell(**{name: entry[name] for name in names if name in entry}), entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["labels", "run", "render"])
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=CELLS)
    for name, kind in (("data", str), ("methods", str), ("labels", str), ("seeds", int)):
        parser.add_argument(f"--{name}", type=kind, nargs="+")
    parser.add_argument("--network", default="mlp")
    parser.add_argument("--plan", default="features")
    args = parser.parse_args()
    if args.what == "labels":
        make_labels()
    elif args.what == "render":
        from paper_page import render

        PAGE.write_text(render() + "\n")
    else:
        if not LABELS_FILE.exists():
            make_labels()
        cells = all_cells()
        if args.data == ["pixels"]:
            methods = (*METHODS, *ON_PIXELS)
            cells = [Cell(m, y, s, "pixels") for m in methods for y in LABELS for s in SEEDS]
        for name, wanted in (
            ("data", args.data),
            ("method", args.methods),
            ("labels", args.labels),
            ("seed", args.seeds),
        ):
            cells = [cell for cell in cells if not wanted or getattr(cell, name) in wanted]
        cells = [replace(cell, network=args.network, plan=args.plan) for cell in cells]
        run(cells, args.minutes, args.jobs, args.out)


if __name__ == "__main__":
    main()
