"""What a fitted estimate offers: T in other forms, the clean class of examples, suspects."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import Estimator
from labelnoise._labels import encode_labels
from labelnoise.clean_class import CleanClass
from labelnoise.clean_class.evidence import VOTERS
from labelnoise.examples import (
    Examples,
    clean_class_of,
    posterior_by_triples,
    posterior_of_labels,
)
from labelnoise.suspects import Suspects, find_suspects


class FittedEstimate(Estimator):
    """An estimate of one T, with what follows from it for each example."""

    examples_: Examples | None = None
    clean_class_: CleanClass | None = None
    _by_triples: list[CleanClass | np.ndarray]  # where T is the triples', once it is asked for

    @property
    def noise_rate_(self) -> float:
        """Estimated share of wrong labels."""
        check_is_fitted(self, "transition_matrix_")
        return float(max(0.0, 1 - self.class_prior_ @ np.diag(self.transition_matrix_)))

    @property
    def joint_(self) -> np.ndarray:
        """(K, K) P(clean, label)."""
        check_is_fitted(self, "transition_matrix_")
        return self.class_prior_[:, None] * self.transition_matrix_

    @property
    def inverse_transition_matrix_(self) -> np.ndarray:
        """(K, K) P(clean | label), rows are labels. That of a label with no mass is its own."""
        labels = self.joint_.T
        mass = labels.sum(axis=1, keepdims=True)
        return np.where(mass > 0, labels / np.where(mass > 0, mass, 1), np.eye(len(labels)))

    def predict_proba(self, X: Any = None, y: Any = None) -> np.ndarray:
        """Give P(clean class), from the features, the labels around, and the own label.

        Parameters
        ----------
        X : array of shape (M, d), optional
            New examples. None: those that the estimate was fitted to, with their labels; each one's
            evidence then comes from models that were trained without it.
        y : array of shape (M,), optional
            Labels of new examples; None and NaN are unlabelled.

        Returns
        -------
        array of shape (M, K)
            Rows sum to 1, columns in the order of `classes_`. Without X, rows are the labelled
            examples that took part in the estimate.
        """
        model = self._clean_class()
        if X is None:
            if y is not None:
                raise LabelNoiseError("Expected no y without X, but y was given")
            posterior = model.posterior if isinstance(model, CleanClass) else model
            return posterior / posterior.sum(axis=1, keepdims=True, dtype=np.float64)
        X, data = self._features(X, reset=False), self.examples_
        if data.X is None:
            raise LabelNoiseError(
                "Expected an estimate that was fitted to features, to predict new examples, but "
                "it was fitted to neighbors alone"
            )
        use = np.flatnonzero(data.labels >= 0)
        search = NearestNeighbors(algorithm="brute", metric=self.metric).fit(data.X[use])
        near = search.kneighbors(X, min(VOTERS, len(use)), return_distance=False)
        if isinstance(model, CleanClass):
            clean = model.predict_proba(X, near).astype(np.float64)
        else:
            around = data.labels[use[near[:, :2]]]
            clean = posterior_of_labels(around, self.transition_matrix_, self.class_prior_)
        clean /= clean.sum(axis=1, keepdims=True)
        if y is None:
            return clean
        labels, _ = encode_labels(y, self.classes_, self.unlabeled)
        if len(labels) != len(clean):
            raise LabelNoiseError(
                f"Expected as many labels as rows of X, but X has {len(clean)} rows and y "
                f"{len(labels)} labels"
            )
        joint = np.where((labels >= 0)[:, None], clean * self.transition_matrix_.T[labels], clean)
        total = joint.sum(axis=1, keepdims=True)
        return np.where(total > 0, joint / np.where(total > 0, total, 1), clean)

    def predict(self, X: Any = None, y: Any = None) -> np.ndarray:
        """Give the most probable clean class (M,): see `predict_proba`."""
        chosen = self.predict_proba(X, y).argmax(axis=1)
        return self.classes_[chosen]

    def suspects(self) -> Suspects:
        """Rank the labels that are probably wrong, each with its probability and a suggestion.

        Returns
        -------
        Suspects
            As many as are expected to be wrong: `noise_rate_` of all. Print it, or take its
            `columns()`.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from labelnoise import HOC
        >>> from labelnoise.noise import symmetric
        >>> X, y = load_digits(return_X_y=True)
        >>> noisy = symmetric(y, 0.2, random_state=0)
        >>> suspects = HOC().fit(X, noisy.labels).suspects()
        >>> bool((noisy.labels != y)[suspects.index].mean() > 0.9)
        True
        """
        posterior, data = self.predict_proba(), self.examples_
        labelled = data.labels >= 0
        return find_suspects(posterior, data.labels[labelled], self.classes_, data.rows[labelled])

    def _clean_class(self) -> CleanClass | np.ndarray:
        """The model behind T; where T is the triples' own, one that adds up to it."""
        check_is_fitted(self)
        if self.examples_ is None:
            raise LabelNoiseError(
                "Expected an estimate that was fitted to labels of examples, but it was loaded, or "
                "fitted to counted triples or to shards: use fit, with an array in memory"
            )
        if self.clean_class_ is not None:
            return self.clean_class_
        if not self._by_triples:
            ends = self.transition_matrix_, self.class_prior_
            how = {"search": self.search, "device": self.device}
            found = clean_class_of(self.examples_, ends, self.metric, share=1.0, **how)
            if found is None:
                found = posterior_by_triples(self.examples_, *ends, self.metric)
            self._by_triples.append(found)
        return self._by_triples[0]
