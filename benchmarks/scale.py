"""How time, memory and error grow with examples and classes, on one machine without a GPU.

Each cell is measured in a process of its own, on features that are memory-mapped, and added to
benchmarks/results/scale.jsonl; a cell that is there is not measured again. Features are synthetic:
a curved surface of 16 dimensions in 128, with a little noise off it.

    python benchmarks/scale.py                  # about an hour on two cores
    python benchmarks/scale.py size solve       # only these parts; table prints and draws them

The last results are in benchmarks/results/scale.md.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from tables import table

from labelnoise import HOC, Consensus, LabelNoiseWarning, transition_error
from labelnoise.solvers import solve
from labelnoise.solvers.triples import draw_triples

RESULTS = Path(__file__).parent / "results" / "scale.jsonl"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "scale.svg"
D, LATENT, HIDDEN = 128, 16, 256
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000)
LARGEST_EXACT = 100_000
CLASSES = (2, 10, 100, 1000)


def confusing(K: int, rng: np.random.Generator) -> np.ndarray:
    """T with 70% right labels, 25% among up to five other classes, and 5% anywhere."""
    T = 0.7 * np.eye(K) + 0.05 / K
    for i in range(K):
        T[i, rng.choice(K, min(5, K), replace=False)] += 0.25 / min(5, K)
    return T


def data(folder: str, n: int, K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in a file, noisy labels, and the T that made them."""
    rng = np.random.default_rng(0)
    centres = 2.0 * rng.standard_normal((K, LATENT))
    inner = rng.standard_normal((LATENT, HIDDEN)) / 8
    outer = rng.standard_normal((HIDDEN, D)) / 16
    clean, T = rng.integers(0, K, n), confusing(K, rng)
    X = np.lib.format.open_memmap(f"{folder}/X.npy", "w+", np.float32, (n, D))
    for start in range(0, n, 50_000):
        place = centres[clean[start : start + 50_000]]
        place = place + rng.standard_normal(place.shape)
        X[start : start + 50_000] = np.tanh(place @ inner) @ outer
        X[start : start + 50_000] += 0.05 * rng.standard_normal((len(place), D))
    noisy = (np.cumsum(T, axis=1)[clean] < rng.random((n, 1))).sum(axis=1)
    X.flush()
    return np.load(f"{folder}/X.npy", mmap_mode="r"), noisy, T


def measure(cell: dict) -> dict:
    """Seconds (of the clock, and of all threads), most memory in GiB, and the error of T."""
    K = cell["K"]
    with tempfile.TemporaryDirectory() as folder:
        if cell["part"] == "solve":
            T = confusing(K, np.random.default_rng(0))
            drawn = draw_triples(T, np.full(K, 1 / K), cell["n"], np.random.default_rng(1))
            consensus = Consensus.from_labels(drawn, K)
        else:
            X, y, T = data(folder, cell["n"], K)
        begin, busy = time.perf_counter(), time.process_time()
        found: dict = {}
        if cell["part"] == "solve":
            estimate = solve(consensus).transition_matrix
            found["distinct"] = len(consensus.sorted_triples()[1])
        else:
            est = HOC(refine=cell["refine"], search=cell["search"]).fit(X, y)
            estimate = est.transition_matrix_
            if "search" in est.diagnostics_:
                found["recall"] = est.diagnostics_["search"].value
        found["seconds"] = time.perf_counter() - begin
        found["busy"] = time.process_time() - busy
        found["gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        found["error"] = transition_error(estimate, T)
    return cell | found


def cells(part: str) -> list[dict]:
    if part == "solve":
        return [{"part": part, "n": n, "K": 1000} for n in (320_000, 1_280_000)]
    if part == "classes":
        return [
            {"part": part, "n": 100_000, "K": K, "search": "auto", "refine": False} for K in CLASSES
        ]
    return [
        {"part": "size", "n": n, "K": 10, "search": search, "refine": refine}
        for n in SIZES
        for refine in (False, True)
        for search in ("exact", "approximate")
        if search == "approximate" or n <= LARGEST_EXACT
    ]


def known() -> list[dict]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def run(part: str) -> None:
    for cell in cells(part):
        if any(cell.items() <= done.items() for done in known()):
            continue
        command = [sys.executable, __file__, "cell", json.dumps(cell)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        with RESULTS.open("a") as file:
            file.write(output)
        print(output, end="", flush=True)


def report() -> None:
    done = known()
    for refine in (False, True):
        rows = [c for c in done if c["part"] == "size" and c["refine"] == refine]
        if not rows:
            continue
        table(
            f"Features to T, d = {D}, K = 10, HOC(refine={refine})",
            "N | search | seconds | busy seconds | peak GiB | found of the nearest | error of T",
            [
                [
                    f"{c['n']:,}",
                    c["search"],
                    f"{c['seconds']:.0f}",
                    f"{c['busy']:.0f}",
                    f"{c['gib']:.2f}",
                    f"{c.get('recall', 1):.2%}",
                    f"{c['error']:.4f}",
                ]
                for c in sorted(rows, key=lambda c: (c["n"], c["search"]))
            ],
        )
        for search in ("exact", "approximate"):
            some = [c for c in rows if c["search"] == search and c["n"] >= 30_000]
            if len(some) > 1:
                n, busy, gib = (np.log([c[name] for c in some]) for name in ("n", "busy", "gib"))
                growth = [np.polyfit(n, value, 1)[0] for value in (busy, gib)]
                print(f"\n{search}: time grows as N^{growth[0]:.2f}, memory as N^{growth[1]:.2f}.")
    for part, what in (("classes", "Features to T"), ("solve", "T from triples")):
        rows = [c for c in done if c["part"] == part]
        if not rows:
            continue
        table(
            f"{what}, by classes",
            "N | K | seconds | busy seconds | peak GiB | error of T",
            [
                [
                    f"{c['n']:,}",
                    str(c["K"]),
                    f"{c['seconds']:.0f}",
                    f"{c['busy']:.0f}",
                    f"{c['gib']:.2f}",
                    f"{c['error']:.4f}",
                ]
                for c in rows
            ],
        )
    draw([c for c in done if c["part"] == "size"])


def draw(rows: list[dict]) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "labelnoise"
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for panel, (name, title) in zip(
        panels,
        (("busy", "processor seconds, of both cores together"), ("gib", "peak GiB")),
        strict=True,
    ):
        for search, colour in (("exact", "#4477aa"), ("approximate", "#ee8866")):
            for refine, style in ((False, "--"), (True, "-")):
                some = [c for c in rows if c["search"] == search and c["refine"] == refine]
                some.sort(key=lambda c: c["n"])
                values = [c[name] for c in some]
                label = f"{search}{', refined' if refine else ''}"
                n = [c["n"] for c in some]
                panel.loglog(n, values, style, marker="o", color=colour, label=label)
        panel.set(xlabel="examples", title=title)
    panels[0].legend(frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    warnings.simplefilter("ignore", LabelNoiseWarning)
    asked = sys.argv[1:] or ["size", "classes", "solve", "table"]
    if asked[0] == "cell":
        print(json.dumps(measure(json.loads(asked[1]))))
    else:
        for name in asked:
            report() if name == "table" else run(name)
