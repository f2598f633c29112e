"""The networks of the paper's tables: residual networks, with a stem for small or large images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from labelnoise._errors import LabelNoiseError

LARGE_IMAGE = 64  # pixels; from here on the stem shrinks the image, as for ImageNet


class Network(nn.Module):
    """A body that gives representations, and a linear layer that gives one logit a class."""

    def __init__(self, body: nn.Module, width: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, n_classes)

    def representations(self, images: Tensor) -> Tensor:
        """(B, width) what the last linear layer sees; never negative."""
        out: Tensor = self.body(images)
        return out

    def forward(self, images: Tensor) -> Tensor:
        """(B, K) logits."""
        out: Tensor = self.head(self.representations(images))
        return out


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
NETWORKS = tuple(_RESNETS)


def check_network(name: str) -> None:
    """Meet a name that is none of a network."""
    if name not in _RESNETS:
        raise LabelNoiseError(f"Expected network to be one of {NETWORKS}, but it is {name!r}")


def build_network(name: str, n_classes: int, image_size: int) -> Network:
    """Build a network with fresh weights; those come from PyTorch's random numbers.

    Parameters
    ----------
    name : {"resnet8", "resnet18", "resnet34", "resnet50"}
        Which one. The smallest is for trying things out on a CPU.
    n_classes : int
        Number of classes.
    image_size : int
        Images below 64 pixels get the CIFAR stem (one 3x3 convolution), larger ones
        ImageNet's (7x7 with stride 2, then pooling).
    """
    check_network(name)
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
