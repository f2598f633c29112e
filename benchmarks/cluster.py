"""How the search over shards scales: measured with local workers, and worked out for 64 machines.

    python benchmarks/cluster.py scaling   # one machine; then one worker to one for each core
    python benchmarks/cluster.py plan      # 100M x 768 on 64 machines: arithmetic and simulation

The last results are in benchmarks/results/cluster.md.
"""

from __future__ import annotations

import heapq
import os
import sys
import tempfile
import time
from math import ceil, log
from pathlib import Path

import numpy as np
from tables import table

from labelnoise._blocks import thread_count
from labelnoise.distributed import local_cluster, nearest_in_shards
from labelnoise.io.shards import Shards
from labelnoise.neighbors import nearest_neighbors
from labelnoise.neighbors.cluster import Nearest

GFLOPS = 40.0  # of one core, all that a comparison does counted in: `scaling` measured 52
TILE_BYTES, K_NEAREST = 2**28, 2


def written(X: np.ndarray, folder: str, shards: int = 8) -> Shards:
    Path(folder).mkdir()
    for number, rows in enumerate(np.array_split(X, shards)):
        np.save(f"{folder}/part-{number}.npy", rows)
    return Shards(folder)


def scaling() -> None:
    n, d = 40_000, 512
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    returned = 0
    add = Nearest.add

    def counted(self: Nearest, row: np.ndarray, *pairs: np.ndarray) -> None:
        nonlocal returned
        returned += len(row)
        add(self, row, *pairs)

    Nearest.add = counted  # type: ignore[method-assign]
    begin = time.perf_counter(), time.process_time()
    expected = nearest_neighbors(X, K_NEAREST).indices
    alone = time.perf_counter() - begin[0]
    here = f"nearest_neighbors, {thread_count()} threads of this process"
    rows = [[here, f"{alone:.1f}", f"{time.process_time() - begin[1]:.1f}", "", "", "", ""]]
    with tempfile.TemporaryDirectory() as folder:
        shards = written(X, f"{folder}/shards")
        for workers in range(1, len(os.sched_getaffinity(0)) + 1):
            with local_cluster(workers) as client:
                nearest_in_shards(Shards(f"{folder}/shards/part-0.npy"))  # all is imported
                before, returned = sum(client.run(time.process_time).values()), 0
                begin_here = time.perf_counter()
                found = nearest_in_shards(shards, K_NEAREST)
                seconds = time.perf_counter() - begin_here
                work = sum(client.run(time.process_time).values()) - before
                most = max(client.run(peak_memory).values())
            tiles = ceil(4 * workers**0.5)
            flops = (n / tiles) ** 2 * d * 2 * (tiles * (tiles - 1) / 2 + tiles / 2)
            row = (
                f"{workers} worker{'s' * (workers > 1)}",
                f"{seconds:.1f}",
                f"{work:.1f}",
                f"{flops / work / 1e9:.0f}",
            )
            same = f"{np.mean(found == expected):.4%}"
            rows.append([*row, f"{returned / n:.1f}", f"{most:.0f}", same])
    table(
        f"Exact {K_NEAREST}-NN by cosine, {n:,} x {d}",
        "method | seconds | CPU seconds | GFLOP per CPU second | pairs returned for each row | "
        "largest worker, MB | same neighbours",
        rows,
    )


def peak_memory() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plan(n: int = 10**8, d: int = 768, machines: int = 64, cores: int = 32) -> None:
    """All from counts; a machine of 32 cores, 128 GB and 12.5 Gbit/s at 1.5 dollars an hour."""
    tile_rows = TILE_BYTES // (4 * d)
    tiles = ceil(n / tile_rows)
    columns = []
    centers = 10**6
    for pairs, halves, rows in (
        (tiles * (tiles + 1) // 2, tiles, n),
        (ceil(centers / tile_rows) * tiles, 0, centers),
    ):
        each = 2.0 * tile_rows**2 * d
        seconds, twice = simulated(pairs, each / GFLOPS / 1e9, machines * cores)
        read = 2 * TILE_BYTES * pairs
        limits = pairs * 2 * tile_rows * 4
        entries = rows * K_NEAREST * (1 + log(tiles)) * 24
        columns.append(
            {
                "comparisons of two tiles": f"{pairs:,}",
                "FLOP": f"{each * (pairs - halves / 2):.1e}",
                "seconds for one comparison": f"{each / GFLOPS / 1e9:.0f}",
                "hours": f"{seconds / 3600:.1f}",
                "dollars": f"{machines * seconds / 3600 * 1.5:,.0f}",
                "TB read from the store": f"{read / 1e12:.0f}",
                "Gbit/s for each machine": f"{read / seconds / machines * 8 / 1e9:.1f}",
                "GB from the client (limits)": f"{limits / 1e9:.0f}",
                "GB to the client (pairs found)": f"{entries / 1e9:.0f}",
                "MB/s at the client": f"{(limits + entries) / seconds / 1e6:.0f}",
                "calls a second at the scheduler": f"{pairs / seconds:.0f}",
                "comparisons begun twice": f"{twice}",
            }
        )
    table(
        f"{n:,} x {d} float32 ({4e-9 * n * d:.0f} GB) on {machines} machines of {cores} cores: "
        f"{tiles:,} tiles of {tile_rows:,} rows",
        "what | all rows | a million centres",
        [[what, *(column[what] for column in columns)] for what in columns[0]],
    )
    table(
        "Memory, whatever N is (but on the client)",
        "where | what | GB",
        [
            ["worker, one core", "8 tiles", f"{8 * TILE_BYTES / 1e9:.1f}"],
            ["machine", f"{cores} workers", f"{cores * 8 * TILE_BYTES / 1e9:.0f}"],
            [
                "client",
                "N x k numbers and gaps, labels, keys",
                f"{n * (K_NEAREST * 16 + 16) / 1e9:.1f}",
            ],
        ],
    )


def simulated(
    calls: int, seconds: float, workers: int, overhead: float = 0.002, lifetime: float = 500.0
) -> tuple[float, int]:
    """Wall time of all calls, and how many were done twice as their machine of 32 workers died.

    The scheduler hands out one call in `overhead` seconds, calls take a tenth more or less, each
    machine dies after `lifetime` hours on average and is back after ten minutes.
    """
    rng = np.random.default_rng(0)
    length = seconds * (1 + 0.1 * rng.standard_normal(100_003)).clip(0.5, 2)
    free = [(0.0, worker) for worker in range(workers)]
    machines = max(1, workers // 32)
    deaths = [rng.exponential(3600 * lifetime) for _ in range(machines)]
    now, left, lost, last = 0.0, calls, 0, 0.0
    while left:
        ready, worker = heapq.heappop(free)
        now = max(now + overhead, ready)
        end, machine = now + length[left % len(length)], worker % machines
        if now < deaths[machine] <= end:
            lost += 1
            heapq.heappush(free, (deaths[machine] + 600, worker))
            continue
        if deaths[machine] < now - 600:
            deaths[machine] = now + rng.exponential(3600 * lifetime)
        left -= 1
        last = max(last, end)
        heapq.heappush(free, (end, worker))
    return last, lost


if __name__ == "__main__":
    for name in sys.argv[1:] or ("scaling", "plan"):
        {"scaling": scaling, "plan": plan}[name]()
