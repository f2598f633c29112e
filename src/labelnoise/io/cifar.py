"""CIFAR-10 and -100 as published, with the labels of CIFAR-N and others.

Nothing that a data file names is run: pickles hold arrays and plain values or are refused, and
archives are read without being unpacked.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.request import urlopen

import numpy as np
from numpy.typing import ArrayLike

from labelnoise._errors import LabelNoiseError
from labelnoise.io.arrays import read_array
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.images import ImageData, Images, StrPath, decoded
from labelnoise.io.packages import explained, package

Progress = Callable[[str, int, int], None]


def load_cifar10(
    root: StrPath,
    labels: StrPath | ArrayLike = "clean",
    *,
    download: bool = False,
    progress: Progress | None = None,
) -> ImageData:
    """Take CIFAR-10, with clean or human labels.

    Parameters
    ----------
    root : path
        The folder, or the one above ``cifar10``, with ``cifar-10-python.tar.gz`` as published,
        ``cifar-10-batches-py`` from it, or ``cifar10.npz``; and for CIFAR-10N's labels its
        ``CIFAR-10_human.pt``.
    labels : str, path or array of shape (50000,)
        "clean"; "human" (the paper's own annotations, in ``cifar10.npz``); "aggregate",
        "random1", "random2", "random3" or "worst" (CIFAR-10N); a ``.npy`` file; class numbers.
    download : bool
        Fetch the archive if there are no images.
    progress : callable, optional
        Called as ``progress("download", done, total)`` in bytes; total is 0 if not known.
    """
    return _load_cifar(_CIFAR10, Path(root), labels, download, progress)


def load_cifar100(
    root: StrPath,
    labels: StrPath | ArrayLike = "clean",
    *,
    download: bool = False,
    progress: Progress | None = None,
) -> ImageData:
    """Take CIFAR-100 and its fine classes, from the same kinds of files as `load_cifar10`.

    The labels are "clean", "noisy" (CIFAR-100N, from ``CIFAR-100_human.pt`` or
    ``cifar100n_labels.npz``), a ``.npy`` file, or class numbers.
    """
    return _load_cifar(_CIFAR100, Path(root), labels, download, progress)


@dataclass(frozen=True)
class _Cifar:
    """A CIFAR data set as published, and what its labels are called in which files."""

    name: str
    folder: str
    md5: str
    files: tuple[str, ...]
    """Training batches, test batch, names of the classes."""
    kind: str
    """What stands before "labels" in them."""
    label_files: Mapping[str, Mapping[str, str]]

    @property
    def archive(self) -> str:
        return self.folder.replace("batches-py", "python") + ".tar.gz"


_CIFAR10N = {
    "aggregate": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worst": "worse_label",
}
_CIFAR10 = _Cifar(
    name="cifar10",
    folder="cifar-10-batches-py",
    md5="c58f30108f718f92721af3b95e74349a",
    files=(*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
    kind="",
    label_files={
        "cifar10.npz": {"clean": "train_clean", "human": "train_human"}
        | {name: f"train_cifar10n_{name}" for name in _CIFAR10N},
        "CIFAR-10_human.pt": {"clean": "clean_label"} | _CIFAR10N,
    },
)
_CIFAR100 = _Cifar(
    name="cifar100",
    folder="cifar-100-python",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    files=("train", "test", "meta"),
    kind="fine_",
    label_files={
        "cifar100n_labels.npz": {"clean": "clean", "noisy": "noisy"},
        "CIFAR-100_human.pt": {"clean": "clean_label", "noisy": "noisy_label"},
    },
)
_CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR_HOME = "https://www.cs.toronto.edu/~kriz/"

_Parts = tuple[Images, np.ndarray, Images, np.ndarray, tuple[str, ...]]


def _load_cifar(
    form: _Cifar, root: Path, labels: Any, download: bool, progress: Progress | None
) -> ImageData:
    forms = [form.folder, form.archive] + ["cifar10.npz"] * (form is _CIFAR10)
    source = find_in(root, form.name, *forms)
    if source is None and download:
        source = root / form.archive
        _download(_CIFAR_HOME + form.archive, form.md5, source, progress)
    if source is None:
        raise LabelNoiseError(
            f"Expected {form.archive} or the folder {form.folder} in {root}, but there is "
            f"neither: get it from {_CIFAR_HOME}, or use load_{form.name}(root, download=True)"
        )
    read = _read_npz if source.suffix == ".npz" else _read_batches
    train, clean, test, test_labels, classes = read(form, source)
    noisy = _cifar_labels(form, root, labels, clean)
    return ImageData(form.name, classes, train, noisy, clean, test, test_labels)


def _download(url: str, md5: str, path: Path, progress: Progress | None) -> None:
    digest, done = hashlib.md5(usedforsecurity=False), 0
    with explained(f"Expected to fetch {url} to {path}, but it failed"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with urlopen(url, timeout=60) as response, write_then_rename(path) as file:
            total = int(response.headers.get("Content-Length") or 0)
            while block := response.read(2**20):
                done += file.write(block)
                digest.update(block)
                if progress:
                    progress("download", done, total)
            if digest.hexdigest() != md5:
                raise ValueError(f"the MD5 sum is {digest.hexdigest()} instead of {md5}")


def _read_batches(form: _Cifar, source: Path) -> _Parts:
    """What the published folder or archive holds."""
    files = dict[str, bytes]()
    with explained(f"Expected the files of {form.name}, but {source} cannot be read as such"):
        if source.is_dir():
            files = {name: (source / name).read_bytes() for name in form.files}
        else:
            with tarfile.open(source) as tar:
                for member in tar:
                    name = PurePosixPath(member.name).name
                    if name in form.files and (file := tar.extractfile(member)):
                        files[name] = file.read()
        *train, test, meta = (
            _ArrayUnpickler(io.BytesIO(files[name]), encoding="latin1").load()  # of Python 2
            for name in form.files
        )

        def part(batches: list[dict[str, Any]]) -> tuple[Images, np.ndarray]:
            pixels = np.concatenate([batch["data"] for batch in batches])
            images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            labels = np.concatenate([batch[form.kind + "labels"] for batch in batches])
            return Images(np.ascontiguousarray(images)), labels

        return *part(train), *part([test]), tuple(meta[form.kind + "label_names"])


def _read_npz(form: _Cifar, path: Path) -> _Parts:
    """What a file of JPEG images that share their header holds."""
    with (
        explained(f"Expected the images of {form.name}, but {path} cannot be read as such"),
        np.load(path) as npz,
    ):
        header = npz["jpeg_header"].tobytes()

        def part(name: str) -> tuple[Images, np.ndarray]:
            pixels, ends = npz[f"{name}_bytes"].tobytes(), npz[f"{name}_offsets"].tolist()
            # Threads gain nothing: for images this small, decoding is a fraction of the work.
            images = [
                decoded(io.BytesIO(header + pixels[start:end]), f"{name} image {i} of {path}")
                for i, (start, end) in enumerate(pairwise(ends))
            ]
            return Images(np.stack(images)), npz[f"{name}_clean"]

        return *part("train"), *part("test"), tuple(_CIFAR10_CLASSES.split())


def _cifar_labels(form: _Cifar, root: Path, labels: Any, clean: np.ndarray) -> np.ndarray:
    if not isinstance(labels, str | os.PathLike):
        return np.asarray(labels)
    if labels == "clean":
        return clean
    if str(labels).endswith(".npy"):
        return read_array(Path(labels), None, 1)
    names = sorted({name for keys in form.label_files.values() for name in keys})
    if labels not in names:
        raise LabelNoiseError(
            f"Expected labels to be one of {names}, a .npy file or an array, but labels = "
            f"{str(labels)!r}"
        )
    files = {file: keys for file, keys in form.label_files.items() if labels in keys}
    for file, keys in files.items():
        path = find_in(root, form.name, file)
        content = {} if path is None else _read_labels(path)
        if keys[labels] in content:
            if not np.array_equal(content[keys["clean"]], clean):
                raise LabelNoiseError(
                    f"Expected labels in the order of the images, but the clean labels in "
                    f"{path} are not those of {form.name}"
                )
            return np.asarray(content[keys[labels]])
    raise LabelNoiseError(
        f"Expected the labels {labels!r} in {' or '.join(files)} in {root}, but they are not there"
    )


def _read_labels(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file or of a PyTorch file."""
    with explained(f"Expected arrays of labels, but {path} cannot be read"):
        if path.suffix == ".npz":
            with np.load(path) as npz:
                return {name: npz[name] for name in npz if not name.endswith("_bytes")}
        torch = package("torch", "torch")
        admitted = [(part, ".".join(names)) for names, part in _ARRAY_PARTS.items()]
        numbers = [type(np.dtype(code)) for code in np.typecodes["AllInteger"]]
        try:
            with torch.serialization.safe_globals(admitted + numbers):
                return dict(torch.load(path, map_location="cpu", weights_only=True))
        except pickle.UnpicklingError as error:
            raise ValueError("it holds more than arrays and plain values") from error


_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ARRAY_PARTS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    # Old pickles have 0 and 1 here, of which NumPy 2.4 warns.
    ("numpy", "dtype"): lambda name, align, copy: np.dtype(name, bool(align), bool(copy)),
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Reads arrays and plain values, and refuses all else: a pickle can name any function."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAY_PARTS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no array's part")
        return _ARRAY_PARTS[module, name]


def find_in(root: Path, name: str, *files: str) -> Path | None:
    """The first of the files that is in root, or in its folder of that name."""
    places = (folder / file for file in files for folder in (root, root / name))
    return next((place for place in places if place.exists()), None)
