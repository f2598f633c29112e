"""How the library is used by code that mypy checks strictly: `make lint` does. Never run."""

import numpy as np

from labelnoise import (
    HOC,
    Consensus,
    ForwardClassifier,
    GroupHOC,
    LabelNoiseError,
    LocalHOC,
    feasibility,
    from_cleanlab,
    to_cleanlab,
    transition_error,
)
from labelnoise.checks import Diagnostics
from labelnoise.intervals import ConfidenceInterval
from labelnoise.io.features import Features, read_features
from labelnoise.io.labels import read_labels
from labelnoise.noise import NoisyLabels, symmetric
from labelnoise.suspects import Suspects


def estimate(X: np.ndarray, y: np.ndarray, true_T: np.ndarray) -> float:
    """From arrays to T, its intervals, its diagnostics and suspects."""
    noisy: NoisyLabels = symmetric(y, 0.2, random_state=0)
    est: HOC = HOC(metric="euclidean", n_neighbors=3).fit(X, noisy.labels)
    T: np.ndarray = est.transition_matrix_
    interval: ConfidenceInterval = est.confidence_interval(0.9)
    found: Diagnostics = est.diagnose()
    suspects: Suspects = est.suspects()
    low, high = interval.noise_rate
    if all(finding.ok for finding in found) and len(suspects) and low < high:
        est.save("T.json")
        est = HOC.load("T.json")
    return transition_error(T, true_T) + est.noise_rate_


def others(X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Other estimators, shards, cleanlab's orientation, a classifier."""
    shards: Consensus = Consensus.load("a.npz") + Consensus.load("b.npz")
    T: np.ndarray = HOC(classes=["cat", "dog"]).fit_consensus(shards).transition_matrix_
    local: LocalHOC = LocalHOC(random_state=0).fit(X, y)
    grouped: GroupHOC = GroupHOC().fit(X, y, groups=groups)
    same: np.ndarray = from_cleanlab(to_cleanlab(T))
    chance: np.ndarray = ForwardClassifier(transition_matrix=same).fit(X, y).predict_proba(X)
    return np.stack([local.transition_matrices_[0], grouped.transition_matrices_[0], chance])


def from_files() -> str:
    """Files, and the one error that a user can cause."""
    features: Features = read_features("features.npy")
    try:
        est = HOC().fit(features.array, read_labels("labels.csv", features).array)
    except LabelNoiseError as error:
        return str(error)
    share: float = feasibility(np.zeros((3, 2), int), np.zeros(3, int))
    return f"{est} {share}"
