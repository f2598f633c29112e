"""The paper's tables, measured on the shared CIFAR-10, with the paper's numbers beside.

    export LABELNOISE_DATA=...
    python benchmarks/paper_tables.py run --minutes 9 --jobs 2   # on a GPU; again and again
    python benchmarks/paper_tables.py render                     # results/paper_tables.md

Every finished run is appended to benchmarks/results/paper_runs.jsonl with its settings, and is
not repeated: the work of several occasions adds up. Runs go side by side on one GPU. One that
would not end in time is not begun.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import queue
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
RUNS = RESULTS / "paper_runs.jsonl"
NETWORK, PLAN = "resnet18", "short"
SECONDS_PER_EPOCH = 2.0  # of one of several runs side by side, generously; see `enough_time`
FIRST_FEATURES = "cifar10/efficientnet_lite2_train.npy"

MAIN_METHODS = ("ce", "forward", "t-revision", "hoc-global", "hoc-local")
OTHER_METHODS = (
    "reweight", "peer", "dmi", "gce", "co-teaching", "co-teaching+", "jocor", "cores2", "ptd-r-v",
)  # fmt: skip
INSTANCE = ("instance .2", "instance .4", "instance .6")
GIVEN_MATRICES = ("T of HOC.paper()", "T of HOC()", "T of cleanlab", "the true T")
EXTRACTORS = ("clean", "instance .2", "instance .4")


@dataclass(frozen=True)
class Spec:
    """One run: which method, on which labels, with which seed."""

    method: str
    labels: str
    seed: int = 0
    network: str = NETWORK
    plan: str = PLAN


def specs() -> list[Spec]:
    """All runs of the tables, the most wanted ones first."""

    def product(methods: Sequence[str], labels: Sequence[str], seeds: Sequence[int]) -> list[Spec]:
        return [Spec(m, name, seed) for seed in seeds for name in labels for m in methods]

    return [
        *product(MAIN_METHODS, ("instance .6", "human", "instance .4", "instance .2"), (0,)),
        *product(OTHER_METHODS, ("instance .6", "human"), (0,)),
        *product(MAIN_METHODS, (*INSTANCE, "human"), (1, 2)),
        *product(MAIN_METHODS, ("worst",), (0,)),
        *product(GIVEN_MATRICES, ("human", "worst", "instance .6"), (0,)),
        *product(("feasibility",), EXTRACTORS, (0,)),
    ]


def n_epochs(spec: Spec) -> int:
    """How many epochs of one network a run takes."""
    from labelnoise.training import plan_named

    plan = plan_named(spec.plan)
    first, second, final = plan.first.n_epochs, plan.second.n_epochs, plan.final.n_epochs
    last = plan.final.rates[-1][1]
    if spec.method in ("forward", "reweight", "hoc-global"):
        return first + final
    if spec.method in ("t-revision", "ptd-r-v"):
        return first + final + last
    if spec.method == "hoc-local":
        return first + second + final
    if spec.method in ("co-teaching", "co-teaching+", "jocor"):
        return 2 * final
    return final + last if spec.method == "dmi" else final


class Worker:
    """Does runs, one after another, with the images loaded once."""

    def __init__(self, n_threads: int) -> None:
        import torch

        from labelnoise.datasets import load

        torch.set_num_threads(n_threads)
        warnings.simplefilter("ignore")
        self.data = load("cifar10")
        self.features = np.load(Path(os.environ["LABELNOISE_DATA"]) / FIRST_FEATURES)
        self.features = self.features.astype(np.float32)

    def labels(self, name: str, seed: int) -> np.ndarray:
        """Noisy training labels; synthetic ones differ from seed to seed, as in the paper."""
        from labelnoise import noise
        from labelnoise.datasets import load

        clean = self.data.labels
        if name == "clean":
            return clean
        kind, _, rate = name.partition(" ")
        if kind == "instance":
            pixels = self.data.train.array.reshape(len(clean), -1).astype(np.float32)
            return noise.instance_dependent(
                pixels, clean, float(rate), scale="standard", random_state=seed
            ).labels
        return load("cifar10", labels=name).labels

    def __call__(self, spec: Spec) -> dict[str, Any]:
        """Do a run; what to keep of it."""
        from labelnoise import transition_error
        from labelnoise.scores import true_transition_matrix
        from labelnoise.training import method_named, train

        clean, labels = self.data.labels, self.labels(spec.labels, spec.seed)
        data = self.data.with_labels(labels)
        method: Any
        if spec.method in GIVEN_MATRICES:
            method = given_matrix(self.matrix(spec.method, labels))
        elif spec.method == "feasibility":
            method = Extractor()
        else:
            method = method_named(spec.method)
        result = train(
            data,
            method,
            network=spec.network,
            plan=spec.plan,
            features=self.features,
            seed=spec.seed,
        )
        accuracies = [e["test_accuracy"] for e in result.log if e["phase"] == "final"]
        kept: dict[str, Any] = {
            "best": result.best_accuracy,
            "last": result.last_accuracy,
            "accuracies": accuracies,
            "seconds": round(result.seconds, 1),
            "noise_rate": float((labels != clean).mean()),
        }
        T = result.learnt.get("transition_matrix")
        if T is not None:
            truth = true_transition_matrix(clean, labels, 10)
            kept["transition_error"] = transition_error(T, truth)
        if "representations" in result.learnt:
            X, rng = result.learnt["representations"], np.random.default_rng(0)
            samples = [rng.choice(len(X), len(X) // 10, replace=False) for _ in range(10)]
            kept["feasible 50k"] = feasible(X, clean)
            kept["feasible 5k"] = float(np.mean([feasible(X[s], clean[s]) for s in samples]))
        return kept

    def matrix(self, name: str, labels: np.ndarray) -> np.ndarray:
        """T by an estimator on the first features, or the true one."""
        from labelnoise import HOC
        from labelnoise.scores import true_transition_matrix

        if name == "the true T":
            return true_transition_matrix(self.data.labels, labels, 10)
        if name == "T of cleanlab":
            from labelnoise.baselines import confident_learning
            from labelnoise.linear import noisy_posteriors

            return confident_learning(noisy_posteriors(self.features, labels, 10), labels)
        estimator = HOC.paper(random_state=0) if name == "T of HOC.paper()" else HOC()
        return estimator.fit(self.features, labels).transition_matrix_


def feasible(X: np.ndarray, clean: np.ndarray) -> float:
    """Share of examples whose two nearest have their clean class."""
    from labelnoise import feasibility
    from labelnoise.neighbors import nearest_neighbors

    return feasibility(clean, nearest_neighbors(X, 2).indices)


def given_matrix(T: np.ndarray) -> Any:
    """The forward correction with a T that is given."""
    from labelnoise.losses import ForwardLoss
    from labelnoise.training import Method
    from labelnoise.training.objectives import Corrected, Transitions

    class Given(Method):
        def fit(self, run: Any) -> dict[str, Any]:
            run.train("final", Corrected(Transitions(T), ForwardLoss()), run.plan.final)
            return {"transition_matrix": T}

    return Given()


class Extractor:
    """Cross-entropy to the end, for its representations."""

    def fit(self, run: Any) -> dict[str, Any]:
        """Train once."""
        from labelnoise.training.objectives import CrossEntropy

        run.train("final", CrossEntropy(), run.plan.final)
        return {"representations": run.representations()}


def work(specs: mp.Queue, results: mp.Queue, deadline: float, n_threads: int) -> None:
    """In a process of its own: do runs until there are none, or time is short."""
    worker, rate = Worker(n_threads), SECONDS_PER_EPOCH
    while True:
        try:
            spec = specs.get(timeout=1)
        except queue.Empty:
            return
        if time.time() + rate * n_epochs(spec) > deadline:
            continue
        begin = time.time()
        try:
            results.put((spec, worker(spec)))
        except Exception as error:
            results.put((spec, error))
        rate = max(rate, (time.time() - begin) / n_epochs(spec))


def run(minutes: float, jobs: int, only: list[str]) -> None:
    """Do what is missing, for so many minutes."""
    deadline = time.time() + 60 * minutes
    done = {tuple(asdict(spec).values()) for spec, _ in finished()}
    missing = [
        spec
        for spec in specs()
        if tuple(asdict(spec).values()) not in done and (not only or spec.method in only)
    ]
    print(f"{len(done)} runs are done, {len(missing)} missing", flush=True)
    context = mp.get_context("spawn")
    waiting, results = context.Queue(), context.Queue()
    for spec in missing:
        waiting.put(spec)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    workers = [
        context.Process(target=work, args=(waiting, results, deadline, threads), daemon=True)
        for _ in range(jobs)
    ]
    for worker in workers:
        worker.start()
    RUNS.parent.mkdir(exist_ok=True)
    while any(worker.is_alive() for worker in workers) or not results.empty():
        try:
            spec, kept = results.get(timeout=1)
        except queue.Empty:
            if time.time() > deadline:
                break
            continue
        if isinstance(kept, Exception):
            print(f"FAILED {spec}: {kept!r}", flush=True)
            continue
        with RUNS.open("a") as file:
            file.write(json.dumps({**asdict(spec), **kept}) + "\n")
        brief = {name: value for name, value in kept.items() if name != "accuracies"}
        print(spec.method, spec.labels, spec.seed, brief, flush=True)


def finished() -> list[tuple[Spec, dict[str, Any]]]:
    """The runs that were done, with what was kept of them."""
    if not RUNS.exists():
        return []
    names = Spec.__dataclass_fields__
    entries = [json.loads(line) for line in RUNS.read_text().splitlines()]
    return [(Spec(**{name: entry[name] for name in names}), entry) for entry in entries]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["run", "render"])
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], help="methods")
    args = parser.parse_args()
    if args.what == "run":
        run(args.minutes, args.jobs, args.only)
    else:
        sys.exit("not written yet")


if __name__ == "__main__":
    main()
