"""Arrays in .npy, .npz, .safetensors and PyTorch files, left on disk where the format allows it."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.memory import expect_room
from labelnoise.io.packages import explained, package

ARRAYS = (".npy", ".npz", ".safetensors", ".pt", ".pth")


def read_array(path: Path, key: str | None, n_axes: int) -> np.ndarray:
    """Read the array of this name, or the only one with so many axes."""
    readers = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}
    with explained(f"Expected an array, but {path} cannot be read"):
        arrays = readers.get(path.suffix.lower(), _torch)(path, key)
    if key is None and len(arrays) == 1:
        return next(iter(arrays.values()))
    fitting = [name for name, array in arrays.items() if name == key or array.ndim == n_axes]
    if key is None and len(fitting) == 1:
        return arrays[fitting[0]]
    if key not in arrays:
        wanted = f"{key!r}" if key else f"one array with {n_axes} axes"
        shapes = [f"{name or 'one array'} {array.shape}" for name, array in arrays.items()]
        raise LabelNoiseError(
            f"Expected {wanted} in {path}, but it has {listed(shapes)}: name one, as in {path}:NAME"
        )
    return arrays[key]


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names for a message, not too many of them."""
    first, more = [*names][:most], [*names][most:]
    return ", ".join(first) + (f" and {len(more)} more" if more else "") or "nothing"


def _npy(path: Path, _: str | None) -> dict[str, np.ndarray]:
    return {"": np.lib.format.open_memmap(path, mode="r")}


def _npz(path: Path, key: str | None) -> dict[str, np.ndarray]:
    """Only the array that is asked for, if one is: others may be pickles."""
    with zipfile.ZipFile(path) as archive, open(path, "rb") as raw:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        asked = [key] if key in members else [*members]
        return {name: _npz_member(archive, raw, members[name]) for name in asked}


def _npz_member(archive: zipfile.ZipFile, raw: BinaryIO, info: zipfile.ZipInfo) -> np.ndarray:
    """One array, left in the file unless it is compressed."""
    if info.flag_bits & 1:
        raise ValueError(f"{info.filename} is encrypted: unpack the archive first")
    if info.compress_type == zipfile.ZIP_STORED:
        raw.seek(info.header_offset + 26)
        raw.seek(sum(struct.unpack("<HH", raw.read(4))), os.SEEK_CUR)
        if np.lib.format.read_magic(raw) == (1, 0):
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(raw)
            if not dtype.hasobject and 0 not in shape:
                order: Any = "F" if by_columns else "C"
                return np.memmap(raw, dtype, "r", raw.tell(), shape, order)
    expect_room(f"{info.filename} in {archive.filename}", info.file_size)
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _safetensors(path: Path, _: str | None) -> dict[str, np.ndarray]:
    return dict(package("safetensors.numpy", "formats").load_file(path))


def _torch(path: Path, _: str | None) -> dict[str, np.ndarray]:
    torch = package("torch", "torch")
    content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    content = {"": content} if torch.is_tensor(content) else content
    return {
        str(name): (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
        for name, value in content.items()
        if torch.is_tensor(value)
    }
