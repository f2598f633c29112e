"""Who is near whom in a million rows: nearly all of the nearest neighbours, in little time.

Rows are gathered in cells around centres that k-means finds in a sample. A row is then compared
with the members of its nearest cells only. That is a few matrix products for each cell, on which a
processor is at its best: a graph search (faiss HNSW) of the same recall took longer, and needs a
package. Where rows are wide, candidates are found by their principal components.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from labelnoise._blocks import row_blocks, thread_count
from labelnoise.neighbors import Best, Points, Progress, nearest_among, settle

_CELLS = 4  # for the square root of the number of rows
_PROBED = 128  # cells that a row is compared with
_SAMPLE = 32  # rows for each cell, that k-means sees
_ROUNDS = 6
_BLOCK = 4096  # rows that are worked on together, and the most members compared at once
_WIDEST = 192  # columns that are compared as they are
_COMPONENTS = 128  # and how many components stand for more
_COMPONENTS_FROM = 20_000  # rows
_CHECKED = 1000  # rows that are searched exactly, to see how many neighbours were found
_CHECKED_OF_SOURCES = 100  # where it takes longer
_SPARE = 2  # candidates beyond those asked for
_SPARE_OF_COMPONENTS = 1.0  # and for each asked for, if components were compared


def approximate_candidates(
    points: Points, count: int, sources: np.ndarray | None, progress: Progress | None
) -> np.ndarray:
    """(n, `count` or a few more) rows that are probably nearest; -1 where there are too few.

    Of the row's own source there are none.
    """
    rng = np.random.default_rng(0)
    sketch = _Sketch(points, rng)
    n = len(points.X)
    n_cells = min(round(_CELLS * n**0.5), n, 2**16)
    count += _SPARE + round(count * _SPARE_OF_COMPONENTS * sketch.shorter)
    some = np.sort(rng.permutation(n)[: _SAMPLE * n_cells])
    centres = find_centres(sketch.near[some], n_cells, rng)
    blocks = list(row_blocks(n, n_cells))
    threads = thread_count()
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
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
    most = _CHECKED if sources is None else _CHECKED_OF_SOURCES
    rows = np.sort(np.random.default_rng(0).permutation(n)[:most])
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
        self.shorter = d > _WIDEST
        axes = None
        if self.shorter:
            some = points.exact(np.sort(rng.permutation(n)[:_COMPONENTS_FROM]))
            axes = np.linalg.eigh(some.T @ some)[1][:, -_COMPONENTS:]
        self.near = np.empty((n, _COMPONENTS if self.shorter else d), np.float32)
        for rows in row_blocks(n, d):
            exact = points.exact(rows)
            self.near[rows] = exact if axes is None else exact @ axes
        self.half_square = None
        if not points.cosine:
            self.half_square = np.einsum("nd,nd->n", self.near, self.near) / 2


def centre_scores(near: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Scores that order centres by their distance."""
    scores: np.ndarray = near @ centres.T
    scores -= (centres * centres).sum(axis=1) / 2
    return scores


def find_centres(
    near: np.ndarray, count: int, rng: np.random.Generator, rounds: int = _ROUNDS
) -> np.ndarray:
    """Centres by a few rounds of k-means; one that nobody is near stays where it was."""
    centres = near[rng.permutation(len(near))[:count]]
    for _ in range(rounds):
        blocks = row_blocks(len(near), count)
        cell = np.concatenate([centre_scores(near[rows], centres).argmax(1) for rows in blocks])
        ones = np.ones(len(near), np.float32)
        members = sp.csr_array((ones, (cell, np.arange(len(near)))), shape=(count, len(near)))
        size = np.bincount(cell, minlength=count)[:, None]
        centres = np.where(size > 0, members @ near / np.maximum(size, 1), centres)
        centres = centres.astype(np.float32)
    return centres


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
                to_beat = np.maximum(to_beat, best.reached(scores))
            row, column = np.divmod(np.flatnonzero(scores > to_beat[:, None]), len(members))
            found, owner = members[column], at[row]
            other = name[found] != name[rows[owner]]
            best.add(owner[other], found[other], scores[row[other], column[other]])
    best.merge()
    return best.index
