"""Label Studio: suspects, or a sample to verify, as tasks; annotations as verified labels.

::

    json.dump(tasks(est.suspects(), urls), open("tasks.json", "w"))  # import it in Label Studio
    est.verify(read_annotations("export.json"))  # exported from there as JSON

`labeling_config` gives the set-up of a project that fits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

import labelnoise
from labelnoise._errors import LabelNoiseError
from labelnoise.io.packages import explained
from labelnoise.suspects import Suspects
from labelnoise.verified import Sample

_CONTROL = "label"  # the name of the choices in a labeling config
_SHOWN = {"image": "Image", "text": "Text"}


def labeling_config(classes: Sequence[Any] | np.ndarray, kind: str = "image") -> str:
    """Give the labeling config of a project for `tasks`: XML with a choice for each class.

    Parameters
    ----------
    classes : sequence of labels
        Such as `est.classes_`.
    kind : {"image", "text"}
        What is shown.
    """
    _expect_kind(kind)
    choices = "".join(f"    <Choice value={quoteattr(str(name))}/>\n" for name in list(classes))
    return (
        f'<View>\n  <{_SHOWN[kind]} name="{kind}" value="${kind}"/>\n'
        f'  <Choices name="{_CONTROL}" toName="{kind}" choice="single">\n{choices}  </Choices>\n'
        f"</View>\n"
    )


def tasks(
    found: Suspects | Sample, shown: Sequence[str] | np.ndarray, kind: str = "image"
) -> list[dict[str, Any]]:
    """Give a task for each suspect, the surest first, or for each row of a sample to verify.

    Parameters
    ----------
    found : Suspects or Sample
        From ``est.suspects()``: each task has the columns of its row, and the suggested label as a
        prediction, whose score is the probability that the given label is wrong. From
        ``est.to_verify()``: how the row was chosen, and no prediction, which would lead whoever
        annotates.
    shown : sequence of length N
        For every row of the data the URL of its image, or its text.
    kind : {"image", "text"}

    Returns
    -------
    list of dict
        What Label Studio imports, written to a JSON file.
    """
    _expect_kind(kind)
    if isinstance(found, Suspects):
        rows = [row._asdict() for row in found]
        n = len(found.label_score)
        if len(shown) != n:
            raise LabelNoiseError(
                f"Expected the image or text of each of the {n} examples, but there are "
                f"{len(shown)}"
            )
        return [_task(row, str(shown[row["row"]]), kind) | _prediction(row, kind) for row in rows]
    columns = {name: values.tolist() for name, values in found.columns().items()}
    del columns["true_label"]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    last = max(columns["row"])
    if last >= len(shown):
        raise LabelNoiseError(
            f"Expected the image or text of each example, but there are {len(shown)} and the "
            f"sample has row {last}"
        )
    return [_task(row, str(shown[row["row"]]), kind) for row in rows]


def read_annotations(
    source: str | os.PathLike[str] | Sequence[Mapping[str, Any]],
) -> dict[str, list[Any]]:
    """Read annotations of `tasks` as a table of verified labels: ``est.verify`` takes it.

    Parameters
    ----------
    source : path, or list of tasks
        An export of the project as "JSON" (not "JSON-MIN"). Cancelled annotations are left out;
        of a task with several, each is a row.

    Returns
    -------
    dict of lists
        `row` and `true_label`, None for tasks without an annotation; and what the tasks say of
        the given and the suggested label, and of how the row was chosen.
    """
    if isinstance(source, str | os.PathLike):
        with explained(f"Expected a JSON export of Label Studio, but {source} cannot be read"):
            source = json.loads(Path(source).read_text("utf-8"))
    if not isinstance(source, list) or not all(_is_task(task) for task in source):
        raise LabelNoiseError(
            'Expected a list of tasks with their data and annotations, as the export "JSON" of '
            "Label Studio has them, of tasks that labelnoise made: one has no data.row"
        )
    columns = {
        "stratum": "stratum",
        "stratum_size": "stratum_size",
        "given_label": "given_label",
        "predicted_label": "suggested_label",
    }
    known = {name for task in source for name in task["data"] if name in columns}
    table: dict[str, list[Any]] = {"row": [], "true_label": []} | {
        columns[name]: [] for name in known
    }
    for task in source:
        answers: list[Any] = [*_answers(task)] or [None]
        for answer in answers:
            table["row"].append(task["data"]["row"])
            table["true_label"].append(answer)
            for name in known:
                table[columns[name]].append(task["data"].get(name))
    return table


def _expect_kind(kind: str) -> None:
    if kind not in _SHOWN:
        raise LabelNoiseError(f"Expected kind to be one of {list(_SHOWN)}, but kind = {kind!r}")


def _task(row: Mapping[str, Any], shown: str, kind: str) -> dict[str, Any]:
    names = ("given_label", "predicted_label")
    words = {name: str(row[name]) for name in names if name in row}
    return {"data": {kind: shown, **row, **words}}


def _prediction(row: Mapping[str, Any], kind: str) -> dict[str, Any]:
    choice = {
        "from_name": _CONTROL,
        "to_name": kind,
        "type": "choices",
        "value": {"choices": [str(row["predicted_label"])]},
    }
    prediction = {
        "model_version": f"labelnoise {labelnoise.__version__}",
        "score": row["probability_wrong"],
        "result": [choice],
    }
    return {"predictions": [prediction]}


def _is_task(task: Any) -> bool:
    return (
        isinstance(task, Mapping)
        and isinstance(task.get("data"), Mapping)
        and "row" in task["data"]
        and isinstance(task.get("annotations"), list)
    )


def _answers(task: Mapping[str, Any]) -> list[str]:
    """The classes that annotators chose."""
    return [
        region["value"]["choices"][0]
        for annotation in task["annotations"]
        if not annotation.get("was_cancelled")
        for region in annotation["result"]
        if region.get("from_name") == _CONTROL and region.get("type") == "choices"
    ]
