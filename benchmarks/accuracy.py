"""How near is T: the estimators of this project and their peers, on many data and kinds of noise.

    export LABELNOISE_DATA=...                        # see benchmarks/_data.py
    python benchmarks/_data.py                        # once: data sets that ship inside packages
    python benchmarks/accuracy.py run [--minutes 20]  # what is missing; again and again
    python benchmarks/accuracy.py run --cells unseen  # data that came later; "fresh", last
    python benchmarks/accuracy.py times               # seconds, nothing else running
    python benchmarks/accuracy.py render              # benchmarks/results/accuracy.md

The error is ``||T^ - T||_{1,1} / K`` against the T counted from clean labels. Results are appended
to benchmarks/results/accuracy.jsonl; a cell that is there is not repeated.

Cells for tuning and cells for reporting are kept apart (`TUNING_*`): whoever changes an estimator
may look at the first, and the second are reported as they come. A reporting cell has neither
features nor noise nor seeds of a tuning cell. Unseen cells are of data that came later: nothing was
tuned to them, but what was lost there was taken up. Fresh cells are of tables, and of a network's
features, that came last; a loss that they showed was reproduced and mended on other data.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing as mp
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from _data import PEOPLE, data, noisy_labels
from threadpoolctl import threadpool_limits

from labelnoise import HOC, examples, feasibility, transition_error
from labelnoise.baselines import (
    anchor_points,
    confident_learning,
    dual_t,
    transition_layer,
    volume_minimising,
)
from labelnoise.clean_class.evidence import VOTERS
from labelnoise.clean_class.linear import noisy_posteriors
from labelnoise.neighbors import Neighbors, nearest_neighbors
from labelnoise.scores import true_transition_matrix

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "accuracy.jsonl"
TIMES = HERE / "results" / "accuracy_seconds.json"

TUNING_FEATURES = ("lite0", "digits", "letter")
TUNING_NOISE = ("random1", "symmetric .3", "pair .3")
TUNING_SEEDS = range(5)
REPORT_SEEDS = range(5, 8)

CIFAR_FEATURES = ("lite2", "pixels", "early", "memorised")
OTHER_FEATURES = (
    "mnist", "fashion", "satimage", "news", "clusters K=2", "clusters K=10", "clusters K=30",
    "clusters K=10 overlapping", "clusters K=10 1:20", "clusters K=10 N=2000",
)  # fmt: skip
MANY_CLASSES = ("clusters K=100",)
UNSEEN_FEATURES = (
    "reuters", "magic", "ring", "spambase", "banana", "vowel", "marketing",
    "tweets", "splice", "mushroom", "chess", "page-blocks0",
)  # fmt: skip
OF_TWO_CLASSES = (
    "magic", "ring", "spambase", "banana", "tweets", "mushroom", "chess", "page-blocks0",
)  # fmt: skip
FRESH_FEATURES = (
    "lite1", "waveform", "hypercube", "diamonds", "shuttle", "vehicle",
    "contraceptive",
)  # fmt: skip
ALIKE_FOR_TWO = ("pair .2", "pair .4", "symmetric .6", "symmetric .7")  # as others, or mirrored
SYNTHETIC_NOISE = (
    "symmetric .1", "symmetric .2", "symmetric .4", "symmetric .6", "symmetric .7",
    "pair .2", "pair .4", "pair .45", "random T", "instance .2", "instance .4", "instance .6",
)  # fmt: skip
HUMAN_NOISE = ("human", "aggregate", "worst")
RAW_NOISE = ("instance .2 raw", "instance .4 raw", "instance .6 raw")  # as the paper's code has it
PEOPLES_FEATURES = ("lite0", "lite2", "early")
PEOPLES_SIZES = ("", " N=20000", " N=5000")


@dataclass(frozen=True)
class Cell:
    """A data set, a kind of noise and a seed."""

    features: str
    noise: str
    seed: int


def cells(what: str) -> list[Cell]:
    """Cells for "tuning", for "reporting", or of "unseen" or "fresh" data."""
    if what == "tuning":
        return [
            Cell(features, kind, seed)
            for features in TUNING_FEATURES
            for kind in TUNING_NOISE
            for seed in TUNING_SEEDS
            if kind != "random1" or (features == "lite0" and seed == 0)  # labels that are given
        ]
    first = REPORT_SEEDS[0]
    if what == "people":  # lite0 is for tuning
        return [
            *(
                Cell(features + size, kind, 0)
                for features in PEOPLES_FEATURES
                for size in PEOPLES_SIZES
                for kind in PEOPLE
            ),
            *(Cell(f"lite1{size}", kind, 0) for size in ("", " N=5000") for kind in PEOPLE),
            *(Cell(f"raters{size}", "rater", 0) for size in ("", " N=20000", " N=5000")),
        ]
    if what == "paper":  # lite0 and digits are for tuning
        return [
            *(
                Cell(features, kind, 0)
                for features in ("lite0", "lite2", "early", "fashion", "mnist", "digits")
                for kind in RAW_NOISE
            ),
            *(Cell(features, "paper's .6", 0) for features in ("lite0", "lite2", "early")),
        ]
    if what == "unseen":
        return [
            Cell(features, kind, first)
            for features in UNSEEN_FEATURES
            for kind in SYNTHETIC_NOISE
            # Of two classes, with most labels wrong, no T can be told from its mirror.
            if features not in OF_TWO_CLASSES or kind not in ("symmetric .6", "symmetric .7")
        ]
    if what == "fresh":
        return [
            *(Cell("lite1", kind, first) for kind in HUMAN_NOISE),
            *(
                Cell(features, kind, first)
                for features in FRESH_FEATURES
                for kind in SYNTHETIC_NOISE
                if features != "shuttle" or kind not in ALIKE_FOR_TWO
            ),
        ]
    return [
        *(Cell(features, kind, first) for features in CIFAR_FEATURES for kind in HUMAN_NOISE),
        *(
            Cell(features, kind, seed)
            for seed in REPORT_SEEDS
            for features in (*CIFAR_FEATURES, *OTHER_FEATURES)
            for kind in SYNTHETIC_NOISE
        ),
        *(
            Cell(features, kind, seed)
            for seed in REPORT_SEEDS
            for features in MANY_CLASSES
            for kind in ("symmetric .2", "symmetric .4", "pair .4", "CIFAR-100N")
        ),
    ]


def remember_neighbors() -> None:
    """Search the neighbours of each data set once: seconds are without that, for all estimators."""
    found: dict[tuple, Neighbors] = {}

    def search(X: np.ndarray, n_neighbors: int, metric: str, **_: object) -> Neighbors:
        key = X.__array_interface__["data"][0], X.shape, n_neighbors, metric
        if key not in found:
            found[key] = nearest_neighbors(X, n_neighbors, metric)
        return found[key]

    examples.nearest_neighbors = search


# Estimators: functions of features, labels, the number of classes, neighbours and posteriors.

ESTIMATORS: dict[str, Callable[..., np.ndarray | HOC]] = {
    "no noise": lambda X, y, K, near, P: np.eye(K),
    "paper": lambda X, y, K, near, P: (
        HOC.paper(n_rounds=10, sample_size=min(15_000, len(X)), random_state=0, classes=range(K))
        .fit(X, y)
        .transition_matrix_
    ),
    "triples": lambda X, y, K, near, P: (
        HOC(classes=range(K)).fit(None, y, neighbors=near).transition_matrix_
    ),
    "HOC()": lambda X, y, K, near, P: HOC(classes=range(K)).fit(X, y),
    "cleanlab": lambda X, y, K, near, P: confident_learning(P, y),
    "anchors": lambda X, y, K, near, P: anchor_points(P),
    "Dual-T": lambda X, y, K, near, P: dual_t(P, y),
    "T-layer": lambda X, y, K, near, P: transition_layer(X, y, K),
    "VolMin": lambda X, y, K, near, P: volume_minimising(X, y, K),
}
SHOWN_ESTIMATORS = ("HOC()", "triples", "paper", "cleanlab", "T-layer")
SHOWN = {
    ("lite2", "human"): ("CIFAR-10, EfficientNet-lite2", "people's, 15.5% wrong"),
    ("lite2", "worst"): ("", "people's, 40% wrong"),
    ("lite2", "symmetric .4"): ("", "symmetric .4"),
    ("lite2", "pair .4"): ("", "pair .4"),
    ("early", "human"): ("CIFAR-10, a network trained on these labels", "people's, 15.5% wrong"),
    ("early", "worst"): ("CIFAR-10, a network trained on others", "people's, 40% wrong"),
    ("early", "symmetric .4"): ("", "symmetric .4"),
    ("mnist", "pair .4"): ("MNIST, pixels", "pair .4"),
    ("mnist", "instance .4"): ("", "instance-dependent .4"),
    ("fashion", "symmetric .2"): ("Fashion-MNIST, pixels", "symmetric .2"),
    ("satimage", "symmetric .7"): ("satimage, a table", "symmetric .7"),
    ("clusters K=10 1:20", "random T"): ("10 clusters, classes 1:20", "random T"),
}
README, MARK = HERE.parent / "README.md", "<!-- written by benchmarks/accuracy.py render -->"
OF_THE_DATA = {"duplicates", "near duplicates"}  # findings that are not of T
PEERS = ("cleanlab", "anchors", "Dual-T", "T-layer", "VolMin")


def run(what: str, minutes: float, names: list[str], jobs: int, only: list[str]) -> None:
    """Do what is missing, for so many minutes, in so many processes of one thread each."""
    warnings.simplefilter("ignore")
    remember_neighbors()
    deadline = time.time() + 60 * minutes
    done = {(r["features"], r["noise"], r["seed"], r["estimator"]) for r in finished()}
    missing = {
        cell: [n for n in names if (cell.features, cell.noise, cell.seed, n) not in done]
        for cell in cells(what)
        if not only or cell.features in only
    }
    missing = {cell: some for cell, some in missing.items() if some}
    # Processes are forked, with data and neighbours in their memory already.
    for features in dict.fromkeys(cell.features for cell in missing):
        X, _, _ = data(features)
        examples.nearest_neighbors(X, min(VOTERS, len(X) - 1), "cosine")
        print(features, X.shape, flush=True)
    context = mp.get_context("fork")
    with context.Pool(jobs, threadpool_limits, (1,)) as pool:
        work = ((cell, some, deadline) for cell, some in missing.items())
        for results in pool.imap_unordered(measure, work):
            with RESULTS.open("a") as file:
                file.writelines(json.dumps(result) + "\n" for result in results)
            for result in results:
                print(*list(result.values())[:6], flush=True)


def measure(work: tuple[Cell, list[str], float]) -> list[dict]:
    """Some estimators' errors in a cell; none when time is up."""
    cell, names, deadline = work
    if time.time() > deadline:
        return []
    X, y, near = data(cell.features)
    labels = noisy_labels(cell.features, cell.noise, cell.seed)
    K = int(y.max()) + 1
    truth, results = true_transition_matrix(y, labels, K), []
    asks = any(name in ("cleanlab", "anchors", "Dual-T") for name in names)
    P = noisy_posteriors(X, labels, K) if asks else None
    for name in names:
        begin, doubts = time.perf_counter(), None
        try:
            found = ESTIMATORS[name](X, labels, K, near, P)
            seconds = time.perf_counter() - begin
            T = getattr(found, "transition_matrix_", found)
            error, failure = transition_error(T, truth), None
            if isinstance(found, HOC):
                doubts = [f.name for f in found.diagnostics_ if not f.ok]
        except Exception as problem:  # a peer that cannot answer is a result too
            error, failure = None, f"{type(problem).__name__}: {problem}"
            seconds = time.perf_counter() - begin
        result = {
            **asdict(cell),
            "estimator": name,
            "error": error,
            "seconds": round(seconds, 2),
            "failure": failure,
            "doubts": doubts,
            "noise_rate": float((labels != y).mean()),
            "feasible": feasibility(y, near),
        }
        results.append(result)
    return results


