"""Which labels are probably wrong, and what to do with them: rank, weigh, drop or relabel.

All of it follows from the posterior P(clean class | features, neighbours, own label).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise._validation import class_numbers
from labelnoise.baselines import probabilities
from labelnoise.io.packages import package
from labelnoise.io.tables import write_table
from labelnoise.labels import class_names

_ROWS_PRINTED = 10
_DECIMALS = 6  # of probabilities in a file


class Suspect(NamedTuple):
    """One example, by the names that cleanlab uses: a row of every table of labels."""

    row: int
    is_label_issue: bool
    label_score: float
    """Probability that the label is right."""
    given_label: Any
    predicted_label: Any
    """The most probable class; of a suspect, the most probable other class."""
    probability_wrong: float


@dataclass(frozen=True, repr=False, eq=False)
class Suspects:
    """Labels that are probably wrong, and what is known of every label.

    Iterate over it for the suspects, the surest first. `to_frame()` and `columns()` have a row for
    every example, in the order of the data; `label_score` and `predicted_label` are missing where
    an example has no label, or took no part in the estimate.

    Attributes
    ----------
    index, given, suggested, probability : arrays of shape (S,)
        Of the suspects, the surest first: rows, labels, most probable other classes, and
        probabilities of being wrong.
    is_label_issue, label_score, given_label, predicted_label : arrays of shape (N,)
        Of every example: see `Suspect`. A verified label is an issue if it was found to be wrong.
    names : sequence of length N
        What the rows are called: the index of the data frame that was fitted, or row numbers.
    expected_errors : float
        Expected number of wrong labels among the `n_labels` that were not verified.
    """

    index: np.ndarray
    is_label_issue: np.ndarray
    label_score: np.ndarray
    given_label: np.ndarray
    predicted_label: np.ndarray
    names: Any
    expected_errors: float
    n_labels: int

    @property
    def given(self) -> np.ndarray:
        """(S,) the labels."""
        return self.given_label[self.index]

    @property
    def suggested(self) -> np.ndarray:
        """(S,) the most probable other classes."""
        return self.predicted_label[self.index]

    @property
    def probability(self) -> np.ndarray:
        """(S,) probabilities that the labels are wrong."""
        return 1 - self.label_score[self.index]

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Suspect]:
        columns = [column[self.index].tolist() for column in self.columns().values()]
        return map(Suspect, *columns)

    def columns(self) -> dict[str, np.ndarray]:
        """Every example by columns, in the order of the data: see `Suspect`."""
        return {
            "row": np.arange(len(self.label_score)),
            "is_label_issue": self.is_label_issue,
            "label_score": self.label_score,
            "given_label": self.given_label,
            "predicted_label": self.predicted_label,
            "probability_wrong": 1 - self.label_score,
        }

    def to_frame(self) -> Any:
        """Every example as a pandas data frame, with the index of the data."""
        columns = self.columns()
        del columns["row"]
        return package("pandas").DataFrame(columns, index=self.names)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        rows: np.ndarray | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Write the columns to a .csv, .tsv or .parquet file.

        Parameters
        ----------
        path : path
        rows : int array, optional
            Only these rows, in this order, such as `index`. Default: every example.
        names : sequence of length N, optional
            What the rows are called, for a column `name`.
        """
        keep = np.arange(len(self.label_score)) if rows is None else rows
        table: dict[str, Any] = {name: column[keep] for name, column in self.columns().items()}
        for name in ("label_score", "probability_wrong"):
            rounded = table[name].round(_DECIMALS)
            table[name] = np.where(np.isnan(rounded), None, rounded)
        row = table.pop("row")
        named = {} if names is None else {"name": [names[i] for i in keep.tolist()]}
        write_table(path, {"row": row, **named, **table})

    def __repr__(self) -> str:
        share = self.expected_errors / max(self.n_labels, 1)
        lines = [f"{len(self):,} of {self.n_labels:,} labels ({share:.1%}) are probably wrong."]
        if len(self):
            lines.append(f"{'row':>9}  {'given':<12}  {'suggested':<12}  wrong")
        shown = zip(self.index, self.given, self.suggested, self.probability, strict=True)
        for row, *cells in list(shown)[:_ROWS_PRINTED]:
            lines.append("{!s:>9}  {!s:<12}  {!s:<12}  {:.1%}".format(self.names[row], *cells))
        if len(self) > _ROWS_PRINTED:
            lines.append(f"... and {len(self) - _ROWS_PRINTED:,} more")
        return "\n".join(lines)


