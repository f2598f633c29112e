"""What each constant and each part of the clean-class model is worth, on tuning cells.

    export LABELNOISE_DATA=...                  # see benchmarks/_data.py
    python benchmarks/ablation.py run           # what is missing; again and again
    python benchmarks/ablation.py render        # benchmarks/results/ablation.md

Each row changes one thing, and shows the mean error of T over the cells of each kind of noise, and
what the change costs there (positive: the model is worse with the change).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from _data import data, noisy_labels
from threadpoolctl import threadpool_limits

from labelnoise import HOC, transition_error
from labelnoise.clean_class import dependence, estimate, evidence, model
from labelnoise.scores import true_transition_matrix

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "ablation.jsonl"
CLASS = ("symmetric .2", "symmetric .4", "symmetric .6", "pair .2", "pair .4", "random T")
INSTANCE = ("instance .2 raw", "instance .4 raw", "instance .6 raw", "instance .4")
OWN = "ablation clusters"
CELLS = [
    *(
        (features, kind)
        for features in ("lite0 N=20000", "lite0 N=5000", "digits", f"{OWN} 1", f"{OWN} 2")
        for kind in (*CLASS, *INSTANCE)
    ),
    *((f"{OWN} {number}", kind) for number in (3, 4) for kind in CLASS[:5]),
    *((f"{OWN} 5", kind) for kind in ("symmetric .2", "symmetric .4", "pair .2")),
    *(
        (f"lite0{size}", kind)
        for size in (" N=20000", " N=5000")
        for kind in ("human", "aggregate", "random1", "worst")
    ),
]
# K, examples, dimensions, distance of the centres, ratio of the largest class to the smallest
CLUSTERS = {1: (10, 12_000, 16, 0.9, 1), 2: (10, 12_000, 16, 1.5, 20), 3: (5, 1500, 10, 1.2, 1),
            4: (3, 3000, 12, 0.8, 1), 5: (2, 3000, 8, 1.0, 1)}  # fmt: skip


def never(*_: Any) -> bool:
    """Stand for a part that is switched off."""
    return False


def one_round(sample: Any, T: Any, expected: Any, step: Callable[[], None]) -> Any:
    """Evidence and the model once, with the triples' T."""
    found, voters = evidence.collect(sample, T, step)
    return found, model.fit(found, model.start_from(found, T), expected), voters


CHANGES: dict[str, list[tuple[Any, str, Any]]] = {
    "as it is": [],
    "one round": [(estimate, "_two_rounds", one_round)],
    "no second start": [(estimate, "UNCLEAR", 1.0)],
    "UNCLEAR .8": [(estimate, "UNCLEAR", 0.8)],
    "first round on all examples": [(estimate, "ENOUGH", 10**9)],
    "first round on a tenth": [(estimate, "ENOUGH", 200)],
    "6 neighbours vote": [(evidence, "VOTERS", 6)],
    "10 neighbours vote": [(evidence, "VOTERS", 10)],
    "2 folds": [(evidence, "FOLDS", 2)],
    "5 folds": [(evidence, "FOLDS", 5)],
    "C .03": [(evidence, "INVERSE_PENALTY", 0.03)],
    "C .3": [(evidence, "INVERSE_PENALTY", 0.3)],
    "C 1": [(evidence, "INVERSE_PENALTY", 1.0)],
    "UNIFORM_SHARE .01": [(evidence, "UNIFORM_SHARE", 0.01)],
    "UNIFORM_SHARE .3": [(evidence, "UNIFORM_SHARE", 0.3)],
    "PRIOR_LABELS .1": [(model, "PRIOR_LABELS", 0.1)],
    "PRIOR_LABELS 10": [(model, "PRIOR_LABELS", 10.0)],
    "never between the ends": [(dependence, "SHOWN", np.inf)],
    "the search for b begins at 0": [(dependence, "START_OF_B", 0.0)],
    "SHOWN 2": [(dependence, "SHOWN", 2.0)],
    "SHOWN 4": [(dependence, "SHOWN", 4.0)],
    "SHOWN 10": [(dependence, "SHOWN", 10.0)],
    "LEAST_EFFECT 0": [(dependence, "LEAST_EFFECT", -np.inf)],
    "LEAST_EFFECT .3": [(dependence, "LEAST_EFFECT", 0.3)],
    "whether classes are clear is ignored": [(dependence, "CLEAR", 0.0)],
    "CLEAR .8": [(dependence, "CLEAR", 0.8)],
    "CLEAREST_SHARE .1": [(dependence, "CLEAREST_SHARE", 0.1)],
    "flat agreement is ignored": [(dependence, "FLAT", -np.inf)],
    "FLAT .05": [(dependence, "FLAT", 0.05)],
}


