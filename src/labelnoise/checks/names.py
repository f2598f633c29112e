"""Classes whose names say that nobody labelled them."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelnoise.checks.findings import Finding, listed

NO_LABEL = ("", "-", "?", "-1", "-1.0", "unknown", "unlabeled", "unlabelled", "missing")
NO_VALUE = ("n/a", "na", "nan", "none", "null")
_LEAST_CLASSES = 3  # -1 and 1 are two classes as good as others


def check_names(classes: np.ndarray, unlabeled: Any = None) -> Finding:
    """Whether a class is named as examples without a label are."""
    names = [str(name).strip().lower() for name in classes.tolist()]
    found = [i for i, name in enumerate(names) if name in NO_LABEL + NO_VALUE]
    if len(classes) < _LEAST_CLASSES:
        found = [i for i in found if names[i] not in ("-1", "-1.0")]
    if not found:
        return Finding("names", True, 0.0, "No class is named as examples without a label are.")
    named = listed(np.array([repr(name) for name in classes.tolist()]), found)
    sentence = f"The class {named} looks as if its examples had no label."
    first = classes.tolist()[found[0]]
    remedy = f"If so, use unlabeled={first!r} (--unlabeled={first})."
    if unlabeled is not None:
        remedy = "If so, use None for all labels that are missing."
    return Finding("names", True, float(len(found)), sentence, "note", remedy)
