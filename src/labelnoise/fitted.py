"""What a fitted estimate offers: T in other forms, the clean class of examples, suspects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import Estimator
from labelnoise.checks import Diagnostics
from labelnoise.clean_class import CleanClass
from labelnoise.clean_class.evidence import VOTERS
from labelnoise.consensus import Consensus
from labelnoise.examples import (
    Examples,
    clean_class_of,
    examples_from_arrays,
    examples_to_arrays,
    posterior_by_triples,
    posterior_of_labels,
)
from labelnoise.intervals import ConfidenceInterval
from labelnoise.labels import encode_labels
from labelnoise.neighbors.agreement import NeighborAgreement, neighbor_agreement
from labelnoise.suspects import Suspects, find_suspects
from labelnoise.verified import (
    Ends,
    Sample,
    Verification,
    draw_sample,
    read_answers,
    sample_size,
    verified_interval,
    verify,
)

if TYPE_CHECKING:
    from labelnoise.card import Card


class FittedEstimate(Estimator):
    """An estimate of one T, with what follows from it for each example."""

    transition_matrix_: np.ndarray
    class_prior_: np.ndarray
    diagnostics_: Diagnostics
    examples_: Any = None  # Examples, where labels of examples were fitted
    agreement_: NeighborAgreement | None = None
    clean_class_: Any = None  # CleanClass, where T was told from overlap by features
    verified_: Verification | None = None
    _verified_intervals: dict[float, ConfidenceInterval]
    _by_triples: list[CleanClass | np.ndarray]  # where T is the triples', once it is asked for

    @property
    def has_features_to_trust(self) -> bool:
        """Whether there is a model of the clean class whose features do not know the labels."""
        return self.clean_class_ is not None and not self.features_know_labels

    @property
    def features_know_labels(self) -> bool:
        """Whether features predict wrong labels, too: no T is estimated given them."""
        found = self.diagnostics_
        return "learnt" in found and found["learnt"].severity == "serious"

    @property
    def noise_rate_(self) -> float:
        """Estimated share of wrong labels."""
        check_is_fitted(self, "transition_matrix_")
        right = float(self.class_prior_ @ np.diag(self.transition_matrix_))
        return max(0.0, 1 - right)

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
        if X is None:
            if y is not None:
                raise LabelNoiseError("Expected no y without X, but y was given")
            if self.verified_ is not None and self.verified_.posterior is not None:
                return self.verified_.posterior.copy()
            return self._model_posterior()
        model = self._clean_class()
        X, data = self._features(X, reset=False), self.examples_
        if data.X is None:
            raise LabelNoiseError(
                "Expected an estimate that was fitted to features, to predict new examples, but "
                "it was fitted to neighbors alone, or read from a folder of results"
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
            As many as are expected to be wrong: `noise_rate_` of all. Print it, iterate over it, or
            take its `to_frame()`, which has a row for every example of the data.

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
        posterior, (labels, rows) = self.predict_proba(), self._labelled()
        verified = np.zeros(len(labels), bool)
        if self.verified_ is not None and self.verified_.answers is not None:
            verified[self.verified_.answers.place] = True
        names, given = self._data_rows or (None, None)
        return find_suspects(
            posterior, labels, self.classes_, rows, names=names, given=given, verified=verified
        )

    def card(self) -> Card:
        """Give a label-quality card, for the README of the data set: print it, or `save` it.

        It has the noise rate with its interval and what they rest on, the most frequent confusions
        and serious findings; `save_badge` writes an SVG with the rate.
        """
        from labelnoise.card import card_of

        check_is_fitted(self)
        return card_of(self)

    def to_verify(
        self,
        n: int | None = None,
        *,
        after: Any = None,
        half_width: float = 0.02,
        random_state: int = 0,
    ) -> Sample:
        """Choose rows whose true label to look up: a sample that measures the noise rate.

        Parameters
        ----------
        n : int, optional
            How many. Default: as many as give `half_width`, if the model is right.
        after : table or list of tables, optional
            Earlier samples, filled in or not: their rows are not chosen again.
        half_width : float, default=0.02
            Of the noise rate's 95% interval.
        random_state : int, default=0

        Returns
        -------
        Sample
            A table with `to_frame()` and `columns()`. Fill in `true_label` and give it to `verify`.
        """
        posterior, (labels, rows) = self._model_posterior(), self._labelled()
        if n is None:
            n = sample_size(posterior, labels, half_width)
        return draw_sample(
            posterior,
            labels,
            n,
            rows=rows,
            classes=self.classes_,
            after=after,
            random_state=random_state,
        )

    def verify(
        self, verified: Any, *, random_sample: bool = False, level: float = 0.95
    ) -> Verification:
        """Let verified labels correct the estimate; nothing is fitted again.

        T, the class prior, the noise rate and its interval, `predict_proba` and `suspects` follow
        from them. A second call replaces the first, so give all that is known.

        Parameters
        ----------
        verified : mapping, Series, data frame, path of a CSV file, or a list of these
            The table of `to_verify` with `true_label` filled in, or {row: label} for rows that were
            chosen otherwise: those correct the suspects, but not the rate.
        random_sample : bool, default=False
            Whether rows without a stratum were drawn at random from all labelled examples.
        level : float, default=0.95
            Of the noise rate's interval.

        Returns
        -------
        Verification
            What was found; print it. Also kept as `verified_`.
        """
        posterior, (labels, rows) = self._model_posterior(), self._labelled()
        answers = read_answers(
            verified, labels, self.classes_, rows=rows, random_sample=random_sample
        )
        before = self.verified_
        own = (self.transition_matrix_, self.class_prior_) if before is None else before.own
        found = verify(posterior, labels, answers, own=own, ends=self._ends(), level=level)
        self.verified_, self._verified_intervals = found, {}
        self.transition_matrix_, self.class_prior_ = found.transition_matrix, found.class_prior
        names = {"verified", "copied answers", "skipped"}
        others = [finding for finding in self.diagnostics_ if finding.name not in names]
        self.diagnostics_ = Diagnostics((*found.findings, *others))
        return found

    def example_arrays(self) -> dict[str, np.ndarray]:
        """Give what `save` leaves out, as plain arrays: see `with_examples`."""
        data = self.examples_
        whole = isinstance(data, Examples) and data.near is not None
        if not (whole and data.near.distances is not None) or self.verified_ is not None:
            raise LabelNoiseError(
                "Expected an estimate that was fitted to features and labels in memory, and no "
                "verified labels yet, to keep its examples"
            )
        model = self._clean_class()
        posterior = model.posterior if isinstance(model, CleanClass) else model
        return examples_to_arrays(data, self.clean_class_, posterior)

    def with_examples(self, arrays: Mapping[str, Any], labels: np.ndarray) -> Self:
        """Give a loaded estimate its examples back, and the class numbers of all rows of the data.

        Everything but predicting new examples then works as after `fit`. Arrays that do not fit
        are a ValueError.
        """
        own = self.transition_matrix_, self.class_prior_
        data, model, posterior = examples_from_arrays(arrays, own, len(labels))
        assert data.near is not None
        near = data.near.indices[:, : self.n_neighbors]
        self.consensus_ = Consensus.from_neighbors(data.labels, near, len(self.classes_))
        self.agreement_ = neighbor_agreement(data.near, data.labels)
        self.examples_, self.clean_class_, self._by_triples = data, model, [posterior]
        self._data_rows = range(len(labels)), labels
        self.triples_class_prior_ = own[1] if model is None else model.of_triples[1]
        return self

    def _verified_interval(self, level: float) -> ConfidenceInterval:
        """Intervals of the rate and T that verified labels gave, kept as they take a second."""
        if level not in self._verified_intervals:
            posterior, found = self._model_posterior(), self.verified_
            draws = None if self.clean_class_ is None else self.clean_class_.draws
            assert found is not None
            self._verified_intervals[level] = verified_interval(
                found, posterior, self._labelled()[0], self._ends(), level, draws
            )
        return self._verified_intervals[level]

    def _ends(self) -> Ends | None:
        """What T lies between, where there is a model of the clean class."""
        model = self.clean_class_
        return None if model is None else Ends(model.given_h, model.of_triples)

    def _content(self) -> dict[str, Any]:
        verified = None if self.verified_ is None else self.verified_.to_dict()
        return super()._content() | {"verified": verified}

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> Self:
        est = super()._from_content(content)
        if content.get("verified") is not None:
            est.verified_ = Verification.from_dict(content["verified"])
        return est

    def _labelled(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels of the labelled examples and their rows in the data."""
        data: Any = self.examples_
        labelled = data.labels >= 0
        return data.labels[labelled], data.rows[labelled]

    def _model_posterior(self) -> np.ndarray:
        """(N, K) P(clean class | features, neighbours, own label), without verified labels."""
        model = self._clean_class()
        posterior = model.posterior if isinstance(model, CleanClass) else model
        return posterior / posterior.sum(axis=1, keepdims=True, dtype=np.float64)

    def _clean_class(self) -> CleanClass | np.ndarray:
        """The model behind T; where T is the triples' own, one that adds up to it."""
        check_is_fitted(self)
        model, data = self.clean_class_, self.examples_
        n = 0 if data is None else int((data.labels >= 0).sum())
        if n == 0 or (model is not None and len(model.labels) != n):  # of a sample of the shards
            raise LabelNoiseError(
                "Expected an estimate that was fitted to labels of examples, but it was loaded, or "
                "fitted to counted triples or to shards: use fit, with an array in memory"
            )
        if self.clean_class_ is not None:
            return self.clean_class_
        if not self._by_triples:
            ends = self.transition_matrix_, self.class_prior_
            how = {"search": self.search, "device": self.device}
            found: Any = clean_class_of(self.examples_, ends, self.metric, share=1.0, **how)
            if found is None:
                found = posterior_by_triples(self.examples_, *ends, self.metric)
            self._by_triples.append(found)
        return self._by_triples[0]