def examples_of(features: str, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, clean and noisy labels of a cell."""
    if not features.startswith(OWN):
        X, y, _ = data(features)
        return X, y, noisy_labels(features, kind, 0)
    number = int(features.split()[-1])
    K, n, d, apart, ratio = CLUSTERS[number]
    rng = np.random.default_rng(100 + number)
    prior = np.geomspace(1, ratio, K)
    y = rng.choice(K, n, p=prior / prior.sum())
    centres, scale = apart * rng.standard_normal((K, d)), rng.uniform(0.5, 1.5, (K, d))
    X = (centres[y] + scale[y] * rng.standard_normal((n, d))).astype(np.float32)
    return X, y, noisy_labels_of(X, y, kind)


def noisy_labels_of(X: np.ndarray, y: np.ndarray, kind: str) -> np.ndarray:
    """Labels with noise of a kind, for data that have no name in `_data`."""
    with mock.patch("_data.data", return_value=(X, y, None)):
        return noisy_labels("", kind, 0)


def measure(work: tuple[str, str, list[str]]) -> list[dict]:
    """Errors of the changed models in a cell."""
    features, kind, names = work
    X, y, labels = examples_of(features, kind)
    K = int(y.max()) + 1
    truth, results = true_transition_matrix(y, labels, K), []
    for name in names:
        with ExitStack() as stack:
            for where, what, value in CHANGES[name]:
                stack.enter_context(mock.patch.object(where, what, value))
            T = HOC(classes=range(K)).fit(X, labels).transition_matrix_
        cell = {"features": features, "noise": kind, "change": name}
        results.append(cell | {"error": transition_error(T, truth)})
    return results


def run(jobs: int, only: list[str]) -> None:
    """Measure what is missing."""
    warnings.simplefilter("ignore")
    done = {(r["features"], r["noise"], r["change"]) for r in finished()}
    names = only or list(CHANGES)
    work = [(f, k, [c for c in names if (f, k, c) not in done]) for f, k in CELLS]
    for features in dict.fromkeys(f for f, _ in CELLS if not f.startswith(OWN)):
        data(features)
    with mp.get_context("fork").Pool(jobs, threadpool_limits, (1,)) as pool:
        missing = [(f, k, [c]) for f, k, some in work for c in some]
        for results in pool.imap_unordered(measure, missing):
            with RESULTS.open("a") as file:
                file.writelines(json.dumps(result) + "\n" for result in results)


def finished() -> list[dict]:
    """What was measured."""
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


def kind_of(noise: str) -> str:
    """Of which kind a noise is."""
    if noise.startswith("instance"):
        return "instance"
    return "class" if noise in CLASS else "people's"


def render() -> str:
    """A Markdown table: a row for each change."""
    errors: dict[str, dict[tuple, float]] = {}
    for r in finished():
        errors.setdefault(r["change"], {})[r["features"], r["noise"]] = r["error"]
    usual = errors["as it is"]
    kinds = ("class", "instance", "people's")
    lines = [f"# Ablation\n\n{__doc__.partition(chr(10) * 2)[2].partition(chr(10) * 2)[2]}"]
    count = {kind: sum(kind_of(noise) == kind for _, noise in usual) for kind in kinds}
    heads = [f"{kind} ({count[kind]} cells)" for kind in kinds]
    lines += [
        "<!-- --8<-- [start:table] -->\n",
        "| change | " + " | ".join(heads) + " | all |",
        "| --- " * 5 + "|",
    ]
    for change in CHANGES:
        found = errors.get(change, {})
        cells = []
        for chosen in (*((kind,) for kind in kinds), kinds):
            both = [c for c in found if c in usual and kind_of(c[1]) in chosen]
            if not both:
                cells.append("")
                continue
            mean, before = (np.mean([e[c] for c in both]) for e in (found, usual))
            own = change == "as it is"
            cells.append(f"{mean:.4f}" if own else f"{mean:.4f} ({mean - before:+.4f})")
        lines.append(f"| {change} | " + " | ".join(cells) + " |")
    lines.append("\n<!-- --8<-- [end:table] -->")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["run", "render"])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--changes", nargs="*", default=[])
    args = parser.parse_args()
    if args.what == "run":
        run(args.jobs, args.changes)
    else:
        (HERE / "results" / "ablation.md").write_text(render())


if __name__ == "__main__":
    main()
