"""The paper's problem: the sum of three norms, minimised by Adam over softmax logits.

``||c1^ - c1|| + ||c2^ - c2|| + ||c3^ - c3||`` (its equation 12). The third norm needs no K^3
array: ``<c3^, c3>`` is a sum over the triples that occur and
``||c3||^2 = sum_ij p_i p_j (T_i . T_j)^3``. Arrays have a leading axis for the problem, so that
many local problems take each step together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from labelnoise.consensus import Consensus
from labelnoise.solvers.likelihood import starts
from labelnoise.solvers.search import Fit, Settings, adam
from labelnoise.solvers.triples import DenseTriples, SparseTriples, model_of

_SMALLEST_NORM = 1e-8  # the third norm has no digits below this, and none a derivative at 0
CLEARLY_LESS = 0.8  # another start's objective, over that of the public start, to be taken
_OTHER_STARTS = ("extreme pairs", "moments")  # that lead out of local optima


@dataclass(frozen=True)
class Norms:
    """The objective of L problems."""

    c1: np.ndarray
    """(L, K) frequencies of labels."""
    c2: np.ndarray
    """(L, K, K) frequencies of pairs."""
    c3_squared: np.ndarray
    """(L,) squared norm of the frequencies of triples."""
    model: DenseTriples | SparseTriples
    """Contracts the triples with T. The model's c3 is symmetric, so sorted triples will do."""

    @classmethod
    def of(cls, consensus: Consensus) -> Norms:
        """The objective of one consensus."""
        model = model_of(*consensus.sorted_triples(), consensus.n_classes)
        squared = consensus.c3_squared
        return cls(consensus.c1[None], consensus.c2[None], np.array([squared]), model)

    def loss_and_gradient(
        self, T: np.ndarray, p: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums of the three norms (L,), and their derivatives with respect to T and p."""
        transposed, prior_T = T.transpose(0, 2, 1), p[:, :, None] * T
        off1 = (transposed @ p[:, :, None])[:, :, 0] - self.c1
        off2 = transposed @ prior_T - self.c2
        off2_sym = (off2 + off2.transpose(0, 2, 1)) / 2
        contraction = self.model.contraction(T)
        overlap = T @ transposed
        pair = p[:, :, None] * p[:, None, :]
        inner = (p * (T * contraction).sum(axis=2)).sum(axis=1)
        squared = self.c3_squared - 2 * inner + (pair * overlap**3).sum(axis=(1, 2))
        norms = np.stack(
            [
                np.linalg.norm(off1, axis=1),
                np.linalg.norm(off2, axis=(1, 2)),
                np.sqrt(np.maximum(squared, 0)),
            ]
        )
        norms = np.maximum(norms, _SMALLEST_NORM)
        one, two, three = norms[:, :, None]
        grad_p = (T @ off1[:, :, None])[:, :, 0] / one
        grad_p += ((T @ off2_sym) * T).sum(axis=2) / two
        grad_p += ((overlap**3 @ p[:, :, None])[:, :, 0] - (T * contraction).sum(axis=2)) / three
        one, two, three = norms[:, :, None, None]
        grad_T = p[:, :, None] * off1[:, None] / one + 2 * prior_T @ off2_sym / two
        grad_T += 3 * ((pair * overlap**2) @ T - p[:, :, None] * contraction) / three
        return norms.sum(axis=0), grad_T, grad_p


def solve_paper(consensus: Consensus, settings: Settings) -> Fit:
    """The paper's objective, from the public code's start and from some of the likelihood's.

    The public code starts at the logits ``5 I - 1`` and a small random jitter for p, and takes
    1501 steps, 301 from 100 classes on. Its answer stays, unless another start reaches a clearly
    smaller objective: then it was a local optimum, as with class priors of 1:20.
    """
    norms, K = Norms.of(consensus), consensus.n_classes
    steps = settings.n_steps or n_paper_steps(K)
    best = _descend(norms, public_start(1, K, np.random.default_rng(settings.rng)), steps, "paper")
    for start in starts(consensus, few=K >= 50):
        if start.start not in _OTHER_STARTS:
            continue
        logits = np.log(np.concatenate([start.T, start.p[None]]))[None]
        found = _descend(norms, logits, steps, start.start)
        if found.loss < CLEARLY_LESS * best.loss:
            best = found
    return best


def solve_paper_text(consensus: Consensus, settings: Settings) -> Fit:
    """The paper's objective from the start of its text, ``K I - 1 1'`` and equal p.

    At K = 100 the softmax of that start has 4e-44 beside the diagonal. No gradient moves these
    logits, so T stays at the identity.
    """
    K = consensus.n_classes
    start = np.concatenate([K * np.eye(K) - 1, np.full((1, K), 1 / K)])[None]
    steps = settings.n_steps or n_paper_steps(K)
    return _descend(Norms.of(consensus), start, steps, "paper-text")


def paper_objective(consensus: Consensus, T: np.ndarray, p: np.ndarray) -> float:
    """The paper's objective at (T, p)."""
    return float(Norms.of(consensus).loss_and_gradient(T[None], p[None])[0][0])


def _descend(norms: Norms, start: np.ndarray, steps: int, name: str) -> Fit:
    T, p, loss = descend(norms, start, steps)
    return Fit(T[0], p[0], name, float(loss[0]), steps, True)


def descend(
    norms: Norms, start: np.ndarray, steps: int, *, sparse: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """T (L, K, K), p (L, K) and the objective (L,), the best of all steps of Adam.

    `start` has the logits of T, and those of p as a last row: (L, K + 1, K). `sparse` adds the
    public code's ``mean(log(p + 0.01)) / 10`` after step 100, which favours few classes.
    """
    K, floor, weight = start.shape[-1], 0.01, 0.1

    def gradient(logits: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        shares = softmax(logits, axis=2)
        p = shares[:, K]
        loss, grad_T, grad_p = norms.loss_and_gradient(shares[:, :K], p)
        if sparse and step > 100:
            loss = loss + weight * np.log(p + floor).mean(axis=1)
            grad_p = grad_p + weight / (K * (p + floor))
        elif sparse:
            loss = np.full_like(loss, np.inf)  # so that no iterate of these steps is kept
        slope = np.concatenate([grad_T, grad_p[:, None]], axis=1)
        return loss, shares * (slope - (slope * shares).sum(axis=2, keepdims=True))

    best, loss = adam(gradient, start, steps)
    shares = softmax(best, axis=2)
    return shares[:, :K], shares[:, K], loss


def public_start(n_problems: int, K: int, rng: np.random.Generator) -> np.ndarray:
    """(L, K + 1, K) logits at which the public code starts."""
    T = np.broadcast_to(5 * np.eye(K) - 1, (n_problems, K, K))
    return np.concatenate([T, 1 / K + 0.1 * rng.random((n_problems, 1, K))], axis=1)


def n_paper_steps(K: int) -> int:
    """How many steps the public code takes for the global T."""
    return 301 if K >= 100 else 1501
