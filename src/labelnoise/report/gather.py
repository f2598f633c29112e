"""From a fitted estimator to the data of its report."""

from __future__ import annotations

import base64
import io
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import labelnoise
from labelnoise._errors import LabelNoiseError
from labelnoise.io.images import FORMATS, files_inside
from labelnoise.io.packages import package
from labelnoise.report.data import (
    Report,
    Suspect,
    SuspectList,
    Truth,
    Variation,
    off_diagonal,
)
from labelnoise.summary import quick_interval

if TYPE_CHECKING:
    from labelnoise.estimators.local import LocalHOC
    from labelnoise.suspects import Suspects

_MOST_SHOWN = 24  # suspects, with what there is to see of them
_MOST_CHARACTERS = 600  # of a text
_PICTURE = 256  # pixels; smaller pictures are enlarged smoothly, which browsers do not


def report_of(
    est: Any,
    *,
    suspects: Suspects | None = None,
    names: Sequence[str] | None = None,
    images: Sequence[Any] | np.ndarray | str | os.PathLike[str] | None = None,
    texts: Sequence[Any] | np.ndarray | None = None,
    truth: Truth | None = None,
    how: Mapping[str, str] | None = None,
) -> Report:
    """Gather what there is to say of a fitted estimator.

    Parameters
    ----------
    est : HOC, LocalHOC, GroupHOC or AnnotatorHOC
    suspects : Suspects, optional
        Labels to list, from ``est.suspects()``.
    names, images, texts : sequences of length N, optional
        Names of the examples that `est` was fitted to, their images, their texts: to be shown with
        the suspects. Images are files, uint8 arrays of shape (height, width) or (height, width, 3),
        or the folder in which `names` are files.
    truth : Truth, optional
        Where it is known.
    how : mapping, optional
        More to say on how it was computed, {"Data": "digits.csv"}.
    """
    check_is_fitted(est)
    overall = getattr(est, "global_", est)
    classes, counts = overall.classes_, _label_counts(overall)
    checked = getattr(overall, "verified_", None)
    return Report(
        classes=_words(classes),
        transition_matrix=overall.transition_matrix_,
        class_prior=overall.class_prior_,
        noise_rate=overall.noise_rate_,
        estimator=type(est).__name__,
        findings=tuple(overall.diagnostics_),
        interval=quick_interval(overall) if hasattr(overall, "confidence_interval") else None,
        n_examples=_n_labels(overall, counts),
        label_shares=None if counts is None else counts / counts.sum(),
        agreement=getattr(overall, "agreement_", None),
        variation=_variation(est),
        suspects=None if suspects is None else _list(suspects, classes, names, images, texts),
        verified=None if checked is None else replace(checked, posterior=None, answers=None),
        truth=truth,
        how=_how(est) | dict(how or {}),
    )


def local_spread(est: LocalHOC) -> tuple[str, ...]:
    """How much the matrices of neighbourhoods differ, in a few sentences."""
    T, names = est.transition_matrices_, est.classes_
    low, middle, high = np.quantile(_local_rates(est), [0.1, 0.5, 0.9])
    lines = [
        f"In {len(T)} neighbourhoods of {est.local_size} examples, {low:.1%} to {high:.1%} of the "
        f"labels are wrong (in the middle eight tenths; median {middle:.1%})."
    ]
    lowest, highest = np.quantile(T, [0.1, 0.9], axis=0)
    apart = off_diagonal(highest - lowest)
    for place in np.argsort(-apart, axis=None)[:3]:
        i, j = divmod(int(place), len(names))
        share = f"{lowest[i, j]:.1%} to {highest[i, j]:.1%}"
        lines.append(f"{share} of true {names[i]} are labelled {names[j]}")
    return tuple(lines)


def _local_rates(est: LocalHOC) -> np.ndarray:
    return np.asarray(1 - np.einsum("li,lii->l", est.class_priors_, est.transition_matrices_))


def _variation(est: Any) -> Variation | None:
    if hasattr(est, "groups_"):
        sentences = [line.strip() for line in str(est.differences()).splitlines()]
        names, sizes = est.groups_, np.bincount(est.assignment_, minlength=len(est.groups_))
        return Variation("group", _words(names), est.noise_rates_, sizes, tuple(sentences))
    if hasattr(est, "annotators_"):
        return Variation("annotator", _words(est.annotators_), est.noise_rates_, None, ())
    if hasattr(est, "members_"):
        sizes = np.full(len(est.members_), est.members_.shape[1])
        return Variation("neighbourhood", (), _local_rates(est), sizes, local_spread(est))
    return None


