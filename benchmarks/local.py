"""Local transition matrices: how far off they are, how long they take, and when they do not help.

Errors are scored as the paper scores them (its appendix figure): the truth of a local data set
is counted from its members and blended with the global truth as the estimate is. "global T"
scores the one global estimate against the same local truths: local matrices must be nearer than
it to be of use. Real data where LABELNOISE_DATA names a folder that has them, clusters else.

    python benchmarks/local.py

Its last results are in benchmarks/results/local.md. It draws the paper's picture of local errors
to docs/images/local-errors.svg where matplotlib is installed.
"""

from __future__ import annotations

import os
import resource
import time
import warnings
from datetime import date
from pathlib import Path

import numpy as np
from tables import table

from labelnoise import HOC, LabelNoiseWarning, LocalHOC, transition_error
from labelnoise.estimators.local import local_errors
from labelnoise.noise import instance_dependent, symmetric
from labelnoise.scores import true_transition_matrix

FOLDER = os.environ.get("LABELNOISE_DATA")
PICTURE = Path(__file__).parent.parent / "docs/images/local-errors.svg"
N_CLUSTERED = 50_000
MOST = 20_000  # examples for the errors
SEPARATION = 1.2  # of clusters, in standard deviations by feature


def clustered(K: int, clean: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Features made for clean labels: a Gaussian cluster for each class."""
    rng = np.random.default_rng(0)
    clean = rng.integers(0, K, N_CLUSTERED) if clean is None else clean
    centres = SEPARATION * rng.standard_normal((K, 64))
    return (centres[clean] + rng.standard_normal((len(clean), 64))).astype(np.float32), clean


def data() -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    """Features by name, clean labels, noisy labels by name."""
    if FOLDER:
        where = Path(FOLDER, "cifar10")
        features = {
            name: np.load(where / f"{name}_train.npy").astype(np.float32)
            for name in ("efficientnet_lite2", "resnet18_human_early")
        }
        labels = np.load(where / "cifar10.npz")
        clean = labels["train_clean"].astype(int)
        noisy = {"human": labels["train_human"].astype(int)}
        first = features["efficientnet_lite2"]
    else:
        first, clean = clustered(10)
        features, noisy = {"clusters": first}, {}
    noisy["instance-dependent .4, scale unit"] = instance_dependent(
        first, clean, 0.4, random_state=0
    ).labels
    noisy["symmetric .4 (the same everywhere)"] = symmetric(clean, 0.4, random_state=0).labels
    return features, clean, noisy


def hundred_classes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features made for CIFAR-100's classes, its clean labels and people's (or made) labels."""
    if FOLDER:
        labels = np.load(Path(FOLDER, "cifar100n_labels.npz"))
        clean, noisy = labels["clean"].astype(int), labels["noisy"].astype(int)
        return clustered(100, clean)[0], clean, noisy
    X, clean = clustered(100)
    return X, clean, symmetric(clean, 0.4, random_state=0).labels


def spread(errors: np.ndarray) -> str:
    return f"{errors.mean():.4f} ± {errors.std():.4f}"


def accuracy() -> None:
    features, clean, noisy = data()
    features = {name: X[:MOST] for name, X in features.items()}
    noisy, clean = {kind: y[:MOST] for kind, y in noisy.items()}, clean[:MOST]
    truth = {kind: true_transition_matrix(clean, y, 10) for kind, y in noisy.items()}
    rows, drawn = [], None
    for name, X in features.items():
        for kind, y in noisy.items():
            begin = time.process_time()
            default, triples, _ = found = (
                LocalHOC(random_state=0).fit(X, y),
                LocalHOC(refine=False, random_state=0).fit(X, y),
                LocalHOC.paper(random_state=0).fit(X, y),
            )
            overall = [transition_error(e.global_.transition_matrix_, truth[kind]) for e in found]
            local = [local_errors(est, clean, y) for est in found]
            if drawn is None or (kind == "human" and name == "resnet18_human_early"):
                drawn = local[2], overall[2]
            cells = [f"{value:.4f}" for value in overall] + [spread(errors) for errors in local]
            for est in (default, triples):
                est.transition_matrices_ = np.broadcast_to(
                    est.global_.transition_matrix_, est.transition_matrices_.shape
                )
                cells.append(spread(local_errors(est, clean, y)))
            checks = triples.diagnostics_
            cells.append(f"{checks['coverage'].value:.1%}")
            cells.append(f"{checks['noise clusterability'].value:.2f}")
            rows.append([name, kind, *cells, f"{time.process_time() - begin:.0f}"])
    table(
        f"Errors of T, K = 10, {MOST:,} examples; of 300 local T, mean ± spread over them",
        "features | labels | global, default | global, refine=False | global, paper | "
        "local, default | local, refine=False | local, paper | global default instead | "
        "global refine=False instead | coverage | noise clusterability (1: chance) | CPU s",
        rows,
    )
    print("\nThe paper, on its own features, human labels: global .0970, local .1103 ± .0278.")
    try:
        from matplotlib import pyplot

        from labelnoise.plots import plot_local_errors
    except ImportError:
        return
    pyplot.rcParams["svg.hashsalt"] = "local"  # the same file each time
    ax = pyplot.subplots(figsize=(5, 3), layout="constrained")[1]
    plot_local_errors(*drawn, ax).figure.savefig(PICTURE, metadata={"Date": None})


def named_settings() -> None:
    """Each named setting, from features to matrices."""
    rows = []
    ten = clustered(10)
    for name, (X, clean, y) in {
        "CIFAR-100N's labels, features made for them": hundred_classes(),
        "clusters, symmetric .4": (*ten, symmetric(ten[1], 0.4, random_state=0).labels),
    }.items():
        K = int(clean.max()) + 1
        named = "cifar100" if K == 100 else "cifar10"
        for what, est in (
            (f'LocalHOC.paper("{named}")', LocalHOC.paper(named, random_state=0)),
            ("LocalHOC()", LocalHOC(random_state=0)),
            ("HOC(refine=False)", HOC(refine=False)),
        ):
            begin = time.process_time()
            est.fit(X, y)
            took = time.process_time() - begin
            held = "" if isinstance(est, HOC) else f"{est.diagnostics_['coverage'].value:.1%}"
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            rows.append([name, f"{len(X):,}", str(K), what, f"{took:.0f}", f"{peak:.1f}", held])
    table("Named settings", "data | N | K | estimator | CPU seconds | GiB so far | coverage", rows)


if __name__ == "__main__":
    warnings.simplefilter("ignore", LabelNoiseWarning)
    print(f"# Local transition matrices\n\n{date.today()}, {os.cpu_count()} cores, seed 0.")
    accuracy()
    named_settings()