def find_suspects(
    posterior: Any,
    labels: Any,
    classes: Any = None,
    rows: Any = None,
    *,
    names: Any = None,
    given: np.ndarray | None = None,
    verified: Any = None,
) -> Suspects:
    """Rank the labels that are probably wrong: as many as are expected to be.

    Parameters
    ----------
    posterior : array of shape (M, K)
        P(clean class | features, neighbours, own label).
    labels : int array of shape (M,)
        Class numbers, -1 where unlabelled.
    classes : array of shape (K,), optional
        What the class numbers stand for.
    rows : int array of shape (M,), optional
        Rows of these examples in the data. Default: 0 to M - 1.
    names : sequence of length N, optional
        What the N rows of the data are called. Default: 0 to the largest of `rows`.
    given : int array of shape (N,), optional
        Class numbers of every row of the data. Default: `labels`, -1 for other rows.
    verified : bool array of shape (M,), optional
        Labels that were checked, so that their posterior is certain: they are no suspects.
    """
    posterior, labels = _checked(posterior, labels)
    M, K = posterior.shape
    classes = np.arange(K) if classes is None else class_names(classes)
    if len(classes) != K:
        raise LabelNoiseError(
            f"Expected {K} classes, as posterior has, but there are {len(classes)}"
        )
    rows = np.arange(M) if rows is None else np.asarray(rows)
    names = range(int(rows.max(initial=-1)) + 1) if names is None else names
    labelled, right = labels >= 0, reweight(posterior, labels)
    unverified = labelled if verified is None else labelled & ~np.asarray(verified, bool)
    wrong = np.where(unverified, 1 - right, 0)
    ranked = np.argsort(-wrong, kind="stable")[: round(wrong.sum())]
    issue = labelled & ~unverified & (right < 0.5)
    issue[ranked] = True
    n = len(names)
    return Suspects(
        rows[ranked],
        _spread(issue, rows, n, False),
        _spread(np.where(labelled, right, np.nan), rows, n, np.nan),
        _named(_spread(labels, rows, n, -1) if given is None else given, classes),
        _named(_spread(_predicted(posterior, labels, issue), rows, n, -1), classes),
        names,
        float(wrong.sum()),
        int(unverified.sum()),
    )


def _predicted(posterior: np.ndarray, labels: np.ndarray, issue: np.ndarray) -> np.ndarray:
    """(M,) the most probable class; of an issue, another one than its label."""
    predicted: np.ndarray = posterior.argmax(axis=1)
    others = posterior[issue]
    others[np.arange(len(others)), labels[issue]] = -1
    predicted[issue] = others.argmax(axis=1)
    return predicted


def _spread(values: np.ndarray, rows: np.ndarray, n: int, missing: Any) -> np.ndarray:
    """The values (n,) of every row of the data."""
    spread = np.full(n, missing, values.dtype)
    spread[rows] = values
    return spread


def _named(numbers: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """What class numbers stand for, None for -1."""
    if (numbers >= 0).all():
        return classes[numbers]
    return np.array([*classes.tolist(), None], object)[numbers]


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


def _checked(posterior: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    posterior = probabilities(posterior)
    return posterior, class_numbers(labels, posterior.shape[1], len(posterior), least=-1)
