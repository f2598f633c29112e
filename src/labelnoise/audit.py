"""From files to a folder of results: embed, estimate, and keep what was found."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import labelnoise
from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import expect_two_classes
from labelnoise.hoc import HOC
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.features import Features, load_embedding, read_features
from labelnoise.io.huggingface import is_dataset, unpack
from labelnoise.io.labels import Labels
from labelnoise.io.sources import Source, find_source
from labelnoise.labels import encode_labels
from labelnoise.results import (
    CACHE,
    HEAD,
    LABELS,
    REPORT,
    Results,
    expect_no_answers,
    make_folder,
    read_head,
)

Progress = Callable[[str, int, int], None]
StrPath = str | os.PathLike[str]

_UNPACKED, _FEATURES, _STAMP = "unpacked", "features.npy", "features.sha256"
_FEWEST_DIAGNOSED = 100  # examples, for the closer checks to see something


def audit(
    source: Source,
    folder: StrPath,
    *,
    encoder: str | None = None,
    drop: Sequence[str] = (),
    metric: str | None = None,
    unlabeled: Any = None,
    features: Features | None = None,
    progress: Progress | None = None,
) -> Results:
    """Estimate the noise of labels in files, and write a folder of results.

    What is in the folder already is used where it is of the same source and settings: features,
    parts of them after a kill, or the whole result.

    Parameters
    ----------
    source : Source
        From `labelnoise.io.sources.find_source`.
    folder : path
        Made if it does not exist.
    encoder : str, optional
        For images and texts, as in `labelnoise.io.embedding`.
    drop : list of str
        Columns of a table that are no features. The label, and name, path and id never are.
    metric : {"cosine", "euclidean"}, optional
        Default: euclidean for the rows of a table, else cosine.
    unlabeled : label, optional
        What stands for "not labelled".
    features : Features, optional
        Of these examples, instead of those of an encoder.
    progress : callable, optional
        Called as ``progress(stage, done, total)``.
    """
    folder = Path(folder)
    labels = source.read_labels()
    codes, classes = encode_labels(labels.array, unlabeled=unlabeled)
    expect_two_classes(classes, codes)
    _expect_outside(folder, source)
    make_folder(folder)
    try:
        if features is None:
            features = _features(source, labels, folder / CACHE, encoder, drop, progress)
        labels = source.read_labels(features)
        metric = metric or ("euclidean" if source.kind == "table" else "cosine")
        made_of = [_state(source, features, folder), labels.array.tolist(), metric, unlabeled]
        about = {"encoder": encoder, "drop": list(drop), "made_of": _digest(made_of)}
        if earlier := _earlier(folder, about):
            return earlier
        expect_no_answers(folder)
        est = HOC(metric=metric, unlabeled=unlabeled)
        est.fit(features.array, labels.array, progress=progress)
        if len(labels.array) > _FEWEST_DIAGNOSED:
            est.diagnose(progress)
        if progress:
            progress("writing the results", 0, 0)
        found = Results.write(folder, est, source, features, labels, about)
        if progress:
            progress("writing the results", 1, 1)
        return found
    finally:
        _remove_empty(folder)


def unpacked(
    path: str,
    labels: str | None,
    folder: StrPath,
    *,
    text: str | None = None,
    label: str | None = None,
) -> Source:
    """Find out what was given, as `find_source` does; a data set is unpacked into the results."""
    if not is_dataset(path):
        return find_source(path, labels, text=text, label=label)
    if labels is not None:
        raise LabelNoiseError(
            f"Expected no labels beside a data set, which has its own, but labels = {labels!r}"
        )
    try:
        return unpack(path, Path(folder) / CACHE / _UNPACKED, text=text, label=label)
    finally:
        _remove_empty(Path(folder))


def _remove_empty(folder: Path) -> None:
    """Remove what was made for results that did not come."""
    for made in (folder / CACHE / _UNPACKED, folder / CACHE, folder):
        with suppress(OSError):  # it has something in it, or is not there
            made.rmdir()


def _earlier(folder: Path, about: dict[str, Any]) -> Results | None:
    """The results that are in the folder, if they are whole and of the same."""
    there = all((folder / name).is_file() for name in (HEAD, REPORT, LABELS))
    with suppress(LabelNoiseError, ValueError, KeyError):
        if there and read_head(folder)["settings"] == about:
            return Results.open(folder)
    return None


def _features(
    source: Source,
    labels: Labels,
    cache: Path,
    encoder: str | None,
    drop: Sequence[str],
    progress: Progress | None,
) -> Features:
    """The features in the file, or those of an encoder, which are made once."""
    if source.kind == "features":
        return read_features(source.path)
    names = labels.names or []
    if source.kind == "images":
        _expect_distinct(names, source)
    out, stamp = cache / _FEATURES, cache / _STAMP
    state = _digest([source.state(names), encoder, list(drop), source.label])
    if stamp.is_file() and stamp.read_text("utf-8") == state:
        embedding = load_embedding(out)
    else:
        stamp.unlink(missing_ok=True)
        embedding = source.embed(names, out, encoder, drop, progress)
        with write_then_rename(stamp) as file:
            file.write(state.encode())
    numbered = source.kind != "images"
    failed = tuple(name for name, _ in embedding.failed)
    return Features(source.path, embedding.features, embedding.names, failed, numbered)


def _state(source: Source, features: Features, folder: Path) -> str:
    """What changes when the features do."""
    stamp = folder / CACHE / _STAMP
    if source.kind == "features":
        return source.state([])
    return stamp.read_text("utf-8") if stamp.is_file() else _digest(features.array.tobytes())


def _digest(content: Any) -> str:
    """Of plain values, and of this version, whose results may differ from another's."""
    said = repr([labelnoise.__version__, content])
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()


def _expect_distinct(names: Sequence[str], source: Source) -> None:
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise LabelNoiseError(
            f"Expected one label for each image, but {name!r} is {times} times in {source.labels}"
        )


def _expect_outside(folder: Path, source: Source) -> None:
    """Refuse results inside a folder of images, which would be audited the next time."""
    here, there = (Path(os.path.realpath(path)) for path in (folder, source.path))
    if source.labels == source.path and here.is_relative_to(there):
        raise LabelNoiseError(
            f"Expected a folder for the results outside that of the images, but {folder} is in "
            f"{source.path}: choose another with --out"
        )
