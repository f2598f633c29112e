"""T and p in closed form, from the theory behind Theorem 1.

With ``c2 = T' D T`` and, for any vector theta, ``sum_s theta_s c3[:, :, s] = T' D diag(T theta) T``
(D = diag(p)), whitening by c2 turns the second matrix into one whose eigenvectors are the
whitened rows of T. Exact on an exact consensus. On sampled triples the whitening amplifies the
noise, so it serves as one start among others.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from labelnoise.consensus import Consensus
from labelnoise.solvers.rows import project_on_simplex
from labelnoise.solvers.search import Fit, Settings


def solve_moments(consensus: Consensus, settings: Settings) -> Fit:
    """T and p from the slice, of a handful, whose eigenvalues are furthest apart."""
    tried = moment_solutions(*consensus.sorted_triples(), consensus.n_classes, slices=8)
    _, T, p = max(tried, key=lambda found: found[0])
    T, p = project_on_simplex(T), project_on_simplex(p)
    return Fit(T, p, "moments", 0.0, 1, True)


def moment_solutions(
    triples: np.ndarray, frequencies: np.ndarray, K: int, slices: int
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """For each of several random slices of c3: relative eigengap, T and p, not yet projected."""
    i, j, k = triples.T
    c2 = _symmetric_counts(((i, j), (i, k), (j, k)), [frequencies / 3] * 3, K)
    values, vectors = np.linalg.eigh(c2)
    root = np.sqrt(np.maximum(values, 1e-14 * values.max()))
    whiten, unwhiten = vectors / root, vectors * root
    # Directions of the data, not of the class numbers: renaming classes changes nothing.
    directions = vectors * np.where(c2.sum(axis=1) @ vectors < 0, -1, 1)
    rng = np.random.default_rng(0)
    for _ in range(slices):
        theta = directions @ rng.standard_normal(K)
        weights = [frequencies / 3 * theta[third] for third in (k, j, i)]
        piece = whiten.T @ _symmetric_counts(((i, j), (i, k), (j, k)), weights, K) @ whiten
        eigenvalues, basis = np.linalg.eigh((piece + piece.T) / 2)
        # Column i is sqrt(p_i) T_i, and T_i sums to 1.
        scaled_rows = unwhiten @ basis
        root_prior = scaled_rows.sum(axis=0)
        root_prior[np.abs(root_prior) < 1e-9] = 1e-9
        gap = np.diff(eigenvalues).min() / max(np.ptp(eigenvalues), 1e-300)
        yield gap, (scaled_rows / root_prior).T, root_prior**2


def _symmetric_counts(
    pairs: tuple[tuple[np.ndarray, np.ndarray], ...], weights: list[np.ndarray], K: int
) -> np.ndarray:
    flat = np.zeros(K * K)
    for (a, b), weight in zip(pairs, weights, strict=True):
        flat += np.bincount(a.astype(np.intp) * K + b, weight, K * K)
    counts = flat.reshape(K, K)
    return (counts + counts.T) / 2
