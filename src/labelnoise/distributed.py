"""The same estimate over shards, on Dask: tiles of rows are compared in pairs where they are read.

What runs on a worker is a plain function of two tiles and returns the few pairs of rows that may be
nearest neighbours. The client keeps the k nearest of each row so far, and tells each comparison how
near a pair must be to matter. A worker that dies takes along nothing but the comparisons it was
busy with, and Dask does those again elsewhere.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, combinations_with_replacement, islice, pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from labelnoise._blocks import CACHE_BYTES, one_blas_thread, row_blocks
from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import expect_two_classes, warn_of
from labelnoise.checks import LEAST_FOUND, Diagnostics, Finding, _row_keys
from labelnoise.consensus import Consensus
from labelnoise.io.packages import explained, package
from labelnoise.io.shards import Cells, Piece, Shards, is_number, write_shard
from labelnoise.labels import encode_labels
from labelnoise.neighbors import Neighbors, Points, nearest_neighbors
from labelnoise.neighbors.best import Best, reached
from labelnoise.neighbors.cells import centre_scores, find_centres
from labelnoise.neighbors.exact import nearest_among, settle

if TYPE_CHECKING:
    from labelnoise.hoc import HOC


_LARGEST_TILE = 2**28  # bytes as float32; a comparison takes the memory of 8 tiles at most
_MOST_ROWS = 2**18  # of a tile: what is sent with a call is a few megabytes
_TILES_IN_MEMORY = 20  # of a thread: 8, what Python and its packages take, and room to spare
_TILES = 4  # for the square root of the number of threads: all have enough to do
_AHEAD = 2  # calls for each thread that are under way or wait for it
_BLOCK = 1024  # rows whose scores are computed at once
_SPARE = 6  # candidates beyond k, so that float64 can correct the order of float32
_LARGEST_KEPT = 2 * 2**30  # bytes of neighbours that the client keeps for intervals
_SAMPLE = 100_000  # rows that T is refined by
_FEWEST_CELLS, _PROBED = 64, 16  # of a partition; cells that are nearest, itself among them
_JUDGED = 1000  # rows that tell how many neighbours were found
_PATIENCE = 20  # seconds until a scheduler must have answered, and a worker come

Progress = Callable[[str, int, int], None]
Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of a tile that count."""

    kept: np.ndarray | None
    """Which rows count; None: all."""
    number: range
    """Their numbers among all that count."""


@dataclass(frozen=True, eq=False)
class Space:
    """How rows are compared: by direction, or by distance after a common shift and scale."""

    metric: str
    shift: np.ndarray | None = None
    largest: float = 1.0
    """Norm of the largest row after the shift."""


class Nearest:
    """The k nearest of each row so far; of equally near ones the next by number.

    `index` (n, k) has their numbers, -1 for none, and `gap` (n, k) how far they are, nearest first.
    Rows are all there are, or have the numbers given, of so many in `total`.
    """

    def __init__(
        self, n: int, k: int, number: np.ndarray | None = None, total: int | None = None
    ) -> None:
        self.index = np.full((n, k), -1, np.int64)
        self.gap = np.full((n, k), np.inf)
        self.number, self.total = number, n if total is None else total

    def add(self, row: np.ndarray, other: np.ndarray, gap: np.ndarray) -> None:
        """Take in pairs: rows by their place, others by their number."""
        rows, place = np.unique(row, return_inverse=True)
        k = self.index.shape[1]
        owner = np.concatenate([np.repeat(np.arange(len(rows)), k), place])
        other = np.concatenate([self.index[rows].ravel(), other])
        gap = np.concatenate([self.gap[rows].ravel(), gap])
        number = rows if self.number is None else self.number[rows]
        ahead = (other - number[owner]) % self.total
        order = np.lexsort((ahead, gap, owner))
        owner = owner[order]
        rank = np.arange(len(owner)) - np.searchsorted(owner, np.arange(len(rows)))[owner]
        order = order[rank < k].reshape(len(rows), k)
        self.index[rows], self.gap[rows] = other[order], gap[order]

    def limit(self, rows: range | slice) -> np.ndarray:
        """How near another row must be to matter: in float32, rounded up, as it is sent often."""
        gap = self.gap[rows.start : rows.stop, -1].astype(np.float32)
        return np.nextafter(gap, np.float32(np.inf))


