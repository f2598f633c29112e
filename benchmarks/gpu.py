"""How fast the exact nearest neighbours and T are on a GPU, and whether they are the true ones.

    python benchmarks/gpu.py    # about five minutes on an H200

The features are made on the GPU. Beside ours stand the plain way (products in half precision,
`torch.topk` of each block of rows) and its products alone. Then all of `HOC`, from features on the
host, on the GPU and on the CPU. The last results are in benchmarks/results/gpu.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tables import table

from labelnoise import HOC
from labelnoise.neighbors import nearest_neighbors
from labelnoise.neighbors.cuda import nearest_on_device
from labelnoise.noise import symmetric

SIZES = ((100_000, 512), (1_000_000, 512), (1_000_000, 2048))
# Rows, columns and devices that T is estimated on: a CPU takes long for more.
ESTIMATES = (
    (200_000, 128, ("cuda", "cpu")),
    (1_000_000, 128, ("cuda",)),
    (1_000_000, 512, ("cuda",)),
)
RUNS = 3
SAMPLE = 2000
BLOCK = 8192
GIB = 2**30


def gaussian(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d, device="cuda")


def clusters(n: int, d: int, n_clusters: int = 1000, dimension: int = 24) -> torch.Tensor:
    """Clusters that vary in few directions, with a little noise in all: like real features."""
    X = 0.05 * gaussian(n, d)
    cluster = torch.randint(n_clusters, (n,), device="cuda")
    centres, directions = gaussian(n_clusters, d), gaussian(dimension, d) / dimension**0.5
    for rows in torch.arange(n, device="cuda").split(100_000):
        X[rows] += centres[cluster[rows]] + gaussian(len(rows), dimension) @ directions
    return X


def halved(X: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(X).half()


def products(X: torch.Tensor, k: int) -> None:
    U = halved(X)
    for rows in U.split(BLOCK):
        for columns in U.split(8 * BLOCK):
            rows @ columns.T


def topk(X: torch.Tensor, k: int) -> np.ndarray:
    U = halved(X)
    parts = [(rows @ U.T).topk(k + 1, dim=1).indices[:, 1:] for rows in U.split(BLOCK)]
    return torch.cat(parts).cpu().numpy()


def ours(X: torch.Tensor, k: int) -> np.ndarray:
    return nearest_on_device(X, k).indices


def measured(search: Callable, X: torch.Tensor, k: int, runs: int) -> tuple[float, float, Any]:
    """Median seconds, the most memory it held beside X in GiB, and its result."""
    torch.cuda.reset_peak_memory_stats()
    held, seconds = torch.cuda.memory_allocated(), []
    for _ in range(runs):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        found = search(X, k)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() - held
    torch.cuda.empty_cache()
    return statistics.median(seconds), peak / GIB, found


def recall(found: np.ndarray, X: torch.Tensor, k: int) -> float:
    """Share of the true neighbours of some rows, by float64, that were found."""
    sample = torch.randperm(len(X), device="cuda")[:SAMPLE]
    hits = 0
    for rows in sample.split(250):
        scores = torch.empty(len(rows), len(X), dtype=torch.float64, device="cuda")
        own = torch.nn.functional.normalize(X[rows].double())
        for columns in torch.arange(len(X), device="cuda").split(50_000):
            scores[:, columns] = own @ torch.nn.functional.normalize(X[columns].double()).T
        scores.scatter_(1, rows[:, None], -torch.inf)
        true = scores.topk(k, dim=1).indices
        listed = torch.from_numpy(found[rows.cpu().numpy()]).cuda()
        hits += int((true[:, :, None] == listed[:, None]).any(2).sum())
    return hits / (len(sample) * k)


def check() -> None:
    """From the host and on the device, by both metrics, the neighbours are those of the CPU."""
    X = np.random.default_rng(0).standard_normal((5000, 33)).astype(np.float32)
    for metric in ("cosine", "euclidean"):
        expected = nearest_neighbors(X, 7, metric).indices
        for given in (X, torch.from_numpy(X).cuda()):
            np.testing.assert_array_equal(nearest_on_device(given, 7, metric).indices, expected)


def estimates() -> None:
    """All of `HOC.fit`, features on the host: seconds by device, and how far T is apart."""
    lines = []
    for n, d, devices in ESTIMATES:
        rng = np.random.default_rng(0)
        clean = rng.integers(0, 10, n)
        X = rng.standard_normal((n, d), np.float32)
        X += 0.3 * rng.standard_normal((10, d), np.float32)[clean]
        labels = symmetric(clean, 0.3, random_state=0).labels
        for refine in (False, True):
            seconds, matrices = {"cuda": "", "cpu": ""}, []
            for device in devices:
                begin = time.perf_counter()
                est = HOC(refine=refine, search="exact", device=device).fit(X, labels)
                seconds[device] = f"{time.perf_counter() - begin:.1f}"
                matrices.append(est.transition_matrix_)
            apart = f"{np.abs(matrices[0] - matrices[1]).max():.1g}" if matrices[1:] else ""
            size = f"{n:,} x {d}"
            lines.append([size, f"HOC(refine={refine})", *seconds.values(), apart])
    table(
        "Features on the host to T, K = 10, symmetric .3, seconds",
        "rows | estimator | cuda | cpu | largest difference of T",
        lines,
    )


def main() -> None:
    check()
    torch.manual_seed(0)
    for search in (ours, topk, products):  # libraries are loaded
        search(clusters(40_000, 512), 2)
    lines = []
    for n, d in SIZES:
        for kind, k in ((clusters, 2), (clusters, 18), (gaussian, 2)):
            X = kind(n, d)
            seconds, peak, found = measured(ours, X, k, RUNS)
            line = [f"{n:,} x {d}", kind.__name__, str(k), f"{seconds:.2f}"]
            others, share = ["", "", ""], recall(found, X, k)
            if kind is clusters and k == 2:
                naive, _, listed = measured(topk, X, k, 1)
                alone, _, _ = measured(products, X, k, RUNS)
                others = [f"{naive:.2f}", f"{recall(listed, X, k):.3%}", f"{alone:.2f}"]
            lines.append([*line, f"{share:.3%}", f"{peak:.1f}", *others])
            del X, found
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    table(
        f"Nearest neighbours by cosine, data on the GPU; found: of {SAMPLE:,} rows, by float64",
        "rows | features | k | seconds | found | extra GiB "
        "| product + topk | its found | products alone",
        lines,
    )
    estimates()


if __name__ == "__main__":
    main()
