"""Who is near whom: nearest neighbours of a data set within itself.

Exactly, or nearly so where there are very many rows (`labelnoise.neighbors.approximate`). The data
are compared with themselves, so the matrix of similarities is symmetric and only the tiles on and
above its diagonal are computed. A tile is scanned once along its rows and once along its columns
for values that beat the worst candidate so far; few do, so the cost is hardly more than that of
half a matrix product. Candidates are found in float32 and ranked again in float64; a row for which
float32 cannot tell is searched again in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from labelnoise._blocks import CACHE_BYTES, block_bytes, row_blocks, thread_count
from labelnoise._errors import LabelNoiseError
from labelnoise.io.memory import free_memory

METRICS = ("cosine", "euclidean")
SEARCHES = ("auto", "exact", "approximate")

_TILE = 2048
_SPARE = 2  # candidates kept beyond k, so that float64 can correct the order of float32
_FLOAT32_ERROR = 2e-6  # of a score between rows of norm 1 and 500 columns, with room to spare
_FLOAT64_ERROR = 1e-14  # the same, relative to the norms
_MOST_TIES = 512  # among more that float64 products cannot tell apart, so many are looked at
_TIES_LISTED = 8  # candidates that float32 cannot tell from the nearest of their source
_LARGEST_COPY = 2 * 2**30  # bytes of features in float32; more are read, and scaled, when needed
_LONGEST = 180  # seconds that an exact search may take, for "auto" to choose it
_WORTH_A_GPU = 10  # seconds of an exact search, for "auto" to look for a GPU
_PAIRS_PER_SECOND = 6e10  # of a thread, times d + 60, measured
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
    sources: np.ndarray | None = None,
    search: str = "exact",
    device: str = "cpu",
    progress: Progress | None = None,
    tile: int = _TILE,
) -> Neighbors:
    """Find each row's nearest other rows.

    Parameters
    ----------
    X : array of shape (N, d)
        Finite numbers. A memory-mapped array is read in blocks.
    n_neighbors : int
        How many neighbours, fewer than N.
    metric : {"cosine", "euclidean"}
        A zero vector has no direction: its cosine with every row, another zero row included,
        is taken as 0.
    sources : int array of shape (N,), optional
        Rows of one source (frames of one video, one annotator's batch) are no neighbours of each
        other, and the neighbours of a row are of different sources.
    search : {"exact", "approximate", "auto"}
        "approximate" finds nearly all of them, in a time that grows with ``N ** 1.5``. "auto" is
        exact where that takes about three minutes at most: up to 340,000 rows of 128 columns with
        two threads, and any number on a GPU.
    device : {"cpu", "cuda", "auto"} or "cuda:1"
        Where an exact search without `sources` runs. "auto" is a GPU where PyTorch has one and the
        search would take more than ten seconds. The neighbours are the same.
    progress : callable, optional
        Called as ``progress(tiles_done, tiles)``.
    tile : int
        Rows in a tile of an exact search. It changes speed and memory, not the result.

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
    if sources is not None:
        names, sources = np.unique(sources, return_inverse=True)
        if len(names) <= k:
            raise LabelNoiseError(
                f"Expected more than n_neighbors = {k} sources, as neighbours are of different "
                f"ones, but the number of sources is {len(names)}"
            )
        sources = None if len(names) == n else sources
    approximate = chosen_search(search, n, X.shape[1], device, sources) == "approximate"
    device = chosen_device(device, n, X.shape[1], sources)
    if device != "cpu" and not approximate:
        from labelnoise.neighbors.cuda import nearest_on_device

        return nearest_on_device(X, k, metric, device, progress=progress)
    points = Points(np.asanyarray(X), metric, copy=not approximate)
    everyone, enough = np.arange(n), np.ones(n, bool)
    if approximate:
        from labelnoise.neighbors.approximate import approximate_candidates

        candidates = approximate_candidates(points, k, sources, progress)
        indices, gap = _rank(points, everyone, candidates, candidates.shape[1])
        if sources is not None:
            (indices, _), enough = first_neighbors(Neighbors(indices, None), k, sources=sources)
            gap = points.gap(everyone, indices)
        indices, gap = indices[:, :k].astype(np.intp), gap[:, :k]
        others, worst = k, gap[:, -1]  # which settles each row that has enough
        enough &= gap[:, -1] < np.inf
    elif sources is None:
        others = n - 1
        candidates, worst = _candidates(points, min(k + _SPARE, others), tile, progress)
        indices, gap = _rank(points, everyone, candidates, k)
    else:
        others = len(names) - 1
        count = min(k + _SPARE, others)
        candidates, worst = _candidates_by_source(points, count, sources, progress)
        listed, _ = _rank(points, everyone, candidates, candidates.shape[1])
        (indices, _), enough = first_neighbors(Neighbors(listed, None), k, sources=sources)
        gap = points.gap(everyone, indices)

    # A row is settled when its k-th neighbour is clearly nearer than anything left out.
    near = points.score(gap[:, -1]) <= worst + points.float32_error()
    unsettled = np.flatnonzero(~enough | (near & (k + _SPARE < others)))
    settle(points, everyone, unsettled, indices, gap, slice(0, n), sources)
    return Neighbors(indices, points.distance(gap))


def chosen_search(
    search: str, n: int, d: int, device: str = "cpu", sources: np.ndarray | None = None
) -> str:
    """Which search "auto" stands for: the machine's threads and the size decide, not its load."""
    if search not in SEARCHES:
        raise LabelNoiseError(f"Expected search to be one of {SEARCHES}, but search = {search!r}")
    if search != "auto":
        return search
    if _exact_seconds(n, d) <= _LONGEST or chosen_device(device, n, d, sources) != "cpu":
        return "exact"
    return "approximate"


def chosen_device(device: str, n: int, d: int, sources: np.ndarray | None) -> str:
    """Which device "auto" stands for; sources are kept apart on the CPU alone."""
    if sources is not None:
        return "cpu"
    if device != "auto":
        return device
    if _exact_seconds(n, d) < _WORTH_A_GPU or find_spec("torch") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _exact_seconds(n: int, d: int) -> float:
    return n**2 * (d + 60) / (_PAIRS_PER_SECOND * thread_count())


def joined_neighbors(X: np.ndarray, known: np.ndarray, metric: str) -> np.ndarray:
    """Neighbours (N, k) of all rows, given those (n, k) that the first n have among themselves.

    New rows are compared with all, and all with the new ones; nothing else is.
    """
    points, (n, k) = Points(X, metric), known.shape
    new, old = np.arange(n, len(X)), np.arange(n)
    theirs, _ = nearest_among(points, new, slice(0, len(X)), k)
    few = min(k, len(new))
    others, _ = nearest_among(points, old, slice(n, len(X)), few)
    mine, _ = _rank(points, old, np.hstack([known, others]), k)
    return np.concatenate([mine, theirs])


def nearest_among(
    points: Points, rows: np.ndarray, columns: slice, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of each of some rows among the columns, exactly, and their gaps."""
    size = columns.stop - columns.start
    count = min(k + _SPARE, size)
    candidates, worst = _candidates_among(points, rows, columns, count)
    indices, gap = _rank(points, rows, candidates, k)
    near = points.score(gap[:, -1]) <= worst + points.float32_error()
    unsettled = np.flatnonzero(near & (count < size))
    settle(points, rows, unsettled, indices, gap, columns, None)
    return indices, gap


def settle(
    points: Points,
    rows: np.ndarray,
    unsettled: np.ndarray,
    indices: np.ndarray,
    gap: np.ndarray,
    columns: slice,
    sources: np.ndarray | None,
) -> None:
    """Search again, in float64, for the neighbours of some of the rows."""
    k = indices.shape[1]
    for some in np.array_split(unsettled, len(unsettled) * len(points.X) * 8 // block_bytes() + 1):
        if len(some):
            ties = _candidates_float64(points, rows[some], k, sources, columns)
            indices[some], gap[some] = _rank(points, rows[some], ties, k)


def given_neighbors(
    neighbors: Any,
    n: int,
    n_neighbors: int,
    usable: np.ndarray | None = None,
    sources: np.ndarray | None = None,
) -> Neighbors:
    """Check neighbours that were found elsewhere, and keep the first `n_neighbors` of each row.

    Accepts row numbers of shape (n, k), nearest first, or a sparse (n, n) graph whose stored
    values are distances (as made by scikit-learn's ``kneighbors_graph`` or kept by cleanlab).
    An example that is listed as its own neighbour is left out, and so are those of its own
    source and all but the first of another. Those that are not `usable` (n,) stand behind the
    others, as they would not be found in a search among the usable ones.
    """
    listed = listed_neighbors(neighbors, n, n_neighbors)
    found, enough = first_neighbors(listed, n_neighbors, usable=usable, sources=sources)
    if not enough.all():
        short = int(np.argmin(enough))
        row = listed.indices[short]
        count, what = (row >= 0).sum(), "itself"
        if sources is not None:
            count = len(set(sources[row[row >= 0]].tolist()) - {sources[short]})
            what = "itself, each of another source"
        raise LabelNoiseError(
            f"Expected at least {n_neighbors} neighbors of each example besides {what}, but row "
            f"{short} has {count} ({(~enough).sum()} such rows)"
        )
    return found


def listed_neighbors(neighbors: Any, n: int, n_neighbors: int) -> Neighbors:
    """Read all neighbours that are given, nearest first; -1 where a row has fewer, or itself."""
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
    own = candidates == np.arange(n)[:, None]
    return Neighbors(np.where(own, -1, candidates.astype(np.intp)), distances)


def first_neighbors(
    listed: Neighbors,
    n_neighbors: int,
    allowed: np.ndarray | None = None,
    usable: np.ndarray | None = None,
    sources: np.ndarray | None = None,
) -> tuple[Neighbors, np.ndarray]:
    """The first of those listed (n, w), and which rows (n,) have enough of them.

    Only the `allowed` (n, w), not of the row's own source, and one of each source; first those
    that are `usable` (n,). A row that has too few is filled up with any numbers.
    """
    candidates, distances = listed
    allowed = candidates >= 0 if allowed is None else allowed & (candidates >= 0)
    if sources is not None:
        allowed = allowed & (sources[candidates] != sources[:, None])
    behind = np.zeros(len(candidates), bool) if usable is None else ~usable
    order = np.argsort(2 * ~allowed + behind[candidates], axis=1, kind="stable")
    if sources is not None:
        theirs = np.take_along_axis(sources[candidates], order, 1)
        allowed = np.take_along_axis(allowed, order, 1)
        for place in range(1, theirs.shape[1]):
            allowed[:, place] &= (theirs[:, :place] != theirs[:, [place]]).all(axis=1)
        order = np.take_along_axis(order, np.argsort(~allowed, axis=1, kind="stable"), 1)
    order = order[:, :n_neighbors]
    enough = allowed.sum(axis=1) >= n_neighbors
    indices = np.take_along_axis(candidates, order, 1)
    ordered = np.sort(indices, axis=1)
    twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1) & enough)
    if len(twice):
        raise LabelNoiseError(
            f"Expected distinct neighbors in each row, but row {twice[0]} is "
            f"{indices[twice[0]].tolist()} ({len(twice)} such rows)"
        )
    if distances is not None:
        distances = np.take_along_axis(distances, order, 1)
    return Neighbors(np.maximum(indices, 0), distances), enough


def _from_graph(graph: Any, n: int, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers and distances, nearest first, padded with -1 where rows differ in length."""
    try:
        # SciPy trusts row numbers, and reads beyond its arrays if they are too large.
        getattr(graph, "check_format", bool)()
        graph = graph.tocsr()
    except ValueError as error:
        raise LabelNoiseError(
            f"Expected a graph with row numbers from 0 to n_samples - 1, but {error}"
        ) from error
    if graph.dtype.kind not in "fiub":
        raise LabelNoiseError(f"Expected distances in the graph, but their type is {graph.dtype}")
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

    def __init__(self, X: np.ndarray, metric: str, *, copy: bool = True) -> None:
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
            blocks = row_blocks(len(X), X.shape[1], CACHE_BYTES)
            norm = np.full(len(X), np.max([_norm(X[rows] - self.shift).max() for rows in blocks]))
        if not np.isfinite(norm).all():
            raise LabelNoiseError("Expected finite features, but X contains NaN or infinity")
        self.zero = norm == 0
        self.scale = np.where(self.zero, 1.0, norm)[:, None]
        self.half_square = np.zeros((len(X), 1), np.float32)
        copied = copy and 4 * X.size <= min(_LARGEST_COPY, free_memory() / 4)
        self.near: np.ndarray | None = np.empty(X.shape, np.float32) if copied else None
        if self.near is None and self.cosine:
            return
        for rows in row_blocks(len(X), X.shape[1], CACHE_BYTES):
            near = self.exact(rows).astype(np.float32)
            if self.near is not None:
                self.near[rows] = near
            if not self.cosine:
                self.half_square[rows, 0] = np.square(near, dtype=np.float64).sum(axis=1) / 2

    def exact(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows in float64."""
        return (self.X[rows] - self.shift) / self.scale[rows]

    def rounded(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows in float32."""
        return self.exact(rows).astype(np.float32) if self.near is None else self.near[rows]

    def scores(self, rows: slice | np.ndarray, columns: slice, out: np.ndarray) -> np.ndarray:
        """Scores between two blocks of rows, in float32, written into `out`."""
        a, b = self.rounded(rows), self.rounded(columns)
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

    def float32_error(self) -> float:
        """How far a float32 score may be off."""
        return _FLOAT32_ERROR * max(1.0, (self.X.shape[1] / 500) ** 0.5)

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
    blocks = [slice(i, min(i + tile, n)) for i in range(0, n, tile)]
    best = {block.start: Best(block.stop - block.start, count) for block in blocks}
    total = len(blocks) * (len(blocks) + 1) // 2
    done = 0
    lock = Lock()

    def work(pair: tuple[slice, slice]) -> None:
        nonlocal done
        rows, columns = pair
        buffer, mask = buffers.pop()
        scores = points.scores(rows, columns, buffer)
        beats = mask[: scores.shape[0], : scores.shape[1]]
        if rows == columns:
            np.fill_diagonal(scores, -np.inf)
            found = best[rows.start]
            found.worst = found.reached(scores)
        else:
            best[columns.start].scan(scores, rows.start, 1, beats)
        best[rows.start].scan(scores, columns.start, 0, beats)
        buffers.append((buffer, mask))
        with lock:
            done += 1
            if progress:
                progress(done, total)

    threads = thread_count()
    buffers = [
        (np.empty((tile, tile), np.float32), np.empty((tile, tile), bool)) for _ in range(threads)
    ]
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        # Diagonal tiles first: then every row has something to beat.
        list(pool.map(work, [(a, a) for a in blocks]))
        list(pool.map(work, [(a, b) for i, a in enumerate(blocks) for b in blocks[i + 1 :]]))
        list(pool.map(Best.merge, best.values()))
    index = np.concatenate([found.index for found in best.values()])
    return index.astype(np.intp), np.concatenate([found.worst for found in best.values()])


class Best:
    """The `count` best scores of each of some rows, and their columns.

    What comes in waits until there is enough of it to be worth a merge.
    """

    def __init__(self, n_rows: int, count: int) -> None:
        self.score = np.full((n_rows, count), -np.inf, np.float32)
        self.index = np.full((n_rows, count), -1, np.int32)
        self.worst = np.full(n_rows, -np.inf, np.float32)
        self.waiting: list[tuple[np.ndarray, ...]] = []
        self.n_waiting = 0
        self.lock = Lock()

    def reached(self, scores: np.ndarray) -> np.ndarray:
        """What `count` scores of each row (n, m) surely are above; -inf if there are few."""
        count = self.score.shape[1]
        if scores.shape[1] <= 2 * count:
            return np.full(len(scores), -np.inf, np.float32)
        # At least `count` scores of a row reach the least maximum of `count` parts of it.
        part = np.linspace(0, scores.shape[1], count, endpoint=False).astype(int)
        least = np.maximum.reduceat(scores, part, axis=1).min(axis=1)
        return np.nextafter(least, np.float32(-np.inf))

    def scan(
        self, scores: np.ndarray, start: int, by: int = 0, beats: np.ndarray | None = None
    ) -> None:
        """Keep what beats the worst of its row (by = 0) or column (by = 1), which is ours.

        Numbers of the others begin at `start`; `beats` is room to compare in.
        """
        beats = np.greater(scores, self.worst if by else self.worst[:, None], out=beats)
        found = np.divmod(np.flatnonzero(beats), scores.shape[1])
        self.add(found[by], found[1 - by] + start, scores[found])

    def add(self, at: np.ndarray, column: np.ndarray, score: np.ndarray) -> None:
        """Take in scores, each with its row and its column."""
        with self.lock:
            self.waiting.append((at, column, score))
            self.n_waiting += len(at)
            if self.n_waiting >= self.score.size:
                self._merge()

    def merge(self) -> None:
        """Merge what waits."""
        with self.lock:
            if self.waiting:
                self._merge()

    def _merge(self) -> None:
        at, column, score = (np.concatenate(part) for part in zip(*self.waiting, strict=True))
        self.waiting, self.n_waiting = [], 0
        n_rows, count = self.score.shape
        better = score > self.worst[at]
        at = np.concatenate([np.repeat(np.arange(n_rows), count), at[better]])
        score = np.concatenate([self.score.ravel(), score[better]])
        column = np.concatenate([self.index.ravel(), column[better]])
        # Sorted by row, and the best first: as one whole number, which is far faster than two keys.
        bits = score.view(np.uint32)
        falling = np.where(bits >> 31, bits, ~bits & 0x7FFFFFFF)
        order = np.argsort(at.astype(np.uint64) << 32 | falling)
        first = np.searchsorted(at[order], np.arange(n_rows))
        top = order[first[:, None] + np.arange(count)]
        self.score, self.index = score[top], column[top]
        self.worst = np.maximum(self.worst, self.score[:, -1])


def _candidates_among(
    points: Points, rows: np.ndarray, columns: slice, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The `count` best of some rows among the columns by float32 score, and the worst kept."""
    threads = thread_count()
    step = min(_TILE, -(-len(rows) // threads))

    def work(some: np.ndarray) -> Best:
        best, buffer = Best(len(some), count), np.empty((len(some), _TILE), np.float32)
        for start in range(columns.start, columns.stop, _TILE):
            tile = slice(start, min(start + _TILE, columns.stop))
            scores = points.scores(some, tile, buffer)
            own = np.flatnonzero((some >= tile.start) & (some < tile.stop))
            scores[own, some[own] - start] = -np.inf
            if start == columns.start:
                best.worst = best.reached(scores)
            best.scan(scores, start)
        best.merge()
        return best

    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        best = list(pool.map(work, [rows[at : at + step] for at in range(0, len(rows), step)]))
    index = np.concatenate([found.index for found in best])
    return index.astype(np.intp), np.concatenate([found.worst for found in best])


def _candidates_by_source(
    points: Points, count: int, sources: np.ndarray, progress: Progress | None
) -> tuple[np.ndarray, np.ndarray]:
    """What may be nearest in each of the `count` nearest other sources of a row, by float32.

    Padded with -1; a row with too many such candidates has none. And the worst source's score.
    """
    n = len(sources)
    order = np.argsort(sources, kind="stable")
    size = np.bincount(sources)
    begin = np.cumsum(size) - size
    near, half_square = points.rounded(order), points.half_square[order]
    candidates, worst = np.full((n, count + _TIES_LISTED), -1), np.empty(n, np.float32)
    blocks = list(row_blocks(n, n))

    def work(rows: slice) -> None:
        scores = points.rounded(rows) @ near.T
        if not points.cosine:
            scores -= points.half_square[rows]
            scores -= half_square.T
        best = np.maximum.reduceat(scores, begin, axis=1)
        each = np.arange(len(best))
        best[each, sources[rows]] = -np.inf
        top = np.argpartition(best, len(size) - count, axis=1)[:, -count:]
        top_best = np.take_along_axis(best, top, 1)
        worst[rows] = top_best.min(axis=1)
        reach = np.full(best.shape, np.inf, np.float32)
        np.put_along_axis(reach, top, top_best - points.float32_error(), 1)
        at, column = np.divmod(np.flatnonzero(scores >= np.repeat(reach, size, axis=1)), n)
        place = np.arange(len(at)) - np.searchsorted(at, each)[at]
        listed = np.bincount(at, minlength=len(best))[at] <= candidates.shape[1]
        candidates[rows][at[listed], place[listed]] = order[column[listed]]

    threads = thread_count()
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        for done, _ in enumerate(pool.map(work, blocks)):
            if progress:
                progress(done + 1, len(blocks))
    return candidates, worst


def _candidates_float64(
    points: Points, rows: np.ndarray, k: int, sources: np.ndarray | None, columns: slice
) -> np.ndarray:
    """What may be among the k nearest of each row in the columns by float64, padded with -1."""
    low, high = points.bounds_float64(rows)
    for bound in (low, high):
        bound[:, : columns.start] = bound[:, columns.stop :] = -np.inf
    if sources is not None:
        # The nearest of each other source, and of several the next by row number, are left.
        order = np.argsort(sources, kind="stable")
        begin = np.searchsorted(sources[order], np.arange(sources.max() + 1))
        best = np.maximum.reduceat(high[:, order], begin, axis=1)[:, sources]
        ahead = (np.arange(len(sources)) - rows[:, None]) % len(sources)
        ahead[(high < best) | (sources[rows, None] == sources)] = len(sources)
        first = np.minimum.reduceat(ahead[:, order], begin, axis=1)[:, sources]
        hidden = (ahead > first) | (ahead == len(sources))
        low[hidden] = high[hidden] = -np.inf
    kth = np.partition(low, low.shape[1] - k, axis=1)[:, -k, None]
    at, column = np.nonzero((high >= kth) & (high > -np.inf))
    # Surely nearer ones first, then the next by row number.
    unsure = low[at, column] <= kth[at, 0]
    order = np.lexsort(((column - rows[at]) % len(points.X), unsure, at))
    at, column = at[order], column[order]
    place = np.arange(len(at)) - np.searchsorted(at, np.arange(len(rows)))[at]
    few = place < k + _MOST_TIES
    result = np.full((len(rows), int(place[few].max()) + 1), -1, np.intp)
    result[at[few], place[few]] = column[few]
    return result
