"""The symmetric model of a consensus: how likely the triples are, and what they say.

For the likelihood everything follows from the posterior joint
``J[i, a] = sum over triples of frequency * P(class i | triple) * share of label a in it``:
an EM step is ``p = J.sum(1), T = J / p``, and ``T dL/dT = 3 J``. For the norms it follows from
the contraction ``A[i, a] = sum_bc c3[a, b, c] T[i, b] T[i, c]``. Two forms compute them, one
by matrix products over all K^3 triples and one over those that occur.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from labelnoise.consensus import Consensus

_CHUNK = 2**18  # triples x classes handled at once, measured
_FLOAT32_FROM = 200  # classes from which the sum over triples is done in float32
_SECONDS_PER_PRODUCT = 9e-11  # of the dense form, measured, times K^4
_SECONDS_PER_GATHER = 9e-9  # of the sparse form, measured, times triples and classes


_SMALLEST_TOTAL = 1e-37  # a float32 still holds it
_TINY = 1e-300  # keeps 0 / 0 away from triples that the model excludes


class Model(Protocol):
    """The likelihood of one consensus, as a function of (T, p)."""

    def joint(self, T: np.ndarray, p: np.ndarray) -> np.ndarray:
        """(K, K) posterior joint of clean class (rows) and label (columns); sums to 1."""
        ...

    def joint_and_divergence(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, float]:
        """The same, and the Kullback-Leibler divergence of the triples from the model's."""
        ...

    def contraction(self, T: np.ndarray) -> np.ndarray:
        """(K, K) ``sum_bc c3[a, b, c] T[i, b] T[i, c]`` with rows i and columns a."""
        ...


def seconds_per_step(n_triples: int, K: int) -> float:
    """Roughly what one evaluation costs on one ordinary core, by the cheaper form."""
    return min(K**4 * _SECONDS_PER_PRODUCT, n_triples * K * _SECONDS_PER_GATHER)


def model_of(triples: np.ndarray, frequencies: np.ndarray, K: int) -> Model:
    """Choose the cheaper form for these sorted triples."""
    dense = len(triples) * K * _SECONDS_PER_GATHER >= K**4 * _SECONDS_PER_PRODUCT
    form = DenseModel if dense or K <= 16 else SparseModel
    return form(triples, frequencies, K)