# What workers run: functions of tiles, which are lists of pieces, or arrays.


def keys(tile: Any, name: str, width: int) -> np.ndarray:
    """A number for each row, as `check_duplicates` compares them: 0 for zero rows."""
    if isinstance(tile, list):
        found = [_keys(piece.read(), piece.shard, width, piece.start) for piece in tile]
        return np.concatenate(found)
    return _keys(tile, name, width)


def _keys(rows: np.ndarray, name: str, width: int, start: int = 0) -> np.ndarray:
    if rows.shape[1] != width:
        raise LabelNoiseError(
            f"Expected rows of one length, but {name} has some of {width} and {rows.shape[1]}"
        )
    for block in row_blocks(len(rows), width, CACHE_BYTES):
        finite = np.isfinite(rows[block]).all(axis=1)
        if not finite.all():
            raise LabelNoiseError(
                f"Expected finite features, but row {start + block.start + int(finite.argmin())} "
                f"of {name} has NaN or infinity"
            )
    return _row_keys(rows)


def read_rows(tile: Any, kept: np.ndarray | None = None) -> np.ndarray:
    """The rows of a tile, or some of them."""
    if isinstance(tile, list):
        tile = _stacked([piece.read() for piece in tile])
    return tile if kept is None else tile[kept]


def largest_norm(tile: Any, part: Part, shift: np.ndarray) -> float:
    """The largest norm after the shift."""
    points = Points(read_rows(tile, part.kept) - shift, "cosine", copy=False)
    return float(np.where(points.zero, 0, points.scale[:, 0]).max())


def compare(tiles: list[Any], parts: list[Part], space: Space, k: int, limit: np.ndarray) -> Pairs:
    """Find pairs of rows, of two parts or within one, that may be among the k nearest.

    Numbers of the second part are above those of the first. Gaps above `limit` (rows of both,) do
    not matter. Gives the numbers of rows and others, and their gaps.
    """
    with one_blas_thread():
        X = _stacked([read_rows(tile, part.kept) for tile, part in zip(tiles, parts, strict=True)])
        points, n, first = _Points(X, space), len(X), len(parts[0].number)
        error = points.float32_error()
        halves = [
            [slice(start, min(start + _BLOCK, end)) for start in range(begin, end, _BLOCK)]
            for begin, end in pairwise([0, first, n][: len(parts) + 1])
        ]
        best = {}
        for block in chain(*halves):
            kept = best[block.start] = Best(block.stop - block.start, k + _SPARE)
            least = (points.score(limit[block]) - error).astype(np.float32)
            kept.worst = np.nextafter(least, np.float32(-np.inf))
        within = len(parts) == 1
        buffer = np.empty(_BLOCK * _BLOCK, np.float32)
        pairs = combinations_with_replacement(halves[0], 2) if within else product(*halves)
        for rows, columns in pairs:
            scores = points.scores(rows, columns, buffer)
            if rows == columns:
                np.fill_diagonal(scores, -np.inf)
            else:
                _keep(best[columns.start], scores, rows.start, 1)
            _keep(best[rows.start], scores, columns.start, 0)
        for kept in best.values():
            kept.merge()
        listed = np.concatenate([kept.index for kept in best.values()]).astype(np.intp)
        worst = np.concatenate([kept.worst for kept in best.values()])

        row, place = np.nonzero(listed >= 0)
        other = listed[row, place]
        found = Nearest(n, k)
        found.add(row, other, points.gap(row, other[:, None])[:, 0])
        # Where the list is full, something left out may be as near as the k-th.
        near = (listed[:, -1] >= 0) & (points.score(found.gap[:, -1]) <= worst + error)
        for own, others in (
            (slice(0, first), slice(0 if within else first, n)),
            (slice(first, n), slice(0, first)),
        ):
            unsettled = own.start + np.flatnonzero(near[own])
            settle(points, np.arange(n), unsettled, found.index, found.gap, others, None)
        row, place = np.nonzero((found.index >= 0) & (found.gap <= limit[:, None]))
        number = np.concatenate([np.asarray(part.number) for part in parts])
        return number[row], number[found.index[row, place]], found.gap[row, place]


