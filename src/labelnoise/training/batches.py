"""Batches: rows of features and small images stay on the device, large images are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from labelnoise.io.images import Images

_PADDING = 1 / 8  # of a small image's height, added on all sides before a random crop
_SHORT_SIDE, _CROP = 256, 224  # pixels of a large image: its short side, and the crop
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class BatchSource(Protocol):
    """Examples by their numbers, as batches of normalised tensors on the device."""

    size: int
    """Height of the images, or number of features."""
    centre: np.ndarray
    scale: np.ndarray
    """Mean and standard deviation that inputs are normalised by."""
    representations: np.ndarray | None
    """(N, d) rows of features; None for images."""

    def batches(self, order: Sequence[np.ndarray], augment: bool, seed: int) -> Iterator[Tensor]:
        """Inputs of each array of numbers, images (B, 3, H, W); perhaps cropped and flipped."""


def batch_source(
    images: Images,
    like: Images | tuple[np.ndarray, np.ndarray],
    device: torch.device,
    n_workers: int,
) -> BatchSource:
    """Give examples as batches, normalised as the training data `like`, or by mean and sd."""
    if images.array is None:
        return _Files(images, device, n_workers)
    if isinstance(like, Images):
        like = _colours(like.array) if images.array.dtype == np.uint8 else _columns(like.array)
    if images.array.dtype == np.uint8:
        return _Resident(images.array, device, *like)
    return _Rows(images.array, device, *like)


def _colours(images: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    if images is None:
        return np.array(_IMAGENET_MEAN), np.array(_IMAGENET_STD)
    colours = images[:: max(1, len(images) // 5000)].reshape(-1, 3) / 255
    return colours.mean(axis=0), colours.std(axis=0) + 1e-6


def _columns(rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    assert rows is not None
    mean = rows.mean(axis=0, dtype=np.float64)
    scale = np.sqrt(((rows - mean) ** 2).mean(axis=0))
    return mean, np.where(scale > 1e-12, scale, 1.0)


class _Rows:
    """Rows of features that stay on the device, each column of mean 0 and variance 1."""

    def __init__(
        self, rows: np.ndarray, device: torch.device, centre: np.ndarray, scale: np.ndarray
    ) -> None:
        self.centre, self.scale = centre, scale
        self.representations: np.ndarray | None = rows.reshape(len(rows), centre.size)
        self.size = self.representations.shape[1]
        self._rows = torch.from_numpy(((rows - centre) / scale).astype(np.float32)).to(device)

    def batches(self, order: Sequence[np.ndarray], augment: bool, seed: int) -> Iterator[Tensor]:
        for numbers in order:
            yield self._rows[torch.from_numpy(numbers).to(self._rows.device, non_blocking=True)]


class _Resident:
    """Images that stay on the device as bytes, and are cropped and flipped there."""

    def __init__(
        self, images: np.ndarray, device: torch.device, centre: np.ndarray, scale: np.ndarray
    ) -> None:
        self.centre, self.scale = centre, scale
        self.representations: np.ndarray | None = None
        self._padding = round(_PADDING * images.shape[1])
        sides = (self._padding, self._padding)
        padded = np.pad(images, ((0, 0), sides, sides, (0, 0)))
        self._pixels = torch.from_numpy(padded).to(device)
        self._mean = torch.tensor(centre * 255, dtype=torch.float32, device=device)
        self._factor = torch.tensor(1 / (scale * 255), dtype=torch.float32, device=device)
        self._down = torch.arange(images.shape[1], device=device)
        self._across = torch.arange(images.shape[2], device=device)
        self.size = int(images.shape[1])

    def batches(self, order: Sequence[np.ndarray], augment: bool, seed: int) -> Iterator[Tensor]:
        device = self._pixels.device
        random = torch.Generator(device).manual_seed(seed)
        last = len(self._across) - 1
        for numbers in order:
            index = torch.from_numpy(numbers).to(device, non_blocking=True)
            if augment:
                shape = (2, len(index), 1)
                shift = torch.randint(2 * self._padding + 1, shape, device=device, generator=random)
                mirrored = torch.rand(shape[1:], device=device, generator=random) < 0.5
                down = shift[0] + self._down
                across = shift[1] + torch.where(mirrored, last - self._across, self._across)
            else:
                down = (self._down + self._padding).expand(len(index), -1)
                across = (self._across + self._padding).expand(len(index), -1)
            pixels = self._pixels[index[:, None, None], down[:, :, None], across[:, None, :]]
            yield ((pixels - self._mean) * self._factor).permute(0, 3, 1, 2)


class _Files:
    """Images read from their files by worker processes, whatever their sizes."""

    def __init__(self, images: Images, device: torch.device, n_workers: int) -> None:
        self._images, self._device, self._n_workers = images, device, n_workers
        self.size = _CROP
        self.representations: np.ndarray | None = None
        self.centre, self.scale = np.array(_IMAGENET_MEAN), np.array(_IMAGENET_STD)

    def batches(self, order: Sequence[np.ndarray], augment: bool, seed: int) -> Iterator[Tensor]:
        mean, std = (
            torch.tensor(value, dtype=torch.float32, device=self._device)
            for value in (self.centre, self.scale)
        )
        on_gpu = self._device.type == "cuda"
        loader = DataLoader(
            _Crops(self._images, augment, seed),
            batch_sampler=[numbers.tolist() for numbers in order],
            # With fewer batches for each, it takes longer to start a process than it saves.
            num_workers=min(self._n_workers, len(order) // 8),
            pin_memory=on_gpu,
        )
        for pixels in loader:
            pixels = pixels.to(self._device, non_blocking=True)
            yield ((pixels / 255 - mean) / std).permute(0, 3, 1, 2)


class _Crops(Dataset[Tensor]):
    """Square crops of images; the random ones depend on the seed and the image alone."""

    def __init__(self, images: Images, augment: bool, seed: int) -> None:
        self._images, self._augment, self._seed = images, augment, seed

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, number: int) -> Tensor:
        from PIL import Image

        image = Image.fromarray(self._images[number])
        scale = _SHORT_SIDE / min(image.size)
        image = image.resize(
            (max(_CROP, round(image.width * scale)), max(_CROP, round(image.height * scale))),
            Image.Resampling.BILINEAR,
        )
        free = np.array([image.width - _CROP, image.height - _CROP])
        left, top = free // 2
        mirrored = False
        if self._augment:
            random = np.random.default_rng((self._seed, number))
            left, top = random.integers(free, endpoint=True)
            mirrored = random.random() < 0.5
        pixels = np.array(image.crop((left, top, left + _CROP, top + _CROP)))
        return torch.from_numpy(pixels[:, ::-1].copy() if mirrored else pixels)
