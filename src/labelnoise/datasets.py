"""Images with noisy labels, ready for training: the paper's data sets, and your own.

Nothing that a data file names is run: pickles hold arrays and plain values or are refused,
archives are read without being unpacked, and image paths cannot leave their folder.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import pickle
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.request import urlopen

import numpy as np
from numpy.typing import ArrayLike

from labelnoise._errors import LabelNoiseError
from labelnoise._files import write_then_rename
from labelnoise._labels import encode_labels

Progress = Callable[[str, int, int], None]
StrPath = str | os.PathLike[str]

# Formats that Pillow decodes itself; for others, such as EPS, it starts another program.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Images in memory, or in files of any sizes; ``images[i]`` is one, (H, W, 3) uint8."""

    array: np.ndarray | None = None
    """(N, H, W, 3) uint8; None if the images are in files."""
    paths: Sequence[str] = ()
    """(N,) files, each read when it is asked for."""

    def __post_init__(self) -> None:
        array = self.array
        if array is not None and (array.dtype != np.uint8 or array.shape[3:] != (3,)):
            raise LabelNoiseError(
                f"Expected images as uint8 of shape (N, height, width, 3), but they are "
                f"{array.dtype} of shape {array.shape}"
            )

    def __len__(self) -> int:
        return len(self.paths) if self.array is None else len(self.array)

    def __getitem__(self, i: int) -> np.ndarray:
        return _decode(self.paths[i], self.paths[i]) if self.array is None else self.array[i]


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
                checked = _class_numbers(name, labels, len(images), len(self.classes))
                object.__setattr__(self, name, checked)

    def with_labels(self, labels: ArrayLike) -> ImageData:
        """Give the same data with other training labels: N class numbers."""
        return replace(self, labels=np.asarray(labels))

    def __repr__(self) -> str:
        wrong = "" if self.clean is None else f", {np.mean(self.labels != self.clean):.1%} wrong"
        sizes = f"{len(self.train)} train{wrong}, {len(self.test or ())} test"
        return f"ImageData({self.name}, {sizes}, {len(self.classes)} classes)"


