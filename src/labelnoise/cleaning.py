"""Which labels are probably wrong: the clean class of each example, given its label and T.

What is known of an example's clean class without its own label, ``eta(x)``, comes from linear
models of its features and of the labels around it, trained with T as a last layer on folds without
the example. Its own label y then enters by Bayes' rule, ``P(k | x, y) ~ eta(x)[k] T[k, y]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import expect_two_classes
from labelnoise._labels import class_names
from labelnoise.baselines import _probabilities
from labelnoise.diagnostics import Finding
from labelnoise.linear import checked_features, fit_softmax, _scaled, as_labels, fit_transition_layer
from labelnoise.neighbors import listed_neighbors, nearest_neighbors
from labelnoise.noise import checked_transition

_VOTERS = (10, 50)  # so many nearest neighbours are counted
_FOLDS = 3
_C = 0.02  # 0.1 is worse where features have learnt from the noisy labels, 0.01 elsewhere
_BACKGROUND = 0.1  # share of uniform noise in T
_COMMON_SD = 2.0  # of what verified labels may add to the log-odds of all labels, a priori
_CLASS_SD = 0.5  # and to those of one label more than to the others'
_COLUMNS = ("index", "given", "suggested", "probability")
_ROWS_PRINTED = 10


@dataclass(frozen=True, repr=False, eq=False)
class CleanModel:
    """A model of the clean class, from features and the labels of neighbours."""

    transition_matrix: np.ndarray
    """(K, K) the T that was used: see `fit_clean_model`."""
    out_of_fold: np.ndarray
    """(N, K) P(clean class) of each training example, without its own label."""
    labels: np.ndarray
    """(N,) noisy class numbers of the training examples."""
    features: np.ndarray | None
    """(N, d) the training examples themselves, not a copy."""
    metric: str
    scaler: StandardScaler
    weights: np.ndarray
    """(K, width + 1) of the standardised features, the votes and 1: the mean over folds."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """(M, K) P(clean class) of new examples, from their neighbours among the training data.

        For the training data themselves take `out_of_fold`: here their own labels would count.
        """
        if self.features is None:
            raise LabelNoiseError(
                "Expected a model that was fitted to features, but it was fitted to neighbors alone"
            )
        X = checked_features(X)
        n, d = self.features.shape
        if X.shape[1] != d:
            raise LabelNoiseError(f"Expected {d} features, as in training, but X has {X.shape[1]}")
        search = NearestNeighbors(algorithm="brute", metric=self.metric).fit(self.features)
        near = search.kneighbors(X, min(max(_VOTERS), n), return_distance=False)
        votes = _votes(self.labels, near, len(self.transition_matrix))
        return softmax(_scores(np.hstack([_scaled(self.scaler, X), votes]), self.weights), axis=1)


def fit_clean_model(
    X: Any,
    labels: Any,
    transition_matrix: Any,
    *,
    neighbors: Any = None,
    metric: str = "cosine",
    random_state: int = 0,
    **how: Any,
) -> CleanModel:
    """Learn to tell the clean class of an example from all but its own label.

    Parameters
    ----------
    X : array of shape (N, d), or None
        Features. None if only `neighbors` are known.
    labels : int array of shape (N,)
        Noisy class numbers, -1 where unlabelled.
    transition_matrix : array of shape (K, K)
        The estimated T.
    neighbors : int array of shape (N, k) or sparse array of shape (N, N), optional
        Neighbours found elsewhere, as `HOC.fit` takes them; the nearest 50 are used.
    metric : {"cosine", "euclidean"}, default="cosine"
        Which examples are near.
    random_state : int, default=0
        For the folds.
    how
        `search` and `device`, as `labelnoise.neighbors.nearest_neighbors` takes them.

    Notes
    -----
    For each fold, a model of the features, and one of the features and the labels of neighbours,
    are trained on the other folds by the forward loss; labels of the fold are counted nowhere. The
    geometric mean of the two is weighted so that held-out labels are most likely.

    The T used is the average of the one given and of a transition layer's, with a tenth of uniform
    noise. HOC takes overlap of the classes for noise, and the layer takes noise on hard examples
    for overlap, so that the truth mostly lies between them; and a zero in T would rule out a class
    whatever the evidence. Measured in benchmarks/results/suspects.md.
    """
    features = None if X is None else checked_features(X)
    n = np.size(labels) if features is None else len(features)
    K = len(np.atleast_1d(transition_matrix))
    T = checked_transition(transition_matrix, K, "transition_matrix")
    labels = as_labels(labels, n, K, least=-1)
    expect_two_classes(np.arange(K), labels)
    most = min(max(_VOTERS), n - 1)
    if neighbors is not None:
        near = listed_neighbors(neighbors, n, most).indices
    elif features is not None:
        near = nearest_neighbors(features, most, metric, **how).indices
    else:
        raise LabelNoiseError("Expected X or neighbors, but both are None")
    labelled = np.flatnonzero(labels >= 0)
    fold = np.full(n, -1)
    fold[labelled] = np.random.default_rng(random_state).permutation(len(labelled)) % _FOLDS
    all_votes = _votes(labels, near, K)

    layer_input = all_votes if features is None else features
    layer = fit_transition_layer(layer_input[labelled], labels[labelled], K).transition_matrix
    T = (1 - _BACKGROUND) * (T + layer) / 2 + _BACKGROUND / K

    scaler, known = StandardScaler(), np.empty((n, 0), np.float32)
    if features is not None:
        known = _scaled(scaler.fit(features), features)
    weights, scores = [], np.empty((2, n, K))
    for number in range(_FOLDS):
        held_out = fold == number
        train = (fold >= 0) & ~held_out
        votes = _votes(np.where(train, labels, -1), near, K)
        for i, inputs in enumerate((known, np.hstack([known, votes]))):
            fitted, _ = fit_softmax(inputs[train], labels[train], T, _C, maxiter=100, ftol=1e-5)
            scores[i, held_out] = _scores(inputs[held_out], fitted)
            weights.append(fitted)
    of_features, of_both = (np.mean(weights[i::2], axis=0) for i in range(2))
    of_features = np.insert(of_features, [known.shape[1]] * votes.shape[1], 0, axis=1)

    def mixed(pair: Any, share: float) -> np.ndarray:
        return (1 - share) * pair[0] + share * pair[1]

    def loss(share: float) -> float:
        eta = softmax(mixed(scores[:, labelled], share), axis=1)
        return -np.log((eta * T.T[labels[labelled]]).sum(axis=1)).mean()

    share = minimize_scalar(loss, bounds=(0, 1), options={"xatol": 0.01}).x
    final, eta = mixed((of_features, of_both), share), mixed(scores, share)
    eta[fold < 0] = _scores(np.hstack([known, all_votes])[fold < 0], final)
    return CleanModel(T, softmax(eta, axis=1), labels, features, metric, scaler, final)


def with_own_label(clean: np.ndarray, labels: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Bayes' rule: P(clean | x) (N, K) to P(clean | x, label), unchanged where unlabelled (-1)."""
    joint = np.where((labels >= 0)[:, None], clean * T.T[labels], clean)
    return joint / joint.sum(axis=1, keepdims=True)


