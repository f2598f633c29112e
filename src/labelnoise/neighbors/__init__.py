"""Who is near whom: nearest neighbours of a data set within itself.

Exactly on the CPU (`exact`) or on a GPU (`cuda`), or nearly so where there are very many rows
(`approximate`); or as they were found elsewhere (`given`).
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from labelnoise._blocks import thread_count
from labelnoise._errors import LabelNoiseError
from labelnoise.neighbors.approximate import approximate_neighbors
from labelnoise.neighbors.exact import TILE, exact_neighbors, nearest_of_sources
from labelnoise.neighbors.given import first_neighbors, given_neighbors, listed_neighbors
from labelnoise.neighbors.points import Neighbors, Points, Progress

__all__ = [
    "METRICS",
    "SEARCHES",
    "Neighbors",
    "Points",
    "Progress",
    "chosen_device",
    "chosen_search",
    "first_neighbors",
    "given_neighbors",
    "listed_neighbors",
    "nearest_neighbors",
]

METRICS = ("cosine", "euclidean")
SEARCHES = ("auto", "exact", "approximate")

_LONGEST = 180  # seconds that an exact search may take, for "auto" to choose it
_WORTH_A_GPU = 10  # seconds of an exact search, for "auto" to look for a GPU
_PAIRS_PER_SECOND = 6e10  # of a thread, times d + 60, measured


def nearest_neighbors(
    X: np.ndarray,
    n_neighbors: int = 2,
    metric: str = "cosine",
    *,
    sources: np.ndarray | None = None,
    search: str = "exact",
    device: str = "cpu",
    progress: Progress | None = None,
    tile: int = TILE,
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
        search would take more than ten seconds. The neighbours are the same, but for ties.
    progress : callable, optional
        Called as ``progress(tiles_done, tiles)``.
    tile : int
        Rows in a tile of an exact search. It changes speed and memory, not the result.

    Returns
    -------
    Neighbors
        Exact up to rounding: of neighbours whose distances differ by less than one part in a
        thousand, float32 may choose. Identical rows are at distance 0 from each other and are
        legal neighbours; the row itself is left out by its number.

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
    sources = _numbered(sources, k)
    approximate = chosen_search(search, n, X.shape[1], device, sources) == "approximate"
    device = chosen_device(device, n, X.shape[1], sources)
    if device != "cpu" and not approximate:
        from labelnoise.neighbors.cuda import nearest_on_device

        return nearest_on_device(X, k, metric, device, progress=progress)
    points = Points(np.asanyarray(X), metric, copy=not approximate)
    if approximate:
        indices, gap = approximate_neighbors(points, k, sources, progress)
    elif sources is not None:
        indices, gap = nearest_of_sources(points, k, sources, progress)
    else:
        indices, gap = exact_neighbors(points, k, tile, progress)
    return Neighbors(indices, points.distance(gap))


def _numbered(sources: np.ndarray | None, k: int) -> np.ndarray | None:
    """Sources as numbers from 0 on; None if no two rows have the same."""
    if sources is None:
        return None
    names, numbers = np.unique(sources, return_inverse=True)
    if len(names) <= k:
        raise LabelNoiseError(
            f"Expected more than n_neighbors = {k} sources, as neighbours are of different "
            f"ones, but the number of sources is {len(names)}"
        )
    return None if len(names) == len(numbers) else numbers


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
