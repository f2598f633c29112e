"""A trained classifier: predictions, and a file to keep it in."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from labelnoise._errors import LabelNoiseError
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.images import Images
from labelnoise.io.packages import install
from labelnoise.training.batches import batch_source
from labelnoise.training.engine import MakeNetwork, in_blocks
from labelnoise.training.networks import build_network

_FORMAT = "labelnoise classifier 1"


@dataclass(frozen=True, eq=False, repr=False)
class Classifier:
    """Networks that answer together, with the mean of their probabilities."""

    networks: Sequence[nn.Module]
    """Most methods train one, some two."""
    classes: tuple[str, ...]
    """(K,) names."""
    centre: np.ndarray
    scale: np.ndarray
    """Mean and deviation that inputs are normalised by: of features, or of colours from 0 to 1."""
    size: int
    """Number of features, or height of the images."""
    network: str = ""
    """Name of the networks' kind; "" for one's own."""

    def __repr__(self) -> str:
        return f"Classifier({self.network or 'own network'}, {len(self.classes)} classes)"

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, K) probability of each class.

        X holds rows of features (N, d), images (N, H, W, 3) uint8, or is a
        `labelnoise.io.datasets.Images`; as in the training.
        """
        images = X if isinstance(X, Images) else Images(_numbers(X))
        if images.array is not None and images.array.dtype != np.uint8:
            expected = (len(images), *self.centre.shape)
            if images.array.shape != expected:
                raise LabelNoiseError(
                    f"Expected X of shape (N, {self.size}), as the training data, but its shape "
                    f"is {images.array.shape}"
                )
        device = next(self.networks[0].parameters()).device
        source = batch_source(images, (self.centre, self.scale), device, n_workers=0)
        parts = [np.empty((0, len(self.classes)), np.float32)]
        with torch.no_grad():
            for network in self.networks:
                network.eval()
            for inputs in source.batches(in_blocks(len(images)), augment=False, seed=0):
                answers = [network(inputs).float().softmax(1) for network in self.networks]
                parts.append(torch.stack(answers).mean(0).cpu().numpy())
        return np.concatenate(parts)

    def predict(self, X: Any) -> np.ndarray:
        """(N,) name of the most probable class."""
        return np.array(self.classes)[self.predict_proba(X).argmax(axis=1)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it to a safetensors file."""
        tensors = {
            f"{number}.{name}": value.contiguous().cpu()
            for number, network in enumerate(self.networks)
            for name, value in network.state_dict().items()
        }
        normalisation = {"centre": self.centre, "scale": self.scale}
        tensors |= {name: torch.tensor(value) for name, value in normalisation.items()}
        about = {
            "classes": list(self.classes),
            "network": self.network,
            "n_networks": len(self.networks),
            "size": self.size,
        }
        content = _safetensors().torch.save(
            tensors, {"format": _FORMAT, "about": json.dumps(about)}
        )
        with write_then_rename(path) as file:
            file.write(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str], network: MakeNetwork | None = None) -> Classifier:
        """Read what `save` wrote; a network of one's own needs the function that builds it."""
        safetensors = _safetensors()
        problem = f"Expected a classifier that labelnoise train saved, but {os.fspath(path)}"
        if not os.path.isfile(path):
            raise LabelNoiseError(f"{problem} is no file")
        try:
            with safetensors.safe_open(path, "pt") as file:
                saved = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, OSError) as error:
            raise LabelNoiseError(f"{problem} cannot be read: {error}") from error
        if saved.get("format") != _FORMAT:
            raise LabelNoiseError(f"{problem} has the format {saved.get('format')!r}")
        about = json.loads(saved["about"])
        make = network or about["network"]
        if not make:
            raise LabelNoiseError(
                f"{problem} holds a network of one's own: use Classifier.load with network="
            )
        centre, scale = (tensors.pop(name).numpy() for name in ("centre", "scale"))
        networks = []
        for number in range(about["n_networks"]):
            prefix = f"{number}."
            own = {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
            networks.append(build_network(make, len(about["classes"]), about["size"]))
            try:
                networks[-1].load_state_dict(own)
            except RuntimeError as error:
                raise LabelNoiseError(f"{problem} does not fit the network: {error}") from error
        named = make if isinstance(make, str) else ""
        return cls(networks, tuple(about["classes"]), centre, scale, about["size"], named)


def _numbers(X: Any) -> np.ndarray:
    array = np.asarray(X)
    return array if array.dtype == np.uint8 and array.ndim == 4 else array.astype(np.float32)


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise LabelNoiseError(
            f"Expected safetensors, to keep a classifier: {install('torch')}"
        ) from error
    return safetensors