def clean_posterior(X: Any, labels: Any, transition_matrix: Any, **settings: Any) -> np.ndarray:
    """(N, K) P(clean class | features, labels around it, own label) of each example.

    Takes what `fit_clean_model` takes, which holds what is behind it.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from labelnoise.noise import symmetric
    >>> X, y = load_digits(return_X_y=True)
    >>> noisy = symmetric(y, 0.2, random_state=0)
    >>> posterior = clean_posterior(X, noisy.labels, noisy.transition_matrix)
    >>> suspects = find_suspects(posterior, noisy.labels)
    >>> bool((noisy.labels != y)[suspects.index].mean() > 0.9)
    True
    """
    model = fit_clean_model(X, labels, transition_matrix, **settings)
    return with_own_label(model.out_of_fold, model.labels, model.transition_matrix)


def counted_transition_matrix(posterior: Any, labels: Any) -> np.ndarray:
    """Count T (K, K) with each example as its posterior's share of each clean class.

    Its noise rate is the mean probability that a label is wrong, and it is mostly nearer to the
    truth than the T that the posterior was made with. A class without mass keeps its row of I.
    """
    posterior, labels = _checked(posterior, labels)
    K = posterior.shape[1]
    labelled = labels >= 0
    joint = posterior[labelled].T @ np.eye(K)[labels[labelled]]
    mass = joint.sum(axis=1, keepdims=True)
    return np.where(mass > 0, joint / np.where(mass > 0, mass, 1), np.eye(K))


