"""The networks of the paper's tables, a small one for rows of features, and one's own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from labelnoise._errors import LabelNoiseError

LARGE_IMAGE = 64  # pixels of height, from which the stem is that of ImageNet


class Network(nn.Module):
    """A body that gives representations, and a linear layer that gives one logit a class."""

    def __init__(self, body: nn.Module, width: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, n_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, K) logits."""
        out: Tensor = self.head(self.body(inputs))
        return out


def representations_of(network: nn.Module, inputs: Tensor) -> Tensor:
    """(B, width) what the last linear layer of a network is given."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise LabelNoiseError(
            f"Expected a network with a linear layer, whose input is the representation, but "
            f"{type(network).__name__} has none"
        )
    seen: list[Tensor] = []
    handle = linear[-1].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        network(inputs)
    finally:
        handle.remove()
    return seen[-1].flatten(1)


class _Residual(nn.Module):
    def __init__(self, layers: nn.Sequential, shortcut: nn.Module) -> None:
        super().__init__()
        self.layers, self.shortcut = layers, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layers(x) + self.shortcut(x))


def _convolution(n_in: int, n_out: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(n_out),
    ]


def _basic(n_in: int, width: int, stride: int) -> tuple[list[nn.Module], int]:
    layers = [*_convolution(n_in, width, 3, stride), nn.ReLU(), *_convolution(width, width, 3)]
    return layers, width


def _bottleneck(n_in: int, width: int, stride: int) -> tuple[list[nn.Module], int]:
    layers = [
        *_convolution(n_in, width, 1),
        nn.ReLU(),
        *_convolution(width, width, 3, stride),
        nn.ReLU(),
        *_convolution(width, 4 * width, 1),
    ]
    return layers, 4 * width


_Block = Callable[[int, int, int], tuple[list[nn.Module], int]]
_RESNETS: dict[str, tuple[_Block, tuple[int, ...], int]] = {
    "resnet8": (_basic, (1, 1, 1), 16),  # small enough for a CPU
    "resnet18": (_basic, (2, 2, 2, 2), 64),
    "resnet34": (_basic, (3, 4, 6, 3), 64),
    "resnet50": (_bottleneck, (3, 4, 6, 3), 64),
}
_HIDDEN = 128
NETWORKS = ("mlp", *_RESNETS)


def check_network(make: str | Callable[[], nn.Module], rows: bool) -> None:
    """Meet a name that is no network, or one that does not fit the data, rows or images."""
    if isinstance(make, str):
        fitting = ("mlp",) if rows else tuple(_RESNETS)
        if make not in fitting:
            raise LabelNoiseError(
                f"Expected network to be one of {fitting} for {'rows' if rows else 'images'}, or a "
                f"function that builds one, but it is {make!r}"
            )
    elif isinstance(make, nn.Module) or not callable(make):
        raise LabelNoiseError(
            f"Expected network to be a name, or a function without arguments that builds a "
            f"torch.nn.Module, as methods train several, but it is a {type(make).__name__}"
        )


def build_network(make: str | Callable[[], nn.Module], n_classes: int, size: int) -> nn.Module:
    """Build a network with fresh weights, which come from PyTorch's random numbers.

    Parameters
    ----------
    make : {"mlp", "resnet8", "resnet18", "resnet34", "resnet50"} or callable
        Which network. "mlp", for rows of features, has one hidden layer of 128; the smallest
        residual network is for trying things out on a CPU. A callable without arguments builds a
        network of one's own: a module that maps a batch to logits (B, K).
    n_classes : int
        Number of classes.
    size : int
        Number of features, or height of the images: below 64 pixels they get the CIFAR stem (one
        3x3 convolution), from there on ImageNet's (7x7 with stride 2, then pooling).
    """
    if not isinstance(make, str):
        return make()
    if make == "mlp":
        layers = [nn.Flatten(), nn.Linear(size, _HIDDEN), nn.ReLU()]
        return Network(nn.Sequential(*layers), _HIDDEN, n_classes)
    check_network(make, rows=False)
    return _residual_network(make, n_classes, size)


def _residual_network(name: str, n_classes: int, image_size: int) -> Network:
    block, depths, width = _RESNETS[name]
    if image_size < LARGE_IMAGE:
        layers = [*_convolution(3, width, 3), nn.ReLU()]
    else:
        layers = [*_convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    n_in = width
    for stage, depth in enumerate(depths):
        for number in range(depth):
            stride = 2 if stage > 0 and number == 0 else 1
            inside, n_out = block(n_in, width * 2**stage, stride)
            same = stride == 1 and n_in == n_out
            shortcut = (
                nn.Identity() if same else nn.Sequential(*_convolution(n_in, n_out, 1, stride))
            )
            layers.append(_Residual(nn.Sequential(*inside), shortcut))
            n_in = n_out
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return Network(body, n_in, n_classes)
