"""Who is near whom: exact nearest neighbours of a data set within itself.

The data are compared with themselves, so the matrix of similarities is symmetric and only the
tiles on and above its diagonal are computed. A tile is scanned once along its rows and once
along its columns for values that beat the worst candidate so far; few do, so the cost is
hardly more than that of half a matrix product. Candidates are found in float32 and ranked
again in float64; a row for which float32 cannot tell is searched again in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

from labelnoise._blocks import BLOCK_BYTES, CACHE_BYTES, row_blocks
from labelnoise._errors import LabelNoiseError

METRICS = ("cosine", "euclidean")

_TILE = 2048
_SPARE = 2  # candidates kept beyond k, so that float64 can correct the order of float32
_FLOAT32_ERROR = 2e-6  # of a score between rows of norm 1 and 500 columns, with room to spare
_FLOAT64_ERROR = 1e-14  # the same, relative to the norms
_MOST_TIES = 512  # among more that float64 products cannot tell apart, so many are looked at
_SAME_DIRECTION = 1e-28  # squared distance of unit rows that differ by rounding alone

Progress = Callable[[int, int], None]


class Neighbors(NamedTuple):
    """The nearest neighbours of each example, nearest first."""

    indices: np.ndarray
    """(N, k) row numbers; an example is never its own neighbour."""
    distances: np.ndarray | None
    """(N, k) distances, ``1 - cosine`` or Euclidean; None where they are not known."""


def nearest_neighbors(
    X: np.ndarray,
    n_neighbors: int = 2,
    metric: str = "cosine",
    *,
    progress: Progress | None = None,
    tile: int = _TILE,
) -> Neighbors:
    """Find each row's nearest other rows, exactly.

    Parameters
    ----------
    X : array of shape (N, d)
        Finite numbers.
    n_neighbors : int
        How many neighbours, fewer than N.
    metric : {"cosine", "euclidean"}
        A zero vector has no direction: its cosine with every row, another zero row included,
        is taken as 0.
    progress : callable, optional
        Called as ``progress(tiles_done, tiles)``.
    tile : int
        Rows in a tile. It changes speed and memory, not the result.

    Returns
    -------
    Neighbors
        Equal distances are ordered by row number, counted from the row itself and around the
        end: were it from 0, all copies of a row would have the same few neighbours. Identical
        rows are at distance 0 from each other and are legal neighbours; the row itself is left
        out by its number.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> nearest_neighbors(X, 1).indices.ravel().tolist()
    [1, 0, 3, 2]
    """
    n, k = len(X), n_neighbors
    if metric not in METRICS:
        raise LabelNoiseError(f"Expected metric to be one of {METRICS}, but metric = {metric!r}")
    if not 1 <= k < n:
        raise LabelNoiseError(
            f"Expected 1 <= n_neighbors < n_samples, but n_neighbors = {k}, n_samples = {n}"
        )
    points = Points(np.asanyarray(X), metric)
    if not np.isfinite(points.near).all():
        raise LabelNoiseError("Expected finite features, but X contains NaN or infinity")
    candidates, worst = _candidates(points, min(k + _SPARE, n - 1), tile, progress)
    indices, gap = _rank(points, np.arange(n), candidates, k)

    # A row is settled when its k-th neighbour is clearly nearer than anything left out.
    error = _FLOAT32_ERROR * max(1.0, (points.X.shape[1] / 500) ** 0.5)
    unsettled = np.flatnonzero(points.score(gap[:, -1]) <= worst + error)
    if candidates.shape[1] < n - 1:
        for rows in np.array_split(unsettled, len(unsettled) * n * 8 // BLOCK_BYTES + 1):
            if not len(rows):
                continue
            ties = _candidates_float64(points, rows, k)
            indices[rows], gap[rows] = _rank(points, rows, ties, k)
    return Neighbors(indices, points.distance(gap))


def given_neighbors(
    neighbors: Any, n: int, n_neighbors: int, usable: np.ndarray | None = None
) -> Neighbors:
    """Check neighbours that were found elsewhere, and keep the first `n_neighbors` of each row.

    Accepts row numbers of shape (n, k), nearest first, or a sparse (n, n) graph whose stored
    values are distances (as made by scikit-learn's ``kneighbors_graph`` or kept by cleanlab).
    An example that is listed as its own neighbour is left out. Those that are not `usable` (n,)
    stand behind the others, as they would not be found in a search among the usable ones.
    """
    if sp.issparse(neighbors):
        candidates, distances = _from_graph(neighbors, n, n_neighbors)
    else:
        try:
            candidates, distances = np.asarray(neighbors), None
        except ValueError as error:
            raise LabelNoiseError(
                f"Expected neighbors of shape (n_samples, k), but rows differ in length: {error}"
            ) from error
        if candidates.ndim != 2 or len(candidates) != n:
            raise LabelNoiseError(
                f"Expected neighbors of shape (n_samples, k), but neighbors has shape "
                f"{candidates.shape}, n_samples = {n}"
            )
        if not np.issubdtype(candidates.dtype, np.integer):
            raise LabelNoiseError(
                f"Expected neighbors to be row numbers (integers) or a sparse graph, "
                f"but their type is {candidates.dtype}"
            )
        if candidates.size and (candidates.min() < 0 or candidates.max() >= n):
            raise LabelNoiseError(
                f"Expected neighbors between 0 and n_samples - 1 = {n - 1}, but they range from "
                f"{candidates.min()} to {candidates.max()}"
            )
    other = (candidates != np.arange(n)[:, None]) & (candidates >= 0)
    behind = np.zeros(n, bool) if usable is None else ~usable
    first = np.argsort(2 * ~other + behind[candidates], axis=1, kind="stable")[:, :n_neighbors]
    short = np.flatnonzero(other.sum(axis=1) < n_neighbors)
    if len(short):
        raise LabelNoiseError(
            f"Expected at least {n_neighbors} neighbors of each example besides itself, but row "
            f"{short[0]} has {other[short[0]].sum()} ({len(short)} such rows)"
        )
    indices = np.take_along_axis(candidates, first, 1).astype(np.intp)
    ordered = np.sort(indices, axis=1)
    twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(twice):
        raise LabelNoiseError(
            f"Expected distinct neighbors in each row, but row {twice[0]} is "
            f"{indices[twice[0]].tolist()} ({len(twice)} such rows)"
        )
    if distances is not None:
        distances = np.take_along_axis(distances, first, 1)
    return Neighbors(indices, distances)


def _from_graph(graph: Any, n: int, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers and distances, nearest first, padded with -1 where rows differ in length."""
    graph = graph.tocsr()
    if graph.shape != (n, n):
        raise LabelNoiseError(
            f"Expected a graph of shape (n_samples, n_samples), but it has shape {graph.shape}, "
            f"n_samples = {n}"
        )
    if graph.nnz and not (np.isfinite(graph.data).all() and graph.data.min() >= 0):
        raise LabelNoiseError("Expected distances >= 0 in the graph, but some are negative or NaN")
    if graph.nnz > n * (n_neighbors + 1) and (graph.data == graph.data[0]).all():
        raise LabelNoiseError(
            f"Expected distances in the graph, to choose {n_neighbors} neighbors of each example, "
            f"but all values are {graph.data[0]}: make it with mode='distance'"
        )
    row = np.repeat(np.arange(n), np.diff(graph.indptr))
    order = np.lexsort((graph.indices, graph.data, row))
    place = np.arange(len(row)) - graph.indptr[row]
    width = int(np.diff(graph.indptr).max(initial=0))
    candidates = np.full((n, width), -1, np.intp)
    distances = np.full((n, width), np.inf)
    candidates[row, place] = graph.indices[order]
    distances[row, place] = graph.data[order]
    return candidates, distances


class Points:
    """Rows prepared for comparison: unit rows for cosine, else centred and of norm at most 1.

    A *gap* is the squared distance of two such rows. A *score* is what a matrix product gives
    and orders like it: the cosine, or ``-gap / 2``.
    """

    def __init__(self, X: np.ndarray, metric: str) -> None:
        self.X = X
        self.cosine = metric == "cosine"
        self.shift = np.zeros(X.shape[1])
        if self.cosine:
            norm = np.concatenate(
                [_norm(X[rows]) for rows in row_blocks(len(X), X.shape[1], CACHE_BYTES)]
            )
        else:
            # Distances do not see a common shift, but rounding does. The median of some rows is
            # in the middle of the data whatever outliers there are.
            some = X[:: max(1, len(X) // 1000)]
            self.shift = np.median(some.astype(np.float64), axis=0)
            largest = max(
                _norm(X[rows] - self.shift).max()
                for rows in row_blocks(len(X), X.shape[1], CACHE_BYTES)
            )
            norm = np.full(len(X), largest)
        self.zero = norm == 0
        self.scale = np.where(self.zero, 1.0, norm)[:, None]
        self.near = np.empty(X.shape, np.float32)
        for rows in row_blocks(len(X), X.shape[1], CACHE_BYTES):
            self.near[rows] = self.exact(rows)
        self.half_square = np.zeros((len(X), 1), np.float32)
        for rows in row_blocks(len(X), X.shape[1], CACHE_BYTES) if not self.cosine else ():
            near = self.near[rows].astype(np.float64)
            self.half_square[rows, 0] = (near * near).sum(axis=1) / 2

    def exact(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows in float64."""
        return (self.X[rows] - self.shift) / self.scale[rows]

    def scores(self, rows: slice, columns: slice, out: np.ndarray) -> np.ndarray:
        """Scores between two blocks of rows, in float32, written into `out`."""
        a, b = self.near[rows], self.near[columns]
        tile = np.matmul(a, b.T, out=out[: len(a), : len(b)])
        if not self.cosine:
            tile -= self.half_square[rows]
            tile -= self.half_square[columns].T
        return tile

    def bounds_float64(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the scores of some rows with all others.

        The rounding error of a product is relative to the norms of its rows.
        """
        a = self.exact(rows)
        low, high = (np.empty((len(rows), len(self.X))) for _ in range(2))
        for columns in row_blocks(*self.X.shape):
            b = self.exact(columns)
            score = a @ b.T
            size = ((a * a).sum(1)[:, None] + (b * b).sum(1)) / 2
            if not self.cosine:
                score -= size
            size *= _FLOAT64_ERROR
            np.subtract(score, size, out=low[:, columns])
            np.add(score, size, out=high[:, columns])
        place = np.arange(len(rows)), rows
        low[place] = high[place] = -np.inf
        return low, high

    def gap(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Squared distance of each row to its listed others, in float64.

        Computed pair by pair: it does not depend on what else is in the block.
        """
        result = np.empty(others.shape)
        for block in row_blocks(len(rows), others.shape[1] * self.X.shape[1], CACHE_BYTES):
            difference = self.exact(rows[block])[:, None] - self.exact(others[block])
            result[block] = (difference * difference).sum(axis=2)
        if self.cosine:
            result[self.zero[rows][:, None] | self.zero[others]] = 2.0
        # Distances that are equal on paper differ by rounding: make them ties again.
        mantissa, exponent = np.frexp(np.where(result < _SAME_DIRECTION, 0, result))
        return np.ldexp(np.round(mantissa * 2.0**38), exponent - 38)

    def score(self, gap: np.ndarray) -> np.ndarray:
        """The score of a gap."""
        return 1 - gap / 2 if self.cosine else -gap / 2

    def distance(self, gap: np.ndarray) -> np.ndarray:
        """The distance, in the units of the data, of a gap."""
        return gap / 2 if self.cosine else np.sqrt(gap) * self.scale[0, 0]


def _norm(rows: np.ndarray) -> np.ndarray:
    """Norms of rows, also of values whose squares a double cannot hold."""
    rows = rows.astype(np.float64)
    largest = np.abs(rows).max(axis=1)
    largest[largest == 0] = 1
    return largest * np.linalg.norm(rows / largest[:, None], axis=1)


def _rank(
    points: Points, rows: np.ndarray, candidates: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest candidates of each row, and their gaps, by float64; ties by next number."""
    gap = points.gap(rows, candidates)
    gap[candidates < 0] = np.inf
    ahead = (candidates - rows[:, None]) % len(points.X)
    order = np.lexsort((ahead, gap), axis=1)[:, :k]
    return np.take_along_axis(candidates, order, 1), np.take_along_axis(gap, order, 1)


def _candidates(
    points: Points, count: int, tile: int, progress: Progress | None
) -> tuple[np.ndarray, np.ndarray]:
    """The `count` best of each row by float32 score, unordered, and the worst score kept."""
    n = len(points.X)
    tile = min(tile, n)
    best = np.full((n, count), -np.inf, np.float32)
    index = np.full((n, count), -1, np.intp)
    worst = np.full(n, -np.inf, np.float32)
    blocks = [slice(i, min(i + tile, n)) for i in range(0, n, tile)]
    total = len(blocks) * (len(blocks) + 1) // 2
    done = 0
    lock = Lock()

    def keep(rows: np.ndarray, at: np.ndarray, column: np.ndarray, score: np.ndarray) -> None:
        """Merge new scores, each with its place in `rows` and its column, into the best."""
        owner = np.concatenate([np.repeat(np.arange(len(rows)), count), at])
        score = np.concatenate([best[rows].ravel(), score])
        column = np.concatenate([index[rows].ravel(), column])
        order = np.lexsort((-score, owner))
        owner = owner[order]
        rank = np.arange(len(owner)) - np.searchsorted(owner, np.arange(len(rows)))[owner]
        order = order[rank < count].reshape(len(rows), count)
        best[rows] = score[order]
        index[rows] = column[order]
        worst[rows] = best[rows, -1]

    def scan(beats: np.ndarray, scores: np.ndarray, rows: slice, columns: slice, by: int) -> None:
        """Keep what beats the worst candidate of its row (by = 0) or of its column (by = 1)."""
        to_beat = worst[(rows, columns)[by]]
        np.greater(scores, to_beat if by else to_beat[:, None], out=beats)
        flat = np.flatnonzero(beats)
        found = np.divmod(flat, scores.shape[1])
        owner, at = np.unique(found[by], return_inverse=True)
        with lock:
            keep(
                owner + (rows, columns)[by].start,
                at,
                found[1 - by] + (columns, rows)[by].start,
                scores[found],
            )

    def work(pair: tuple[slice, slice]) -> None:
        nonlocal done
        rows, columns = pair
        buffer, mask = buffers.pop()
        scores = points.scores(rows, columns, buffer)
        beats = mask[: scores.shape[0], : scores.shape[1]]
        if rows == columns:
            np.fill_diagonal(scores, -np.inf)
            if len(scores) > 2 * count:
                # At least `count` scores of a row reach the least maximum of `count` parts of it.
                part = np.linspace(0, len(scores), count, endpoint=False).astype(int)
                reached = np.maximum.reduceat(scores, part, axis=1).min(axis=1)
                worst[rows] = np.nextafter(reached, np.float32(-np.inf))
            scan(beats, scores, rows, columns, 0)
        else:
            scan(beats, scores, rows, columns, 0)
            scan(beats, scores, rows, columns, 1)
        buffers.append((buffer, mask))
        with lock:
            done += 1
            if progress:
                progress(done, total)

    threads = max((library["num_threads"] for library in threadpool_info()), default=1)
    buffers = [
        (np.empty((tile, tile), np.float32), np.empty((tile, tile), bool)) for _ in range(threads)
    ]
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        # Diagonal tiles first: then every row has something to beat.
        list(pool.map(work, [(a, a) for a in blocks]))
        list(pool.map(work, [(a, b) for i, a in enumerate(blocks) for b in blocks[i + 1 :]]))
    return index, worst


def _candidates_float64(points: Points, rows: np.ndarray, k: int) -> np.ndarray:
    """What may be among the k nearest of each row by float64, padded with -1."""
    low, high = points.bounds_float64(rows)
    kth = np.partition(low, low.shape[1] - k, axis=1)[:, -k, None]
    at, column = np.nonzero(high >= kth)
    # Surely nearer ones first, then the next by row number.
    unsure = low[at, column] <= kth[at, 0]
    order = np.lexsort(((column - rows[at]) % len(points.X), unsure, at))
    at, column = at[order], column[order]
    place = np.arange(len(at)) - np.searchsorted(at, np.arange(len(rows)))[at]
    few = place < k + _MOST_TIES
    result = np.full((len(rows), int(place[few].max()) + 1), -1, np.intp)
    result[at[few], place[few]] = column[few]
    return result
