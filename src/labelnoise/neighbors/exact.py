"""Exact nearest neighbours on the CPU: tiles of the matrix of scores.

The matrix is symmetric, so only the tiles on and above its diagonal are computed. A tile is
compared with the worst candidate so far of each of its rows and columns; few scores beat it, so
the cost is hardly more than that of half a matrix product. Rows of near cells, compared first, say
how good a candidate has to be. Where few principal components hold most of the rows, a tile has
upper bounds of the scores, by these components, in place of scores (`labelnoise.neighbors.bounds`).
Candidates are found in float32 and ranked again in float64.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

import numpy as np

from labelnoise._blocks import one_blas_thread, row_blocks, thread_count
from labelnoise.neighbors.best import Best, reached
from labelnoise.neighbors.bounds import Bounds, bounds_that_pay
from labelnoise.neighbors.cells import ROWS_OF_A_CELL, centre_scores, find_centres
from labelnoise.neighbors.points import SPARE, Points, Progress, shaped

TILE = 1024
_CELL = 256  # rows of a cell, on average


def exact_neighbors(
    points: Points, k: int, tile: int, progress: Progress | None
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of each row, and their gaps."""
    everyone = np.arange(len(points.X))
    candidates, worst = _candidates(points, min(k + SPARE, len(everyone) - 1), tile, progress)
    indices, gap = rank_in_threads(points, everyone, candidates, k)
    again = np.flatnonzero(points.unsettled(gap[:, -1], worst))
    settle(points, everyone, again, indices, gap, slice(0, len(everyone)))
    return indices, gap


