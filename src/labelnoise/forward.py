"""ForwardClassifier: any classifier, trained so that it predicts the clean class."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
from labelnoise._validation import (
    class_numbers,
    expect_two_classes,
    expect_whole,
    transition_matrix,
)
from labelnoise.clean_class.linear import checked_features, fit_softmax
from labelnoise.hoc import HOC
from labelnoise.labels import encode_labels

_FOLDS = 3
_LEAST_GAIN = 1e-3  # EM stops if the mean held-out log-likelihood gains less


class ForwardClassifier(ClassifierMixin, BaseEstimator):
    """Learn to predict the clean class from noisy labels, with the forward correction.

    Maximises the likelihood of the noisy labels, ``sum_n log (T' f(x_n))[y_n]``: f predicts the
    clean class, and T what annotators make of it (Patrini et al., "Making Deep Neural Networks
    Robust to Label Noise", 2017). Features are taken as they are: scale them first, as below.

    Parameters
    ----------
    estimator : classifier, optional
        With `predict_proba` and `sample_weight`. Trained by EM: example n counts as class k by
        ``f_k(x_n) T[k, y_n]``, with f from folds without it, until the held-out likelihood stops
        rising. By default a multinomial logistic regression, trained on the likelihood itself.
    transition_matrix : array of shape (K, K), optional
        T in the order of the sorted labels. By default `HOC` estimates it.
    C : float, default=1.0
        Of the logistic regression: inverse strength of the l2 penalty, as in scikit-learn's.
    max_iter : int, default=500
        Most steps of L-BFGS, or of EM.
    random_state : int or Generator, optional
        For the folds of EM.

    Attributes
    ----------
    classes_, transition_matrix_ : arrays of shape (K,) and (K, K)
    hoc_ : HOC
        The estimate of T, where none was given.
    coef_, intercept_ : arrays of shape (K, d) and (K,)
        Of the logistic regression, also for two classes.
    estimator_ : classifier
        The fitted `estimator`, which predicts class numbers.
    n_iter_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from labelnoise.noise import pair_flip
    >>> X, clean = load_digits(return_X_y=True)
    >>> noisy = pair_flip(clean[:1000], 0.4, random_state=0)
    >>> forward = ForwardClassifier(transition_matrix=noisy.transition_matrix, C=0.1)
    >>> model = make_pipeline(StandardScaler(), forward).fit(X[:1000], noisy.labels)
    >>> bool(model.score(X[1000:], clean[1000:]) > 0.85)
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        transition_matrix: Any = None,
        C: float = 1.0,
        max_iter: int = 500,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.estimator = estimator
        self.transition_matrix = transition_matrix
        self.C = C
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> ForwardClassifier:
        """Learn from features (N, d) and noisy labels (N,); None and NaN are left out."""
        expect_whole("max_iter", self.max_iter, 1)
        X = checked_features(X, partial(validate_data, self, ensure_min_samples=2))
        labels, classes = encode_labels(y)
        class_numbers(labels, len(classes), len(X), least=-1)
        expect_two_classes(classes, labels)
        if self.transition_matrix is None:
            self.hoc_ = HOC().fit(X, y)
            T = self.hoc_.transition_matrix_
        else:
            T = transition_matrix(self.transition_matrix, "transition_matrix", len(classes))
        if not T.any(axis=0).all():
            raise LabelNoiseError(
                f"Expected a transition_matrix by which each label in y is possible, but its "
                f"column of {classes[~T.any(axis=0)][0]} is zero"
            )
        X, labels = X[labels >= 0], labels[labels >= 0]
        if self.estimator is None:
            options = {"maxiter": self.max_iter, "ftol": 1e-9}
            weights, self.n_iter_ = fit_softmax(X, labels, T, self.C, **options)
            self.coef_, self.intercept_ = weights[:, :-1], weights[:, -1]
        else:
            self.estimator_, self.n_iter_ = self._fit_by_em(X, labels, T)
        self.classes_, self.transition_matrix_ = classes, T
        if self.n_iter_ == self.max_iter:
            warnings.warn(
                f"The search used up its max_iter = {self.max_iter} steps: scale the features, or "
                f"raise max_iter.",
                LabelNoiseWarning,
                stacklevel=2,
            )
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, K) probability of each clean class."""
        check_is_fitted(self, "transition_matrix_")
        X = checked_features(X, partial(validate_data, self, reset=False))
        if self.estimator is None:
            return softmax(X @ self.coef_.T + self.intercept_, axis=1)
        return _predict_all(self.estimator_, X, len(self.classes_))

    def predict(self, X: Any) -> np.ndarray:
        """(N,) most probable clean class."""
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def _fit_by_em(self, X: np.ndarray, labels: np.ndarray, T: np.ndarray) -> tuple[Any, int]:
        """Fitted estimator, and the steps taken.

        A model that remembers its examples would confirm their labels, so each example's class is
        predicted by a model that was fitted without it.
        """
        model = self.estimator
        if not (hasattr(model, "predict_proba") and has_fit_parameter(model, "sample_weight")):
            raise LabelNoiseError(
                f"Expected an estimator with predict_proba and sample_weight, but it is of type "
                f"{type(model).__name__} (T goes into transition_matrix)"
            )
        fold = np.random.default_rng(self.random_state).permutation(len(X)) % _FOLDS
        chance = T.T[labels]
        posterior = best = chance / chance.sum(axis=1, keepdims=True)
        clean, highest, step = np.empty_like(chance), -np.inf, 0
        while step < self.max_iter:
            step += 1
            for held_out in (fold == number for number in range(_FOLDS)):
                fitted = _weighted_fit(model, X[~held_out], posterior[~held_out])
                clean[held_out] = _predict_all(fitted, X[held_out], len(T))
            # A forest gives 0 to a class that it has not seen.
            joint = chance * np.maximum(clean, 1e-6)
            total = joint.sum(axis=1, keepdims=True)
            likelihood = np.log(total).mean()
            if likelihood < highest + _LEAST_GAIN:
                break
            highest, best, posterior = likelihood, posterior, joint / total
        return _weighted_fit(model, X, best), step


def _weighted_fit(estimator: Any, X: np.ndarray, posterior: np.ndarray) -> Any:
    """Fit to a copy of each example for each class of some posterior, which is its weight."""
    rows, classes = np.nonzero(posterior > 0.01)
    return clone(estimator).fit(X[rows], classes, sample_weight=posterior[rows, classes])


def _predict_all(estimator: Any, X: np.ndarray, K: int) -> np.ndarray:
    """(N, K) probabilities by an estimator that may not have seen each class."""
    result = np.zeros((len(X), K))
    result[:, estimator.classes_] = estimator.predict_proba(X)
    return result
