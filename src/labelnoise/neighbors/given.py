"""Neighbours that were found elsewhere: row numbers, or a graph of distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from labelnoise._errors import LabelNoiseError
from labelnoise.neighbors.points import Neighbors


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