def load(name: str, root: StrPath | None = None, labels: str | None = None) -> ImageData:
    """Load a data set by its name.

    Parameters
    ----------
    name : str
        "cifar10", "cifar100", "clothing1m", or a folder with images, a ``labels.csv`` and
        perhaps a ``test.csv`` in it (see `load_folder`).
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
            f"Expected one of {', '.join(loaders)}, or a folder with images and a labels.csv, but "
            f"there is no folder {name!r}"
        )
    if labels is not None:
        raise LabelNoiseError(
            f"Expected no labels beside a folder, whose labels.csv has them, but labels = "
            f"{labels!r}: use load_folder"
        )
    test_csv = Path(name, "test.csv") if Path(name, "test.csv").exists() else None
    return load_folder(name, Path(name, "labels.csv"), test_csv=test_csv)


def load_arrays(
    images: np.ndarray,
    labels: ArrayLike,
    test_images: np.ndarray | None = None,
    test_labels: ArrayLike | None = None,
    classes: ArrayLike | None = None,
) -> ImageData:
    """Take images (N, H, W, 3) uint8 that are in memory, and any labels.

    `classes` are all labels in order; by default the sorted distinct ones of `labels`.

    Examples
    --------
    >>> import numpy as np
    >>> load_arrays(np.zeros((3, 8, 8, 3), np.uint8), ["cat", "dog", "cat"])
    ImageData(arrays, 3 train, 0 test, 2 classes)
    """
    numbers, names = encode_labels(labels, classes)
    return ImageData(
        name="arrays",
        classes=tuple(str(name) for name in names),
        train=Images(np.asarray(images)),
        labels=numbers,
        test=None if test_images is None else Images(np.asarray(test_images)),
        test_labels=None if test_labels is None else encode_labels(test_labels, names)[0],
    )


def load_folder(
    root: StrPath,
    labels_csv: StrPath,
    path_column: int = 0,
    label_column: int = 1,
    test_csv: StrPath | None = None,
) -> ImageData:
    """Take the image files of a folder.

    Parameters
    ----------
    root : path
        The folder. No image may lie outside, also not through a link.
    labels_csv, test_csv : path
        CSV files with a header, then a line for each image with its path inside `root` and
        its label. The classes are the sorted distinct labels of `labels_csv`.
    path_column, label_column : int
        Which columns these are; the first is 0.
    """
    paths, labels = _read_csv(labels_csv, path_column, label_column)
    classes = sorted(set(labels), key=int if all(map(str.isdecimal, labels)) else None)
    test, test_labels = None, None
    if test_csv is not None:
        test_paths, test_names = _read_csv(test_csv, path_column, label_column)
        test = _files_in(root, test_paths, os.path.realpath)
        test_labels = encode_labels(test_names, classes)[0]
    return ImageData(
        name=Path(root).resolve().name,
        classes=tuple(classes),
        train=_files_in(root, paths, os.path.realpath),
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
    names = _find(Path(root), "clothing1m", "category_names_eng.txt")
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
    """Take CIFAR-100 and its fine classes, from files as those of `load_cifar10`.

    The labels are "clean", "noisy" (CIFAR-100N, from ``CIFAR-100_human.pt`` or
    ``cifar100n_labels.npz``), a ``.npy`` file, or class numbers.
    """
    return _load_cifar(_CIFAR100, Path(root), labels, download, progress)


def balanced_batches(
    labels: np.ndarray, batch_size: int, n_batches: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw (n_batches, batch_size) numbers of examples, all labels (nearly) equally often.

    An example comes again only when all others of its label had their turn.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> labels[balanced_batches(labels, 4, 3, np.random.default_rng(0))].sum(axis=1).tolist()
    [2, 2, 2]
    """
    if min(len(labels), batch_size, n_batches) < 1:
        raise LabelNoiseError(
            f"Expected labels, batch_size >= 1 and n_batches >= 1, but there are {len(labels)} "
            f"labels, batch_size = {batch_size}, n_batches = {n_batches}"
        )
    wanted = _turns(np.unique(labels), batch_size * n_batches, rng)
    drawn = np.empty(len(wanted), np.int64)
    for label in np.unique(labels):
        places = np.flatnonzero(wanted == label)
        drawn[places] = _turns(np.flatnonzero(labels == label), len(places), rng)
    return drawn.reshape(n_batches, batch_size)


