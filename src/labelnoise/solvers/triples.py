"""The symmetric model of label triples: how likely they are, and what they say about T and p.

Everything follows from the posterior joint
``J[i, a] = sum over triples of frequency * P(class i | triple) * share of label a in it``:
an EM step is ``p = J.sum(1), T = J / p``, and ``T dL/dT = 3 J``. The paper's norms need the
contraction ``A[i, a] = sum_bc c3[a, b, c] T[i, b] T[i, c]``. Two forms compute them: matrix
products over all K^3 triples, or a pass over the triples that occur. Both hold L problems at
once, each with a T and p of its own: arrays of shape (L, K, K) and (L, K), or (K, K) and (K,)
for one problem.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from labelnoise.consensus import Consensus

_CHUNK = 2**18  # triples times classes that are processed at once, measured
_FLOAT32_FROM = 200  # with as many classes, sums over triples are in float32
_SECONDS_PER_PRODUCT = 9e-11  # dense form: times L K^4, measured
_SECONDS_PER_GATHER = 9e-9  # sparse form: times triples and classes, measured
_SECONDS_PER_ENTRY = 5e-8  # a step of a search, times the entries of T
_PATTERNS = 200_000  # kinds of triples; if there are more, this many are drawn
_SMALLEST_TOTAL = 1e-37  # about the smallest normal float32
TINY = 1e-300  # keeps 0 / 0 away from triples that the model excludes


def seconds_per_step(n_triples: int, K: int, n_problems: int = 1) -> float:
    """Roughly what one evaluation costs on one ordinary core, by the cheaper form."""
    dense = n_problems * K**4 * _SECONDS_PER_PRODUCT
    entries = n_problems * K * K * _SECONDS_PER_ENTRY
    return min(dense, n_triples * K * _SECONDS_PER_GATHER) + entries


def model_of(
    triples: np.ndarray,
    frequencies: np.ndarray,
    K: int,
    problem: np.ndarray | None = None,
    n_problems: int = 1,
) -> DenseTriples | SparseTriples:
    """Choose the cheaper form.

    Parameters
    ----------
    triples, frequencies : arrays of shape (M, 3) and (M,)
        Triples of labels, in any order within a triple; the frequencies of a problem sum to 1.
    K : int
    problem : int array of shape (M,), optional
        Which of the `n_problems` problems each triple belongs to.
    """
    dense = n_problems * K**4 * _SECONDS_PER_PRODUCT
    if len(triples) * K * _SECONDS_PER_GATHER >= dense:
        return DenseTriples(triples, frequencies, K, problem, n_problems)
    return SparseTriples(triples, frequencies, K, problem, n_problems)


class DenseTriples:
    """All triples, as matrices of first label by unordered pair of the others.

    O(K^4) in matrix products and O(K^3) in memory for each problem: for tens of classes far
    faster than visiting the triples that occur. The large arrays are made once and reused.
    """

    def __init__(
        self,
        triples: np.ndarray,
        frequencies: np.ndarray,
        K: int,
        problem: np.ndarray | None = None,
        n_problems: int = 1,
    ) -> None:
        which = np.zeros(len(triples), np.intp) if problem is None else problem
        b, c = np.triu_indices(K)
        pair = np.empty((K, K), np.intp)
        pair[b, c] = pair[c, b] = np.arange(len(b))
        i, j, k = triples.T
        shape = (n_problems, K, len(b))
        self.cells = (which, i, pair[j, k])
        self.divergence = Divergence(triples, frequencies, K)
        flat = np.zeros(n_problems * K * len(b))
        # Each member of a triple is the first label in a third of its orders.
        for first, second, third in ((i, j, k), (j, i, k), (k, i, j)):
            place = (which * K + first) * len(b) + pair[second, third]
            flat += np.bincount(place, frequencies / 3, len(flat))
        self.observed = flat.reshape(shape)
        self._both, self._chance, self._ratio = np.empty(shape), np.empty(shape), np.empty(shape)

    def _set_both(self, T: np.ndarray) -> None:
        """Fill in ``T[i, b] T[i, c]`` for each unordered pair of labels."""
        K, start = T.shape[-1], 0
        for label in range(K):
            stop = start + K - label
            np.multiply(T[:, :, label, None], T[:, :, label:], out=self._both[:, :, start:stop])
            start = stop

    def contraction(self, T: np.ndarray) -> np.ndarray:
        """Contraction of the observed triples with T, twice: rows i, columns a."""
        self._set_both(T.reshape(-1, *T.shape[-2:]))
        return (self._both @ self.observed.transpose(0, 2, 1)).reshape(T.shape)

    def joint(self, T: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Posterior joint of clean class (rows) and label (columns) at (T, p)."""
        self._set_both(T.reshape(-1, *T.shape[-2:]))
        first = (p[..., None] * T).reshape(-1, *T.shape[-2:])
        np.matmul(first.transpose(0, 2, 1), self._both, out=self._chance)
        self._chance += TINY
        np.divide(self.observed, self._chance, out=self._ratio)
        return (first * (self._both @ self._ratio.transpose(0, 2, 1))).reshape(T.shape)

    def joint_and_divergence(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, float]:
        """Posterior joint and divergence of one problem at (T, p)."""
        joint = self.joint(T, p)
        return joint, self.divergence(self._chance[self.cells])


