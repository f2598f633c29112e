"""What was decided, for other tools: a checked table, cleaned labels, Label Studio's tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from labelnoise.io.atomic import write_then_rename
from labelnoise.io.tables import write_table
from labelnoise.results import ANSWERS, Results
from labelnoise.review import measure
from labelnoise.review.clean import SuspectList
from labelnoise.review.data import Labelled
from labelnoise.review.store import Answer, Store

# Labels that came in these formats leave in them; others leave as CSV, or as an array.
_TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather")
_ARRAYS = (".npy", ".npz", ".safetensors", ".pt", ".pth")
_FIELDS = {"image": "image", "text": "text", "row": "table", "features": "text"}


@dataclass(frozen=True)
class Review:
    """The examples of a review, its suspects and its answers."""

    data: Labelled
    store: Store
    suspects: SuspectList


def open_review(results: Results) -> Review:
    """Gather what the page needs, with the answers that were given before."""
    data = Labelled(results)
    store = Store(results.folder / ANSWERS, data.fingerprint())
    return Review(data, store, SuspectList(data))


def files(review: Review) -> dict[str, Callable[[Path], None]]:
    """Name the files that can be exported, each with what writes it."""
    return {
        "checked.csv": lambda path: write_table(path, checked(review)),
        f"labels-cleaned{_suffix(review.data)}": lambda path: review.data.results.write_labels(
            path, cleaned(review)
        ),
        "label-studio.json": lambda path: _write_json(path, label_studio(review)),
    }


def checked(review: Review) -> dict[str, list[Any]]:
    """Give every answer, as `HOC.verify` and `labelnoise estimate --verified` take it.

    Rows of the sample come first, with their strata. A row of it that was only answered while
    cleaning was not answered for being in the sample, so it is listed without its stratum.
    """
    data, store = review.data, review.store
    measured, decided = _standing(store.answers("measure")), _standing(store.answers("clean"))
    listed = store.sample()
    table = measure.columns(data, listed, measured)
    table["given_shown"] = [
        int(measured[row].given_shown) if row in measured else "" for row, _, _ in listed
    ]
    table["answer"] = [_verdict(measured.get(row)) for row, _, _ in listed]
    moved = {
        i: decided[row]
        for i, (row, _, _) in enumerate(listed)
        if row in decided and row not in measured
    }
    in_sample = {row for row, _, _ in listed}
    kept = [i for i in range(len(listed)) if i not in moved]
    table = {name: [cells[i] for i in kept] for name, cells in table.items()}
    others = [*moved.values(), *(decided[row] for row in decided if row not in in_sample)]
    for answer in others:
        line = {
            "row": answer.row,
            "given_label": data.classes[data.given(answer.row)],
            "true_label": measure.label_name(data, answer),
            "given_shown": int(answer.given_shown),
            "answer": _verdict(answer),
        }
        for name, cells in table.items():
            cells.append(line.get(name, ""))
    rows = table.pop("row")
    return {"row": rows, "name": [data.name(row) for row in rows], **table}


def cleaned(review: Review) -> np.ndarray:
    """Give all labels (N,), with the last answer on each row in place of its label."""
    labels = np.array(review.data.results.labels, object)
    classes = review.data.estimate.classes_.tolist()
    for row, answer in _last(review.store).items():
        if answer.label is not None:
            labels[row] = classes[answer.label]
    return labels


def label_studio(review: Review) -> list[dict[str, Any]]:
    """Give tasks of Label Studio: answers are annotations, and suspicions predictions.

    The labelling interface needs ``<Choices name="label" toName="example">``.
    """
    answers = _last(review.store)
    suspected = review.suspects.row.tolist()
    known = {*suspected}
    rows = [*suspected, *(row for row in answers if row not in known)]
    return [_task(review, row, answers.get(row)) for row in rows]


def _task(review: Review, row: int, answer: Answer | None) -> dict[str, Any]:
    data = review.data
    kind, content = data.results.content(row)
    shown = {
        # How Label Studio names a file below the folder that it serves.
        "image": f"/data/local-files/?d={quote(data.name(row), errors='surrogateescape')}",
        "text": content,
        "row": content,
        "features": data.name(row),
    }[kind]
    if kind == "row":
        shown = {str(column): "" if cell is None else str(cell) for column, cell in shown.items()}
    given = data.classes[data.given(row)]
    task: dict[str, Any] = {
        "data": {
            _FIELDS[kind]: shown,
            "row": row,
            "name": data.name(row),
            "given_label": given,
        }
    }
    if (suspect := review.suspects.find(row)) is not None:
        task["predictions"] = [
            {
                "model_version": "labelnoise",
                "score": suspect["probability"],
                "result": [_choice(data.classes[suspect["suggested"]])],
            }
        ]
    if answer is not None and answer.label is not None:
        result = [_choice(data.classes[answer.label])]
        task["annotations"] = [{"result": result, "created_at": answer.at}]
    return task


def _choice(name: str) -> dict[str, Any]:
    return {
        "from_name": "label",
        "to_name": "example",
        "type": "choices",
        "value": {"choices": [name]},
    }


def _standing(answers: dict[int, Answer]) -> dict[int, Answer]:
    return {row: answer for row, answer in answers.items() if answer.verdict != "withdrawn"}


def _last(store: Store) -> dict[int, Answer]:
    """The last answer on each row, on whichever list it was given."""
    both = [*store.answers("measure").values(), *store.answers("clean").values()]
    standing = (answer for answer in both if answer.verdict != "withdrawn")
    return {answer.row: answer for answer in sorted(standing, key=lambda answer: answer.id)}


def _verdict(answer: Answer | None) -> str:
    return "" if answer is None else answer.verdict


def _suffix(data: Labelled) -> str:
    """The ending of the file that labels are written to."""
    source = str(data.results.source.labels).lower()
    for suffix in (*_TABLES, *_ARRAYS):
        if source.endswith(suffix) or f"{suffix}:" in source:
            return suffix if suffix in _TABLES else ".npy"
    return ".csv"


def _write_json(path: Path, content: Any) -> None:
    with write_then_rename(path) as file:
        file.write(json.dumps(content).encode())
