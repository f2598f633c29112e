"""Arrays in .npy, .npz, .safetensors and PyTorch files; .npy and PyTorch files are mapped."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

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
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        asked = [key] if key in members else [*members]
        if any(members[name].flag_bits & 1 for name in asked):
            raise ValueError("it is encrypted: unpack the archive first")
        expect_room(path, sum(members[name].file_size for name in asked))
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in asked}


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