@dataclass(frozen=True, repr=False, eq=False)
class Suspects:
    """Labels that are probably wrong, the surest first.

    `index` are their rows, `given` the labels, `suggested` the most probable other classes, and
    `probability` is that of being wrong. `expected_errors` are those in all `n_labels` labels.
    """

    index: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    probability: np.ndarray
    expected_errors: float
    n_labels: int
    verified: str | None = None
    """What verified labels say of the probabilities as they were without them."""

    def __len__(self) -> int:
        return len(self.index)

    def columns(self) -> dict[str, np.ndarray]:
        """The four columns by name: for a data frame, or a file."""
        return {name: getattr(self, name) for name in _COLUMNS}

    def __repr__(self) -> str:
        share = self.expected_errors / max(self.n_labels, 1)
        lines = [f"{len(self):,} of {self.n_labels:,} labels ({share:.1%}) are probably wrong."]
        if len(self):
            lines.append(f"{'row':>9}  {'given':<12}  {'suggested':<12}  wrong")
        for row in list(zip(*self.columns().values(), strict=True))[:_ROWS_PRINTED]:
            lines.append("{:>9}  {!s:<12}  {!s:<12}  {:.1%}".format(*row))
        if len(self) > _ROWS_PRINTED:
            lines.append(f"... and {len(self) - _ROWS_PRINTED:,} more")
        return "\n".join(lines if self.verified is None else [*lines, self.verified])


def find_suspects(posterior: Any, labels: Any, classes: Any = None) -> Suspects:
    """Rank the labels that are probably wrong: as many as are expected to be.

    Takes a posterior (N, K), class numbers (N,), -1 where unlabelled, and what they stand for.
    """
    posterior, labels = _checked(posterior, labels)
    K = posterior.shape[1]
    names = np.arange(K) if classes is None else class_names(classes)
    if len(names) != K:
        raise LabelNoiseError(f"Expected {K} classes, as posterior has, but there are {len(names)}")
    wrong = np.where(labels >= 0, 1 - reweight(posterior, labels), 0)
    index = np.argsort(-wrong, kind="stable")[: round(wrong.sum())]
    others = posterior[index]
    others[np.arange(len(index)), labels[index]] = -1
    given, suggested = names[labels[index]], names[others.argmax(axis=1)]
    count = int((labels >= 0).sum())
    return Suspects(index, given, suggested, wrong[index], float(wrong.sum()), count)


def reweight(posterior: Any, labels: Any) -> np.ndarray:
    """(N,) probability that each label is right, to weight examples by; 0 where unlabelled."""
    posterior, labels = _checked(posterior, labels)
    return np.where(labels >= 0, posterior[np.arange(len(labels)), labels], 0)


def drop(posterior: Any, labels: Any, least: float = 0.5) -> np.ndarray:
    """(N,) bool, the examples to keep: their label is right with a probability of `least`."""
    return reweight(posterior, labels) >= least


def relabel(posterior: Any, labels: Any, least: float = 0.5) -> np.ndarray:
    """(N,) class numbers: the most probable class where its probability is `least`, or the label.

    Unlabelled examples are labelled by the same rule, or stay at -1.
    """
    posterior, labels = _checked(posterior, labels)
    return np.where(posterior.max(axis=1) >= least, posterior.argmax(axis=1), labels)


def ask_order(posterior: Any) -> np.ndarray:
    """(N,) row numbers in the order in which to ask an annotator.

    Without an answer the best guess is the most probable class, so an answer is expected to correct
    ``1 - max_k P(k)`` labels: where that is largest, ask first. Surely wrong labels, which
    `relabel` puts right without asking, come late; to check those, follow `find_suspects`.
    """
    return np.argsort(_probabilities(posterior).max(axis=1), kind="stable")


class Verification(NamedTuple):
    """What verified labels say, and what follows for all others."""

    posterior: np.ndarray
    """(N, K) the posterior, recalibrated; 1 at the class that was verified."""
    transition_matrix: np.ndarray
    """(K, K) T counted by it."""
    finding: Finding
    """Whether they agree with the posterior as it was."""


