"""Features of any PyTorch data set by any PyTorch module.

::

    X, y = embed(dataset, without_head(network))
    est = HOC().fit(X, y)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io import encoders
from labelnoise.io.packages import explained, package

Progress = Callable[[str, int, int], None]


def embed(
    dataset: Any,
    module: Any,
    *,
    batch_size: int = 64,
    device: str = "auto",
    n_workers: int = 0,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Represent the examples of a data set by what a module gives for them.

    Parameters
    ----------
    dataset : map-style torch Dataset
        Its items are ``(x, label)``, and may have more behind these.
    module : torch.nn.Module
        An encoder: of a batch of x it gives (B, d), or maps (B, d, H, W), which are averaged over
        their positions. Of a classifier, take `without_head`. It is run in evaluation mode, and
        left in the mode and on the device that it had.
    batch_size : int, default=64
    device : str
        "auto", which is the GPU if there is one, or a device of PyTorch.
    n_workers : int, default=0
        How many processes load the items, as in PyTorch's DataLoader.
    progress : callable, optional
        Called as ``progress("embedding", done, total)``.

    Returns
    -------
    features : float32 array of shape (N, d)
    labels : array of shape (N,)

    Examples
    --------
    >>> import torch
    >>> images, labels = torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 0, 1, 0, 1])
    >>> dataset = torch.utils.data.TensorDataset(images, labels)
    >>> X, y = embed(dataset, torch.nn.Conv2d(3, 5, 3), device="cpu")
    >>> X.shape, y.shape
    ((6, 5), (6,))
    """
    torch = package("torch", "torch")
    device = encoders.torch_device(device, "torch")
    n = _size(dataset)
    with explained("Expected settings that PyTorch's DataLoader takes, but it does not"):
        loader = torch.utils.data.DataLoader(
            dataset, batch_size, num_workers=n_workers, pin_memory=device.startswith("cuda")
        )
    features: list[np.ndarray] = []
    labels: list[Any] = []
    with _evaluating(module, device), torch.inference_mode(), encoders.repeatable_convolutions():
        for batch in loader:
            x, y = _pair(batch)
            features.append(_vectors(module(x.to(device, non_blocking=True))))
            labels += y.tolist() if hasattr(y, "tolist") else list(y)
            if progress:
                progress("embedding", len(labels), n)
    return np.concatenate(features), np.array(labels)


def without_head(module: Any) -> Any:
    """Copy a classifier of timm or torchvision, less the layer that tells classes.

    timm's models drop it themselves (``reset_classifier(0)``); of others, the linear layer that was
    defined last becomes the identity, as torchvision advises for each of its classifiers.
    """
    module = copy.deepcopy(module)
    if hasattr(module, "reset_classifier"):
        module.reset_classifier(0)
        return module
    with explained("Expected a classifier whose last layer is linear, but it cannot be dropped"):
        return encoders.without_last_linear(module)


def _size(dataset: Any) -> int:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise LabelNoiseError(
            f"Expected a map-style dataset, with len() and items by their number, but it is of "
            f"type {type(dataset).__name__}"
        )
    if not len(dataset):
        raise LabelNoiseError("Expected a dataset with examples, but it is empty")
    return len(dataset)


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, list | tuple) or len(batch) < 2 or not hasattr(batch[0], "to"):
        raise LabelNoiseError(
            f"Expected a dataset of (x, label) with tensors or numbers x, but a batch of it is "
            f"of type {type(batch).__name__}"
        )
    return batch[0], batch[1]


def _vectors(output: Any) -> np.ndarray:
    """(B, d) float32 of what a module gives."""
    shape = tuple(getattr(output, "shape", ()))
    if len(shape) == 4:
        output = output.mean(dim=(2, 3))
    elif len(shape) != 2:
        what = f"its shape is {shape}" if shape else f"it is of type {type(output).__name__}"
        raise LabelNoiseError(
            f"Expected module to give an array (B, d), or (B, d, H, W), of a batch, but {what}: "
            f"wrap it in a module that gives one vector for each example"
        )
    return np.asarray(output.float().cpu())


@contextmanager
def _evaluating(module: Any, device: str) -> Iterator[None]:
    """Put a module on a device and in evaluation mode, and back."""
    modes = [(part, part.training) for part in module.modules()]
    home = next((tensor.device for tensor in module.parameters()), None)
    module.to(device).eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
        if home is not None:
            module.to(home)
