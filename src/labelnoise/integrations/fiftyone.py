"""FiftyOne: labels of a data set's samples in, fields with what was found out.

::

    est = HOC().fit(embeddings, labels(dataset, "ground_truth"))
    add_fields(dataset, est.suspects())
    dataset.match(F("is_label_issue")).sort_by("label_score")

The functions ask nothing of FiftyOne but `values` and `set_values` of a data set or view.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.suspects import Suspects

_FIELDS = ("is_label_issue", "label_score", "predicted_label", "probability_wrong")


def labels(dataset: Any, field: str = "ground_truth") -> np.ndarray:
    """Give the labels (N,) of a field of classifications, None where there is none."""
    return np.array([*dataset.values(f"{field}.label"), None], object)[:-1]


def add_fields(dataset: Any, found: Suspects) -> None:
    """Set `is_label_issue`, `label_score`, `predicted_label` and `probability_wrong` of samples.

    Parameters
    ----------
    dataset : fiftyone.Dataset or view
        The samples whose labels were fitted, in the same order.
    found : Suspects
        From ``est.suspects()``.
    """
    n, columns = len(found.label_score), found.columns()
    if len(dataset) != n:
        raise LabelNoiseError(
            f"Expected the samples whose labels were fitted, {n}, but there are {len(dataset)}"
        )
    for name in _FIELDS:
        values = [None if value != value else value for value in columns[name].tolist()]
        if name == "predicted_label":
            values = [None if value is None else str(value) for value in values]
        dataset.set_values(name, values)