def verify(posterior: Any, labels: Any, verified: Mapping[int, int]) -> Verification:
    """Check a posterior by some verified labels, and improve it by them.

    `verified` has the true classes of some rows. They may be chosen by features, labels and
    posterior; best at random, as those first in `ask_order` tell little of labels that seem sure.

    Notes
    -----
    The posterior becomes ``softmax_k(a log P(k) + (b + c[y]) [k = y])``: how sure to be, and how
    much more to trust labels in all, and each label y apart. a, b and c maximise the likelihood of
    what was verified, with normal priors around no change.
    """
    posterior, labels = _checked(posterior, labels)
    n, K = posterior.shape
    rows = list(verified)
    outside = [row for row in rows if not (isinstance(row, int | np.integer) and 0 <= row < n)]
    if outside or not rows:
        raise LabelNoiseError(
            f"Expected verified row numbers from 0 to {n - 1}, but they are {outside[:3]}"
        )
    truth = as_labels(list(verified.values()), len(rows), K)
    evidence = np.log(np.maximum(posterior, 1e-12))
    own = np.eye(K)[labels] * (labels >= 0)[:, None]
    sd = np.array([_COMMON_SD, _COMMON_SD, *[_CLASS_SD] * K])
    unchanged = np.array([1.0, *np.zeros(K + 1)])

    def changed(p: np.ndarray, chosen: Any) -> np.ndarray:
        trust = p[1] + p[2:][labels[chosen]]
        return log_softmax(p[0] * evidence[chosen] + own[chosen] * trust[:, None], axis=1)

    def loss(p: np.ndarray) -> tuple[float, np.ndarray]:
        log_chance, change = changed(p, rows), (p - unchanged) / sd
        excess = np.exp(log_chance) - np.eye(K)[truth]
        of_own = np.bincount(labels[rows] % K, (excess * own[rows]).sum(axis=1), K)
        gradient = [(excess * evidence[rows]).sum(), of_own.sum(), *of_own] + change / sd
        return (change**2).sum() / 2 - log_chance[np.arange(len(rows)), truth].sum(), gradient

    improved = np.exp(changed(minimize(loss, unchanged, jac=True).x, slice(None)))
    improved[rows] = np.eye(K)[truth]
    finding = _agreement(posterior[rows], labels[rows], truth)
    return Verification(improved, counted_transition_matrix(improved, labels), finding)


def _agreement(posterior: np.ndarray, labels: np.ndarray, truth: np.ndarray) -> Finding:
    """Whether as many verified labels were wrong as the posterior expected."""
    labelled = labels >= 0
    wrong = 1 - reweight(posterior, labels)[labelled]
    found, expected = (labels != truth)[labelled].sum(), wrong.sum()
    z = float((found - expected) / max(np.sqrt((wrong * (1 - wrong)).sum()), 0.5))
    ok = abs(z) <= 3
    verdict = "agrees with" if ok else "is more than" if z > 0 else "is fewer than"
    sentence = (
        f"Of {len(wrong)} verified labels {found} were wrong, which {verdict} the {expected:.1f} "
        f"that were expected ({z:+.1f} standard deviations)."
    )
    return Finding("verified", ok, z, sentence)


def _checked(posterior: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    posterior = _probabilities(posterior)
    return posterior, as_labels(labels, len(posterior), posterior.shape[1], least=-1)


def _votes(labels: np.ndarray, near: np.ndarray, K: int) -> np.ndarray:
    """(N, 2K) log shares of the labels among the nearest 10 and 50, after one more vote for each.

    Neighbours that are missing (-1) or unlabelled have no vote.
    """
    parts = []
    for most in _VOTERS:
        voters = near[:, :most]
        voted = np.where(voters >= 0, labels[voters], -1)
        cell = (np.arange(len(near))[:, None] * K + voted)[voted >= 0]
        counts = 1 + np.bincount(cell, minlength=len(near) * K).reshape(-1, K)
        parts.append(np.log(counts / counts.sum(axis=1, keepdims=True)))
    return np.hstack(parts).astype(np.float32)


def _scores(inputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return inputs @ weights[:, :-1].T.astype(np.float32) + weights[:, -1]
