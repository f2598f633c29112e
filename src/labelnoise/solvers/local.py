"""Many small problems at once: one T and p for each local data set.

All problems start from the same T, so the order of the rows is that of the start.
"""

from __future__ import annotations

import numpy as np

from labelnoise.solvers.paper import Norms, descend, public_start
from labelnoise.solvers.rows import interior
from labelnoise.solvers.search import em
from labelnoise.solvers.triples import TINY, DenseTriples, SparseTriples, model_of


class LocalProblems:
    """The label triples (M, 3) of L local data sets; `problem` (M,) says whose each one is."""

    def __init__(self, problem: np.ndarray, triples: np.ndarray, n_problems: int, K: int) -> None:
        self.shape, self.problem, self.triples = (n_problems, K, K), problem, triples
        self.sizes = np.bincount(problem, minlength=n_problems)
        frequencies = 1 / np.maximum(self.sizes, 1)[problem]
        ordered = np.sort(triples, axis=1)
        self.model: DenseTriples | SparseTriples = model_of(
            ordered, frequencies, K, problem, n_problems
        )

    def norms(self) -> Norms:
        """The paper's objective; that of c3 for symmetrised triples."""
        n_problems, K, _ = self.shape
        size = np.maximum(self.sizes, 1)
        label, near = self.problem * K + self.triples[:, 0], self.triples[:, 1]
        c1 = np.bincount(label, minlength=n_problems * K).reshape(n_problems, K)
        c2 = np.bincount(label * K + near, minlength=n_problems * K * K).reshape(self.shape)
        ordered = np.sort(self.triples, axis=1)
        key = ((self.problem * K + ordered[:, 0]) * K + ordered[:, 1]) * K + ordered[:, 2]
        key, count = np.unique(key, return_counts=True)
        of, (i, j, k) = key // K**3, (key // K**2 % K, key // K % K, key % K)
        orders = np.array([1.0, 3.0, 6.0])[(i != j).astype(int) + (j != k)]
        squared = np.bincount(of, (count / size[of]) ** 2 / orders, n_problems)
        return Norms(c1 / size[:, None], c2 / size[:, None, None], squared, self.model)


def solve_local(
    problems: LocalProblems, T: np.ndarray, p: np.ndarray, sparsity: float
) -> tuple[np.ndarray, np.ndarray]:
    """Maximum likelihood of each problem, by EM from one (T, p) or one for each, sparse in p.

    A local data set holds few classes. `sparsity` is how many triples of evidence a class must
    have to be there at all: that amount is taken off each class in each step (the limit of a
    Dirichlet prior below 1, the likelihood's form of the paper's ``sum_i ln(p_i + eps)``). The
    row of a class that is not there stays as it was.
    """
    taken = sparsity / np.maximum(problems.sizes, 1)[:, None]

    def step(at: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        T, p = at
        joint = problems.model.joint(T, p)
        mass = joint.sum(axis=2)
        left = np.maximum(mass - taken, 0)
        # Where no class has as much evidence, nothing is taken off.
        left = np.where(left.sum(axis=1, keepdims=True) > 0, left, mass + TINY)
        there = mass[:, :, None] > 1e-12
        T = np.where(there, joint / np.where(there, mass[:, :, None], 1), T)
        return T, left / left.sum(axis=1, keepdims=True)

    T, p = np.broadcast_to(T, problems.shape), np.broadcast_to(p, problems.shape[:2])
    start = interior(T, 1e-3), interior(p, 1e-3)
    return em(step, start, 200)[0]


def solve_local_paper(
    problems: LocalProblems, rng: np.random.Generator, *, sparse: bool, n_steps: int = 501
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's objective for each problem, from the public code's start, in its 501 steps."""
    start = public_start(problems.shape[0], problems.shape[1], rng)
    T, p, _ = descend(problems.norms(), start, n_steps, sparse=sparse)
    return T, p
