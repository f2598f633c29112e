"""Diagnostics: how often is each case recognised, and how often do honest data raise an alarm?

    export LABELNOISE_DATA=...            # as for benchmarks/_data.py
    python benchmarks/diagnostics.py run 0 2 results.jsonl     # part 0 of 2; goes on with a file
    python benchmarks/diagnostics.py table results.jsonl > benchmarks/results/diagnostics.md

Each case is made in six data sets, in three strengths. It is recognised if one of the findings
that are meant for it needs attention (a note included). Where it is not, the difference between the
noise rate that is said and the true one tells what that costs. Thresholds of the checks were chosen
on digits, lite0, tweets and clusters with other seeds and sizes, and on tables.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from _data import data, noisy_labels
from sklearn.decomposition import PCA
from tables import table

from labelnoise import HOC, transition_error
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, symmetric
from labelnoise.scores import true_transition_matrix

SETS = ("digits", "fashion", "lite0", "raters", "satimage", "clusters K=10 N=6000")
N = 1500
Made = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Features, given labels and clean labels."""

INNOCENT = ("clean", "symmetric .1", "symmetric .2", "symmetric .4", "pair .2", "pair .4", "random")
SEEDS = range(4)
KNOWS = {"learnt", "columns"}
COPIED = {"copied labels", "duplicates"}
SINGULAR = {"pairs", "nonsingular", "informative", "classes", "clear"}


