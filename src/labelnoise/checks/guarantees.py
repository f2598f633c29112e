"""The paper's theory as numbers: for how many independent triples it promises which error."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.consensus import independent_centres

_SURE = 0.99  # probability of a class from which an example counts as an anchor point


def consensus_bound(n_independent: int, delta: float = 0.05, n_entries: int = 1) -> float:
    """Bound on the error of an entry of c1, c2 or c3: the paper's Lemma 1.

    With probability 1 - delta an entry counted from ``|E_3*|`` independent triples differs from
    its expectation by at most ``sqrt(ln(2 / delta) / (2 |E_3*|))`` (Hoeffding's inequality). So
    it falls as one over the root of the number of triples.

    Parameters
    ----------
    n_independent : int
        Triples that share no example, as `labelnoise.consensus.independent_centres` chooses.
    delta : float, default=0.05
    n_entries : int, default=1
        Of how many entries together it shall hold: all of them are ``K + K^2 + K^3``. The paper
        states the bound for all entries, and proves it for each.

    Examples
    --------
    >>> round(consensus_bound(5_000), 4)
    0.0192
    """
    if not (n_independent >= 1 and 0 < delta < 1 and n_entries >= 1):
        raise LabelNoiseError(
            f"Expected n_independent >= 1, 0 < delta < 1 and n_entries >= 1, but they are "
            f"{n_independent}, {delta} and {n_entries}"
        )
    return sqrt(log(2 * n_entries / delta) / (2 * n_independent))


@dataclass(frozen=True, repr=False)
class SampleSizes:
    """How many examples an estimate of T rests on: by triples and by anchor points."""

    n: int
    n_independent: int
    """Triples that share no example, |E_3*| by a greedy choice."""
    n_anchors: int | None
    """Examples that are nearly surely of one class, the paper's N_AC; None: not counted."""

    def __repr__(self) -> str:
        said = (
            f"|E_3*| = {self.n_independent:,} triples of N = {self.n:,} examples share no example "
            f"({self.n_independent / max(self.n, 1):.1%})"
        )
        if self.n_anchors is None:
            return said
        return f"{said}; N_AC = {self.n_anchors:,} examples are usable anchor points"


def sample_sizes(neighbors: Any, posteriors: Any = None, surely: float = _SURE) -> SampleSizes:
    """Count what the error of T falls with: |E_3*| for HOC, N_AC for anchor points (Remark 1).

    Parameters
    ----------
    neighbors : int array of shape (N, 2)
        Row numbers of each example's neighbours.
    posteriors : array of shape (N, K), optional
        P(clean class | features), as ``est.predict_proba()`` gives it.
    surely : float, default=0.99
        Probability of a class from which an example is an anchor point of it.

    Examples
    --------
    >>> sample_sizes([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4], [0, 3]])
    |E_3*| = 2 triples of N = 7 examples share no example (28.6%)
    """
    neighbors = np.asarray(neighbors)
    if neighbors.ndim != 2 or neighbors.dtype.kind not in "iu":
        raise LabelNoiseError(
            f"Expected neighbors as row numbers of shape (N, 2), but they are {neighbors.dtype} "
            f"of shape {neighbors.shape}"
        )
    anchors = None
    if posteriors is not None:
        anchors = int((np.asarray(posteriors, float).max(axis=1) >= surely).sum())
    return SampleSizes(len(neighbors), len(independent_centres(neighbors)), anchors)
