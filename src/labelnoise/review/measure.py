"""The list that measures: a random sample, and what its answers say of all labels."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from labelnoise.review.data import Labelled
from labelnoise.review.store import Answer, Store
from labelnoise.verified import NoiseRate, noise_rate, read_answers, rows_to_add

HALF_WIDTHS = (0.01, 0.02, 0.03, 0.05)
"""Of the 95% interval, that one may aim at."""


@dataclass(frozen=True)
class Running:
    """What is known of the noise rate so far."""

    listed: int
    """Rows of the sample."""
    answered: int
    unclear: int
    wrong: int
    model_rate: float
    until_first: int
    """Answers until there is an estimate by the sample."""
    rate: NoiseRate | None
    to_add: int | None
    """Answers until the interval is as short as wanted."""

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON holds it."""
        return asdict(self)


def sample_of(data: Labelled, store: Store) -> list[tuple[int, int, int]]:
    """Give (row, stratum, stratum_size) of the sample; it is drawn when first asked for."""
    if not (listed := store.sample()):
        store.extend_sample(_drawn(data.estimate.to_verify()), 0)
        listed = store.sample()
    return listed


def extend_sample(data: Labelled, store: Store, n: int) -> list[tuple[int, int, int]]:
    """Add n rows to the sample, or as many as there are."""
    listed = sample_of(data, store)
    n = min(n, len(data.rows) - len(listed))
    if n > 0:
        # Another state for each extension, so that each is random anew.
        more = data.estimate.to_verify(n, after=columns(data, listed, {}), random_state=len(listed))
        store.extend_sample(_drawn(more), len(listed))
    return store.sample()


def columns(
    data: Labelled, listed: list[tuple[int, int, int]], answers: Mapping[int, Answer]
) -> dict[str, list[Any]]:
    """Give the table of the sample, as `HOC.verify` takes it, with the answers filled in."""
    in_stratum = Counter(stratum for _, stratum, _ in listed)
    return {
        "row": [row for row, _, _ in listed],
        "stratum": [stratum for _, stratum, _ in listed],
        "stratum_size": [size for _, _, size in listed],
        "chance": [min(1.0, in_stratum[stratum] / size) for _, stratum, size in listed],
        "given_label": [data.classes[data.given(row)] for row, _, _ in listed],
        "true_label": [label_name(data, answers.get(row)) for row, _, _ in listed],
    }


def label_name(data: Labelled, answer: Answer | None) -> str:
    """Give the class that somebody chose, or an empty text."""
    return "" if answer is None or answer.label is None else data.classes[answer.label]


def running(data: Labelled, store: Store, half_width: float) -> Running:
    """Estimate the noise rate by the answers so far."""
    listed, answers = sample_of(data, store), store.answers("measure")
    given = {row: answers[row] for row, _, _ in listed if row in answers}
    truth = {row: answer.label for row, answer in given.items() if answer.label is not None}
    n_strata = len({stratum for _, stratum, _ in listed})
    without = n_strata - len({stratum for row, stratum, _ in listed if row in truth})
    until_first = max(2 * n_strata - len(truth), without)
    model_rate = float(data.wrong.mean())
    rate, to_add = None, None
    if until_first <= 0:
        table = columns(data, listed, answers)
        found = read_answers(table, data.labels, np.array(data.classes, object), rows=data.rows)
        bad = found.truth != data.labels[found.place]
        rate, strata = noise_rate(found, bad, data.wrong, model_rate, 0.95)
        to_add = rows_to_add(strata, half_width)
    return Running(
        listed=len(listed),
        answered=len(truth),
        unclear=sum(answer.verdict == "unclear" for answer in given.values()),
        wrong=sum(label != data.given(row) for row, label in truth.items()),
        model_rate=model_rate,
        until_first=max(until_first, 0),
        rate=rate,
        to_add=to_add,
    )


def findings(data: Labelled, store: Store) -> list[str]:
    """Say what the answers show to be wrong with the model, or with the answers."""
    if running(data, store, HALF_WIDTHS[-1]).rate is None:
        return []
    table = columns(data, store.sample(), store.answers("measure"))
    verification = copy.copy(data.estimate).verify(table)  # the estimate itself stays
    return [f"{one.sentence} {one.remedy}" for one in verification.findings if not one.ok]


def _drawn(sample: Any) -> list[tuple[int, int, int]]:
    of = (sample.row, sample.stratum, sample.stratum_size)
    return list(zip(*(values.tolist() for values in of), strict=True))
