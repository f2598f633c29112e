"""Batches in which all labels occur about equally often."""

from __future__ import annotations

import numpy as np

from labelnoise._errors import LabelNoiseError


def balanced_batches(
    labels: np.ndarray, batch_size: int, n_batches: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw (n_batches, batch_size) numbers of examples, all labels (nearly) equally often.

    An example comes again only when all others of its label had their turn.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> labels[balanced_batches(labels, 4, 3, np.random.default_rng(0))].sum(axis=1).tolist()
    [2, 2, 2]
    """
    if min(len(labels), batch_size, n_batches) < 1:
        raise LabelNoiseError(
            f"Expected labels, batch_size >= 1 and n_batches >= 1, but there are {len(labels)} "
            f"labels, batch_size = {batch_size}, n_batches = {n_batches}"
        )
    wanted = _turns(np.unique(labels), batch_size * n_batches, rng)
    drawn = np.empty(len(wanted), np.int64)
    for label in np.unique(labels):
        places = np.flatnonzero(wanted == label)
        drawn[places] = _turns(np.flatnonzero(labels == label), len(places), rng)
    return drawn.reshape(n_batches, batch_size)


def _turns(values: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """All values in a random order, then all in another, until there are n."""
    n_orders = -(-n // len(values))
    return rng.permuted(np.tile(values, (n_orders, 1)), axis=1).ravel()[:n]
