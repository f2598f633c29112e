"""Many small problems at once: one T and p for each of L consensuses, solved together.

The arrays of `DenseModel` get a leading axis for the problem, and all steps are taken in step.
All problems start from one known T, so that the order of the rows is that of the start.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from labelnoise.solvers.paper import adam_steps, n_paper_steps

_TINY = 1e-300
_EM_STEPS = 200
_PAPER_SPARSE_FROM = 100  # the step from which the paper's public code asks for a sparse prior
_PAPER_SPARSE_FLOOR = 0.01
_PAPER_SPARSE_WEIGHT = 0.1


class Batch:
    """The sorted triples of L problems, as L matrices of first label by unordered pair."""

    def __init__(self, which: np.ndarray, triples: np.ndarray, n_problems: int, K: int) -> None:
        """Count triples (m, 3), each belonging to the problem that `which` (m,) names."""
        self.b, self.c = np.triu_indices(K)
        pair = np.empty((K, K), np.intp)
        pair[self.b, self.c] = pair[self.c, self.b] = np.arange(len(self.b))
        pairs = len(self.b)
        flat = np.zeros(n_problems * K * pairs)
        i, j, k = triples.T
        for first, second, third in ((i, j, k), (j, i, k), (k, i, j)):
            place = (which * K + first) * pairs + pair[second, third]
            flat += np.bincount(place, minlength=len(flat))
        counts = flat.reshape(n_problems, K, pairs)
        self.sizes = np.bincount(which, minlength=n_problems)
        self.observed = counts / np.maximum(counts.sum(axis=(1, 2), keepdims=True), 1)
        self.shape = (n_problems, K, K)

    def both(self, T: np.ndarray) -> np.ndarray:
        """(L, K, pairs) ``T[i, b] T[i, c]``."""
        return T[:, :, self.b] * T[:, :, self.c]

    def joint(self, T: np.ndarray, p: np.ndarray) -> np.ndarray:
        """(L, K, K) posterior joint of clean class (rows) and label (columns)."""
        both = self.both(T)
        prior_and_first = p[:, :, None] * T
        chance = prior_and_first.transpose(0, 2, 1) @ both + _TINY
        return prior_and_first * (both @ (self.observed / chance).transpose(0, 2, 1))

    def contraction(self, T: np.ndarray) -> np.ndarray:
        """(L, K, K) ``sum_bc c3[a, b, c] T[i, b] T[i, c]`` with rows i and columns a."""
        return self.both(T) @ self.observed.transpose(0, 2, 1)


def solve_batch(
    batch: Batch, T: np.ndarray, p: np.ndarray, sparsity: float
) -> tuple[np.ndarray, np.ndarray]:
    """Maximum likelihood of each problem, by EM from one (T, p), with a prior made sparse.

    A local problem holds few classes. `sparsity` is how many triples' worth of evidence a class
    must have to be there at all: so much is taken off each class in each step (the limit of a
    Dirichlet prior below 1, the likelihood's form of the paper's ``sum_i ln(p_i + eps)``). The
    row of a class that is not there is left as it was.
    """
    n_problems, K, _ = batch.shape
    T = np.broadcast_to(np.maximum(T, 1e-3 / K), batch.shape)
    T = T / T.sum(axis=2, keepdims=True)
    p = np.broadcast_to(np.maximum(p, 1e-3 / K), (n_problems, K))
    taken = sparsity / np.maximum(batch.sizes, 1)[:, None]
    for _ in range(_EM_STEPS):
        joint = batch.joint(T, p)
        mass = joint.sum(axis=2)
        left = np.maximum(mass - taken, 0)
        # With less evidence than is taken off every class, nothing is.
        left = np.where(left.sum(axis=1, keepdims=True) > 0, left, mass + _TINY)
        p = left / left.sum(axis=1, keepdims=True)
        there = mass[:, :, None] > 1e-12
        T = np.where(there, joint / np.where(there, mass[:, :, None], 1), T)
    return T, p


def solve_batch_paper(
    batch: Batch,
    c1: np.ndarray,
    c2: np.ndarray,
    rng: np.random.Generator,
    *,
    sparse: bool,
    n_steps: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's problem for each of L consensuses: norms, Adam, and its sparse prior.

    c1 (L, K) and c2 (L, K, K) are the frequencies of labels and of pairs. The norm of c3 is that
    of the symmetrised triples.
    """
    n_problems, K, _ = batch.shape
    orders = np.where(batch.b == batch.c, 1.0, 2.0)
    c3_squared = (batch.observed**2 / orders).sum(axis=(1, 2))

    def gradient(logits: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        T, p = softmax(logits[:, :K], axis=2), softmax(logits[:, K], axis=1)
        transposed = T.transpose(0, 2, 1)
        off1 = (transposed @ p[:, :, None])[:, :, 0] - c1
        prior_T = p[:, :, None] * T
        off2 = transposed @ prior_T - c2
        off2_sym = (off2 + off2.transpose(0, 2, 1)) / 2
        contraction = batch.contraction(T)
        overlap = T @ transposed
        pair = p[:, :, None] * p[:, None, :]
        inner = (prior_T * contraction).sum(axis=(1, 2))
        squared = c3_squared - 2 * inner + (pair * overlap**3).sum(axis=(1, 2))
        norms = np.stack(
            [
                np.linalg.norm(off1, axis=1),
                np.linalg.norm(off2, axis=(1, 2)),
                np.sqrt(np.maximum(squared, 0)),
            ]
        )
        one, two, three = np.maximum(norms, 1e-8)[:, :, None, None]
        grad_T = p[:, :, None] * off1[:, None] / one + 2 * prior_T @ off2_sym / two
        grad_T += 3 * ((pair * overlap**2) @ T - p[:, :, None] * contraction) / three
        grad_p = (T @ off1[:, :, None])[:, :, 0] / one[:, 0]
        grad_p += ((T @ off2_sym) * T).sum(axis=2) / two[:, 0]
        grad_p += ((overlap**3 @ p[:, :, None])[:, :, 0] - (T * contraction).sum(axis=2)) / three[
            :, 0
        ]
        loss = norms.sum(axis=0)
        if sparse and step > _PAPER_SPARSE_FROM:
            shifted = p + _PAPER_SPARSE_FLOOR
            loss = loss + _PAPER_SPARSE_WEIGHT * np.log(shifted).mean(axis=1)
            grad_p = grad_p + _PAPER_SPARSE_WEIGHT / (K * shifted)
        elif sparse:
            loss = np.full(n_problems, np.inf)  # not yet the objective: nothing to keep
        slope = np.concatenate([grad_T, grad_p[:, None]], axis=1)
        shares = np.concatenate([T, p[:, None]], axis=1)
        return loss, shares * (slope - (slope * shares).sum(axis=2, keepdims=True))

    start = np.concatenate(
        [
            np.broadcast_to(5 * np.eye(K) - 1, batch.shape),
            1 / K + 0.1 * rng.random((n_problems, 1, K)),
        ],
        axis=1,
    )
    best, _ = adam_steps(gradient, start, n_steps or n_paper_steps(K))
    return softmax(best[:, :K], axis=2), softmax(best[:, K], axis=1)