def search(
    sample: np.ndarray,
    number: np.ndarray,
    tile: Any,
    part: Part,
    space: Space,
    k: int,
    limit: np.ndarray,
) -> Pairs:
    """Find the k nearest of some rows, given with their numbers, among the rows of a part.

    Gives places in the sample, numbers of others, and their gaps, not above the `limit` (m,).
    """
    with one_blas_thread():
        # In the order of numbers, each row once, so that places stand for numbers.
        begin, end = part.number.start, part.number.stop
        before, after = np.searchsorted(number, [begin, end])
        X = np.concatenate([sample[:before], read_rows(tile, part.kept), sample[after:]])
        columns = slice(before, before + end - begin)
        inside = number[before:after] - begin + before
        rows = np.concatenate([np.arange(before), inside, np.arange(columns.stop, len(X))])
        index, gap = nearest_among(_Points(X, space), rows, columns, k)
        at, place = np.nonzero((index >= 0) & (gap <= limit[:, None]))
        return at, index[at, place] - before + begin, gap[at, place]


def sort_tile(tile: Any, centers: np.ndarray, cosine: bool, name: str) -> np.ndarray:
    """Write the rows of a tile in the order of their cells; gives the cell (rows,) of each."""
    rows = read_rows(tile)
    cells = nearest_center(rows, centers, cosine)
    write_shard(name, [rows[np.argsort(cells, kind="stable")]])
    return cells


def nearest_center(rows: np.ndarray, centers: np.ndarray, cosine: bool) -> np.ndarray:
    """The number (rows,) of the centre nearest to each row, or to its direction."""
    found = []
    for block in row_blocks(len(rows), max(rows.shape[1], len(centers)), CACHE_BYTES):
        found.append(centre_scores(_near(rows[block], cosine), centers).argmax(axis=1))
    return np.concatenate(found)