class DenseModel:
    """All triples, as a matrix of first label by unordered pair of the others.

    O(K^4) in matrix products and O(K^3) in memory: for tens of classes far faster than
    visiting the triples that occur. The large arrays are made once and written over.
    """

    def __init__(self, triples: np.ndarray, frequencies: np.ndarray, K: int) -> None:
        b, c = np.triu_indices(K)
        pair = np.empty((K, K), np.intp)
        pair[b, c] = pair[c, b] = np.arange(len(b))
        self.observed = np.zeros((K, len(b)))
        i, j, k = triples.T
        self.cells = (i, pair[j, k])
        self.divergence = _Divergence(triples, frequencies, K)
        # Each member of a triple is the first label in a third of its orders.
        for first, second, third in ((i, j, k), (j, i, k), (k, i, j)):
            np.add.at(self.observed, (first, pair[second, third]), frequencies / 3)
        self._both = np.empty((K, len(b)))
        self._chance = np.empty((K, len(b)))
        self._ratio = np.empty((K, len(b)))

    def _set_both(self, T: np.ndarray) -> None:
        """Fill in ``T[i, b] T[i, c]`` for each unordered pair of labels."""
        K, start = len(T), 0
        for label in range(K):
            stop = start + K - label
            np.multiply(T[:, label, None], T[:, label:], out=self._both[:, start:stop])
            start = stop

    def contraction(self, T: np.ndarray) -> np.ndarray:
        """Contraction of the observed triples with T, twice."""
        self._set_both(T)
        return self._both @ self.observed.T

    def joint(self, T: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Posterior joint at (T, p)."""
        self._set_both(T)
        prior_and_first = p[:, None] * T
        np.matmul(prior_and_first.T, self._both, out=self._chance)
        self._chance += _TINY
        np.divide(self.observed, self._chance, out=self._ratio)
        return prior_and_first * (self._both @ self._ratio.T)

    def joint_and_divergence(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, float]:
        """Posterior joint and divergence at (T, p)."""
        joint = self.joint(T, p)
        return joint, self.divergence(self._chance[self.cells])


class SparseModel:
    """Only the triples that occur: O(triples * K) time, memory of a chunk."""

    def __init__(self, triples: np.ndarray, frequencies: np.ndarray, K: int) -> None:
        self.K = K
        self.dtype = np.float32 if K >= _FLOAT32_FROM else np.float64
        self.triples = triples.astype(np.intp)
        self.frequencies = frequencies
        self.divergence = _Divergence(triples, frequencies, K)
        # Each chunk also gives a (K, K) result: a chunk of more triples than that is worth it.
        step = max(_CHUNK // K, 4 * K)
        self.chunks = [slice(s, s + step) for s in range(0, len(triples), step)]
        self.members = [self._member_matrix(self.triples[chunk]) for chunk in self.chunks]
        self.map = map if len(self.chunks) == 1 else ThreadPoolExecutor().map

    def _member_matrix(self, triples: np.ndarray) -> sp.csr_array:
        """(K, m) how often each label is in each triple, over 3."""
        m = len(triples)
        columns = np.repeat(np.arange(m), 3)
        ones = np.full(3 * m, 1 / 3, self.dtype)
        return sp.csr_array((ones, (triples.ravel(), columns)), shape=(self.K, m))

    def joint(self, T: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Posterior joint at (T, p)."""
        return self._visit(T, p)[0]

    def joint_and_divergence(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, float]:
        """Posterior joint and divergence at (T, p)."""
        joint, chance = self._visit(T, p)
        return joint, self.divergence(chance)

    def contraction(self, T: np.ndarray) -> np.ndarray:
        """Contraction of the observed triples with T, twice."""
        columns = np.ascontiguousarray(T.T)
        result = np.zeros((self.K, self.K))
        for chunk in self.chunks:
            members = self.triples[chunk].T
            third = (self.frequencies[chunk] / 3)[:, None]
            for first, second, other in ((0, 1, 2), (1, 0, 2), (2, 0, 1)):
                place = sp.csr_array(
                    (np.ones(len(third)), (members[first], np.arange(len(third)))),
                    shape=(self.K, len(third)),
                )
                result += place @ (third * columns[members[second]] * columns[members[other]])
        return result.T

    def _visit(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        columns = np.ascontiguousarray(T.T, self.dtype)
        prior = p.astype(self.dtype)
        chance = np.empty(len(self.frequencies))

        def part(number: int) -> np.ndarray:
            chunk = self.chunks[number]
            i, j, k = self.triples[chunk].T
            share = columns[i]
            share *= columns[j]
            share *= columns[k]
            share *= prior
            total = share.sum(axis=1)
            chance[chunk] = total
            # A share of the total is at most 1, where frequency over total may overflow.
            share /= np.maximum(total, _SMALLEST_TOTAL)[:, None]
            share *= self.frequencies[chunk, None].astype(self.dtype)
            return self.members[number] @ share

        joint = np.zeros((self.K, self.K))
        for counts in self.map(part, range(len(self.chunks))):
            joint += counts.T
        return joint, chance + _TINY


class _Divergence:
    """Kullback-Leibler divergence of the triples from the model's, ``sum f log(f / q)``.

    As ``f log(f / q) - f + q``, with q for a triple that did not occur: near the optimum f / q
    is close to 1, and this form keeps the digits that the difference of two entropies loses.
    """

    def __init__(self, triples: np.ndarray, frequencies: np.ndarray, K: int) -> None:
        i, j, k = triples.T
        distinct = 1 + (i != j).astype(int) + (j != k)
        self.orders = np.array([0.0, 1.0, 3.0, 6.0])[distinct]
        self.frequencies = frequencies
        self.all_occur = len(triples) == K * (K + 1) * (K + 2) // 6

    def __call__(self, chance: np.ndarray) -> float:
        """Divergence, given the model's chance of each triple in one of its orders."""
        expected = chance * self.orders
        excess = (self.frequencies - expected) / expected
        terms = self.frequencies * np.log1p(excess) - expected * excess
        unseen = 0.0 if self.all_occur else max(0.0, 1.0 - expected.sum())
        return float(terms.sum()) + unseen


def draw_triples(T: np.ndarray, p: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, 3) labels drawn from the model: a clean class each, three labels of it."""
    counts = rng.multinomial(n, p / p.sum())
    cumulated = np.cumsum(T, axis=1)
    cumulated /= cumulated[:, -1:]
    draws = [
        np.searchsorted(cumulated[i], rng.random((count, 3)), side="right")
        for i, count in enumerate(counts)
    ]
    return np.concatenate(draws)


def sampling_divergence(
    T: np.ndarray, p: np.ndarray, n: int, *, repeats: int = 5
) -> tuple[float, float]:
    """Mean and standard deviation of the divergence of n triples drawn from (T, p).

    That is what sampling alone explains if (T, p) is true and known. Fitting it takes about
    one half of the number of free parameters, over n, off the mean. Simulated, because with
    many more cells than triples no chi-square approximation holds.
    """
    K = len(p)
    rng = np.random.default_rng(0)
    values = []
    for _ in range(repeats):
        triples = Consensus.from_labels(draw_triples(T, p, n, rng), K).sorted_triples()
        values.append(SparseModel(*triples, K).joint_and_divergence(T, p)[1])
    return float(np.mean(values)), float(np.std(values, ddof=1))