def _words(names: np.ndarray) -> tuple[str, ...]:
    return tuple(str(name) for name in names)


def _label_counts(est: Any) -> np.ndarray | None:
    """(K,) how many examples have each label; None of a loaded estimate."""
    if hasattr(est, "suspects") and est.examples_ is not None:
        labels = est.examples_.labels
        return np.bincount(labels[labels >= 0], minlength=len(est.classes_))
    return est.consensus_.label_counts() if hasattr(est, "consensus_") else None


def _n_labels(est: Any, counts: np.ndarray | None) -> int | None:
    """How many labels there are; None where it is not known, as of examples with several."""
    return None if counts is None or hasattr(est, "annotators_") else round(counts.sum())


def _list(found: Suspects, classes: np.ndarray, names: Any, images: Any, texts: Any) -> SuspectList:
    index = np.asarray(found.index)
    shown = index[:_MOST_SHOWN].tolist()
    if isinstance(images, str | os.PathLike):
        images = _in_folder(images, names, shown)
    names, images, texts = (
        _by_row(what, values, index)
        for what, values in (("names", names), ("images", images), ("texts", texts))
    )
    number = {name: i for i, name in enumerate(classes.tolist())}
    given, suggested = (
        np.array([number[name] for name in np.asarray(labels).tolist()], int)
        for labels in (found.given, found.suggested)
    )
    rows = [
        Suspect(
            row,
            str(classes[given[i]]),
            str(classes[suggested[i]]),
            float(found.probability[i]),
            None if names is None else str(names[row]),
            None if texts is None else _shortened(str(texts[row])),
            None if images is None else _picture(images[row]),
        )
        for i, row in enumerate(shown)
    ]
    called = None if names is None else tuple(str(names[row]) for row in index.tolist())
    return SuspectList(tuple(rows), index, given, suggested, np.asarray(found.probability), called)


def _by_row(what: str, values: Any, index: np.ndarray) -> Any:
    """Names, images or texts that have one for each suspect; a Series goes by position."""
    if values is None or isinstance(values, dict):
        return values
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if len(index) and len(values) <= index.max():
        raise LabelNoiseError(
            f"Expected {what} of all examples that the estimate was fitted to, but there are "
            f"{len(values)}, and row {index.max()} is one of the suspects"
        )
    return values


def _in_folder(folder: Any, names: Any, rows: Sequence[int]) -> dict[int, str]:
    """Paths of the images that `names` of some rows are in a folder."""
    if names is None:
        raise LabelNoiseError(
            f"Expected names with a folder of images, but names is None and images = "
            f"{os.fspath(folder)!r}: give the path of each example's image in the folder"
        )
    paths = files_inside(folder, [str(names[row]) for row in rows])
    return dict(zip(rows, paths, strict=True))


def _shortened(text: str) -> str:
    end = " \N{HORIZONTAL ELLIPSIS}" if len(text) > _MOST_CHARACTERS else ""
    return text[:_MOST_CHARACTERS] + end


def _picture(image: Any) -> str | None:
    """A picture as a data URI; None of a file that cannot be read as one."""
    Image, ImageOps = (package(f"PIL.{name}", "images") for name in ("Image", "ImageOps"))
    content, array = io.BytesIO(), isinstance(image, np.ndarray)
    image = _expect_image(image) if array else image
    try:
        with Image.fromarray(image) if array else Image.open(image, formats=FORMATS) as file:
            full = ImageOps.exif_transpose(file).convert("RGB")
        ImageOps.contain(full, (_PICTURE, _PICTURE)).save(content, "jpeg", quality=80)
    except (OSError, ValueError, TypeError, SyntaxError, Image.DecompressionBombError):
        return None
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def _expect_image(image: np.ndarray) -> np.ndarray:
    """(height, width) or (height, width, 3 or 4) uint8."""
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if image.dtype != np.uint8 or not (image.ndim == 2 or image.shape[2:] in ((3,), (4,))):
        raise LabelNoiseError(
            f"Expected images as files, or as uint8 arrays of shape (height, width) or (height, "
            f"width, 3), but one is {image.dtype} of shape {image.shape}"
        )
    return image


def _how(est: Any) -> dict[str, str]:
    defaults = type(est)().get_params()
    changed = [
        f"{name}={_shortened(repr(value))}"
        for name, value in est.get_params().items()
        if repr(value) != repr(defaults[name])
    ]
    packages = [f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn")]
    return {
        "Estimator": f"{type(est).__name__}({', '.join(changed)})",
        "Made by": ", ".join(
            [
                f"labelnoise {labelnoise.__version__}",
                f"Python {platform.python_version()}",
                *packages,
            ]
        ),
        "Made on": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }
