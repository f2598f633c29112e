"""A folder of results: an estimate with its examples, to look at and to go on from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import labelnoise
from labelnoise._errors import LabelNoiseError
from labelnoise.hoc import HOC
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.features import Features
from labelnoise.io.labels import Labels, write_labels
from labelnoise.io.memory import expect_room
from labelnoise.io.packages import explained
from labelnoise.io.sources import Shown, Source
from labelnoise.io.tables import Column, is_number, write_table
from labelnoise.labels import encode_labels
from labelnoise.report import Report, Truth, report_of
from labelnoise.review.store import has_answers
from labelnoise.verified import Sample
from labelnoise.verified.sample import LEAST_ROWS

StrPath = str | os.PathLike[str]

FORMAT, VERSION = "labelnoise results", 1
HEAD = "audit.json"  # written last: a folder without it is not finished
CACHE = "cache"
ESTIMATE, EXAMPLES = "noise.json", f"{CACHE}/examples.npz"
REPORT, LABELS, TO_CHECK = "report.html", "labels.csv", "to_check.csv"
ANSWERS = "answers.sqlite"  # of labelnoise review
_LARGEST_HEAD = 2**20  # bytes
_LONG_NUMBER = 8  # characters


class Results:
    """What `labelnoise audit` found, in one folder.

    Attributes
    ----------
    folder : Path
    source : Source
        Where the examples and their labels are.
    settings : dict
        What else was decided: the encoder, for example.
    estimate : HOC
        Fitted: suspects, the sample to verify, verified labels and reports need no search or fit.
    features : Features
        Names as they are in files, but no numbers: these are in the folder's cache.
    names : list of str, of length N
        The path of each image in its folder, or the name or number of each row.
    labels : object array of shape (N,)
        Given labels, None where there is none.
    """

    def __init__(
        self,
        folder: StrPath,
        source: Source,
        settings: Mapping[str, Any],
        estimate: HOC,
        features: Features,
        codes: np.ndarray,
    ) -> None:
        self.folder, self.source, self.settings = Path(folder), source, dict(settings)
        self.estimate, self.features, self._codes = estimate, features, codes
        self.names = features.names or [str(row) for row in range(len(codes))]
        self.labels = np.array([*estimate.classes_.tolist(), None], object)[codes]
        self.shown = Shown(source, self.names)

    @property
    def kind(self) -> str:
        """What the examples are: "images", "texts", "table" or "features"."""
        return self.source.kind

    def content(self, row: int) -> tuple[str, Any]:
        """Give what is to be seen of an example, without its label.

        ("image", Path), ("text", str), ("row", {column: cell}), or ("features", None).
        """
        return self.shown.content(row)

    def neighbors(self, row: int, most: int = 6) -> list[int]:
        """Give rows of the nearest labelled examples; none of one that is not labelled."""
        data = self.estimate.examples_
        place = int(np.searchsorted(data.rows, row))
        if place == len(data.rows) or data.rows[place] != row:
            return []
        near: list[int] = data.rows[data.near.indices[place, :most]].tolist()
        return near

    def write_labels(self, path: StrPath, new: np.ndarray) -> None:
        """Write other labels (N,) in the format that they came in, with nothing else changed.

        Where a new label is None, the old one stays. A table keeps its other columns and rows.
        """
        labels, est = self.source.read_labels(self.features), self.estimate
        try:
            codes, _ = encode_labels(labels.array, est.classes_, est.unlabeled)
            same = bool((codes == self._codes).all())
        except LabelNoiseError:  # labels of no class
            same = False
        if not same:
            raise LabelNoiseError(
                f"Expected the labels that were audited, but others are in {self.source.labels} "
                f"now: run labelnoise audit again"
            )
        kept, new = labels.array, np.asarray(new, object)
        changed = np.where(new == None, kept.astype(object), new)  # noqa: E711
        numbers = kept.dtype.kind in "iuf"
        typed = changed.astype(kept.dtype) if numbers else np.array(changed.tolist())
        write_labels(path, labels, changed if labels.table else typed)

    @classmethod
    def write(
        cls,
        folder: StrPath,
        est: HOC,
        source: Source,
        features: Features,
        labels: Labels,
        settings: Mapping[str, Any],
    ) -> Results:
        """Write all files of a folder of results, and put them in place together.

        Parameters
        ----------
        folder : path
            It must exist. What else is in it stays, but for a killed run's unfinished files.
        est : HOC
            Fitted to the features and labels, without verified labels.
        source : Source
            Paths that are not absolute are as seen from the working folder.
        features : Features
        labels : Labels
            In the order of the features.
        settings : mapping
            What else was decided, as JSON holds it.
        """
        folder = Path(folder)
        codes, _ = encode_labels(labels.array, est.classes_, est.unlabeled)
        found = cls(folder, source, settings, est, features, codes)
        expect_no_answers(folder)
        for old in folder.glob(".new-*"):
            shutil.rmtree(old)
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
        try:
            (new / CACHE).mkdir()
            found._write_into(new)
            for name in (ESTIMATE, EXAMPLES, REPORT, LABELS, TO_CHECK, HEAD):
                if (new / name).exists():
                    (folder / name).parent.mkdir(exist_ok=True)
                    os.replace(new / name, folder / name)
        finally:
            shutil.rmtree(new)
        return found

    def _write_into(self, new: Path) -> None:
        est, features = self.estimate, self.features
        est.save(new / ESTIMATE)
        arrays = est.example_arrays() | {"codes": self._codes}
        for name, values in (("names", features.names), ("failed", features.failed)):
            if values:
                arrays[name] = _bytes(values)
        with write_then_rename(new / EXAMPLES) as file:
            np.savez(file, allow_pickle=False, **arrays)
        est.suspects().save(new / LABELS, names=features.names)
        if len(est.examples_.labels) >= LEAST_ROWS:
            write_table(new / TO_CHECK, sample_table(est.to_verify(), features.names))
        self.report().save(new / REPORT)
        head = {
            "format": FORMAT,
            "version": VERSION,
            "written_by": f"labelnoise {labelnoise.__version__}",
            "source": asdict(self.source.moved(".", self.folder)),
            "settings": self.settings,
            "n_rows": len(self._codes),
            "numbered": features.numbered,
            "sha256": {
                name: _digest(new / name)
                for name in (ESTIMATE, EXAMPLES, TO_CHECK)
                if (new / name).exists()
            },
        }
        with write_then_rename(new / HEAD) as file:
            file.write(json.dumps(head, indent=1).encode())

    def report(self, how: Mapping[str, str] | None = None, truth: Truth | None = None) -> Report:
        """Gather the report, with what is to be seen of the suspects."""
        shown: dict[str, Any] = {"names": self.features.names}
        if self.kind == "images" and find_spec("PIL"):
            shown["images"] = _Seen(self.shown)
        elif self.kind in ("texts", "table"):
            shown["texts"] = _Seen(self.shown)
        est, how = self.estimate, {"Data": self.source.path} | dict(how or {})
        return report_of(est, suspects=est.suspects(), truth=truth, how=how, **shown)

    @classmethod
    def open(cls, folder: StrPath) -> Results:
        """Read a folder of results; all of it is checked."""
        folder = Path(folder)
        if not (folder / HEAD).is_file():
            raise LabelNoiseError(
                f"Expected a folder that labelnoise audit wrote, but {folder} has no {HEAD}"
                f"{': the audit was interrupted, so run it again' if is_begun(folder) else ''}"
            )
        with explained(
            f"Expected a folder that labelnoise audit wrote, but {folder} cannot be read as one, "
            f"so run the audit again"
        ):
            head = read_head(folder)
            for name in (ESTIMATE, EXAMPLES):
                if _digest(folder / name) != head["sha256"][name]:
                    raise ValueError(f"{name} was changed")
            source = Source(**head["source"]).moved(folder, ".")
            with np.load(folder / EXAMPLES, allow_pickle=False) as file:
                expect_room(folder / EXAMPLES, sum(info.file_size for info in file.zip.infolist()))
                arrays = dict(file)
            codes, n = arrays.pop("codes"), head["n_rows"]
            names, failed = (_words(arrays.pop(name, None)) for name in ("names", "failed"))
            est = HOC.load(folder / ESTIMATE)
            if codes.shape != (n,) or codes.dtype.kind != "i" or len(names or codes) != n:
                raise ValueError("the number of rows does not fit")
            if codes.min() < -1 or codes.max() >= len(est.classes_):
                raise ValueError("there are labels outside the classes")
            est.with_examples(arrays, codes)
            if (codes[est.examples_.rows] != est.examples_.labels).any():
                raise ValueError("the labels do not fit")
        array = np.empty((n, 0), np.float32)
        features = Features(source.path, array, names, tuple(failed or ()), bool(head["numbered"]))
        return cls(folder, source, head["settings"], est, features, codes)


class _Seen:
    """Contents by row, for a report."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown

    def __len__(self) -> int:
        return len(self.shown.names)

    def __getitem__(self, row: int) -> Any:
        kind, content = self.shown.content(row)
        if kind != "row":
            return content
        return ", ".join(f"{name}: {_short(cell)}" for name, cell in content.items())


def _short(cell: Any) -> str:
    """A cell with four digits, if it is a number with many."""
    text = str(cell)
    return f"{float(text):.4g}" if len(text) > _LONG_NUMBER and is_number(text) else text


def sample_table(
    sample: Sample, names: list[str] | None, suggestions: bool = False
) -> dict[str, Column]:
    """Give the table of a sample to verify, with the names of its rows where there are any."""
    table: dict[str, Column] = dict(sample.columns(suggestions))
    if names is None:
        return table
    return {"row": table.pop("row"), "name": [names[row] for row in sample.row], **table}


def make_folder(folder: StrPath) -> None:
    """Make a folder for results; one that is there must have results, begun ones, or nothing."""
    folder = Path(folder)
    with explained(f"Expected a folder to write to, but {folder} cannot be made one"):
        if folder.is_dir() and os.listdir(folder) and not is_begun(folder):
            raise LabelNoiseError(
                f"Expected a new folder, or one with results, but {folder} has other files: choose "
                f"another with --out"
            )
        (folder / CACHE).mkdir(parents=True, exist_ok=True)


def is_begun(folder: StrPath) -> bool:
    """Whether a folder has results, or an audit began in it."""
    return (Path(folder) / HEAD).is_file() or (Path(folder) / CACHE).is_dir()