class _Points(Points):
    """Rows of some tiles, prepared as they would be among all rows."""

    def __init__(self, X: np.ndarray, space: Space) -> None:
        self.space = space
        super().__init__(X, space.metric)

    def exact(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows in float64."""
        if self.space.shift is None:
            return super().exact(rows)
        return (self.X[rows] - self.space.shift) / self.space.largest


def _keep(best: Best, scores: np.ndarray, start: int, by: int) -> None:
    """Keep what beats the worst candidate of its row (by = 0) or of its column (by = 1)."""
    if not np.isfinite(best.worst).all():
        least = reached(scores.T if by else scores, best.score.shape[1])
        best.worst = np.maximum(best.worst, least)
    best.scan(scores, start, by)


def _near(rows: np.ndarray, cosine: bool) -> np.ndarray:
    """Rows, or their directions, in float32."""
    return Points(rows, "cosine").rounded(slice(None)) if cosine else rows.astype(np.float32)


def _stacked(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


# What the client does: it hands out calls, a bounded number at a time, and merges what comes back.


def fit_shards(
    est: HOC, X: Any, y: Any, center_weight: Any = None, progress: Progress | None = None
) -> None:
    """Fit `HOC` to `Shards` or a Dask array, with the workers of the current Dask client.

    The triples are those of one machine. T is refined by a random sample of 100,000 rows and their
    neighbours in it, or by all if there are no more. Rows with a `center_weight` of 0 are not
    searched for neighbours, so that a sample of centres costs as much less as it is smaller; T is
    refined all the same.
    """
    from labelnoise.examples import LARGEST_REFINED, Examples, can_refine

    searches = ("auto", "approximate") if isinstance(X, Cells) else ("auto", "exact")
    if est.search not in searches:
        raise LabelNoiseError(
            f"Expected search to be one of {searches}, but search = {est.search!r}: shards are "
            f"searched exactly, and cells, made by labelnoise.distributed.partition, are not"
        )
    labels, classes = encode_labels(y, est.classes, est.unlabeled)
    expect_two_classes(classes, labels)
    n, est.n_features_in_ = _shape(X)
    if n != len(labels):
        raise LabelNoiseError(
            f"Expected as many labels as rows, but X has {n} rows and y {len(labels)} labels"
        )
    is_center = None if center_weight is None else _is_center(center_weight, n)
    if isinstance(X, Cells):
        labels = labels[X.order]
        is_center = None if is_center is None else is_center[X.order]
    cluster = _Cluster(X, progress)
    rows, notes = est._usable_rows(cluster.keys()[:, None], labels, None, est.n_neighbors)
    labels = labels[rows]
    K, k = len(classes), est.n_neighbors
    if is_center is None:
        nearest, found = cluster.nearest(rows, k, est.metric)
        consensus = _count(labels, labels, nearest.index, K)
        indices = nearest.index if nearest.index.nbytes <= _LARGEST_KEPT else None
        if indices is not None:
            est.examples_ = Examples(None, labels, rows, Neighbors(indices, None))
        est._solve(consensus, classes, [*notes, *found])
    else:
        centers = np.flatnonzero(is_center[rows])
        nearest = cluster.nearest_of(centers, rows, k, est.metric)
        est._solve(_count(labels[centers], labels, nearest.index, K), classes, notes)
    sample = np.random.default_rng(0).permutation(len(rows))[: min(_SAMPLE, LARGEST_REFINED // K)]
    sample.sort()
    if est.refine and est.solver == "likelihood" and can_refine(sample, labels[sample], K):
        _refine(est, est._features(cluster.take(rows[sample])), labels[sample], len(rows), progress)
    warn_of(est.diagnostics_)


def nearest_in_shards(
    X: Any, n_neighbors: int = 2, metric: str = "cosine", progress: Progress | None = None
) -> np.ndarray:
    """Find the neighbours (N, k) that `nearest_neighbors` finds, with Dask's workers.

    `X` is `Shards` or a Dask array. Rows that are zero are no exception here.
    """
    n, _ = _shape(X)
    return _Cluster(X, progress).nearest(np.arange(n), n_neighbors, metric)[0].index


def partition(
    shards: Shards,
    folder: str,
    metric: str = "cosine",
    *,
    n_cells: int | None = None,
    progress: Progress | None = None,
) -> Cells:
    """Copy shards into cells of rows near each other, for a search that is not exact but fast.

    Parameters
    ----------
    shards : Shards
    folder : str
        Where the copy goes, on a store that all workers write to. It is left there, and must not
        exist before.
    metric : {"cosine", "euclidean"}
        That of the estimate.
    n_cells : int, optional
        By default one for each tile, and at least 64. Of these 16 are searched for each row.
    progress : callable, optional

    Returns
    -------
    Cells
        To fit `HOC` to, with the labels in the order of the shards.
    """
    with explained(f"Expected a folder to write to, but {folder} cannot be made one"):
        files, path = package("fsspec.core", "dask").url_to_fs(folder)
        folder = files.unstrip_protocol(path)
        if files.exists(path):
            raise LabelNoiseError(f"Expected a new folder for cells, but {folder} exists")
        files.makedirs(f"{path}/sorted", exist_ok=True)
    cluster, cosine = _Cluster(shards, progress), metric == "cosine"
    tiles, n = cluster.tiles, cluster.n
    n_cells = min(n_cells or max(_FEWEST_CELLS, len(tiles)), n)
    sample = np.sort(np.random.default_rng(0).permutation(n)[:_SAMPLE])
    near = _near(cluster.take(sample), cosine)
    centers = find_centres(near, n_cells, np.random.default_rng(0))
    names = [f"{folder}/sorted/{i}.npy" for i in range(len(tiles))]
    calls = ((i, cluster.tile(i), centers, cosine, names[i]) for i in range(len(tiles)))
    cell = dict(cluster.results("sorting", sort_tile, calls, len(tiles)))

    counts = np.array([np.bincount(cell[i], minlength=n_cells) for i in range(len(tiles))])
    ends = np.cumsum(counts, axis=1)
    used = np.flatnonzero(counts.any(axis=0))

    def writing() -> Iterator[tuple[Any, ...]]:
        for place, c in enumerate(used):
            pieces = [
                Piece(names[i], int(ends[i, c] - counts[i, c]), int(ends[i, c]))
                for i in np.flatnonzero(counts[:, c])
            ]
            yield c, f"{folder}/cell-{place}.npy", pieces

    for _ in cluster.results("gathering", write_shard, writing(), len(used)):
        pass
    files.rm(f"{path}/sorted", recursive=True)
    order = np.argsort(np.concatenate([cell[i] for i in range(len(tiles))]), kind="stable")
    return Cells(f"{folder}/cell-*.npy", order, near_cells(centers[used]))


def near_cells(centers: np.ndarray) -> np.ndarray:
    """Which cells (cells, cells) are searched together: one of the two is near to the other."""
    distance = (centers**2).sum(axis=1) - 2 * centers @ centers.T
    near = np.argsort(np.argsort(distance, axis=1), axis=1) < _PROBED
    return near | near.T


def _shape(X: Any) -> tuple[int, int]:
    """Rows and columns of `Shards` or a Dask array."""
    if X.ndim != 2 or not is_number(X.dtype):
        raise LabelNoiseError(
            f"Expected features, a table of numbers, but X is an array of {X.dtype} with shape "
            f"{X.shape}"
        )
    if math.isnan(sum(X.shape)):
        raise LabelNoiseError(
            "Expected a Dask array whose shape is known, but it is not: use X.compute_chunk_sizes()"
        )
    return X.shape[0], X.shape[1]


def _is_center(center_weight: Any, n: int) -> np.ndarray:
    weight = np.asarray(center_weight)
    if weight.shape != (n,) or not np.isin(weight, (0, 1)).all() or not weight.any():
        raise LabelNoiseError(
            f"Expected a center_weight of 0 or 1 for each of {n} rows in shards, and some to be 1, "
            f"but it is {np.unique(weight)[:5]} with shape {weight.shape}"
        )
    return weight.astype(bool)


def _count(centers: np.ndarray, labels: np.ndarray, neighbors: np.ndarray, K: int) -> Consensus:
    """As `Consensus.from_neighbors`, where all are labelled; a block of centres at a time."""
    pairs = list(combinations(range(1, neighbors.shape[1] + 1), 2))
    total = Consensus.from_labels(np.empty((0, 3), int), K)
    for rows in row_blocks(len(centers), 16):
        around = np.column_stack([centers[rows], labels[neighbors[rows]]])
        for pair in pairs:
            total += Consensus.from_labels(around[:, [0, *pair]], K)
    # Counts are whole up to here, so that their order does not matter.
    return Consensus(total.triples, total.weights / len(pairs), K, len(centers))


def _refine(est: HOC, X: np.ndarray, labels: np.ndarray, n: int, progress: Progress | None) -> None:
    from labelnoise.clean_class.evidence import VOTERS
    from labelnoise.examples import Examples

    near, refining = (
        progress and partial(progress, stage) for stage in ("neighbors of a sample", "refining")
    )
    k = min(VOTERS, len(X) - 1)
    nearby = nearest_neighbors(X, k, est.metric, device=est.device, progress=near)
    counted = est.examples_
    est.examples_ = Examples(X, labels, np.arange(len(X)), nearby)
    est._refine(refining)
    est.examples_ = counted
    if len(X) < n:
        said = f"T was refined by a random sample of {len(X):,} of {n:,} examples."
        found = Finding("sample", True, len(X) / n, said)
        est.diagnostics_ = Diagnostics((*est.diagnostics_, found))


class _Cluster:
    """Rows in tiles, and the workers that read them."""

    def __init__(self, X: Any, progress: Progress | None) -> None:
        distributed = package("distributed", "dask")
        try:
            self.client = distributed.get_client()
        except ValueError as error:
            raise LabelNoiseError(
                "Expected a Dask client for shards, but there is none: make one before, as "
                "client = dask.distributed.Client(address)"
            ) from error
        self.progress = progress
        self.n, self.width = X.shape
        self.rows = self._tile_rows()
        self.cells = X if isinstance(X, Cells) else None
        self.tiles: list[Any]
        if isinstance(X, Shards):
            self.tiles = X.tiles(self.rows)
            size = [sum(map(len, pieces)) for pieces in self.tiles]
        else:
            X = X.rechunk({0: self.rows, 1: -1})
            self.tiles = X.to_delayed().ravel().tolist()
            size = list(X.chunks[0])
        self.begin = np.concatenate([[0], np.cumsum(size)])

    def _tile_rows(self) -> int:
        """So many that a worker has memory for a comparison, and all workers have one to do."""
        with explained("Expected workers at the scheduler, but none came"):
            self.client.wait_for_workers(1, timeout=_PATIENCE)
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        self.threads = sum(worker["nthreads"] for worker in workers)
        # A worker without a limit says 0.
        memory = [worker["memory_limit"] / worker["nthreads"] for worker in workers]
        size = min([_LARGEST_TILE, *(limit / _TILES_IN_MEMORY for limit in memory if limit)])
        evenly = math.ceil(self.n / (_TILES * math.sqrt(self.threads)))
        return max(1, min(int(size / (4 * self.width)), evenly, _MOST_ROWS))

    def tile(self, number: int) -> Any:
        """What stands for a tile in the arguments of a call."""
        tile = self.tiles[number]
        return tile if isinstance(tile, list) else self.client.compute(tile)

    def results(
        self, stage: str, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], total: int
    ) -> Iterator[tuple[Any, Any]]:
        """Make calls, (name, arguments ...), on the workers; gives (name, result) as they come.

        Arguments are made when a call's turn comes, so that they know of results before.
        """
        distributed = package("distributed", "dask")
        calls, names = iter(calls), {}
        running = distributed.as_completed(with_results=True)

        def start(count: int) -> None:
            for name, *arguments in islice(calls, count):
                future = self.client.submit(function, *arguments, pure=False)
                names[future.key] = name
                running.add(future)

        start(_AHEAD * self.threads)
        try:
            for done, (future, result) in enumerate(running):
                yield names.pop(future.key), result
                if self.progress:
                    self.progress(stage, done + 1, total)
                del future, result
                start(1)
        except (distributed.KilledWorker, CancelledError) as error:
            raise LabelNoiseError(
                "Expected workers that live on, but several died one after the other at the same "
                "tiles: see their logs, and whether they have the memory"
            ) from error
        except ImportError as error:
            raise LabelNoiseError(
                f"Expected each worker to have labelnoise[dask] as it is here, but one says: "
                f"{error}"
            ) from error

    def keys(self) -> np.ndarray:
        """The key (N,) of each row."""
        result = np.empty(self.n, np.uint64)
        tiles = range(len(self.tiles))
        calls = ((i, self.tile(i), f"block {i} of X", self.width) for i in tiles)
        for i, found in self.results("looking at the data", keys, calls, len(self.tiles)):
            result[self.begin[i] : self.begin[i + 1]] = found
        return result

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Rows by their number, which increases."""
        at = np.searchsorted(rows, self.begin)
        wanted = [i for i in range(len(self.tiles)) if at[i] < at[i + 1]]
        calls = ((i, self.tile(i), rows[at[i] : at[i + 1]] - self.begin[i]) for i in wanted)
        found = dict(self.results("taking a sample", read_rows, calls, len(wanted)))
        return np.concatenate([found[i] for i in wanted])

    def parts(self, rows: np.ndarray) -> dict[int, Part]:
        """The rows that count, by tile."""
        at = np.searchsorted(rows, self.begin)
        result = {}
        for i, (first, last) in enumerate(pairwise(at.tolist())):
            kept = rows[first:last] - self.begin[i]
            if len(kept):
                all_ = len(kept) == self.begin[i + 1] - self.begin[i]
                result[i] = Part(None if all_ else kept, range(first, last))
        return result

    def space(self, rows: np.ndarray, parts: dict[int, Part], metric: str) -> Space:
        """As `Points` has it for all rows."""
        if metric == "cosine":
            return Space(metric)
        shift = np.median(self.take(rows[:: max(1, len(rows) // 1000)]).astype(float), axis=0)
        calls = ((i, self.tile(i), part, shift) for i, part in parts.items())
        norms = dict(self.results("scaling", largest_norm, calls, len(parts)))
        return Space(metric, shift, max(norms.values()) or 1.0)

    def nearest(self, rows: np.ndarray, k: int, metric: str) -> tuple[Nearest, list[Finding]]:
        """The neighbours of the rows that count, among these, by their place in `rows`."""
        parts = self.parts(rows)
        space = self.space(rows, parts, metric)
        nearest = Nearest(len(rows), k)
        # Each part with itself first: then every row has something to beat.
        pairs = [(i, i) for i in parts] + list(combinations(parts, 2))
        if self.cells is not None:
            pairs = [(i, j) for i, j in pairs if self.cells.together(self.tiles[i], self.tiles[j])]

        def calls() -> Iterator[tuple[Any, ...]]:
            for pair in pairs:
                which = sorted({*pair})
                limit = np.concatenate([nearest.limit(parts[i].number) for i in which])
                yield (
                    pair,
                    [self.tile(i) for i in which],
                    [parts[i] for i in which],
                    space,
                    k,
                    limit,
                )

        for _, found in self.results("neighbors", compare, calls(), len(pairs)):
            nearest.add(*found)
        if self.cells is None:
            return nearest, []
        some = np.sort(np.random.default_rng(0).permutation(len(rows))[:_JUDGED])
        exact = self.nearest_of(some, rows, k, metric, "judging the search")
        recall = float((nearest.gap[some] <= exact.gap[:, -1:]).mean())
        said = (
            f"Neighbours were looked for in near cells only: of the true ones of {len(some):,} "
            f"random examples {recall:.1%} were found."
        )
        return nearest, [Finding("search", recall >= LEAST_FOUND, recall, said)]

    def nearest_of(
        self, some: np.ndarray, rows: np.ndarray, k: int, metric: str, stage: str = "neighbors"
    ) -> Nearest:
        """The neighbours of some of the rows that count, by their places in `rows`, increasing."""
        parts = self.parts(rows)
        space = self.space(rows, parts, metric)
        nearest = Nearest(len(some), k, some, len(rows))
        chunks = [slice(at, at + self.rows) for at in range(0, len(some), self.rows)]

        def calls() -> Iterator[tuple[Any, ...]]:
            for chunk in chunks:
                # On all workers, so that it is not lost with one of them.
                sample = self.client.scatter(self.take(rows[some[chunk]]), broadcast=True)
                for i, part in parts.items():
                    limit = nearest.limit(chunk)
                    yield chunk, sample, some[chunk], self.tile(i), part, space, k, limit

        total = len(chunks) * len(parts)
        for chunk, (place, *pairs) in self.results(stage, search, calls(), total):
            nearest.add(place + chunk.start, *pairs)
        return nearest


@contextmanager
def local_cluster(workers: int, memory_limit: str = "auto") -> Iterator[Any]:
    """Start so many processes on this machine, of one thread each; gives their client.

    `memory_limit` is that of each, such as "4GB"; by default they share what there is.
    """
    distributed = package("distributed", "dask")
    # Dask has freed memory given back at once, which takes twice the time of the work itself.
    keeping = {
        f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": 2**25
        for name in ("TRIM", "MMAP")
    }
    with (
        package("dask.config", "dask").set(keeping),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=memory_limit,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,  # what is the user's to know is raised
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def remote_cluster(address: str) -> Iterator[Any]:
    """Connect to a scheduler; gives the client."""
    distributed = package("distributed", "dask")
    with explained(f"Expected a Dask scheduler at {address}, but it cannot be reached"):
        client = distributed.Client(address, timeout=_PATIENCE)
    with client:
        yield client
