"""Packages that not everybody has, and errors of other packages in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from labelnoise._errors import LabelNoiseError

# NumPy and PyTorch advise to unpickle files that they refuse. That would run their code.
_UNSAFE_ADVICE = ("pickle", "python objects", "weights only", "weights_only")


def package(name: str, extra: str | None = None) -> Any:
    """Import a package of one of the optional extras, or one that no extra has."""
    try:
        return import_module(name)
    except ImportError as error:
        raise LabelNoiseError(
            f"Expected {name} to be installed, but it cannot be imported ({error}): "
            f"{install(extra) if extra else f'pip install {name}'}"
        ) from error


def install(extra: str) -> str:
    """Give the command that installs an extra: labelnoise itself is on no index yet."""
    return f"pip install '.[{extra}]' in a checkout of labelnoise"


@contextmanager
def explained(sentence: str) -> Iterator[None]:
    """Turn any error into one sentence: file readers raise all kinds of them."""
    try:
        yield
    except LabelNoiseError:
        raise
    except Exception as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split("\n")[0].split())
        if any(advice in reason.lower() for advice in _UNSAFE_ADVICE):
            reason = "it holds Python objects, which may run code: save numbers or texts only"
        raise LabelNoiseError(f"{sentence}: {reason or type(error).__name__}") from error
