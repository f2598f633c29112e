"""Hugging Face's `datasets`: features and labels in, columns with what was found out.

Nothing is downloaded: data sets are those in memory or in a folder of `save_to_disk`. ::

    X, y = features(dataset, "embedding"), labels(dataset, "label")
    est = HOC(classes=class_names(dataset, "label")).fit(X, y)
    dataset = add_columns(dataset, est.suspects())
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.embedding import embed_images, embed_texts
from labelnoise.io.features import Embedding
from labelnoise.io.images import Images, decoded
from labelnoise.io.packages import explained, package
from labelnoise.suspects import Suspects

_ADDED = ("is_label_issue", "label_score", "predicted_label", "probability_wrong")


def load(folder: str | os.PathLike[str], split: str | None = None) -> Any:
    """Load a data set from the folder that `save_to_disk` wrote.

    Parameters
    ----------
    folder : path
    split : str, optional
        Which part, where the folder has several.

    Returns
    -------
    datasets.Dataset
    """
    library = package("datasets", "datasets")
    with explained(f"Expected a data set that save_to_disk wrote, but {folder} cannot be loaded"):
        found = library.load_from_disk(os.fspath(folder))
    if not isinstance(found, library.DatasetDict):
        if split is not None:
            raise LabelNoiseError(f"Expected no split, as {folder} has none, but split = {split!r}")
        return found
    if split not in found:
        raise LabelNoiseError(
            f"Expected split to be one of {', '.join(found)}, as {folder} has them, but split = "
            f"{split!r}"
        )
    return found[split]


def class_names(dataset: Any, column: str = "label") -> list[str] | None:
    """Give the names of a `ClassLabel` column, in order; None if the column is of another kind."""
    feature = _feature(dataset, column)
    return list(feature.names) if hasattr(feature, "int2str") else None


def labels(dataset: Any, column: str = "label") -> np.ndarray:
    """Give the labels (N,), None where there is none: names, if it is a `ClassLabel` column.

    In such a column -1 stands for "no label", as Hugging Face has it.
    """
    names = class_names(dataset, column)
    values = list(dataset.with_format(None)[column])
    if names is not None:
        values = [None if value is None or value < 0 else names[value] for value in values]
    return np.array([*values, None], object)[:-1]


def features(dataset: Any, column: str, encoder: str | None = None, **how: Any) -> np.ndarray:
    """Represent the examples: by a column of numbers, or by an encoder of images or texts.

    Parameters
    ----------
    dataset : datasets.Dataset
    column : str
        Lists of numbers of one length, images, or texts.
    encoder : str, optional
        For images or texts: see `embed_images` and `embed_texts` of `labelnoise.io.embedding`.
    **how
        More settings of these functions: `batch_size`, `device`, `progress`.

    Returns
    -------
    array of shape (N, d)
        An image or text that cannot be read has a row of zeros. With ``metric="cosine"``, the
        default, `HOC` leaves such rows out and says how many they are.
    """
    feature = _feature(dataset, column)
    if encoder is not None:
        how["encoder"] = encoder
    if type(feature).__name__ == "Image":
        image = package("datasets", "datasets").Image(decode=False)
        files = dataset.with_format(None).cast_column(column, image)
        return _every_row(embed_images(_Files(dataset=files, column=column), **how), len(dataset))
    if getattr(feature, "dtype", None) in ("string", "large_string"):
        return _every_row(embed_texts(list(dataset.with_format(None)[column]), **how), len(dataset))
    if how:
        raise LabelNoiseError(
            f"Expected no {', '.join(how)} for a column of numbers, which needs no encoder, but "
            f"{column!r} is of type {feature}"
        )
    with explained(f"Expected lists of numbers of one length in {column!r}, but it has others"):
        found = np.asarray(dataset.with_format("numpy")[column][:], dtype=np.float32)
        if found.ndim < 2:
            raise ValueError(f"its shape is {found.shape}")
    return found.reshape(len(found), -1)


def add_columns(dataset: Any, found: Suspects, column: str = "label") -> Any:
    """Add what is known of each label, with the names that cleanlab uses.

    The columns are `is_label_issue`, `label_score`, `predicted_label` and `probability_wrong`;
    those that are there already are replaced.

    Parameters
    ----------
    dataset : datasets.Dataset
        The one whose labels were fitted.
    found : Suspects
        From ``est.suspects()``.
    column : str
        The column of labels: `predicted_label` is of its type.

    Returns
    -------
    datasets.Dataset
        A new one; `dataset` is not changed.
    """
    if len(dataset) != len(found.label_score):
        raise LabelNoiseError(
            f"Expected the data set whose labels were fitted, with {len(found.label_score)} "
            f"examples, but it has {len(dataset)}"
        )
    names, columns = class_names(dataset, column), found.columns()
    dataset = dataset.remove_columns([name for name in _ADDED if name in dataset.column_names])
    number = None if names is None else {name: k for k, name in enumerate(names)}
    for name in _ADDED:
        values = columns[name].tolist()
        if name == "predicted_label":
            values = [number[v] if number and v is not None else v for v in values]
            kind = _feature(dataset, column)
            dataset = dataset.add_column(name, values, feature=kind)
        else:
            dataset = dataset.add_column(name, [None if v != v else v for v in values])
    return dataset


@dataclass(frozen=True, eq=False, repr=False)
class _Files(Images):
    """The images of a column, each decoded when it is asked for."""

    dataset: Any = None
    column: str = ""

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> np.ndarray:
        file = self.dataset[int(i)][self.column]
        source = file["path"] if file["bytes"] is None else io.BytesIO(file["bytes"])
        return decoded(source, f"row {i}")


def _every_row(found: Embedding, n: int) -> np.ndarray:
    """(n, d) with zeros where nothing could be read."""
    rows = np.zeros((n, found.features.shape[1]), np.float32)
    rows[[int(name) for name in found.names]] = found.features
    return rows


def _feature(dataset: Any, column: str) -> Any:
    if not hasattr(dataset, "features") or not hasattr(dataset, "with_format"):
        raise LabelNoiseError(
            f"Expected a Dataset of Hugging Face's datasets (of a DatasetDict, one part), but it "
            f"is of type {type(dataset).__name__}"
        )
    if column not in dataset.features:
        raise LabelNoiseError(
            f"Expected column to be one of {', '.join(dataset.column_names)}, but column = "
            f"{column!r}"
        )
    return dataset.features[column]
