"""Intervals for T, the class prior and the noise rate, for triples that share examples.

The error of a maximum-likelihood estimate is the mean over centres of ``J^-1 score``, with J the
Fisher information of one triple. Its variance is that of a mean of dependent terms. The classes
of centres are independent, as examples are. Given the classes, labels are independent too, so
only centres with a common example are dependent. Their covariance is the product of their scores
less the squared mean score of their class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack, solve_triangular
from scipy.stats import norm

from labelnoise._blocks import one_blas_thread, row_blocks
from labelnoise._errors import LabelNoiseError
from labelnoise.consensus import Consensus, triples_around
from labelnoise.neighbors import given_neighbors

_MOST_ENTRIES = 11_000  # entries of T; two information matrices of 1 GB each are needed
_ZERO_LABELS = 0.1  # entries of T that stand for fewer labels are on the boundary
_NEGLIGIBLE = 1e-6  # posterior probabilities below this are left out
_SINGULAR = 1e-9  # share of an entry's information that is left if the others are unknown
_ANY_ROW = 0.25  # the largest variance of a probability, where nothing is known


@dataclass(frozen=True, repr=False, eq=False)
class ConfidenceInterval:
    """Lower and upper ends, in this order, of intervals for the population values.

    Each holds for its entry alone, and only if neighbours share their class: where they do not,
    T is biased, and mostly by more than the interval is wide.
    """

    level: float
    transition_matrix: np.ndarray
    """(2, K, K)"""
    class_prior: np.ndarray
    """(2, K)"""
    noise_rate: np.ndarray
    """(2,)"""
    method: str
    """ "sandwich"; "independent": triples were taken to share no examples; "information": of a
    refined T; "verified": of a sample of verified labels."""
    on_boundary: np.ndarray
    """(K, K) whether the estimate is 0, so that only the upper end says something."""
    caveat: str = ""
    """Why not to rely on the intervals, where there is a sign that they do not hold."""
    variance: np.ndarray | None = None
    """(K, K) variances of the entries of T; None where only the ends are known."""

    @property
    def condition(self) -> str:
        """What they rest on, as the end of a sentence."""
        if self.method == "verified":
            return "from verified labels"
        if self.method != "information":
            return "if neighbours share their true class"
        return "of two estimates" if self.caveat else "if noise depends on class alone"

    def to_dict(self) -> dict[str, Any]:
        """Give all of it as JSON holds it."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }

    def transition_variance(self) -> np.ndarray:
        """(K, K) variances of the entries of T, by the ends where they are all that is known."""
        if self.variance is not None:
            return self.variance
        width: np.ndarray = np.ptp(self.transition_matrix, axis=0)
        return (width / (2 * norm.ppf((1 + self.level) / 2))) ** 2

    @classmethod
    def from_dict(cls, content: dict[str, Any], n_classes: int) -> ConfidenceInterval:
        """Read what `to_dict` gave; a ValueError tells of what cannot be."""
        K = n_classes
        shapes = {"transition_matrix": (2, K, K), "class_prior": (2, K), "noise_rate": (2,)}
        ends = {name: np.array(content[name], float) for name in shapes}
        boundary = np.array(content["on_boundary"])
        if any(ends[name].shape != shape for name, shape in shapes.items()) or (
            boundary.shape != (K, K) or boundary.dtype != bool
        ):
            raise ValueError("the sizes of the intervals do not fit")
        if not all((low >= 0).all() and (low <= high).all() for low, high in ends.values()):
            raise ValueError("an interval ends before it begins")
        variance = None if content.get("variance") is None else np.array(content["variance"], float)
        if variance is not None and (variance.shape != (K, K) or not (variance >= 0).all()):
            raise ValueError("the variances do not fit")
        return cls(
            float(content["level"]),
            **ends,
            method=str(content["method"]),
            on_boundary=boundary,
            caveat=str(content.get("caveat", "")),
            variance=variance,
        )

    def __repr__(self) -> str:
        low, high = self.noise_rate
        said = f"{low:.1%} to {high:.1%} of the labels are wrong ({self.level:.4g}, {self.method})"
        return f"{said}; {self.caveat}" if self.caveat else said


