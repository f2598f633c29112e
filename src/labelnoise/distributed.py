"""The estimate over shards, with the workers of a Dask client, and clients to have."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from labelnoise._blocks import CACHE_BYTES, row_blocks
from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import warn_of
from labelnoise._validation import expect_two_classes
from labelnoise.checks import Diagnostics, Finding, row_keys
from labelnoise.clean_class.evidence import VOTERS
from labelnoise.consensus import Consensus
from labelnoise.examples import LARGEST_REFINED, Examples, can_refine
from labelnoise.io.packages import explained, package
from labelnoise.io.shards import Shards
from labelnoise.labels import encode_labels
from labelnoise.neighbors import Neighbors, nearest_neighbors
from labelnoise.neighbors.cluster import (
    PATIENCE,
    Cluster,
    Progress,
    nearest_in_shards,
    shape_of,
)

if TYPE_CHECKING:
    from labelnoise.hoc import HOC

__all__ = ["Shards", "fit_shards", "local_cluster", "nearest_in_shards", "remote_cluster"]

_LARGEST_KEPT = 2 * 2**30  # bytes; larger arrays of neighbours are not kept for intervals
_SAMPLE = 100_000  # rows that the model of the clean class is fitted to


def fit_shards(
    est: HOC, X: Any, y: Any, center_weight: Any = None, progress: Progress | None = None
) -> None:
    """Fit `HOC` to `Shards` or a Dask array, with the workers of the current Dask client.

    The triples are those of one machine. T is refined by a random sample of 100,000 rows and their
    neighbours in it, or by all if there are no more. Rows with a `center_weight` of 0 are not
    searched for neighbours, so that a sample of centres costs as much less as it is smaller; T is
    refined all the same.
    """
    if est.search == "approximate":
        raise LabelNoiseError(
            "Expected search to be 'auto' or 'exact' for shards, which are searched exactly, but "
            "search = 'approximate'"
        )
    labels, classes = encode_labels(y, est.classes, est.unlabeled)
    expect_two_classes(classes, labels)
    n, est.n_features_in_ = shape_of(X)
    if n != len(labels):
        raise LabelNoiseError(
            f"Expected as many labels as rows, but X has {n} rows and y {len(labels)} labels"
        )
    is_center = None if center_weight is None else _is_center(center_weight, n)
    cluster = Cluster(X, progress)
    rows, notes = est._usable_rows(_keys_of_rows(cluster)[:, None], labels, None, est.n_neighbors)
    labels = labels[rows]
    K, k = len(classes), est.n_neighbors
    if is_center is None:
        nearest = cluster.nearest(rows, k, est.metric)
        consensus = _count(labels, labels, nearest.index, K)
        indices = nearest.index if nearest.index.nbytes <= _LARGEST_KEPT else None
        if indices is not None:
            est.examples_ = Examples(None, labels, rows, Neighbors(indices, None))
        est._solve(consensus, classes, notes)
    else:
        centers = np.flatnonzero(is_center[rows])
        nearest = cluster.nearest_of(centers, rows, k, est.metric)
        est._solve(_count(labels[centers], labels, nearest.index, K), classes, notes)
    sample = np.random.default_rng(0).permutation(len(rows))[: min(_SAMPLE, LARGEST_REFINED // K)]
    sample.sort()
    if est.refine and est.solver == "likelihood" and can_refine(sample, labels[sample], K):
        _refine(est, est._features(cluster.take(rows[sample])), labels[sample], len(rows), progress)
    warn_of(est.diagnostics_)


def _is_center(center_weight: Any, n: int) -> np.ndarray:
    weight = np.asarray(center_weight)
    if weight.shape != (n,) or not np.isin(weight, (0, 1)).all() or not weight.any():
        raise LabelNoiseError(
            f"Expected a center_weight of 0 or 1 for each of {n} rows in shards, and some to be 1, "
            f"but it is {np.unique(weight)[:5]} with shape {weight.shape}"
        )
    return weight.astype(bool)


def _keys_of_rows(cluster: Cluster) -> np.ndarray:
    """A number (N,) for each row, equal for equal rows: 0 for zero rows."""
    result = np.empty(cluster.n, np.uint64)
    tiles = range(len(cluster.tiles))
    calls = ((i, cluster.tile(i), f"block {i} of X", cluster.width) for i in tiles)
    for i, found in cluster.results("looking at the data", keys, calls, len(tiles)):
        result[cluster.begin[i] : cluster.begin[i + 1]] = found
    return result


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
    return row_keys(rows)


def _count(centers: np.ndarray, labels: np.ndarray, neighbors: np.ndarray, K: int) -> Consensus:
    """As `Consensus.from_neighbors`, where all are labelled; a block of centres at a time."""
    pairs = list(combinations(range(1, neighbors.shape[1] + 1), 2))
    total = Consensus.from_labels(np.empty((0, 3), int), K)
    for rows in row_blocks(len(centers), 16):
        around = np.column_stack([centers[rows], labels[neighbors[rows]]])
        for pair in pairs:
            total += Consensus.from_labels(around[:, [0, *pair]], K)
    # Sums of whole numbers do not depend on the order of the blocks.
    return Consensus(total.triples, total.weights / len(pairs), K, len(centers))


def _refine(est: HOC, X: np.ndarray, labels: np.ndarray, n: int, progress: Progress | None) -> None:
    near, refining = (
        progress and partial(progress, stage) for stage in ("neighbors of a sample", "refining")
    )
    k = min(VOTERS, len(X) - 1)
    nearby = nearest_neighbors(X, k, est.metric, device=est.device, progress=near)
    counted = est.examples_
    est.examples_ = Examples(X, labels, np.arange(len(X)), nearby)
    est._refine(refining)
    est._check_examples()
    est.examples_ = counted
    if len(X) < n:
        said = f"T was refined by a random sample of {len(X):,} of {n:,} examples."
        found = Finding("sample", True, len(X) / n, said)
        est.diagnostics_ = Diagnostics((*est.diagnostics_, found))


@contextmanager
def local_cluster(workers: int, memory_limit: str = "auto") -> Iterator[Any]:
    """Start worker processes on this machine, of one thread each, and give their client.

    `memory_limit` is that of each, such as "4GB"; by default they share what there is.
    """
    distributed = package("distributed", "dask")
    # Dask's own setting returns freed memory to the system at once, which trebles the time.
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
            silence_logs=logging.CRITICAL,  # errors that concern the user are raised
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def remote_cluster(address: str) -> Iterator[Any]:
    """Connect to a scheduler; gives the client."""
    distributed = package("distributed", "dask")
    with explained(f"Expected a Dask scheduler at {address}, but it cannot be reached"):
        client = distributed.Client(address, timeout=PATIENCE)
    with client:
        yield client