def times() -> None:
    """Seconds of each estimator on the tuning data, neighbours and posteriors left out of all."""
    warnings.simplefilter("ignore")
    remember_neighbors()
    found: dict[str, dict[str, float]] = {}
    for features in TUNING_FEATURES:
        cell = Cell(features, "symmetric .3", 0)
        X, y, near = data(features)
        labels = noisy_labels(cell.features, cell.noise, cell.seed)
        K = int(y.max()) + 1
        P = noisy_posteriors(X, labels, K)
        examples.nearest_neighbors(X, min(VOTERS, len(X) - 1), "cosine")
        row = found.setdefault(f"{features}: {len(X):,} x {X.shape[1]}, K={K}", {})
        for name, estimate in ESTIMATORS.items():
            begin = time.perf_counter()
            estimate(X, labels, K, near, P)
            row[name] = round(time.perf_counter() - begin, 2)
        print(features, row, flush=True)
    TIMES.write_text(json.dumps(found, indent=1) + "\n")


def finished() -> list[dict]:
    """What was measured."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def render() -> str:
    """A Markdown page: a summary, a table for reporting cells, one for tuning cells."""
    out = io.StringIO()
    print(f"# Accuracy\n\n{__doc__.split(chr(10) * 2)[0]}", file=out)
    results = finished()
    print(few(results), file=out)
    titles = {
        "people": "People's labels",
        "paper": "Instance-dependent labels as the paper makes them",
        "reporting": "Cells for reporting",
        "fresh": "Fresh cells",
        "unseen": "Unseen cells",
        "tuning": "Cells for tuning",
    }
    for what, title in titles.items():
        keys = {(c.features, c.noise, c.seed) for c in cells(what)}
        chosen = [r for r in results if (r["features"], r["noise"], r["seed"]) in keys]
        if what != "tuning":
            print(f"\n<!-- --8<-- [start:{what}] -->", file=out)
            print(summary(chosen, what), file=out)
            print(f"\n<!-- --8<-- [end:{what}] -->", file=out)
        if what == "reporting":
            print(time_table(), file=out)
        names = [n for n in ESTIMATORS if any(r["estimator"] == n for r in chosen)]
        print(f"\n## {title}\n\nMean error over seeds (worst in brackets).\n", file=out)
        print("| features | noise | " + " | ".join(names) + " |", file=out)
        print("| --- " * (len(names) + 2) + "|", file=out)
        for features, kind in dict.fromkeys((r["features"], r["noise"]) for r in chosen):
            row = list(_row(chosen, features, kind, names))
            print(f"| {features} | {kind} | " + " | ".join(row) + " |", file=out)
    return out.getvalue()


def few(results: list[dict]) -> str:
    """Rows that README and the pages show, the nearest in bold."""
    lines = [
        "\n<!-- --8<-- [start:few] -->\n",
        "| features | labels | " + " | ".join(SHOWN_ESTIMATORS) + " |",
        "| --- " * (2 + len(SHOWN_ESTIMATORS)) + "|",
    ]
    for (features, kind), title in SHOWN.items():
        keys = {(c.features, c.noise, c.seed) for c in cells("reporting")}
        chosen = [r for r in results if (r["features"], r["noise"], r["seed"]) in keys]
        row = [cell.split(" ")[0] for cell in _row(chosen, features, kind, SHOWN_ESTIMATORS)]
        best = min((cell for cell in row if cell), default="")
        row = [f"**{cell}**" if cell == best else cell or "not run" for cell in row]
        lines.append("| " + " | ".join([*title, *row]) + " |")
    return "\n".join([*lines, "\n<!-- --8<-- [end:few] -->"])


def summary(results: list[dict], what: str) -> str:
    """How the default compares with the best peer of each cell, and with each peer."""
    of_cell: dict[tuple, dict[str, float]] = {}
    doubts = {
        (r["features"], r["noise"], r["seed"]): set(r["doubts"]) - OF_THE_DATA
        for r in results
        if r.get("doubts") is not None
    }
    for r in results:
        error = np.inf if r["error"] is None else r["error"]
        of_cell.setdefault((r["features"], r["noise"], r["seed"]), {})[r["estimator"]] = error
    measured = set.intersection(*map(set, of_cell.values()))
    peers = [p for p in PEERS if p in measured]
    full = {c: e for c, e in of_cell.items() if {"HOC()", *peers} <= e.keys()}
    if not (full and peers):
        return "\nHOC() was not measured with its present form.\n"
    others = {"the best peer of the cell": [min(e[p] for p in peers) for e in full.values()]}
    others |= {p: [e.get(p) for e in full.values()] for p in (*peers, "triples", "paper")}
    others = {name: errors for name, errors in others.items() if None not in errors}
    ours = np.array([e["HOC()"] for e in full.values()])
    lines = [
        f"\nHOC() against others in {len(full)} {what} cells (features, noise and seed):\n",
        "| other | not worse in | at most 1.3 times in | geometric mean of ours / its | "
        "its mean error (ours) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, errors in others.items():
        theirs = np.array(errors)
        ratio, known = ours / theirs, np.isfinite(theirs)
        lines.append(
            f"| {name} | {np.mean(ratio <= 1):.0%} | {np.mean(ratio <= 1.3):.0%} | "
            f"{np.exp(np.log(ratio[known]).mean()):.2f} | "
            f"{theirs[known].mean():.3f} ({ours[known].mean():.3f}) |"
        )
    of_best = ours / np.array(others["the best peer of the cell"])
    for chosen, which in ((of_best > 1.3, "above"), (of_best <= 1.3, "at most")):
        known = [
            doubts[c]
            for c, is_chosen in zip(full, chosen, strict=True)
            if is_chosen and c in doubts
        ]
        lines.append(
            f"\nOf {len(known)} cells {which} 1.3 times the best peer's error, a finding says in "
            f"{sum(map(bool, known))} that T may be wrong."
        )
    lines += ["\nAgainst the best peer of the cell, by features:\n"]
    lines += ["| features | cells | not worse in | at most 1.3 times in |", "| --- " * 4 + "|"]
    of = np.array([c[0] for c in full])
    for features in dict.fromkeys(of.tolist()):
        some = of_best[of == features]
        lines.append(f"| {features} | {len(some)} | {(some <= 1).sum()} | {(some <= 1.3).sum()} |")
    return "\n".join(lines)


def time_table() -> str:
    """What an estimate costs beyond neighbours and posteriors."""
    found = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    lines = [
        "\n## Seconds, without the search for neighbours and without posteriors\n",
        "| data | " + " | ".join(ESTIMATORS) + " |",
        "| --- " * (len(ESTIMATORS) + 1) + "|",
    ]
    for name, seconds in found.items():
        lines.append(f"| {name} | " + " | ".join(f"{s:.1f}" for s in seconds.values()) + " |")
    return "\n".join(lines)


def _row(results: list[dict], features: str, kind: str, names: list[str]) -> Iterator[str]:
    for name in names:
        errors = [
            np.inf if r["error"] is None else r["error"]
            for r in results
            if (r["features"], r["noise"], r["estimator"]) == (features, kind, name)
        ]
        if not errors:
            yield ""
        elif len(errors) == 1:
            yield f"{errors[0]:.3f}"
        else:
            yield f"{np.mean(errors):.3f} ({max(errors):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["run", "times", "render"])
    parser.add_argument(
        "--cells",
        choices=["tuning", "reporting", "unseen", "fresh", "people", "paper"],
        default="reporting",
    )
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--features", nargs="*", default=[], help="by default all of these cells")
    parser.add_argument("--estimators", nargs="*", default=list(ESTIMATORS))
    args = parser.parse_args()
    if args.what == "run":
        run(args.cells, args.minutes, args.estimators, args.jobs, args.features)
    elif args.what == "times":
        times()
    else:
        page = render()
        (HERE / "results" / "accuracy.md").write_text(page)
        before, *_, after = README.read_text().split(MARK)
        table = page.partition("[start:few] -->")[2].partition("<!--")[0].strip()
        README.write_text(f"{before}{MARK}\n\n{table}\n\n{MARK}{after}")


if __name__ == "__main__":
    main()