def confidence_interval(
    consensus: Consensus,
    transition_matrix: np.ndarray,
    class_prior: np.ndarray,
    *,
    labels: np.ndarray | None = None,
    neighbors: np.ndarray | None = None,
    center_weight: np.ndarray | None = None,
    level: float = 0.95,
) -> ConfidenceInterval:
    """Give intervals for the maximum-likelihood estimate of T and p.

    Parameters
    ----------
    consensus : Consensus
    transition_matrix, class_prior : arrays of shape (K, K) and (K,)
        What `solve(consensus)` found. Around the answer of another solver, whose errors are
        larger, the intervals are too narrow.
    labels, neighbors, center_weight : optional
        What the consensus was counted from, see `Consensus.from_neighbors`. Without them triples
        are taken as independent, and if they are not, the intervals are too narrow.
    level : float, default=0.95

    Notes
    -----
    As in Wilson's interval, t is inside if the estimate is within z standard deviations of it,
    by the variance that the estimate would have if t were true: ``b + c t (1 - t)``, with 1 / c
    the number of examples in the class and b due to not knowing which they are. An entry
    estimated as 0 is no parameter (active set); its interval is [0, t] with the b that it would
    have as one. With b = 0, t is near ``z^2 / n``, where the "rule of three" says ``3 / n``. For p
    and the noise rate b = 0. Where two rows of T are nearly equal, intervals are too narrow, and
    so is that of the noise rate under heavy noise, as its estimate has a bias. There is a limit of
    about 100 classes.

    Examples
    --------
    >>> import numpy as np
    >>> T, p = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0.5, 0.5])
    >>> confidence_interval(Consensus.from_model(T, p, n_centers=10_000), T, p)
    14.5% to 15.5% of the labels are wrong (0.95, independent)
    """
    T, p = np.asarray(transition_matrix, float), np.asarray(class_prior, float)
    K = consensus.n_classes
    for right, rule, value in (
        (T.shape == (K, K) and p.shape == (K,), f"T and p of {K} classes", (T.shape, p.shape)),
        (isinstance(level, float) and 0 < level < 1, "a level between 0 and 1", level),
    ):
        if not right:
            raise LabelNoiseError(f"Expected {rule}, but {value!r} was given")
    if labels is None and neighbors is None and center_weight is None:
        centres, name = _Centres.independent(consensus), "independent"
    else:
        centres, name = _Centres.of(consensus, labels, neighbors, center_weight), "sandwich"
    estimate = _Estimate(centres, T, p)
    # More BLAS threads gain little here, and cost much on a busy machine.
    with one_blas_thread():
        variance = _sandwich(centres, estimate)
    return estimate.interval(variance, level, name)