def read_head(folder: StrPath) -> dict[str, Any]:
    """Read what a folder of results says of itself."""
    path = Path(folder) / HEAD
    if path.stat().st_size > _LARGEST_HEAD:
        raise ValueError(f"{HEAD} is too large")
    head = json.loads(path.read_text("utf-8"))
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f'{HEAD} has no "format": {FORMAT!r}')
    if head["version"] != VERSION:
        raise ValueError(f"its version is {head['version']!r} instead of {VERSION}")
    if not isinstance(head["settings"], dict) or not isinstance(head["n_rows"], int):
        raise ValueError(f"settings or n_rows of {HEAD} are of another kind")
    return head


def expect_no_answers(folder: StrPath) -> None:
    """Refuse to replace what somebody has checked."""
    answers, sheet = Path(folder) / ANSWERS, Path(folder) / TO_CHECK
    filled = [answers] if answers.exists() and has_answers(answers) else []
    if sheet.exists():
        written = None
        with suppress(LabelNoiseError, ValueError, KeyError, OSError):
            written = read_head(folder)["sha256"][TO_CHECK]
        filled += [sheet] if _digest(sheet) != written else []
    if filled:
        raise LabelNoiseError(
            f"Expected a folder whose labels nobody has checked yet, but {filled[0]} was filled in "
            f"for what was audited before: choose another folder with --out, or move that file away"
        )


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bytes(names: list[str] | tuple[str, ...]) -> np.ndarray:
    """Names as bytes: names of files need not be Unicode, and one may be very long."""
    return np.frombuffer("\0".join(names).encode("utf-8", "surrogateescape"), np.uint8)


def _words(array: np.ndarray | None) -> list[str] | None:
    if array is None:
        return None
    return array.astype(np.uint8).tobytes().decode("utf-8", "surrogateescape").split("\0")