def part(name: str, seed: int, n: int = N) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features and clean labels of a random part, and its rows."""
    X, y, _ = data(name)
    rows = np.random.default_rng(seed).permutation(len(y))[:n]
    return np.ascontiguousarray(X[rows]), y[rows], rows


def trained(X: np.ndarray, labels: np.ndarray, epochs: int) -> np.ndarray:
    """Last hidden layer of a small network that was trained on the labels."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = torch.tensor((X - X.mean(axis=0)) / X.std(axis=0).mean(), dtype=torch.float32)
    target = torch.tensor(labels)
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    body = torch.nn.Sequential(linear(X.shape[1], 256), relu(), linear(256, 64), relu())
    head = linear(64, int(labels.max()) + 1)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows)).split(64):
            loss = torch.nn.functional.cross_entropy(head(body(rows[batch])), target[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return body(rows).detach().numpy()


def jittered(X: np.ndarray, rows: np.ndarray, size: float, rng: Any) -> np.ndarray:
    """Rows with normal noise, `size` times the distance of the nearest other row."""
    near = nearest_neighbors(X, 1, "euclidean").indices[:, 0]
    scale = size * np.linalg.norm(X - X[near], axis=1) / np.sqrt(X.shape[1])
    return (X[rows] + scale[rows, None] * rng.standard_normal((len(rows), X.shape[1]))).astype("f4")


def learnt(name: str, epochs: float) -> Made:
    X, y, rows = part(name, 1)
    labels = noisy_labels(name, "symmetric .2", 100)[rows]
    return trained(X, labels, int(epochs)), labels, y


def leak(name: str, scale: float) -> Made:
    X, y, rows = part(name, 1)
    labels = noisy_labels(name, "symmetric .2", 100)[rows]
    size = np.linalg.norm(X, axis=1).mean()
    return np.column_stack([X / size, scale * np.eye(y.max() + 1)[labels]]).astype("f4"), labels, y


def copies(name: str, share: float) -> Made:
    return _repeated(name, 2, share, 0.3)


def jitter(name: str, size: float) -> Made:
    return _repeated(name, 3, 1.0, size)


def _repeated(name: str, times: int, share: float, size: float) -> Made:
    rng = np.random.default_rng(2)
    X, y, rows = part(name, 1, 1000)
    labels = noisy_labels(name, "symmetric .2", 100)[rows]
    some = np.flatnonzero(rng.random(len(y)) < share)
    at = np.concatenate([np.arange(len(y)), *[some] * (times - 1)])
    return jittered(X, at, size, rng), labels[at], y[at]


def frames(name: str, size: float) -> Made:
    rng = np.random.default_rng(2)
    X, y, rows = part(name, 1)
    labels = noisy_labels(name, "symmetric .2", 100)[rows]
    at = np.repeat(np.arange(300), rng.integers(2, 12, 300))
    return jittered(X, at, size, rng), labels[at], y[at]


def smoothed(name: str, k: float) -> Made:
    X, y, rows = part(name, 1)
    votes = np.eye(int(y.max()) + 1)[noisy_labels(name, "symmetric .2", 100)[rows]]
    near = nearest_neighbors(X, int(k)).indices
    return X, (1.01 * votes + votes[near].sum(axis=1)).argmax(axis=1), y


def unrelated(name: str, n: float) -> Made:
    X, y, rows = part(name, 1, int(n))
    labels = noisy_labels(name, "symmetric .2", 100)[rows]
    return X[np.random.default_rng(2).permutation(len(X))], labels, y


def few(name: str, each: float) -> Made:
    X, _, _ = part(name, 1, 400)
    labels = np.random.default_rng(2).permutation(len(X)) // int(each)
    return X, labels, labels


def equal_rows(name: str, apart: float) -> Made:
    X, y, _ = part(name, 1)
    K = int(y.max()) + 1
    T = 0.8 * np.eye(K) + 0.2 / K
    T[:2] = (1 - apart) * T[:2].mean(axis=0) + apart * T[:2]
    return X, class_conditional(y, T, random_state=1).labels, y


def mostly_wrong(name: str, rate: float) -> Made:
    X, y, _ = part(name, 1)
    T = 0.9 * np.eye(int(y.max()) + 1) + 0.1 / (y.max() + 1)
    T[0] = 0
    T[0, :2] = 1 - rate, rate
    return X, class_conditional(y, T, random_state=1).labels, y


def plane(name: str, share: float) -> Made:
    X, y, _ = part(name, 1)
    labels = y.copy()
    own = np.flatnonzero(y == 0)
    side = X[own] @ np.random.default_rng(2).standard_normal(X.shape[1])
    labels[own[side < np.quantile(side, share)]] = 1
    return X, labels, y


def unknown(name: str, share: float) -> Made:
    X, y, rows = part(name, 1)
    labels = noisy_labels(name, "symmetric .2", 100)[rows].astype(str)
    return X, np.where(np.random.default_rng(2).random(len(y)) < share, "n/a", labels), y


def centred(name: str, columns: float) -> Made:
    X, y, rows = part(name, 1)
    labels = noisy_labels(name, "symmetric .2", 100)[rows]
    return PCA(int(columns), random_state=0).fit_transform(X).astype("f4"), labels, y


CASES: dict[str, tuple[Callable[[str, float], Made], tuple[float, ...], set[str]]] = {
    "features of a network after .. epochs on the labels": (learnt, (5, 25, 150), KNOWS),
    "the label as columns of size ..": (leak, (0.3, 1, 3), KNOWS),
    "a share of .. copied once with its label": (copies, (1, 0.3, 0.1), COPIED),
    "each three times, .. of the way to the next": (jitter, (0.0, 0.3, 1), COPIED),
    "2 to 11 frames of a source, moved by ..": (frames, (0.3, 0.7, 1), COPIED),
    "labels that most of .. neighbours have": (smoothed, (2, 5, 10), COPIED | KNOWS),
    "features of other rows, N = ..": (unrelated, (300, 700, 1500), {"basis"}),
    "few: .. examples a class, at random": (few, (1, 2, 3), {"basis"}),
    "two rows of T that are equal but for ..": (equal_rows, (0, 0.1, 0.2), SINGULAR),
    "a class with .. of its labels wrong": (mostly_wrong, (0.5, 0.6, 0.7), SINGULAR),
    "a part .. of a class, cut off by a plane": (
        plane,
        (0.3, 0.5, 0.7),
        SINGULAR | KNOWS | {"dependence"},
    ),
    "a share .. named n/a": (unknown, (0.05, 0.1, 0.3), {"names"}),
    "centred, .. columns, cosine": (centred, (1, 2, 3), {"metric"}),
}


def innocent() -> Iterator[tuple[dict[str, Any], Callable[[], Made]]]:
    """Data in which nothing is wrong but the labels."""

    def made(name: str, kind: str, seed: int, n: int = N) -> Made:
        X, y, rows = part(name, 10 + seed, n)
        return X, y if kind == "clean" else noisy_labels(name, kind, 200 + seed)[rows], y

    def imbalanced(name: str, seed: int) -> Made:
        X, y, _ = part(name, 20 + seed, 3000)
        keep = np.geomspace(1, 0.15, int(y.max()) + 1)[y] > np.random.default_rng(seed).random(
            len(y)
        )
        return X[keep], symmetric(y[keep], 0.2, random_state=seed).labels, y[keep]

    for name in SETS:
        for seed in SEEDS:
            for kind in INNOCENT:
                about = {"data": name, "noise": kind, "seed": seed}
                yield about, lambda a=name, b=kind, c=seed: made(a, b, c)
            about = {"data": name, "noise": "symmetric .2, few examples", "seed": seed}
            yield about, lambda a=name, c=seed: made(a, "symmetric .2", c, 400)
            about = {"data": name, "noise": "symmetric .2, imbalanced", "seed": seed}
            yield about, lambda a=name, c=seed: imbalanced(a, c)
    for name in ("lite0", "lite2"):
        for kind in ("human", "aggregate", "random1", "worst"):
            for seed in range(10):
                about = {"data": name, "noise": f"people's, {kind}", "seed": seed}
                yield about, lambda a=name, b=kind, c=seed: made(a, b, c)
    for seed in range(10):
        about = {"data": "raters", "noise": "people's, one rater", "seed": seed}
        yield about, lambda c=seed: made("raters", "rater", c)


def cells() -> Iterator[tuple[dict[str, Any], Callable[[], Made]]]:
    """All cells, with what makes their data."""
    for case, (make, strengths, _) in CASES.items():
        for name in SETS:
            for strength in strengths:
                about = {"case": case, "data": name, "strength": strength}
                yield about, lambda a=make, b=name, c=strength: a(b, c)
    for name in SETS:
        for kind in ("symmetric .2", "pair .3", "random"):
            about = {"case": "HOC.paper()", "data": name, "strength": kind}

            def made(name: str = name, kind: str = kind) -> Made:
                X, y, rows = part(name, 1)
                return X, noisy_labels(name, kind, 100)[rows], y

            yield about, made
    for about, make in innocent():
        yield {"case": "innocent"} | about, make


def measure(about: dict[str, Any], X: np.ndarray, labels: np.ndarray, y: np.ndarray) -> dict:
    """What the estimate says, and which findings need attention."""
    start = time.perf_counter()
    settings: dict[str, Any] = {"random_state": 0}
    if about["case"] == "HOC.paper()":
        est = HOC.paper(n_rounds=20, sample_size=700, **settings)
    else:
        est = HOC(**settings)
    est.fit(X, labels)
    found = {f.name: f.severity for f in est.diagnostics_ if f.needs_attention}
    result = about | {"said": est.noise_rate_, "shown": est.diagnostics_.estimable}
    values = {f.name: f.value for f in est.diagnostics_ if f.value is not None}
    result |= {"findings": found, "values": values, "seconds": time.perf_counter() - start}
    if labels.dtype == y.dtype and about["case"][:3] != "few":
        K = int(max(labels.max(), y.max())) + 1
        result["true"] = float((labels != y).mean())
        if len(est.classes_) == K:
            T = true_transition_matrix(y, labels, K)
            result["error"] = transition_error(est.transition_matrix_, T)
        if about["case"] != "HOC.paper()":
            low, high = est.confidence_interval().noise_rate
            result["interval"] = [float(low), float(high)]
    return result


def run(which: int, parts: int, path: Path) -> None:
    """Measure the cells of one part that are not in the file yet, in random order."""
    everything = list(cells())
    order = np.random.default_rng(0).permutation(len(everything))[which::parts]
    done = set()
    if path.exists():
        done = {_key(json.loads(line)) for line in path.read_text().splitlines()}
    for i in order:
        about, make = everything[i]
        if _key(about) in done:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = measure(about, *make())
            except ValueError as error:
                result = about | {"refused": str(error)}
        with path.open("a") as file:
            file.write(json.dumps(result) + "\n")


def _key(about: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(about.get(name)) for name in ("case", "data", "noise", "strength", "seed"))


def tables(path: Path) -> None:
    """Print the tables of results/diagnostics.md."""
    by_case = defaultdict(list)
    for line in path.read_text().splitlines():
        result = json.loads(line)
        by_case[result["case"]].append(result)
    print(f"# Diagnostics\n\n{__doc__.split(chr(10) * 2, 2)[2].strip()}")
    measured = sum(map(len, by_case.values()))
    seconds = sum(r.get("seconds", 0.0) for group in by_case.values() for r in group)
    print(
        f"\n{date.today()}, {measured} of {len(list(cells()))} cells of N = {N:,}, {seconds:.0f} s."
    )
    rows = []
    for case, (_, strengths, meant) in CASES.items():
        for strength in strengths:
            made = [r for r in by_case[case] if r["strength"] == strength]
            rows.append([case.replace("..", f"{strength:g}"), *_recognised(made, meant)])
    header = "case | data sets | recognised | any warning | no number | rate: true, said | "
    table("Cases", header + "in the interval | where not recognised: off by", rows)
    rows = []
    honest = by_case["innocent"]
    for noise in dict.fromkeys(r["noise"] for r in honest):
        rows.append([noise, *_alarms([r for r in honest if r["noise"] == noise])])
    rows.append(["**all**", *_alarms(honest)])
    header = "honest data | cells | serious | warnings | notes | error above .2 | of these silent"
    table("Honest data", header, rows)
    for r in honest:
        serious = [name for name, how in r.get("findings", {}).items() if how == "serious"]
        if serious:
            print(f"- {r['data']}, {r['noise']}: {', '.join(serious)}; error {r['error']:.3f}")
    wrong = [r for r in by_case["HOC.paper()"] if "fit" in r.get("findings", {})]
    print(f"\n`HOC.paper()`: 'fit' warns in {len(wrong)} of {len(by_case['HOC.paper()'])} cells.")


def _recognised(cells: list[dict[str, Any]], meant: set[str]) -> list[str]:
    cells = [r for r in cells if "refused" not in r]
    seen = [bool(meant & set(r["findings"])) for r in cells]
    warned = sum(bool(r["findings"]) for r in cells)
    hidden = sum(not r["shown"] for r in cells)
    known = [r for r in cells if "true" in r]
    means = f"{np.mean([r['true'] for r in known]):.3f}, " if known else "-, "
    means += f"{np.mean([r['said'] for r in cells]):.3f}" if cells else "-"
    held = [r["interval"][0] <= r["true"] <= r["interval"][1] for r in known if "interval" in r]
    off = [
        abs(r["said"] - r["true"]) for r, s in zip(cells, seen, strict=True) if not s and r in known
    ]
    return [
        str(len(cells)),
        f"{sum(seen)}",
        f"{warned}",
        f"{hidden}",
        means,
        f"{sum(held)} of {len(held)}" if held else "-",
        ", ".join(f"{x:.2f}" for x in sorted(off)) or "-",
    ]


def _alarms(cells: list[dict[str, Any]]) -> list[str]:
    cells = [r for r in cells if "refused" not in r]
    counts = [
        sum(severity in r["findings"].values() for r in cells)
        for severity in ("serious", "warning", "note")
    ]
    far = [r for r in cells if r.get("error", 0) > 0.2]
    shares = [f"{count} ({count / max(len(cells), 1):.1%})" for count in counts]
    silent = sum(not r["findings"] for r in far)
    return [str(len(cells)), *shares, str(len(far)), str(silent)]


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        tables(Path(sys.argv[2]))