@dataclass(frozen=True)
class _Centres:
    """Which triples lie around each centre, and which examples."""

    triples: np.ndarray  # (M, 3) distinct, sorted
    holds: sp.csr_array  # (n, M) share of each triple among those of a centre; rows sum to 1
    weight: np.ndarray  # (n,) weight of a centre, or the sum over equal ones
    squares: np.ndarray  # (n,) the sum of the squared weights of equal ones
    uses: sp.csr_array  # (N, n) weight of each example in a centre; in many, its quadratic mean
    shared: sp.csr_array  # (n, n) 1 where two different centres have an example in common

    @classmethod
    def independent(cls, consensus: Consensus) -> _Centres:
        triples, frequencies = consensus.sorted_triples()
        count = frequencies * consensus.n_centers
        each = sp.eye_array(len(count), format="csr")
        uses = sp.diags_array(np.sqrt(count / 3), format="csr")
        return cls(triples, each, count, count, uses, each * 0)

    @classmethod
    def of(cls, consensus: Consensus, labels: Any, neighbors: Any, center_weight: Any) -> _Centres:
        if labels is None or neighbors is None:
            raise LabelNoiseError(
                "Expected both labels and neighbors, which belong together, but one of them is None"
            )
        labels, n, K = np.asarray(labels), len(labels), consensus.n_classes
        k = np.shape(neighbors)[1] if np.ndim(neighbors) == 2 else 2
        neighbors = given_neighbors(neighbors, n, k).indices
        counted = Consensus.from_neighbors(labels, neighbors, K, center_weight=center_weight)
        same = np.array_equal(counted.triples, consensus.triples)
        if not same or not np.allclose(counted.weights, consensus.weights):
            raise LabelNoiseError(
                "Expected the labels, neighbors and center_weight that the consensus was counted "
                "from, but they give other triples"
            )
        weight = np.ones(n) if center_weight is None else np.asarray(center_weight, float)
        members = np.column_stack([np.arange(n), neighbors])
        labelled = labels[members] >= 0
        used = labelled[:, 0] & (labelled.sum(axis=1) >= 3) & (weight > 0)
        members, labelled, weight = members[used], labelled[used], weight[used]
        count = labelled.sum(axis=1)
        uses = sp.csc_array(
            (np.repeat(weight / count, count), members[labelled], np.append(0, np.cumsum(count))),
            shape=(n, len(weight)),
        )
        shared = sp.csr_array(uses.T @ uses)
        shared.setdiag(0)
        shared.eliminate_zeros()
        shared.data[:] = 1
        triples, holds = _triples_of(labels[members], K)
        return cls(triples, holds, weight, weight**2, uses.tocsr(), shared)

    @property
    def size(self) -> float:
        """How many centres of equal weight would say as much."""
        return float(self.weight.sum() ** 2 / self.squares.sum())

    def one_label(self, posterior: np.ndarray) -> np.ndarray:
        """(m,) one over the number of labels in each class, by the triples' posterior (M, m)."""
        around = self.holds @ posterior
        one, total = ((self.uses @ around) ** 2).sum(axis=0), self.weight @ around
        return np.divide(one, total**2, out=np.ones_like(total), where=total > 0)


class _Estimate:
    """T and p of the r classes that there are, off the boundary, with labels first: (K, r)."""

    def __init__(self, centres: _Centres, T: np.ndarray, p: np.ndarray) -> None:
        self.full, self.size = (T, p), centres.size
        self.present = np.flatnonzero(p * self.size >= 1)
        self.T, self.p = T[self.present].T, p[self.present]
        self.c = centres.one_label(self._posterior(self.T, centres.triples))
        self.least_c = centres.one_label(np.ones((len(centres.triples), 1)))
        floor = _ZERO_LABELS * self.c
        self.boundary = (floor > self.T) & (self.T.max(axis=0) > self.T)
        interior = np.where(self.boundary, floor, self.T)
        self.interior = interior / interior.sum(axis=0)
        self.posterior = self._posterior(self.interior, centres.triples)

    def _posterior(self, T: np.ndarray, triples: np.ndarray) -> np.ndarray:
        """(M, r) chance of each class given the triple."""
        a, b, c = triples.T
        share = self.p * T[a] * T[b] * T[c]
        return share / np.maximum(share.sum(axis=1, keepdims=True), 1e-300)

    def values(self, T: np.ndarray, p: np.ndarray) -> np.ndarray:
        """T of the classes that there are, their p, and the noise rate, in one vector."""
        rate = 1 - p @ np.diag(T)
        return np.concatenate([T[self.present].T.ravel(), p[self.present], [rate]])

    def interval(self, variance: np.ndarray, level: float, method: str) -> ConfidenceInterval:
        """Intervals from the variances of `values`; a class that is not there can have any row."""
        z = float(norm.ppf((1 + level) / 2))
        (K, r), n = self.T.shape, self.T.size
        matrix = np.stack([np.zeros((K, K)), np.ones((K, K))])
        ends = wilson(self.T, variance[:n].reshape(K, r), self.c, z)
        matrix[:, self.present] = ends.transpose(0, 2, 1)
        share = self.values(*self.full)[n:]
        spread = np.maximum(share * (1 - share), self.least_c)
        ends = wilson(share, 0, np.maximum(variance[n:] / spread, self.least_c), z)
        prior = np.stack([np.zeros(K), np.full(K, z**2 / (self.size + z**2))])
        prior[:, self.present] = ends[:, :-1]
        boundary = np.zeros((K, K), bool)
        boundary[self.present] = self.boundary.T
        of_T = np.full((K, K), _ANY_ROW)
        of_T[self.present] = np.maximum(variance[:n], 0).reshape(K, r).T
        return ConfidenceInterval(
            level, matrix, prior, ends[:, -1], method, boundary, variance=of_T
        )


