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

_CHUNK = 2**18  # triples x classes handled at once, measured
_FLOAT32_FROM = 200  # classes from which the sum over triples is done in float32
_SECONDS_PER_PRODUCT = 9e-11  # of the dense form, measured, times L K^4
_SECONDS_PER_GATHER = 9e-9  # of the sparse form, measured, times triples and classes
_DENSE_UP_TO = 16  # classes for which the dense form is always taken
_PATTERNS = 200_000  # of labels, up to which all are listed; else so many are drawn
_LARGEST_MEAN = 1e3  # of a Poisson count, from which the chi-square limit holds
_SMALLEST_TOTAL = 1e-37  # a float32 still holds it
_TINY = 1e-300  # keeps 0 / 0 away from triples that the model excludes


def seconds_per_step(n_triples: int, K: int, n_problems: int = 1) -> float:
    """Roughly what one evaluation costs on one ordinary core, by the cheaper form."""
    dense = n_problems * K**4 * _SECONDS_PER_PRODUCT
    return min(dense, n_triples * K * _SECONDS_PER_GATHER)


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
    if K <= _DENSE_UP_TO or len(triples) * K * _SECONDS_PER_GATHER >= dense:
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
        self._chance += _TINY
        np.divide(self.observed, self._chance, out=self._ratio)
        return (first * (self._both @ self._ratio.transpose(0, 2, 1))).reshape(T.shape)

    def joint_and_divergence(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, float]:
        """Posterior joint and divergence of one problem at (T, p)."""
        joint = self.joint(T, p)
        return joint, self.divergence(self._chance[self.cells])


