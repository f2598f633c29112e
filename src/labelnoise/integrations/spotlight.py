"""Renumics Spotlight: the suspects as an issue beside the data.

::

    from renumics import spotlight

    found = est.suspects()
    table = df.join(found.to_frame())
    spotlight.show(table, issues=[spotlight.DataIssue(**issue(found, "label"))])
"""

from __future__ import annotations

from typing import Any

from labelnoise.suspects import Suspects


def issue(found: Suspects, column: str | None = None) -> dict[str, Any]:
    """Give the arguments of Spotlight's `DataIssue`.

    Parameters
    ----------
    found : Suspects
        From ``est.suspects()``.
    column : str, optional
        The column of labels in the table that is shown.
    """
    share = found.expected_errors / max(found.n_labels, 1)
    return {
        "title": f"{len(found):,} labels are probably wrong",
        "rows": found.index.tolist(),
        "severity": "high",
        "columns": None if column is None else [column],
        "description": (
            f"{share:.1%} of {found.n_labels:,} labels, by the labels of nearest neighbours: the "
            f"surest first."
        ),
    }