def rank_in_threads(
    points: Points, rows: np.ndarray, candidates: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """`Points.rank`, a part of the rows in each thread."""
    threads = thread_count()
    parts = np.array_split(np.arange(len(rows)), threads)
    with ThreadPoolExecutor(threads) as pool:
        ranked = pool.map(lambda part: points.rank(rows[part], candidates[part], k), parts)
        indices, gap = (np.concatenate(found) for found in zip(*ranked, strict=True))
    return indices, gap


def _candidates(
    points: Points, count: int, tile: int, progress: Progress | None
) -> tuple[np.ndarray, np.ndarray]:
    """The `count` best of each row by float32 score, unordered, and the worst score kept."""
    n, threads = len(points.X), thread_count()
    tile = min(tile, n)
    starts = range(0, n, tile)
    total, done, lock = len(starts) * (len(starts) + 1) // 2, 0, Lock()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        least = _reached_nearby(points, count, pool)
        bounds = bounds_that_pay(points, least)
        best = [Best(min(tile, n - i), count, least[i : i + tile]) for i in starts]
        rooms = [_Room(tile, bounds) for _ in range(threads)]

        def work(a: int, b: int, earlier: list[Future[None]]) -> None:
            nonlocal done
            for future in earlier:
                future.result()
            room = rooms.pop()
            blocks = [slice(i * tile, min((i + 1) * tile, n)) for i in (a, b)]
            _compare(points, bounds, blocks, (best[a], best[b]), room)
            rooms.append(room)
            with lock:
                done += 1
                if progress:
                    progress(done, total)

        # A block takes part in one tile at a time and in a fixed order: then threads change
        # nothing. Tiles of one round share no blocks.
        last: dict[int, Future[None]] = {}
        for turn in range(len(starts)):
            for a in range(len(starts)):
                b = (turn - a) % len(starts)
                if a <= b:
                    earlier = [last[i] for i in (a, b) if i in last]
                    last[a] = last[b] = pool.submit(work, a, b, earlier)
        for future in last.values():
            future.result()
        list(pool.map(Best.merge, best))
    index = np.concatenate([found.index for found in best])
    return index.astype(np.intp), np.concatenate([found.worst for found in best])


class _Room:
    """Arrays that one thread uses again and again."""

    def __init__(self, tile: int, bounds: Bounds | None) -> None:
        self.scores = np.empty(tile * tile, np.float32)
        self.beats = np.empty((2, tile * tile), bool)
        self.rest = np.empty(0, np.float32) if bounds is None else bounds.room()


def _compare(
    points: Points,
    bounds: Bounds | None,
    blocks: list[slice],
    best: tuple[Best, Best],
    room: _Room,
) -> None:
    """Keep the scores of a tile that beat the worst of their row or of their column."""
    rows, columns = blocks
    if bounds is None:
        scores = points.scores(rows, columns, room.scores)
    else:
        scores = bounds.scores(rows, columns, room.scores)
    beats, beats_column = (shaped(some, *scores.shape) for some in room.beats)
    np.greater(scores, best[0].worst[:, None], out=beats)
    within = rows == columns
    if within:
        np.fill_diagonal(beats, False)
    else:
        np.greater(scores, best[1].worst, out=beats_column)
        np.logical_or(beats, beats_column, out=beats)
    place = np.flatnonzero(beats)
    row = place // scores.shape[1]
    column = place - row * scores.shape[1]
    score = scores.ravel()[place]
    if bounds is not None:
        bounds.make_exact(score, rows.start + row, columns.start + column, room.rest)
    best[0].add(row, columns.start + column, score)
    if not within:
        best[1].add(column, rows.start + row, score)


def _reached_nearby(points: Points, count: int, pool: ThreadPoolExecutor) -> np.ndarray:
    """A score (n,) that the `count` best of each row are above, as those in near cells are."""
    n = len(points.X)
    rng, n_cells = np.random.default_rng(0), -(-n // _CELL)
    some = np.sort(rng.permutation(n)[: ROWS_OF_A_CELL * n_cells])
    centres = find_centres(points.rounded(some), n_cells, rng)
    assigned = pool.map(
        lambda rows: centre_scores(points.rounded(rows), centres).argmax(1),
        row_blocks(n, n_cells + points.X.shape[1]),
    )
    cell = np.concatenate(list(assigned))
    order = np.argsort(cell, kind="stable")
    members = np.split(order, np.searchsorted(cell[order], np.arange(1, n_cells)))
    size = np.array([len(rows) for rows in members])
    compared = max(TILE, 4 * count)
    least = np.full(n, -np.inf, np.float32)

    def work(own: int) -> None:
        nearest = np.argsort(-centre_scores(centres[[own]], centres)[0], kind="stable")
        enough = int(np.searchsorted(np.cumsum(size[nearest]), compared)) + 1
        columns = np.concatenate([members[other] for other in nearest[:enough]])[:compared]
        for block in row_blocks(len(members[own]), compared):
            rows = members[own][block]
            scores = points.scores(rows, columns)
            scores[rows[:, None] == columns] = -np.inf
            least[rows] = reached(scores, count)

    list(pool.map(work, range(n_cells)))
    return least - np.float32(points.float32_error())


def nearest_among(
    points: Points, rows: np.ndarray, columns: slice, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of each of some rows among the columns, exactly, and their gaps."""
    count, threads = min(k + SPARE, columns.stop - columns.start), thread_count()

    def work(some: np.ndarray) -> Best:
        best, buffer = Best(len(some), count), np.empty(len(some) * TILE, np.float32)
        for start in range(columns.start, columns.stop, TILE):
            tile = slice(start, min(start + TILE, columns.stop))
            scores = points.scores(some, tile, buffer)
            own = np.flatnonzero((some >= tile.start) & (some < tile.stop))
            scores[own, some[own] - start] = -np.inf
            if start == columns.start:
                best.worst = reached(scores, count)
            best.scan(scores, start)
        best.merge()
        return best

    step = min(TILE, -(-len(rows) // threads))
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        best = list(pool.map(work, [rows[at : at + step] for at in range(0, len(rows), step)]))
    candidates = np.concatenate([found.index for found in best]).astype(np.intp)
    worst = np.concatenate([found.worst for found in best])
    indices, gap = rank_in_threads(points, rows, candidates, k)
    settle(points, rows, np.flatnonzero(points.unsettled(gap[:, -1], worst)), indices, gap, columns)
    return indices, gap


def nearest_of_sources(
    points: Points, k: int, sources: np.ndarray, progress: Progress | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest of each of the k nearest other sources of each row, and their gaps."""
    everyone = np.arange(len(points.X))
    indices, gap, _ = _by_all(points, everyone, k, everyone, sources, progress=progress)
    # Another row of a source that was found may be nearer than the one that was.
    again = np.flatnonzero(points.uncertain(gap).any(axis=1))
    settle(points, everyone, again, indices, gap, slice(0, len(everyone)), sources)
    return indices, gap


def settle(
    points: Points,
    rows: np.ndarray,
    again: np.ndarray,
    indices: np.ndarray,
    gap: np.ndarray,
    columns: slice,
    sources: np.ndarray | None = None,
) -> None:
    """Search in float64 for the neighbours of some of the rows, in place."""
    if len(again):
        others, k = np.arange(columns.start, columns.stop), indices.shape[1]
        indices[again], gap[again], _ = _by_all(
            points, rows[again], k, others, sources, double=True
        )


def _by_all(
    points: Points,
    rows: np.ndarray,
    k: int,
    columns: np.ndarray,
    sources: np.ndarray | None,
    *,
    double: bool = False,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The k nearest of some rows by their scores with all columns; their gaps, the worst score."""
    indices, gap = np.empty((len(rows), k), np.intp), np.empty((len(rows), k))
    worst = np.empty(len(rows))
    if sources is not None:
        columns = columns[np.argsort(sources[columns], kind="stable")]
        name, begin = np.unique(sources[columns], return_index=True)
    rows_of = points.exact if double else points.rounded
    blocks = list(row_blocks(len(rows), len(columns)))

    def work(block: slice) -> None:
        some, own = rows[block], rows_of(rows[block])
        scores = np.empty((len(own), len(columns)), own.dtype)
        for part in row_blocks(len(columns), own.shape[1]):
            other = rows_of(columns[part])
            scores[:, part] = own @ other.T
            if not points.cosine:
                scores[:, part] -= np.einsum("nd,nd->n", other, other) / 2
        if not points.cosine:
            scores -= np.einsum("nd,nd->n", own, own)[:, None] / 2
        scores[some[:, None] == columns] = -np.inf
        if sources is None:
            place = max(0, len(columns) - k - SPARE)
            top = np.argpartition(scores, place, axis=1)[:, place:]
        else:
            scores[sources[some][:, None] == sources[columns]] = -np.inf
            top = _best_of_sources(scores, begin, min(k + SPARE, len(name) - 1))
        score = np.take_along_axis(scores, top, 1)
        worst[block] = score.min(axis=1)
        candidates = np.where(score > -np.inf, columns[top], -1)
        indices[block], gap[block] = points.rank(some, candidates, k)

    threads = thread_count()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for done, _ in enumerate(pool.map(work, blocks)):
            if progress:
                progress(done + 1, len(blocks))
    return indices, gap, worst


def _best_of_sources(scores: np.ndarray, begin: np.ndarray, count: int) -> np.ndarray:
    """The best column of each of the `count` best sources of a row, which begin at `begin`."""
    best = np.maximum.reduceat(scores, begin, axis=1)
    top = np.argpartition(best, len(begin) - count, axis=1)[:, -count:]
    wanted = np.full(best.shape, np.inf, scores.dtype)
    np.put_along_axis(wanted, top, np.take_along_axis(best, top, 1), 1)
    size = np.diff(begin, append=scores.shape[1])
    at, column = np.nonzero(scores >= np.repeat(wanted, size, axis=1))
    source = np.searchsorted(begin, column, side="right")
    _, first = np.unique(at * len(begin) + source, return_index=True)
    return column[first].reshape(len(scores), count)
