"""Images with noisy labels, ready for training: the paper's data sets, and your own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from labelnoise._errors import LabelNoiseError
from labelnoise.io.cifar import find_in, load_cifar10, load_cifar100
from labelnoise.io.images import ImageData, Images, StrPath, files_below, readable_images
from labelnoise.io.labels import folder_labels
from labelnoise.io.packages import explained
from labelnoise.io.tables import read_table
from labelnoise.labels import encode_labels

__all__ = [
    "ImageData",
    "Images",
    "load",
    "load_arrays",
    "load_cifar10",
    "load_cifar100",
    "load_clothing1m",
    "load_folder",
]


def load(name: str, root: StrPath | None = None, labels: str | None = None) -> ImageData:
    """Load a data set by its name.

    Parameters
    ----------
    name : str
        "cifar10", "cifar100", "clothing1m"; or a folder with images and a ``labels.csv`` or else a
        folder for each class, and perhaps a ``test.csv`` (see `load_folder`).
    root : path, optional
        Where the named data sets are. Default: the environment variable LABELNOISE_DATA.
    labels : str, optional
        Which labels to train on, where a named data set has several: see its function.
    """
    loaders: dict[str, Callable[..., ImageData]] = {
        "cifar10": load_cifar10,
        "cifar100": load_cifar100,
        "clothing1m": load_clothing1m,
    }
    if name in loaders:
        root = root or os.environ.get("LABELNOISE_DATA")
        if not root:
            raise LabelNoiseError(
                f"Expected root or the environment variable LABELNOISE_DATA to name the folder "
                f"with the data of {name}, but neither is set"
            )
        return loaders[name](root) if labels is None else loaders[name](root, labels)
    if not os.path.isdir(name):
        raise LabelNoiseError(
            f"Expected one of {', '.join(loaders)}, or a folder with images, but there is no "
            f"folder {name!r}"
        )
    if labels is not None:
        raise LabelNoiseError(
            f"Expected no labels beside a folder, whose labels.csv has them, but labels = "
            f"{labels!r}: use load_folder"
        )
    tables = Path(name, "labels.csv"), Path(name, "test.csv")
    labels_csv, test_csv = (path if path.exists() else None for path in tables)
    return load_folder(name, labels_csv, test_csv=test_csv)


def load_arrays(
    images: np.ndarray,
    labels: ArrayLike,
    test_images: np.ndarray | None = None,
    test_labels: ArrayLike | None = None,
    classes: ArrayLike | None = None,
) -> ImageData:
    """Take images (N, H, W, 3) uint8 or features (N, d) that are in memory, and any labels.

    `classes` are all labels in order; by default the sorted distinct ones of `labels`. Examples
    without a label, None or NaN, are left out.

    Examples
    --------
    >>> import numpy as np
    >>> load_arrays(np.zeros((3, 8, 8, 3), np.uint8), ["cat", "dog", "cat"])
    ImageData(arrays, 3 train, 0 test, 2 classes)
    """
    numbers, names = encode_labels(labels, classes)
    images, labelled = np.asarray(images), numbers >= 0
    if len(images) == len(numbers) and not labelled.all():
        images, numbers = images[labelled], numbers[labelled]
    return ImageData(
        name="arrays",
        classes=tuple(str(name) for name in names),
        train=Images(images),
        labels=numbers,
        test=None if test_images is None else Images(np.asarray(test_images)),
        test_labels=None if test_labels is None else encode_labels(test_labels, names)[0],
    )


def load_folder(
    root: StrPath,
    labels_csv: StrPath | None = None,
    path_column: int = 0,
    label_column: int = 1,
    test_csv: StrPath | None = None,
) -> ImageData:
    """Take the image files of a folder.

    Parameters
    ----------
    root : path
        The folder. No image may lie outside, also not through a link.
    labels_csv, test_csv : path, optional
        CSV files with a header, then a line for each image with its path inside `root` and
        its label. The classes are the sorted distinct labels of `labels_csv`. Without it, there is
        a folder for each class in `root`.
    path_column, label_column : int
        Which columns these are; the first is 0.
    """
    if labels_csv is None:
        paths = files_below(root)
        labels = folder_labels(paths, root)
    else:
        paths, labels = _paths_and_labels(labels_csv, path_column, label_column)
    classes = sorted(set(labels), key=int if all(map(str.isdecimal, labels)) else None)
    test, test_labels = None, None
    if test_csv is not None:
        test_paths, test_names = _paths_and_labels(test_csv, path_column, label_column)
        test = readable_images(root, test_paths)
        test_labels = encode_labels(test_names, classes)[0]
    return ImageData(
        name=Path(root).resolve().name,
        classes=tuple(classes),
        train=readable_images(root, paths),
        labels=encode_labels(labels, classes)[0],
        test=test,
        test_labels=test_labels,
    )


def load_clothing1m(root: StrPath, train: str = "noisy") -> ImageData:
    """Take Clothing1M: 14 kinds of clothes, a million images labelled by the text around them.

    Parameters
    ----------
    root : path
        The folder, or the one above ``clothing1m``, with ``images`` and the text files that
        come with them. Folders inside may be links.
    train : {"noisy", "clean"}
        Which images to train on: the million with noisy labels, or the 47,570 with clean ones.
    """
    if train not in ("noisy", "clean"):
        raise LabelNoiseError(f"Expected train to be 'noisy' or 'clean', but train = {train!r}")
    names = find_in(Path(root), "clothing1m", "category_names_eng.txt")
    if names is None:
        raise LabelNoiseError(
            f"Expected Clothing1M's folder images and its text files in {root}, but there is no "
            f"category_names_eng.txt: ask for the data at https://github.com/Cysu/noisy_label"
        )
    images, labels = _clothing1m_part(names.parent, f"{train}_train", f"{train}_label_kv.txt")
    test, test_labels = _clothing1m_part(names.parent, "clean_test", "clean_label_kv.txt")
    clean = labels if train == "clean" else None
    classes = tuple(_lines(names))
    return ImageData("clothing1m", classes, images, labels, clean, test, test_labels)


def _clothing1m_part(home: Path, part: str, labels_file: str) -> tuple[Images, np.ndarray]:
    keys_file = f"{part}_key_list.txt"
    keys, lines = _lines(home / keys_file), _lines(home / labels_file)
    with explained(
        f"Expected {labels_file} to have a number for each image of {keys_file}, but it has not"
    ):
        number = dict(line.rsplit(maxsplit=1) for line in lines)
        labels = np.array([int(number[key]) for key in keys], np.int64)
    return readable_images(home, keys, os.path.abspath), labels


def _lines(path: Path) -> list[str]:
    with explained(f"Expected a text file, but {path} cannot be read"):
        return [line for line in path.read_text("utf-8").splitlines() if line.strip()]


def _paths_and_labels(
    path: StrPath, path_column: int, label_column: int
) -> tuple[list[str], list[str]]:
    table = read_table(path)
    columns = [table.cells(name) for name in table.columns]
    if not table.n_rows or not max(path_column, label_column) < len(columns):
        raise LabelNoiseError(
            f"Expected {path} to have a header and then a path in column {path_column} and a "
            f"label in column {label_column} of each line, but it has {table.n_rows} lines and "
            f"{len(columns)} columns"
        )
    if "" in columns[label_column]:
        row = columns[label_column].index("")
        raise LabelNoiseError(
            f"Expected a label for each image of {path}, but {columns[path_column][row]} has none"
        )
    return columns[path_column], columns[label_column]