def _turns(values: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """All values in a random order, then all in another, until there are n."""
    n_orders = -(-n // len(values))
    return rng.permuted(np.tile(values, (n_orders, 1)), axis=1).ravel()[:n]


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
    source = _find(root, form.name, *forms)
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
    with _explained(f"Expected to fetch {url} to {path}, but it failed"):
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
    with _explained(f"Expected the files of {form.name}, but {source} cannot be read as such"):
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
        _explained(f"Expected the images of {form.name}, but {path} cannot be read as such"),
        np.load(path) as npz,
    ):
        header = npz["jpeg_header"].tobytes()

        def part(name: str) -> tuple[Images, np.ndarray]:
            pixels, ends = npz[f"{name}_bytes"].tobytes(), npz[f"{name}_offsets"].tolist()
            # Threads gain nothing: for images this small, decoding is a fraction of the work.
            images = [
                _decode(io.BytesIO(header + pixels[start:end]), f"{name} image {i} of {path}")
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
        with _explained(f"Expected an array of labels, but {labels} cannot be read"):
            return np.asarray(np.load(labels))
    names = sorted({name for keys in form.label_files.values() for name in keys})
    if labels not in names:
        raise LabelNoiseError(
            f"Expected labels to be one of {names}, a .npy file or an array, but labels = "
            f"{str(labels)!r}"
        )
    files = {file: keys for file, keys in form.label_files.items() if labels in keys}
    for file, keys in files.items():
        path = _find(root, form.name, file)
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
    with _explained(f"Expected arrays of labels, but {path} cannot be read"):
        if path.suffix == ".npz":
            with np.load(path) as npz:
                return {name: npz[name] for name in npz if not name.endswith("_bytes")}
        torch = _extra("torch", "torch")
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


def _clothing1m_part(home: Path, part: str, labels_file: str) -> tuple[Images, np.ndarray]:
    keys_file = f"{part}_key_list.txt"
    keys, lines = _lines(home / keys_file), _lines(home / labels_file)
    with _explained(
        f"Expected {labels_file} to have a number for each image of {keys_file}, but it has not"
    ):
        number = dict(line.rsplit(maxsplit=1) for line in lines)
        labels = np.array([int(number[key]) for key in keys], np.int64)
    return _files_in(home, keys, os.path.abspath), labels


def _read_csv(path: StrPath, path_column: int, label_column: int) -> tuple[list[str], list[str]]:
    with (
        _explained(f"Expected a CSV file of paths and labels, but {path} cannot be read"),
        open(path, newline="", encoding="utf-8-sig") as file,
    ):
        rows = [row for row in csv.reader(file, strict=True) if row][1:]
    least = max(path_column, label_column) + 1
    bad = [row for row in rows if len(row) < least or not row[label_column]]
    if bad or not rows:
        raise LabelNoiseError(
            f"Expected {path} to have a header and then a path in column {path_column} and a "
            f"label in column {label_column} of each line, but there is "
            f"{','.join(bad[0]) if bad else 'no line'}"
        )
    return [row[path_column] for row in rows], [row[label_column] for row in rows]


def _lines(path: Path) -> list[str]:
    with _explained(f"Expected a text file, but {path} cannot be read"):
        return [line for line in path.read_text("utf-8").splitlines() if line.strip()]


def _files_in(root: StrPath, names: Sequence[str], resolved: Callable[[str], str]) -> Images:
    """Image files by their names in a folder; none outside, none missing."""
    with _explained(f"Expected names of image files in {root}, but one is not"):
        top = os.path.join(resolved(os.fspath(root)), "")
        paths = [resolved(os.path.join(top, name)) for name in names]
        outside = [path for path in paths if not path.startswith(top)]
        unreadable = [path for path in paths if not outside and not os.access(path, os.R_OK)]
    for found, what in ((outside, "outside it"), (unreadable, "missing or may not be read")):
        if found:
            raise LabelNoiseError(
                f"Expected readable images in {root}, but {len(found)} of {len(paths)} are {what}, "
                f"such as {found[0]}"
            )
    return Images(paths=paths)


def _class_numbers(name: str, labels: ArrayLike, n: int, K: int) -> np.ndarray:
    numbers = np.asarray(labels)
    if numbers.shape != (n,) or numbers.dtype.kind not in "iu":
        raise LabelNoiseError(
            f"Expected {name} to be {n} whole numbers, one for each image, but they are "
            f"{numbers.dtype} of shape {numbers.shape}"
        )
    outside = numbers[(numbers < 0) | (numbers >= K)]
    if len(outside):
        raise LabelNoiseError(f"Expected {name} from 0 to {K - 1}, but there is {outside[0]}")
    return numbers.astype(np.int64)


def _find(root: Path, name: str, *files: str) -> Path | None:
    """The first of the files that is in root, or in its folder of that name."""
    places = (folder / file for file in files for folder in (root, root / name))
    return next((place for place in places if place.exists()), None)


def _decode(source: str | BinaryIO, name: str) -> np.ndarray:
    Image = _extra("PIL.Image", "images")
    with (
        _explained(f"Expected an image, but {name} cannot be read as one"),
        Image.open(source, formats=_FORMATS) as image,
    ):
        # Pillow itself only warns, up to twice its limit.
        if Image.MAX_IMAGE_PIXELS and image.width * image.height > Image.MAX_IMAGE_PIXELS:
            raise ValueError(
                f"it has {image.width} x {image.height} pixels, more than the "
                f"{Image.MAX_IMAGE_PIXELS} of PIL.Image.MAX_IMAGE_PIXELS"
            )
        return np.array(image.convert("RGB"))


def _extra(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise LabelNoiseError(
            f'Expected {module} to be installed, but it is not: pip install "labelnoise[{extra}]"'
        ) from error


@contextmanager
def _explained(sentence: str) -> Iterator[None]:
    """Say which file is wrong, whatever was raised: readers raise all kinds of errors."""
    try:
        yield
    except LabelNoiseError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise LabelNoiseError(f"{sentence}: {reason}") from error
