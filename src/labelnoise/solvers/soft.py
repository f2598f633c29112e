"""T, p and S of soft clusterability by maximum likelihood: EM from several starts, then L-BFGS.

S is "given", "one number" off its diagonal, or all to "estimate". Dense, O(K^4) a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from labelnoise.consensus import Consensus
from labelnoise.solvers.moments import project_on_simplex

_TINY = 1e-300  # keeps 0 / 0 away
_EM_STEPS = 25
_TRIAL_STEPS = 200
_STEPS = 5000
_ROUGHLY = 1e-3  # gain of the whole log-likelihood in a step, at which to stop where that will do


@dataclass(frozen=True)
class SoftFit:
    """One point that the search reached."""

    T: np.ndarray
    p: np.ndarray
    S: np.ndarray
    kind: str
    start: str
    divergence: float = np.inf
    steps: int = 0
    converged: bool = False


def fit_soft(
    consensus: Consensus,
    plain: np.ndarray,
    kind: str,
    given: np.ndarray | None,
    tol: float | None = None,
) -> SoftFit:
    """Fit a consensus in which all labels occur; `plain` is the T that plain HOC finds in it."""
    model, n = SoftModel(consensus), max(consensus.n_centers, 1)
    gradient, gain = (1e-9, 1e-7 / n) if tol is None else (tol, 0.0)
    tried = [
        _lbfgs(model, _em(model, start), _TRIAL_STEPS, gradient, max(gain, _ROUGHLY / n))
        for start in _starts(plain, consensus.c1, kind, given)
    ]
    return _lbfgs(model, min(tried, key=lambda fit: fit.divergence), _STEPS, gradient, gain)


def refit_soft(consensus: Consensus, start: SoftFit) -> SoftFit:
    """Fit another consensus from where a fit ended, as precisely as its sampling error asks."""
    model = SoftModel(consensus)
    start = replace(
        start, T=_interior(start.T), p=_interior(start.p[None])[0], S=_interior(start.S), steps=0
    )
    return _lbfgs(model, _em(model, start), _STEPS, 1e-9, _ROUGHLY / max(consensus.n_centers, 1))


class SoftModel:
    """The likelihood of one consensus as a function of (T, p, M), M = S T."""

    def __init__(self, consensus: Consensus) -> None:
        self.observed = consensus.c3.reshape(consensus.n_classes, -1)
        self.occurs = self.observed > 0
        self.seen = self.observed[self.occurs]

    def divergence(self, chance: np.ndarray) -> float:
        """Kullback-Leibler divergence of the observed triples, in the form that keeps digits."""
        expected = chance[self.occurs]
        excess = (self.seen - expected) / expected
        unseen = max(float(chance.sum() - expected.sum()), 0.0)
        return float((self.seen * np.log1p(excess) - expected * excess).sum()) + unseen

    def slopes(
        self, T: np.ndarray, p: np.ndarray, M: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Divergence; ``dL/d(p T)`` (K, K) and ``dL/dM`` (K, K) of the log-likelihood L."""
        K, both = len(p), _both(M)
        chance = (p[:, None] * T).T @ both + _TINY
        ratio = self.observed / chance
        by_centre = both @ ratio.T
        by_pair = ((p[:, None] * T) @ ratio).reshape(K, K, K)
        by_neighbor = 2 * np.einsum("ibc,ic->ib", by_pair, M)
        return self.divergence(chance), by_centre, by_neighbor


def triple_chance(T: np.ndarray, p: np.ndarray, M: np.ndarray) -> np.ndarray:
    """(K, K^2) ``c3[a, (b, c)] = sum_i p[i] T[i, a] M[i, b] M[i, c]``."""
    chance: np.ndarray = (p[:, None] * T).T @ _both(M) + _TINY
    return chance


def _both(M: np.ndarray) -> np.ndarray:
    """(K, K^2) ``M[i, b] M[i, c]``."""
    return (M[:, :, None] * M[:, None, :]).reshape(len(M), -1)


def even_confusion(e: float, K: int) -> np.ndarray:
    """(K, K) S with e off the diagonal."""
    return e + (1 - K * e) * np.eye(K)


def _em(model: SoftModel, fit: SoftFit) -> SoftFit:
    """Some steps of expectation-maximisation; each neighbour has a latent class of its own."""
    T, p, S = fit.T, fit.p, fit.S
    K = len(p)
    for _ in range(_EM_STEPS):
        _, by_centre, by_neighbor = model.slopes(T, p, S @ T)
        centre = p[:, None] * T * by_centre
        moved = S * (by_neighbor @ T.T)  # posterior counts of (own class, neighbour's class)
        T = _rows(centre + T * (S.T @ by_neighbor))
        p = centre.sum(axis=1) / centre.sum()
        if fit.kind == "estimate":
            S = _rows(moved)
        elif fit.kind == "one number":
            wrong = float(1 - np.trace(moved) / moved.sum())
            S = even_confusion(min(max(wrong, 0.0) / (K - 1), 0.999 / K), K)  # < 0 by rounding
    return replace(fit, T=T, p=p, S=S, steps=fit.steps + _EM_STEPS)


