"""Who is near whom in a million rows: nearly all of the nearest neighbours, in little time.

Rows are gathered in cells around centres that k-means finds in a sample. A row is then compared
with the members of its nearest cells only. That is a few matrix products for each cell, on which a
processor is at its best: a graph search (faiss HNSW) of the same recall took longer, and needs a
package. Where rows are wide, candidates are found by their principal components.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from labelnoise._blocks import one_blas_thread, row_blocks, thread_count
from labelnoise.neighbors.best import Best, reached
from labelnoise.neighbors.cells import ROWS_OF_A_CELL, centre_scores, find_centres
from labelnoise.neighbors.exact import nearest_among, rank_in_threads, settle
from labelnoise.neighbors.given import first_neighbors
from labelnoise.neighbors.points import SPARE, Neighbors, Points, Progress

_CELLS = 4  # for the square root of the number of rows
_PROBED = 128  # cells that a row is compared with
_BLOCK = 4096  # rows that are worked on together, and the most members compared at once
_COMPONENTS = 128  # that stand for the columns, if there are more
_CHECKED = 500  # rows that are searched exactly, to see how many neighbours were found


def approximate_neighbors(
    points: Points, k: int, sources: np.ndarray | None, progress: Progress | None
) -> tuple[np.ndarray, np.ndarray]:
    """Probably the k nearest of each row, and their gaps; of different sources, if these are given.

    Rows of which fewer were found are searched exactly.
    """
    everyone = np.arange(len(points.X))
    candidates = _candidates(points, k, sources, progress)
    indices, gap = rank_in_threads(points, everyone, candidates, candidates.shape[1])
    enough = gap[:, k - 1] < np.inf
    if sources is not None:
        (indices, _), enough = first_neighbors(Neighbors(indices, None), k, sources=sources)
        gap = points.gap(everyone, indices)
    indices, gap = indices[:, :k].astype(np.intp), gap[:, :k]
    settle(
        points, everyone, np.flatnonzero(~enough), indices, gap, slice(0, len(everyone)), sources
    )
    return indices, gap


def _candidates(
    points: Points, count: int, sources: np.ndarray | None, progress: Progress | None
) -> np.ndarray:
    """(n, `count` or a few more) rows that are probably nearest; -1 where there are too few.

    Of the row's own source there are none.
    """
    rng = np.random.default_rng(0)
    sketch = _Sketch(points, rng)
    n = len(points.X)
    n_cells = min(round(_CELLS * n**0.5), n, 2**16)
    count = SPARE + (2 * count if sketch.shorter else count)
    some = np.sort(rng.permutation(n)[: ROWS_OF_A_CELL * n_cells])
    centres = find_centres(sketch.near[some], n_cells, rng)
    blocks = list(row_blocks(n, n_cells))
    threads = thread_count()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        nearest = pool.map(lambda rows: centre_scores(sketch.near[rows], centres).argmax(1), blocks)
        cell = np.concatenate(list(nearest))
        # Cells that lie together follow each other, so that rows of a block probe the same ones.
        region = find_centres(centres, n // _BLOCK + 1, rng)
        place = np.argsort(np.argsort(centre_scores(centres, region).argmax(1), kind="stable"))
        centres, cell = centres[np.argsort(place)], place[cell]
        order = np.argsort(cell, kind="stable")
        begin = np.searchsorted(cell[order], np.arange(n_cells + 1))
        blocks = [slice(first, first + _BLOCK) for first in range(0, n, _BLOCK)]
        result = np.empty((n, count), np.int32)

        def work(block: slice) -> None:
            rows = order[block]
            result[rows] = _nearest_in_cells(sketch, rows, centres, order, begin, count, sources)

        for done, _ in enumerate(pool.map(work, blocks)):
            if progress:
                progress(done + 1, len(blocks))
    return result


def found_share(
    X: np.ndarray, neighbors: np.ndarray, metric: str, sources: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Rows of a sample, their exact neighbours (rows, k), and what share of these was found.

    A neighbour as near as an exact one is as good.
    """
    points, (n, k) = Points(X, metric, copy=False), neighbors.shape
    rows = np.sort(np.random.default_rng(0).permutation(n)[:_CHECKED])
    if sources is None:
        exact, gap = nearest_among(points, rows, slice(0, n), k)
    else:
        exact, gap = np.empty((len(rows), k), np.intp), np.empty((len(rows), k))
        settle(points, rows, np.arange(len(rows)), exact, gap, slice(0, n), sources)
    found = points.gap(rows, neighbors[rows]) <= gap[:, -1:]
    return rows, exact, float(found.mean())


class _Sketch:
    """All rows in float32: as they are, or their principal components if they are wide."""

    def __init__(self, points: Points, rng: np.random.Generator) -> None:
        n, d = points.X.shape
        self.shorter = d > _COMPONENTS
        axes = None
        if self.shorter:
            some = points.exact(np.sort(rng.permutation(n)[: _COMPONENTS**2]))
            axes = np.linalg.eigh(some.T @ some)[1][:, -_COMPONENTS:]
        self.near = np.empty((n, _COMPONENTS if self.shorter else d), np.float32)
        for rows in row_blocks(n, d):
            exact = points.exact(rows)
            self.near[rows] = exact if axes is None else exact @ axes
        self.half_square = None
        if not points.cosine:
            self.half_square = np.einsum("nd,nd->n", self.near, self.near) / 2


def _nearest_in_cells(
    sketch: _Sketch,
    rows: np.ndarray,
    centres: np.ndarray,
    order: np.ndarray,
    begin: np.ndarray,
    count: int,
    sources: np.ndarray | None,
) -> np.ndarray:
    """(rows, count) best candidates among the members of each row's nearest cells."""
    near, half_square = sketch.near[rows], sketch.half_square
    name = np.arange(len(order)) if sources is None else sources
    probed = min(_PROBED, len(centres))
    scores = centre_scores(near, centres)
    cells = np.argpartition(scores, len(centres) - probed, axis=1)[:, -probed:].ravel()
    by_cell = np.argsort(cells.astype(np.uint16), kind="stable")  # which is a radix sort
    ends = np.searchsorted(cells[by_cell], np.arange(len(centres) + 1))
    best = Best(len(rows), count)
    # First the cells that most rows look into: then there is something to beat.
    for cell in np.argsort(ends[:-1] - ends[1:], kind="stable"):
        at = by_cell[ends[cell] : ends[cell + 1]] // probed
        for first in range(begin[cell], begin[cell + 1] if len(at) else 0, _BLOCK):
            members = order[first : min(first + _BLOCK, begin[cell + 1])]
            scores = near[at] @ sketch.near[members].T
            if half_square is not None:
                scores -= half_square[members]
            to_beat = best.worst[at]
            if to_beat.min() == -np.inf:
                scores[name[rows[at]][:, None] == name[members]] = -np.inf
                to_beat = np.maximum(to_beat, reached(scores, count))
            row, column = np.divmod(np.flatnonzero(scores > to_beat[:, None]), len(members))
            found, owner = members[column], at[row]
            other = name[found] != name[rows[owner]]
            best.add(owner[other], found[other], scores[row[other], column[other]])
    best.merge()
    return best.index
