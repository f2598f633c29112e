"""The neighbours over shards, on Dask: tiles of rows are compared in pairs where they are read.

A worker is given two tiles and returns the few pairs of rows that may be nearest neighbours. The
client keeps the k nearest of each row so far, and tells each comparison how near a pair must be to
matter. A worker that dies loses only its own comparisons, which Dask repeats elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import chain, combinations, combinations_with_replacement, islice, pairwise, product
from typing import Any

import numpy as np

from labelnoise._blocks import one_blas_thread
from labelnoise._errors import LabelNoiseError
from labelnoise.io.packages import explained, package
from labelnoise.io.shards import Shards, is_number
from labelnoise.neighbors import Points
from labelnoise.neighbors.best import Best, reached
from labelnoise.neighbors.exact import nearest_among, settle

_LARGEST_TILE = 2**28  # bytes as float32; a comparison needs the memory of 8 tiles
_MOST_ROWS = 2**18  # rows of a tile, so that a call's arguments are a few megabytes
_TILES_IN_MEMORY = 20  # a thread's memory over that of a tile: 8, Python, and a reserve
_BLOCK = 1024  # rows whose scores are computed at once
_SPARE = 6  # candidates beyond k, so that float64 can correct the order of float32
PATIENCE = 20  # seconds to wait for the scheduler, and for a first worker

Progress = Callable[[str, int, int], None]
Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


def nearest_in_shards(
    X: Any, n_neighbors: int = 2, metric: str = "cosine", progress: Progress | None = None
) -> np.ndarray:
    """Find the neighbours (N, k) that `nearest_neighbors` finds, with Dask's workers.

    `X` is `Shards` or a Dask array. Rows that are zero are no exception here.
    """
    n, _ = shape_of(X)
    return Cluster(X, progress).nearest(np.arange(n), n_neighbors, metric).index


def shape_of(X: Any) -> tuple[int, int]:
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
    """The k nearest of each row so far; ties are ordered by the next row number.

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


def _stacked(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


class Cluster:
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
            self.client.wait_for_workers(1, timeout=PATIENCE)
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        self.threads = sum(worker["nthreads"] for worker in workers)
        # A worker without a limit says 0.
        memory = [worker["memory_limit"] / worker["nthreads"] for worker in workers]
        size = min([_LARGEST_TILE, *(limit / _TILES_IN_MEMORY for limit in memory if limit)])
        evenly = math.ceil(self.n / (4 * math.sqrt(self.threads)))
        return max(1, min(int(size / (4 * self.width)), evenly, _MOST_ROWS))

    def tile(self, number: int) -> Any:
        """What stands for a tile in the arguments of a call."""
        tile = self.tiles[number]
        return tile if isinstance(tile, list) else self.client.compute(tile)

    def results(
        self, stage: str, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], total: int
    ) -> Iterator[tuple[Any, Any]]:
        """Make calls, (name, arguments ...), on the workers, and give (name, result) of each.

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

        start(2 * self.threads)  # so that no worker waits for the client
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

    def nearest(self, rows: np.ndarray, k: int, metric: str) -> Nearest:
        """The neighbours of the rows that count, among these, by their place in `rows`."""
        parts = self.parts(rows)
        space = self.space(rows, parts, metric)
        nearest = Nearest(len(rows), k)
        # Each part is first compared with itself, which gives every row a limit.
        pairs = [(i, i) for i in parts] + list(combinations(parts, 2))

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
        return nearest

    def nearest_of(self, some: np.ndarray, rows: np.ndarray, k: int, metric: str) -> Nearest:
        """The neighbours of some of the rows that count, by their places in `rows`, increasing."""
        parts = self.parts(rows)
        space = self.space(rows, parts, metric)
        nearest = Nearest(len(some), k, some, len(rows))
        chunks = [slice(at, at + self.rows) for at in range(0, len(some), self.rows)]

        def calls() -> Iterator[tuple[Any, ...]]:
            for chunk in chunks:
                # Sent to all workers, so that it survives the death of one.
                sample = self.client.scatter(self.take(rows[some[chunk]]), broadcast=True)
                for i, part in parts.items():
                    limit = nearest.limit(chunk)
                    yield chunk, sample, some[chunk], self.tile(i), part, space, k, limit

        total = len(chunks) * len(parts)
        for chunk, (place, *pairs) in self.results("neighbors", search, calls(), total):
            nearest.add(place + chunk.start, *pairs)
        return nearest