class SparseTriples:
    """Only the triples that occur: O(triples * K) time, memory of a chunk.

    A token is a label of one of the problems: L problems have L K of them.
    """

    def __init__(
        self,
        triples: np.ndarray,
        frequencies: np.ndarray,
        K: int,
        problem: np.ndarray | None = None,
        n_problems: int = 1,
    ) -> None:
        self.K, self.n_tokens, self.problem = K, n_problems * K, problem
        self.tokens = triples.astype(np.intp)
        if problem is not None:
            self.tokens = problem[:, None] * K + self.tokens
        self.frequencies, self.divergence = frequencies, Divergence(triples, frequencies, K)
        self.dtype = np.float32 if K >= _FLOAT32_FROM else np.float64
        # Each chunk gives an (n_tokens, K) result: it must hold more triples than that.
        step = max(_CHUNK // K, 4 * self.n_tokens)
        self.chunks = [slice(s, s + step) for s in range(0, len(triples), step)]
        self.members = [self._thirds(self.tokens[chunk]) for chunk in self.chunks]
        self.map = map if len(self.chunks) == 1 else ThreadPoolExecutor().map

    def _thirds(self, tokens: np.ndarray) -> sp.csr_array:
        """(n_tokens, m) how often each token is in each of m triples, over 3."""
        columns = np.repeat(np.arange(len(tokens)), 3)
        thirds = np.full(tokens.size, 1 / 3, self.dtype)
        shape = (self.n_tokens, len(tokens))
        return sp.csr_array((thirds, (tokens.ravel(), columns)), shape=shape)

    def joint(self, T: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Posterior joint of clean class (rows) and label (columns) at (T, p)."""
        return self._visit(T, p)[0]

    def joint_and_divergence(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, float]:
        """Posterior joint and divergence of one problem at (T, p)."""
        joint, chance = self._visit(T, p)
        return joint, self.divergence(chance)

    def chance(self, T: np.ndarray, p: np.ndarray) -> np.ndarray:
        """(M,) chance of each triple, in one of its orders."""
        return self._visit(T, p)[1]

    def _visit(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        columns, priors = _as_columns(T).astype(self.dtype), p.astype(self.dtype)
        chance = np.empty(len(self.frequencies))

        def part(number: int) -> np.ndarray:
            chunk = self.chunks[number]
            i, j, k = self.tokens[chunk].T
            share = columns[i]
            share *= columns[j]
            share *= columns[k]
            share *= priors if self.problem is None else priors[self.problem[chunk]]
            total = share.sum(axis=1)
            chance[chunk] = total
            # A share of the total is at most 1, where frequency over total may overflow.
            share /= np.maximum(total, _SMALLEST_TOTAL)[:, None]
            share *= self.frequencies[chunk, None].astype(self.dtype)
            return self.members[number] @ share

        joint = np.zeros((self.n_tokens, self.K))
        for counts in self.map(part, range(len(self.chunks))):
            joint += counts
        return _as_rows(joint, T.shape), chance + TINY

    def contraction(self, T: np.ndarray) -> np.ndarray:
        """Contraction of the observed triples with T, twice: rows i, columns a."""
        columns, result = _as_columns(T), np.zeros((self.n_tokens, self.K))
        for chunk in self.chunks:
            members, place = self.tokens[chunk].T, np.arange(len(self.tokens[chunk]))
            third = (self.frequencies[chunk] / 3)[:, None]
            for first, second, other in ((0, 1, 2), (1, 0, 2), (2, 0, 1)):
                shape = (self.n_tokens, len(place))
                holds = sp.csr_array((np.ones(len(place)), (members[first], place)), shape=shape)
                result += holds @ (third * columns[members[second]] * columns[members[other]])
        return _as_rows(result, T.shape)


def _as_columns(T: np.ndarray) -> np.ndarray:
    """(L K, K) chance of each token (label) in each class."""
    return np.ascontiguousarray(np.swapaxes(T, -1, -2)).reshape(-1, T.shape[-1])


def _as_rows(counts: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Counts of tokens by class (L K, K) as matrices of class by label, of the given shape."""
    return np.swapaxes(counts.reshape(shape), -1, -2)


class Divergence:
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


def sampling_divergence(T: np.ndarray, p: np.ndarray, n: int) -> tuple[float, float]:
    """Mean and standard deviation of the divergence of n triples drawn from (T, p).

    That is what sampling alone explains if (T, p) is true and known. Fitting it takes about one
    half of the number of free parameters, over n, off the mean. Its time does not depend on n.
    """
    K = len(p)
    if K * (K + 1) * (K + 2) // 6 <= _PATTERNS:
        _, chance = Consensus.from_model(T, p).sorted_triples()
        return divergence_of_counts(chance, chance, n)
    triples = np.sort(draw_triples(T, p, _PATTERNS, np.random.default_rng(0)), axis=1)
    model = SparseTriples(triples, np.full(_PATTERNS, 1 / _PATTERNS), K)
    chance = model.chance(T, p) * model.divergence.orders
    return divergence_of_counts(chance, model.frequencies, n)


def divergence_of_counts(chance: np.ndarray, weight: np.ndarray, n: int) -> tuple[float, float]:
    """Mean and standard deviation of the divergence of n counts from their chances.

    With Poisson counts X of mean m = n q, a cell adds ``d(X) = X log(X / m) - X + m``, over n.
    The sum over all cells of ``E d / n`` is the mean of ``E d / m`` over cells that are drawn by
    their chance q, so a sample of cells will do: `weight` is the chance itself where all cells
    are listed, and 1 over their number where they are drawn.
    """
    largest = 1e3  # mean of a count, from which the chi-square limit holds
    grid = np.geomspace(1e-9, largest, 200)
    x = np.arange(largest + 10 * largest**0.5)
    share = np.exp(xlogy(x, grid[:, None]) - grid[:, None] - gammaln(x + 1))
    cost = xlogy(x, x) - xlogy(x, grid[:, None]) - x + grid[:, None]
    mean = (share * cost).sum(axis=1)
    variance = (share * cost**2).sum(axis=1) - mean**2
    m = np.maximum(n * chance, grid[0])
    total, spread = (weight @ (np.interp(m, grid, each) / m) for each in (mean, variance))
    # The counts add up to n: one degree of freedom less than Poisson counts have.
    total, spread = max(total - 0.5 / n, 0.0), max(spread / n - 0.5 / n**2, 0.0)
    return float(total), float(spread**0.5)
