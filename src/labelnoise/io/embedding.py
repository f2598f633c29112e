"""Images, texts and tables to features, in which `HOC` can look for neighbours.

With `out`, finished chunks are kept beside it: after a kill, the same call continues.
"""

from __future__ import annotations

import glob
import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from labelnoise._blocks import thread_count
from labelnoise._errors import LabelNoiseError
from labelnoise.io import encoders
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.features import Embedding, load_embedding
from labelnoise.io.images import SUFFIXES, Images, files_below, files_inside
from labelnoise.io.outputs import check_outputs, names_file
from labelnoise.io.packages import explained
from labelnoise.io.tables import Table, read_table, table_of, write_table
from labelnoise.io.texts import read_texts

__all__ = ["Embedding", "embed_images", "embed_table", "embed_texts", "load_embedding"]

Progress = Callable[[str, int, int], None]
StrPath = str | os.PathLike[str]
_Result = np.ndarray | str  # the features of one input, or the reason why it has none
_Encode = Callable[[range], Iterator[list[_Result]]]

_CHUNK_ROWS = 128  # rows lost by a kill: some ten seconds of EfficientNet on two cores
# On a CPU, activations of larger batches do not fit the blocks of memory that glibc keeps.
_CPU_BATCH, _GPU_BATCH = 2, 32
_LARGEST_KEPT = 2**25 - 2**13  # bytes, with room for a header below glibc's limit of 32 MiB
_MISSING = ("", "<na>", "n/a", "na", "nan", "nat", "none", "null")
_RARE_COUNT, _RARE_SHARE = 5, 0.01


def embed_images(
    source: StrPath | Sequence[StrPath] | np.ndarray | Images,
    encoder: str = "efficientnet_lite0",
    *,
    root: StrPath | None = None,
    column: str | None = None,
    out: StrPath | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    n_workers: int | None = None,
    progress: Progress | None = None,
) -> Embedding:
    """Represent images by what a pretrained network computes before its last linear layer.

    Images that cannot be read get no row; they are in the result's `failed`.

    Parameters
    ----------
    source : folder, CSV file, list of paths, uint8 array of shape (N, H, W, 3), or Images
        Of a folder: all images below it, sorted by path, hidden ones left out.
    encoder : str
        "efficientnet_lite0", "efficientnet_lite1" or "efficientnet_lite2", which work offline;
        or a model such as "torchvision:resnet50" or "timm:vit_base_patch16_224", whose weights
        those packages download.
    root : folder, optional
        Where the paths of a CSV file or list start. No path may leave it, also not through a
        link. Default: the folder of the CSV file; none for a list.
    column : str, optional
        The column of the CSV file with the paths. Default: "path", or else the first.
    out : path ending in .npy, optional
        Where to write the features. Beside it, `names_file` has a line for each input, with its
        name and, if it failed, the problem; `load_embedding` reads both.
    batch_size : int, optional
        How many images the network takes at once. Default: 2 on a CPU, 32 on a GPU.
    device : str
        "auto", which is the GPU if there is one, or a device of PyTorch.
    n_workers : int, optional
        How many threads read images and run the network. Default: one for each core in use.
    progress : callable, optional
        Called as ``progress("embedding", done, total)``.
    """
    device = encoders.torch_device(device, "images")
    if batch_size is None:
        batch_size = _CPU_BATCH if device == "cpu" else _GPU_BATCH
    n_workers = thread_count() if n_workers is None else n_workers
    _check(source, out, batch_size=batch_size, n_workers=n_workers)
    names, images = _find_images(source, root, column)
    encode = _image_encode(images, encoder, device, batch_size, n_workers)
    versions = _versions(names, images)
    return _embed(names, encode, (encoder, device, batch_size), versions, out, progress)