def _sandwich(centres: _Centres, estimate: _Estimate) -> np.ndarray:
    """Variances of the estimate's `values`.

    With ``theta[a, i] = p[i]^(1/3) T[i, a]`` a triple has the chance ``q(a, b, c) = sum_i
    theta[a, i] theta[b, i] theta[c, i]``. To take the number of triples for a Poisson number
    changes nothing at the maximum, and leaves theta without constraints.
    """
    T, (K, r), posterior = estimate.interior.ravel(), estimate.T.shape, estimate.posterior
    root = np.cbrt(estimate.p)
    theta = root * estimate.interior
    boundary = estimate.boundary.ravel()
    free, fixed = np.flatnonzero(~boundary), np.flatnonzero(boundary)
    inverse, alone = _inverse_information(theta, free, fixed)
    triple, i = np.nonzero(posterior > _NEGLIGIBLE)
    place = (np.repeat(triple, 3), (centres.triples[triple] * r + i[:, None]).ravel())
    share = np.repeat(posterior[triple, i], 3)
    score = sp.csr_array((share, place), shape=(len(posterior), K * r))[:, free]
    variance = _Variance(centres, posterior, sp.csr_array(score / theta.ravel()[free]))

    i = free % r
    sums = inverse @ (i[:, None] == np.arange(r))  # over the row of T of each class
    of_T = np.empty(K * r)
    for some in row_blocks(len(free), 4 * max(score.shape)):
        change = inverse[:, some] - T[free[some]] * sums[:, i[some]]
        of_T[free[some]] = variance(change / root[i[some]])
    right = estimate.present * r + np.arange(r)  # the places of T[i, i]
    correct = sums @ (2 * root * theta.ravel()[right])
    correct += inverse @ np.where(np.isin(free, right), root[i] ** 2, 0)
    others = variance(np.column_stack([3 * root**2 * sums, correct]))
    i = fixed % r
    of_T[fixed] = estimate.c[i] * (3 * root[i] / alone - T[fixed])  # b, were this entry free too
    # Fitting takes up as many degrees of freedom as there are parameters.
    lost = centres.size / max(centres.size - len(free), 1)
    return lost * np.concatenate([of_T, others])


class _Variance:
    """The variance of the mean over centres of a linear function of their scores (M, free)."""

    def __init__(self, centres: _Centres, posterior: np.ndarray, score: sp.csr_array) -> None:
        self.score, self.holds, self.squares = score, centres.holds, centres.squares
        self.weight = centres.weight @ self.holds
        self.of_class = self.weight[:, None] * posterior
        self.pairs = sp.csr_array(centres.shared * centres.weight * centres.weight[:, None])
        self.pairs_of_class = self.pairs.sum(axis=1) @ (self.holds @ posterior)
        if self.holds.nnz == len(centres.weight):  # one triple each: group those with the same
            self.pairs = sp.csr_array(self.holds.T @ self.pairs @ self.holds)
            self.squares = self.squares @ self.holds
            self.holds = sp.eye_array(len(posterior), format="csr")

    def __call__(self, factors: np.ndarray) -> np.ndarray:
        """(m,) variances, for columns of factors (free, m)."""
        effect = self.score @ factors
        effect -= self.weight @ effect / self.weight.sum()
        mean = self.of_class.T @ effect / self.of_class.sum(axis=0)[:, None]
        around = self.holds @ effect
        alone = np.einsum("n,nm,nm->m", self.squares, around, around)
        pairs = np.einsum("nm,nm->m", around, self.pairs @ around) - self.pairs_of_class @ mean**2
        # Two scores that share an example, and else are independent, have no negative covariance.
        return (alone + np.maximum(pairs, 0)) / self.weight.sum() ** 2


