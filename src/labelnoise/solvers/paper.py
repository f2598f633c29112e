"""The paper's problem: the sum of three norms, minimised by Adam over softmax logits.

``||c1^ - c1|| + ||c2^ - c2|| + ||c3^ - c3||`` (equation 12 of the paper). The third norm needs
no K^3 array: ``<c3^, c3>`` is a sum over the triples that occur and
``||c3||^2 = sum_ij p_i p_j (T_i . T_j)^3``.
"""

from __future__ import annotations

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
    steps = n_steps if n_steps is not None else (301 if K >= 100 else 1501)
    norms = Norms(consensus)
    logits = np.concatenate([5 * np.eye(K) - 1, 1 / K + 0.1 * rng.random((1, K))])
    momentum, square = np.zeros_like(logits), np.zeros_like(logits)
    best, best_loss = logits.copy(), np.inf
    for step in range(1, steps + 1):
        T, p = softmax(logits[:K], axis=1), softmax(logits[K])
        loss, grad_T, grad_p = norms.loss_and_gradient(T, p)
        if loss < best_loss:
            best, best_loss = logits.copy(), loss
        gradient = np.concatenate([grad_T, grad_p[None]])
        shares = np.concatenate([T, p[None]])
        gradient = shares * (gradient - (gradient * shares).sum(axis=1, keepdims=True))
        momentum = _DECAY[0] * momentum + (1 - _DECAY[0]) * gradient
        square = _DECAY[1] * square + (1 - _DECAY[1]) * gradient**2
        step_size = np.sqrt(square / (1 - _DECAY[1] ** step)) + 1e-8
        logits = logits - _LEARNING_RATE * momentum / (1 - _DECAY[0] ** step) / step_size
    return softmax(best[:K], axis=1), softmax(best[K]), best_loss, steps


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
