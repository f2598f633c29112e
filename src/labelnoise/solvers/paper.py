"""The paper's problem: the sum of three norms, minimised by Adam over softmax logits.

``||c1^ - c1|| + ||c2^ - c2|| + ||c3^ - c3||`` (equation 12 of the paper). The third norm needs
no K^3 array: ``<c3^, c3>`` is a sum over the triples that occur and
``||c3||^2 = sum_ij p_i p_j (T_i . T_j)^3``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import softmax

from labelnoise.consensus import Consensus
from labelnoise.solvers._model import Model, model_of

_LEARNING_RATE = 0.1
_DECAY = (0.9, 0.999)
_SMALLEST_NORM = 1e-8  # a norm has no derivative at 0, and the third loses its digits below this


def solve_paper(
    consensus: Consensus,
    rng: np.random.Generator,
    n_steps: int | None = None,
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """(T, p, objective, steps), the best of all steps, from the public code's start.

    The start is ``5 I - 1`` for T, as the ``K I - 1`` of the paper's text saturates at K = 100,
    and a small random jitter for p. 1501 steps; 301 from K = 100 on.
    """
    K = consensus.n_classes
    steps = n_paper_steps(K) if n_steps is None else n_steps
    norms = Norms(consensus)

    def gradient(logits: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        shares = softmax(logits, axis=2)[0]
        loss, grad_T, grad_p = norms.loss_and_gradient(shares[:K], shares[K])
        slope = np.concatenate([grad_T, grad_p[None]])
        slope = shares * (slope - (slope * shares).sum(axis=1, keepdims=True))
        return np.array([loss]), slope[None]

    start = np.concatenate([5 * np.eye(K) - 1, 1 / K + 0.1 * rng.random((1, K))])
    best, loss = adam_steps(gradient, start[None], steps)
    shares = softmax(best[0], axis=1)
    return shares[:K], shares[K], float(loss[0]), steps


def n_paper_steps(K: int) -> int:
    """How many steps the public code takes."""
    return 301 if K >= 100 else 1501


def adam_steps(
    gradient: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
    steps: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise L problems together by Adam; give each one's best iterate and its loss.

    `gradient(x, step)` gives the losses (L,) and the slopes, of the shape of x (L, ...).
    """
    x = start
    momentum, square = np.zeros_like(x), np.zeros_like(x)
    best, best_loss = x.copy(), np.full(len(x), np.inf)
    for step in range(1, steps + 1):
        loss, slope = gradient(x, step)
        better = loss < best_loss
        best[better], best_loss[better] = x[better], loss[better]
        momentum = _DECAY[0] * momentum + (1 - _DECAY[0]) * slope
        square = _DECAY[1] * square + (1 - _DECAY[1]) * slope**2
        scale = np.sqrt(square / (1 - _DECAY[1] ** step)) + 1e-8
        x = x - _LEARNING_RATE * momentum / (1 - _DECAY[0] ** step) / scale
    return best, best_loss


class Norms:
    """The paper's objective for one consensus."""

    def __init__(self, consensus: Consensus) -> None:
        self.c1, self.c2 = consensus.c1, consensus.c2
        # The model's c3 is symmetric, so its product with c3^ needs only the sorted triples.
        self.model: Model = model_of(*consensus.sorted_triples(), consensus.n_classes)
        same = consensus.triples[:, 1] == consensus.triples[:, 2]
        self.c3_squared = float((consensus.frequencies**2 * np.where(same, 1, 0.5)).sum())

    def loss_and_gradient(
        self, T: np.ndarray, p: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Sum of the three norms, and its derivatives with respect to T and p."""
        off1 = T.T @ p - self.c1
        prior_T = p[:, None] * T
        off2 = T.T @ prior_T - self.c2
        off2_sym = (off2 + off2.T) / 2
        contraction = self.model.contraction(T)
        overlap = T @ T.T
        pair = p[:, None] * p
        inner = (p * (T * contraction).sum(axis=1)).sum()
        squared = self.c3_squared - 2 * inner + (pair * overlap**3).sum()

        norm1 = max(float(np.linalg.norm(off1)), _SMALLEST_NORM)
        norm2 = max(float(np.linalg.norm(off2)), _SMALLEST_NORM)
        norm3 = max(float(squared), 0.0) ** 0.5
        norm3 = max(norm3, _SMALLEST_NORM)

        grad_T = p[:, None] * off1 / norm1
        grad_p = T @ off1 / norm1
        grad_T += 2 * prior_T @ off2_sym / norm2
        grad_p += ((T @ off2_sym) * T).sum(axis=1) / norm2
        grad_T += 3 * ((pair * overlap**2) @ T - p[:, None] * contraction) / norm3
        grad_p += ((overlap**3) @ p - (T * contraction).sum(axis=1)) / norm3
        return norm1 + norm2 + norm3, grad_T, grad_p