def _inverse_information(
    theta: np.ndarray, free: np.ndarray, fixed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """J^-1 of the free entries, and the information of each fixed one, freed by itself."""
    if theta.size > _MOST_ENTRIES:
        raise LabelNoiseError(
            f"Expected at most {_MOST_ENTRIES} entries of T for intervals, but there "
            f"are {theta.size}: merge classes, or leave intervals out"
        )
    J = information(theta)
    factor, failed = lapack.dpotrf(J[np.ix_(free, free)].T, lower=1, overwrite_a=1)
    if failed or (factor.diagonal() ** 2 < _SINGULAR * J.diagonal()[free]).any():
        raise LabelNoiseError(
            "Expected triples that tell the rows of T apart, but two rows are equal: merge the "
            "classes that are labelled in the same way"
        )
    explained = solve_triangular(factor, J[np.ix_(free, fixed)], lower=True)
    alone = J.diagonal()[fixed] - (explained**2).sum(axis=0)
    del J, explained
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)  # above the diagonal it is 0
    inverse += inverse.T
    inverse[np.diag_indices(len(free))] /= 2
    return inverse, alone


def information(theta: np.ndarray) -> np.ndarray:
    """(Kr, Kr) Fisher information of theta (K, r) in one triple: ``sum over abc of dq dq' / q``.

    With ``G[i, k] = sum_c theta[c, i] theta[c, k] / q(a, b, c)``, derivatives by different members
    of the triple give ``6 theta[b, i] theta[a, k] G[i, k]`` at (a, i), (b, k), and those by the
    same member ``3 sum_b theta[b, i] theta[b, k] G[i, k]`` at (a, i), (a, k).
    """
    K, r = theta.shape
    J = np.empty((K, r, K, r))
    for a in range(K):
        q = (theta * theta[a]) @ theta.T
        G = ((theta.T / q[:, None]).reshape(K * r, K) @ theta).reshape(K, r, r)
        G *= theta[:, :, None]
        J[a] = 6 * (G * theta[a]).transpose(1, 0, 2)
        J[a, :, a] += 3 * np.einsum("bik,bk->ik", G, theta)
    return J.reshape(K * r, K * r)


def _triples_of(labels: np.ndarray, K: int) -> tuple[np.ndarray, sp.csr_array]:
    """Distinct sorted triples of rows (centre, neighbours...), and each row's shares of them."""
    centre, triples, share = triples_around(labels[:, 0], labels[:, 1:])
    a, b, c = np.sort(triples, axis=1).T
    key, which = np.unique((a * K + b) * K + c, return_inverse=True)
    holds = sp.csr_array((share, (centre, which)), shape=(len(labels), len(key)))
    return np.column_stack([key // K**2, key // K % K, key % K]), holds


def wilson(x: np.ndarray, variance: Any, c: Any, z: float) -> np.ndarray:
    """(2, ...) ends of ``(x - t)^2 <= z^2 (b + c t (1 - t))``, where b gives x its variance."""
    b = np.maximum(variance - c * x * (1 - x), 0)
    scale, middle = 1 + z**2 * c, x + z**2 * c / 2
    half = np.sqrt(np.maximum(middle**2 - scale * (x**2 - z**2 * b), 0))
    ends = np.stack([middle - half, middle + half]) / scale
    return np.stack([np.clip(ends[0], 0, x), np.clip(ends[1], x, 1)])


def holm(p_values: np.ndarray) -> np.ndarray:
    """P-values of any shape, adjusted for their number by Holm's method."""
    order = np.argsort(p_values, axis=None, kind="stable")
    adjusted = np.empty(p_values.size)
    adjusted[order] = np.maximum.accumulate(p_values.flat[order] * np.arange(len(order), 0, -1))
    return np.minimum(adjusted, 1).reshape(p_values.shape)