def _image_encode(
    images: Images, encoder: str, device: str, batch_size: int, n_workers: int
) -> _Encode:
    """What encodes images by their numbers, a batch in each thread."""
    prepare, network = encoders.image_encoder(encoder, device)
    # glibc returns large freed blocks to the system until one of this size was freed. Asking for
    # the same memory again cost as much time as the network.
    np.empty(_LARGEST_KEPT, np.uint8)

    def load(row: int) -> _Result:
        try:
            return prepare(images[row])
        except Exception as error:  # whatever is wrong with one image, there are others
            return str(error) or type(error).__name__

    def encode_batch(rows: range) -> list[_Result]:
        loaded = [load(row) for row in rows]
        read = [image for image in loaded if not isinstance(image, str)]
        features = iter(network(np.stack(read)) if read else ())
        return [why if isinstance(why, str) else next(features) for why in loaded]

    def encode(rows: range) -> Iterator[list[_Result]]:
        batches = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
        # Each thread runs the network on one core: threads inside it would wait for each other.
        pool = ThreadPoolExecutor(n_workers, initializer=lambda: threadpool_limits(1, "openmp"))
        try:
            with encoders.repeatable_convolutions():
                yield from pool.map(encode_batch, batches)
        finally:
            pool.shutdown(cancel_futures=True)

    return encode


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
    _check(source, out, batch_size=batch_size)
    texts = read_texts(source, column)
    device = encoders.torch_device(device, "text")
    network = encoders.text_encoder(encoder, device)

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
    column's median, missing categories one more category. Categories in less than 1% of the
    rows, or in fewer than 5, are merged into one. Columns that do not vary are left out.

    Such features have no natural origin: use ``HOC(metric="euclidean")`` with them.

    Parameters
    ----------
    source : data frame (pandas, polars, pyarrow), or CSV or Parquet file
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
    _check(source, out)
    table = read_table(source) if isinstance(source, str | os.PathLike) else table_of(source)
    if unknown := [name for name in drop if name not in table.columns]:
        raise LabelNoiseError(
            f"Expected drop to be among {list(table.columns)}, but it has {unknown[0]!r}"
        )
    if not table.n_rows:
        raise LabelNoiseError(f"Expected rows in {table.source}, but it has only a header")
    features = _table_features(table, [name for name in table.columns if name not in drop])

    def encode(rows: range) -> Iterator[list[_Result]]:
        yield list(features[rows.start : rows.stop])

    names = [str(i) for i in range(len(features))]
    return _embed(names, encode, (), [features.tobytes()], out, None)


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
    """Where chunks are kept; the name depends on everything that they depend on."""
    digest = hashlib.sha256(repr((settings, _CHUNK_ROWS)).encode())
    for version in versions:
        digest.update(version)
    folder = out.with_name(f"{out.name}.{digest.hexdigest()[:16]}.partial")
    with explained(f"Expected a folder that can be written to, but {folder} cannot"):
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
    """Write both files completely, then rename them, then remove the chunks."""
    names, problems = zip(*lines, strict=True)
    write_table(folder / "names.csv", {"name": names, "problem": problems})
    with write_then_rename(folder / "features") as file:
        np.save(file, features)
    with explained(f"Expected to write {out}, but it failed"):
        os.replace(folder / "names.csv", os.path.realpath(names_file(out)))
        os.replace(folder / "features", os.path.realpath(out))
        for unfinished in glob.glob(f"{glob.escape(str(out))}.{'[0-9a-f]' * 16}.partial"):
            shutil.rmtree(unfinished)


def _find_images(source: Any, root: StrPath | None, column: str | None) -> tuple[list[str], Images]:
    if isinstance(source, np.ndarray):
        if source.dtype != np.uint8 or source.ndim != 4:
            raise LabelNoiseError(
                f"Expected images as a uint8 array of shape (N, H, W, 3), but they are "
                f"{source.dtype} of shape {source.shape}"
            )
        source = Images(array=source)
    if isinstance(source, Images):
        return [str(i) for i in range(len(source))], source
    if not isinstance(source, str | os.PathLike):
        names = [os.fspath(path) for path in source]
    elif os.path.isdir(source):
        names, root = files_below(source), source
    elif os.path.exists(source):
        names, root = _read_paths(source, column), root or Path(source).parent
    else:
        raise LabelNoiseError(f"Expected a folder or CSV file, but there is no {source}")
    paths = names if root is None else files_inside(root, names)
    if paths and not any(map(os.path.exists, paths)):
        raise LabelNoiseError(
            f"Expected images in {root or 'the list of paths'}, but there is none of {len(paths)} "
            f"paths, such as {names[0]}: give the folder where the paths start as root (--root)"
        )
    return names, Images(paths=paths)


def _read_paths(source: StrPath, column: str | None) -> list[str]:
    table = read_table(source)
    header = [*table.columns]
    if header[0].lower().endswith(SUFFIXES):
        raise LabelNoiseError(
            f"Expected {source} to begin with a header, but it begins with {header}"
        )
    usual = "path" if "path" in header else header[0]
    return [str(cell) for cell in table.cells(table.column(column or usual))]


def _table_features(table: Table, columns: Sequence[str]) -> np.ndarray:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers, categories, found = [], [], []
    for name in columns:
        column = table.cells(name)
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


def _check(source: Any, out: StrPath | None, **counts: Any) -> None:
    for name, value in counts.items():
        if not (isinstance(value, int | np.integer) and value >= 1):
            raise LabelNoiseError(
                f"Expected {name} to be a whole number >= 1, but {name} = {value!r}"
            )
    if out is not None:
        read = [source] if isinstance(source, str | os.PathLike) else []
        check_outputs({out: (".npy",), names_file(out): (".csv",)}, read)
