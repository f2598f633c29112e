"""What a report shows, as data: the page only renders it, and JSON holds all of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from labelnoise._errors import LabelNoiseError
from labelnoise.checks import Diagnostics, Finding
from labelnoise.checks.findings import BASIS
from labelnoise.intervals import ConfidenceInterval
from labelnoise.io.atomic import write_then_rename
from labelnoise.neighbors.agreement import NeighborAgreement
from labelnoise.verified import Verification

LEAST_SHOWN = 0.0005  # rounds to 0.1%; less is shown as 0

_MOST_SORTED = 200  # classes for which the best order of the tree is looked for


@dataclass(frozen=True)
class Confusion:
    """A true class and a wrong label that it is given."""

    true: str
    label: str
    share: float
    """Of the true class."""
    ends: tuple[float, float] | None
    """Of the share's interval."""
    of_labels: float
    """Of all labels."""
    examples: float | None
    """How many labels that is, of all that there are."""
    truth: float | None
    """The true share, where it is known."""

    def __str__(self) -> str:
        ends = "" if self.ends is None else " ({:z.1%} to {:z.1%})".format(*self.ends)
        truth = "" if self.truth is None else f" (true: {self.truth:.1%})"
        said = f"{self.share:.1%}{ends} of true {self.true} are labelled {self.label}{truth}"
        return f"{self.count} labels: {said}"

    @property
    def count(self) -> str:
        """How many labels that is, or what share of them where their number is not known."""
        return f"{self.of_labels:.1%} of the" if self.examples is None else f"{self.examples:,.0f}"


@dataclass(frozen=True, eq=False)
class Variation:
    """How noise varies over parts of the data."""

    part: str
    """What a part is: group, neighbourhood, annotator."""
    names: tuple[str, ...]
    """Of the parts; empty where they have none."""
    noise_rates: np.ndarray
    sizes: np.ndarray | None
    """Examples in each part."""
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Suspect:
    """A label that is probably wrong."""

    row: int
    given: str
    suggested: str
    probability: float
    """Of being wrong."""
    name: str | None = None
    text: str | None = None
    picture: str | None = None
    """A data URI."""


@dataclass(frozen=True, eq=False)
class SuspectList:
    """The labels that are probably wrong, the surest first."""

    rows: tuple[Suspect, ...]
    """The surest, with what there is to see of them."""
    index: np.ndarray
    """(S,) rows in the data of all of them."""
    given: np.ndarray
    """(S,) numbers of the classes that they are labelled."""
    suggested: np.ndarray
    """(S,) numbers of the most probable other classes."""
    probability: np.ndarray
    """(S,) of being wrong."""
    names: tuple[str, ...] | None = None
    """(S,) names of the examples."""

    @property
    def n_found(self) -> int:
        """How many there are."""
        return len(self.index)