def _lbfgs(model: SoftModel, fit: SoftFit, steps: int, gradient: float, gain: float) -> SoftFit:
    """L-BFGS on square roots of probabilities, where zero is an ordinary value.

    A row's roots are scaled by the root of the data it has: then the information of complete
    data is about a multiple of the identity.
    """
    K = len(fit.p)
    mass = fit.p + 2 * fit.p @ fit.S
    parts = [np.sqrt(mass[:, None] * fit.T).ravel(), np.sqrt(fit.p)]
    if fit.kind == "estimate":
        parts.append(np.sqrt(2 * fit.p[:, None] * fit.S).ravel())
    elif fit.kind == "one number":
        odds = K * fit.S[0, 1] / (1 - K * fit.S[0, 1])
        parts.append(np.sqrt([odds]))
    # A row that has no data stays where it is, but must not divide by 0.
    start = np.maximum(np.concatenate(parts), 1e-12)

    def unpack(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
        roots = [x[: K * K].reshape(K, K), x[K * K : K * K + K][None]]
        S = fit.S
        if fit.kind == "estimate":
            roots.append(x[K * K + K :].reshape(K, K))
            S = _rows(roots[2] ** 2)
        elif fit.kind == "one number":
            S = even_confusion(x[-1] ** 2 / (1 + x[-1] ** 2) / K, K)
        return _rows(roots[0] ** 2), _rows(roots[1] ** 2)[0], S, roots

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        T, p, S, roots = unpack(x)
        divergence, by_centre, by_neighbor = model.slopes(T, p, S @ T)
        by_S = by_neighbor @ T.T
        slopes = [
            _root_slope(roots[0], T, p[:, None] * by_centre + S.T @ by_neighbor),
            _root_slope(roots[1], p[None], (T * by_centre).sum(axis=1)[None]),
        ]
        if fit.kind == "estimate":
            slopes.append(_root_slope(roots[2], S, by_S))
        elif fit.kind == "one number":
            by_e = by_S.sum() - K * np.trace(by_S)
            slopes.append(np.array([by_e * 2 * x[-1] / (1 + x[-1] ** 2) ** 2 / K]))
        return divergence, -np.concatenate(slopes)

    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": steps,
            "maxfun": 2 * steps,
            "ftol": gain,
            "gtol": gradient,
            "maxcor": 20,
        },
    )
    T, p, S, _ = unpack(found.x)
    # Status 1: out of steps. 2: the line search found nothing better, at the limit of rounding.
    steps = fit.steps + int(found.nfev)
    return SoftFit(T, p, S, fit.kind, fit.start, float(found.fun), steps, found.status != 1)


def _root_slope(root: np.ndarray, rows: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Slope with respect to roots whose squares, normalised, are the rows."""
    size = (root * root).sum(axis=1, keepdims=True)
    result: np.ndarray = 2 * root / size * (slope - (rows * slope).sum(axis=1, keepdims=True))
    return result.ravel()


def _rows(matrix: np.ndarray) -> np.ndarray:
    """The matrix with rows that sum to 1."""
    matrix = matrix + _TINY
    result: np.ndarray = matrix / matrix.sum(axis=1, keepdims=True)
    return result


def _interior(rows: np.ndarray) -> np.ndarray:
    """Valid rows off the boundary, which EM never leaves."""
    return _rows(np.maximum(rows, 0.01 / rows.shape[1]))


def _starts(plain: np.ndarray, p: np.ndarray, kind: str, given: np.ndarray | None) -> list[SoftFit]:
    """Starts from "all is label noise" to "all is confusion of neighbours".

    Plain HOC's matrix lies between T and S T: either it is T, or the labels are nearly right
    and it is S, or something between.
    """
    K, identity, prior = len(p), np.eye(len(p)), _interior(p[None])[0]
    starts = []
    for name, share in (("plain", 0.1), ("halfway", 0.5), ("neighbors", 0.9)):
        confused = (1 - share) * identity + share * plain
        if given is not None:
            S = given
        elif kind == "one number":
            S = even_confusion(min(float(1 - p @ np.diag(confused)) / (K - 1), 0.9 / K), K)
        else:
            S = _interior(confused)
        T = (1 - share) * plain + share * identity
        starts.append(SoftFit(_interior(T), prior, S, kind, name))
    if given is not None:
        undone = project_on_simplex(np.linalg.lstsq(given, plain, rcond=None)[0])
        starts.append(SoftFit(_interior(undone), prior, given, kind, "undone"))
    return starts


def draw_soft_triples(fit: SoftFit, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, 3) labels drawn from the model: the centre's, then two neighbours'."""
    own, near = np.cumsum(fit.T, axis=1), np.cumsum(fit.S @ fit.T, axis=1)
    triples = []
    for i, count in enumerate(rng.multinomial(n, fit.p / fit.p.sum())):
        spots = rng.random((3, count))
        views = zip((own[i], near[i], near[i]), spots, strict=True)
        triples.append([np.searchsorted(v, spot * v[-1], side="right") for v, spot in views])
    return np.concatenate(triples, axis=1).T