class SparseTriples:
    """Only the triples that occur: O(triples * K) time, memory of a chunk."""

    def __init__(
        self,
        triples: np.ndarray,
        frequencies: np.ndarray,
        K: int,
        problem: np.ndarray | None = None,
        n_problems: int = 1,
    ) -> None:
        tokens = triples.astype(np.intp)
        if problem is not None:
            tokens = problem[:, None] * K + tokens
        self.counts = TokenTriples(tokens, frequencies, n_problems * K, K, problem)
        self.divergence = Divergence(triples, frequencies, K)

    def joint(self, T: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Posterior joint of clean class (rows) and label (columns) at (T, p)."""
        return self._visit(T, p)[0]

    def joint_and_divergence(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, float]:
        """Posterior joint and divergence of one problem at (T, p)."""
        joint, chance = self._visit(T, p)
        return joint, self.divergence(chance)

    def contraction(self, T: np.ndarray) -> np.ndarray:
        """Contraction of the observed triples with T, twice: rows i, columns a."""
        return _as_rows(self.counts.contraction(_as_columns(T)), T.shape)

    def _visit(self, T: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels, chance, _ = self.counts.expected(_as_columns(T), p.reshape(-1, p.shape[-1]))
        return _as_rows(labels / 3, T.shape), chance


class TokenTriples:
    """Distinct triples of tokens, with weights: a token is a label under a matrix of its own.

    One problem has K tokens; L problems, or L groups of examples, have L K. The class prior of
    a triple is row `prior_of` of the priors.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        weight: np.ndarray,
        n_tokens: int,
        K: int,
        prior_of: np.ndarray | None = None,
    ) -> None:
        self.tokens, self.weight, self.prior_of = tokens, weight, prior_of
        self.n_tokens, self.K = n_tokens, K
        self.dtype = np.float32 if K >= _FLOAT32_FROM else np.float64
        # Each chunk gives an (n_tokens, K) result: it must hold more triples than that.
        step = max(_CHUNK // K, 4 * n_tokens)
        self.chunks = [slice(s, s + step) for s in range(0, len(tokens), step)]
        self.members = [self._occurrences(tokens[chunk], n_tokens) for chunk in self.chunks]
        self.map = map if len(self.chunks) == 1 else ThreadPoolExecutor().map

    def _occurrences(self, numbers: np.ndarray, size: int) -> sp.csr_array:
        """(size, m) how often each number occurs in each of m rows."""
        m = len(numbers)
        columns = np.repeat(np.arange(m), numbers.size // max(m, 1))
        ones = np.ones(numbers.size, self.dtype)
        return sp.csr_array((ones, (numbers.ravel(), columns)), shape=(size, m))

    def expected(
        self, columns: np.ndarray, priors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Expected counts (n_tokens, K) of each token in each class, chances (M,), class counts.

        Columns (n_tokens, K) are each token's chance in each class. The class counts (C, K) are
        those of each prior, empty if there is one prior only.
        """
        columns = np.ascontiguousarray(columns, self.dtype)
        priors = priors.astype(self.dtype)
        chance = np.empty(len(self.weight))

        def part(number: int) -> tuple[np.ndarray, np.ndarray | None]:
            chunk = self.chunks[number]
            i, j, k = self.tokens[chunk].T
            share = columns[i]
            share *= columns[j]
            share *= columns[k]
            share *= priors[0] if self.prior_of is None else priors[self.prior_of[chunk]]
            total = share.sum(axis=1)
            chance[chunk] = total
            # A share of the total is at most 1, where weight over total may overflow.
            share /= np.maximum(total, _SMALLEST_TOTAL)[:, None]
            share *= self.weight[chunk, None].astype(self.dtype)
            if self.prior_of is None:
                return self.members[number] @ share, None
            return self.members[number] @ share, self._of_priors(chunk, len(priors)) @ share

        labels = np.zeros((self.n_tokens, self.K))
        classes = np.zeros(priors.shape if self.prior_of is not None else (0, self.K))
        for of_tokens, of_priors in self.map(part, range(len(self.chunks))):
            labels += of_tokens
            if of_priors is not None:
                classes += of_priors
        return labels, chance + _TINY, classes

    def _of_priors(self, chunk: slice, n_priors: int) -> sp.csr_array:
        assert self.prior_of is not None
        return self._occurrences(self.prior_of[chunk], n_priors)

    def contraction(self, columns: np.ndarray) -> np.ndarray:
        """(n_tokens, K) weight of each token as one member, times the chances of the other two."""
        result = np.zeros((self.n_tokens, self.K))
        for chunk in self.chunks:
            members = self.tokens[chunk].T
            third = (self.weight[chunk] / 3)[:, None]
            for first, second, other in ((0, 1, 2), (1, 0, 2), (2, 0, 1)):
                place = sp.csr_array(
                    (np.ones(len(third)), (members[first], np.arange(len(third)))),
                    shape=(self.n_tokens, len(third)),
                )
                result += place @ (third * columns[members[second]] * columns[members[other]])
        return result


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
    chance = model.counts.expected(T.T, p[None])[1] * model.divergence.orders
    return divergence_of_counts(chance, model.divergence.frequencies, n)


def divergence_of_counts(chance: np.ndarray, weight: np.ndarray, n: int) -> tuple[float, float]:
    """Mean and standard deviation of the divergence of n counts from their chances.

    With Poisson counts X of mean m = n q, a cell adds ``d(X) = X log(X / m) - X + m``, over n.
    The sum over all cells of ``E d / n`` is the mean of ``E d / m`` over cells that are drawn by
    their chance q, so a sample of cells will do: `weight` is the chance itself where all cells
    are listed, and 1 over their number where they are drawn.
    """
    grid = np.geomspace(1e-9, _LARGEST_MEAN, 200)
    x = np.arange(_LARGEST_MEAN + 10 * _LARGEST_MEAN**0.5)
    share = np.exp(xlogy(x, grid[:, None]) - grid[:, None] - gammaln(x + 1))
    cost = xlogy(x, x) - xlogy(x, grid[:, None]) - x + grid[:, None]
    mean = (share * cost).sum(axis=1)
    variance = (share * cost**2).sum(axis=1) - mean**2
    m = np.maximum(n * chance, grid[0])
    total, spread = (weight @ (np.interp(m, grid, each) / m) for each in (mean, variance))
    # The counts add up to n: one degree of freedom less than Poisson counts have.
    total, spread = max(total - 0.5 / n, 0.0), max(spread / n - 0.5 / n**2, 0.0)
    return float(total), float(spread**0.5)