@dataclass(frozen=True, eq=False)
class Truth:
    """What is true, where it is known."""

    transition_matrix: np.ndarray
    noise_rate: float
    errors: Mapping[str, float]
    """`transition_error` of the estimate, and of other answers to measure it by."""


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """All that is known of an estimate, to be looked at; `save` writes the page."""

    classes: tuple[str, ...]
    """Names of the K classes, in the order of the rows and columns."""
    transition_matrix: np.ndarray
    """(K, K) T, rows are true classes."""
    class_prior: np.ndarray
    """(K,) estimated share of each true class."""
    noise_rate: float
    estimator: str = "HOC"
    """Name of its class."""
    findings: tuple[Finding, ...] = ()
    """What the estimate stands on."""
    interval: ConfidenceInterval | None = None
    n_examples: int | None = None
    label_shares: np.ndarray | None = None
    """(K,) share of each label among those given."""
    agreement: NeighborAgreement | None = None
    variation: Variation | None = None
    suspects: SuspectList | None = None
    verified: Verification | None = None
    """What verified labels say, without the posterior."""
    truth: Truth | None = None
    how: Mapping[str, str] = field(default_factory=dict)
    """How it was computed, by name."""

    @property
    def headline(self) -> str:
        """The result in one sentence; where there is nothing to estimate from, why."""
        if not self.diagnostics.estimable:
            basis: Finding = self.diagnostics[BASIS]
            return basis.sentence
        truth = "" if self.truth is None else f" Truth: {self.truth.noise_rate:.1%}."
        ends = ""
        if self.interval is not None:
            ends = " ({:z.1%} to {:z.1%})".format(*self.interval.noise_rate)
        return f"Estimate: {self.noise_rate:z.1%}{ends} of the labels are wrong.{truth}"

    @property
    def diagnostics(self) -> Diagnostics:
        """The findings, the most urgent first."""
        return Diagnostics(self.findings)

    def confusions(self, most: int = 12) -> list[Confusion]:
        """Give the wrong labels of which there are most, by number of labels."""
        T, found = self.transition_matrix, []
        joint = off_diagonal(self.class_prior[:, None] * T)
        largest = np.argsort(-joint, axis=None, kind="stable")[:most]
        for i, j in zip(*np.unravel_index(largest, T.shape), strict=True):
            if i == j or T[i, j] < LEAST_SHOWN:
                continue
            ends = None if self.interval is None else self.interval.transition_matrix[:, i, j]
            found.append(
                Confusion(
                    self.classes[i],
                    self.classes[j],
                    float(T[i, j]),
                    None if ends is None else (float(ends[0]), float(ends[1])),
                    float(joint[i, j]),
                    None if self.n_examples is None else float(self.n_examples * joint[i, j]),
                    None if self.truth is None else float(self.truth.transition_matrix[i, j]),
                )
            )
        return found

    def orders(self, among: np.ndarray) -> dict[str, np.ndarray]:
        """Give orders in which to show some classes: as they are, noisiest first, by likeness."""
        T = self.transition_matrix[np.ix_(among, among)]
        likeness = off_diagonal(T + T.T)
        apart = squareform(likeness.max() - likeness, checks=False)
        tree = linkage(apart, "average", optimal_ordering=len(among) <= _MOST_SORTED)
        return {
            "as given": np.arange(len(among)),
            "noisiest first": np.argsort(np.diag(T), kind="stable"),
            "confused classes together": leaves_list(tree),
        }

    def to_dict(self) -> dict[str, Any]:
        """Give all of it as JSON holds it."""
        content: dict[str, Any] = _plain(asdict(self))
        return content

    def to_html(self) -> str:
        """Give the page: one file that needs nothing but a browser."""
        from labelnoise.report.page import render

        return render(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a .html file, or the data to a .json file."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".html", ".json"):
            raise LabelNoiseError(
                f"Expected to write a file ending in .html or .json, but it is {str(path)!r}"
            )
        content = self.to_html() if suffix == ".html" else json.dumps(self.to_dict(), indent=1)
        with write_then_rename(path) as file:
            file.write(content.encode())

    def __repr__(self) -> str:
        return self.headline

    def _repr_html_(self) -> str:
        """The page inside a notebook's, and apart from it."""
        return (
            f'<iframe srcdoc="{escape(self.to_html())}" sandbox="allow-scripts allow-downloads" '
            f'title="Label noise report" style="width:100%;height:50rem;border:0"></iframe>'
        )


def off_diagonal(T: np.ndarray) -> np.ndarray:
    """T without its diagonal."""
    return T - np.diag(np.diag(T))


def short_percent(share: float) -> str:
    """Percent in at most three characters: 0, 0.4, 8.1, 93."""
    if abs(share) < LEAST_SHOWN:
        return "0"
    return f"{100 * share:.1f}" if abs(share) < 0.0995 else f"{100 * share:.0f}"


def _plain(value: Any) -> Any:
    """What JSON can hold: lists, and None for numbers that are none."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
