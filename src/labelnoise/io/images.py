"""Images in memory and in files; none outside its folder, none decoded by another program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike

from labelnoise._errors import LabelNoiseError
from labelnoise._validation import class_numbers
from labelnoise.io.packages import explained, package

StrPath = str | os.PathLike[str]
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Formats that Pillow decodes itself; for others, such as EPS, it starts another program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Images in memory, or in files of any sizes; ``images[i]`` is one, (H, W, 3) uint8.

    Rows of features are kept here, too.
    """

    array: np.ndarray | None = None
    """(N, H, W, 3) uint8, or (N, ...) floating numbers; None if the images are in files."""
    paths: Sequence[str] = ()
    """(N,) files, each read when it is asked for."""

    def __post_init__(self) -> None:
        array = self.array
        if array is None:
            return
        if array.dtype.kind == "f" and array.ndim > 1:
            if not np.isfinite(array).all():
                raise LabelNoiseError("Expected features that are finite, but there are NaN or inf")
        elif array.dtype != np.uint8 or array.shape[3:] != (3,):
            raise LabelNoiseError(
                f"Expected images as uint8 of shape (N, height, width, 3), or floating numbers of "
                f"shape (N, d), but they are {array.dtype} of shape {array.shape}"
            )

    def __len__(self) -> int:
        return len(self.paths) if self.array is None else len(self.array)

    def __getitem__(self, i: int) -> np.ndarray:
        return decoded(self.paths[i], self.paths[i]) if self.array is None else self.array[i]


@dataclass(frozen=True, eq=False, repr=False)
class ImageData:
    """Images and noisy labels to train on, and test images with clean labels, or none."""

    name: str
    classes: tuple[str, ...]
    """(K,) names; labels are the numbers 0 to K - 1."""
    train: Images
    labels: np.ndarray
    """(N,) int64 noisy labels of the training images."""
    clean: np.ndarray | None = None
    """(N,) int64 true labels of the training images where known, for scoring only."""
    test: Images | None = None
    test_labels: np.ndarray | None = None

    def __post_init__(self) -> None:
        if (self.test is None) != (self.test_labels is None):
            raise LabelNoiseError("Expected test images with their labels, but one is None")
        for name in ("labels", "clean", "test_labels"):
            labels, images = getattr(self, name), self.test if "test" in name else self.train
            if labels is not None and images is not None:
                checked = class_numbers(labels, len(self.classes), len(images), name=name)
                object.__setattr__(self, name, checked)

    def with_labels(self, labels: ArrayLike) -> ImageData:
        """Give the same data with other training labels: N class numbers."""
        return replace(self, labels=np.asarray(labels))

    def __repr__(self) -> str:
        wrong = "" if self.clean is None else f", {np.mean(self.labels != self.clean):.1%} wrong"
        sizes = f"{len(self.train)} train{wrong}, {len(self.test or ())} test"
        return f"ImageData({self.name}, {sizes}, {len(self.classes)} classes)"


def decoded(source: str | BinaryIO, name: str) -> np.ndarray:
    """Decode an image file: (H, W, 3) uint8."""
    with _opened(source, name) as image:
        return np.array(image.convert("RGB"))


def reduced(source: str | BinaryIO, name: str, side: int) -> Any:
    """Decode an image file, upright and not larger than a square: an image of Pillow."""
    turned = package("PIL.ImageOps", "images").exif_transpose
    with _opened(source, name) as image:
        image.draft("RGB", (side, side))  # of a JPEG, an eighth of the pixels may do
        image = turned(image).convert("RGB")
    image.thumbnail((side, side))
    return image


@contextmanager
def _opened(source: str | BinaryIO, name: str) -> Iterator[Any]:
    Image = package("PIL.Image", "images")
    with (
        explained(f"Expected an image, but {name} cannot be read as one"),
        Image.open(source, formats=FORMATS) as image,
    ):
        # Pillow itself only warns, up to twice its limit.
        if Image.MAX_IMAGE_PIXELS and image.width * image.height > Image.MAX_IMAGE_PIXELS:
            raise ValueError(
                f"it has {image.width} x {image.height} pixels, more than the "
                f"{Image.MAX_IMAGE_PIXELS} of PIL.Image.MAX_IMAGE_PIXELS"
            )
        yield image


def files_below(folder: StrPath) -> list[str]:
    """Paths of the images below a folder, relative to it, sorted; hidden ones left out."""

    def fail(error: OSError) -> None:
        raise error

    found = []
    with explained(f"Expected a folder that can be read, but {folder} cannot"):
        for here, folders, files in os.walk(folder, onerror=fail):
            folders[:] = [name for name in folders if not name.startswith(".")]
            inner = Path(here).relative_to(folder)
            # Linked folders are not entered: they lead outside, or to what is found anyway.
            linked = [name for name in folders if Path(here, name).is_symlink()]
            files_inside(folder, [str(inner / name) for name in linked])
            found += [(inner / name).as_posix() for name in files if not name.startswith(".")]
    return sorted(name for name in found if name.lower().endswith(SUFFIXES))


def files_inside(
    root: StrPath, names: Sequence[str], resolved: Callable[[str], str] = os.path.realpath
) -> list[str]:
    """Give full paths of files named relative to a folder, which must not be outside it.

    With ``resolved=os.path.abspath``, links in the folder may lead outside.
    """
    with explained(f"Expected names of files in {root}, but one is not"):
        top = os.path.join(resolved(os.fspath(root)), "")
        paths = [resolved(os.path.join(top, name)) for name in names]
    outside = [name for name, path in zip(names, paths, strict=True) if not path.startswith(top)]
    if outside:
        raise LabelNoiseError(
            f"Expected files in {root}, but {len(outside)} of {len(names)} are outside it, such as "
            f"{outside[0]}: give the folder that has them as root"
        )
    return paths


def readable_images(
    root: StrPath, names: Sequence[str], resolved: Callable[[str], str] = os.path.realpath
) -> Images:
    """Take image files by their names in a folder; none outside it, none missing."""
    paths = files_inside(root, names, resolved)
    if missing := [path for path in paths if not os.access(path, os.R_OK)]:
        raise LabelNoiseError(
            f"Expected readable images in {root}, but {len(missing)} of {len(paths)} are missing "
            f"or may not be read, such as {missing[0]}"
        )
    return Images(paths=paths)
