"""What the estimators share: reading data, checking settings, warning, and their files."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

import labelnoise
from labelnoise._errors import LabelNoiseError, LabelNoiseTypeError, LabelNoiseWarning
from labelnoise._validation import expect_two_classes, expect_whole, from_torch
from labelnoise.checks import Diagnostics, Finding, check_duplicates
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.memory import expect_room
from labelnoise.labels import class_names, encode_labels, missing_among, row_names
from labelnoise.stored import (
    Stored,
    expect_contained,
    finite,
    plain,
    read_arrays,
    read_finding,
    same,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from labelnoise.report import Report

_FORMAT = "labelnoise estimate"
_VERSION = 1
_JSON_FACTOR = 10  # bytes of memory for one of a file
_USUAL = 1e9  # features larger than it, or all smaller than its inverse, are scaled
_NO_WEIGHT = 1e-20  # of the largest column: smaller ones count as 0


class Estimator(BaseEstimator):
    """Base of the estimators, which have `metric`, `classes` and `unlabeled` among their settings.

    `_stored` says what the files of an estimator hold: fitted names, without their underscore.
    """

    _stored: ClassVar[dict[str, Stored]]
    _scale = 1.0  # of features, where squares and float32 would not hold them
    _data_rows: tuple[Any, np.ndarray] | None = None  # what they are called, and their labels

    def _read(self, X: Any, y: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        """Features (or None), class numbers, classes."""
        tables = X, y
        if X is not None:
            X = self._features(X)
        labels, classes = encode_labels(y, self.classes, self.unlabeled)
        n = len(labels)
        if X is not None and len(X) != n:
            raise LabelNoiseError(
                f"Expected as many labels as rows of X, but X has {len(X)} rows and y {n} "
                f"labels: inconsistent numbers of samples"
            )
        if n < 3:
            raise LabelNoiseError(f"Expected at least 3 examples, but n_samples = {n}")
        expect_two_classes(classes, labels)
        self._data_rows = row_names(*tables, n), labels
        return X, labels, classes

    def _features(self, X: Any, reset: bool = True) -> np.ndarray:
        """Finite numbers, scaled by a power of 2 if they are huge or tiny: as in the last `fit`."""
        if sp.issparse(X):
            raise LabelNoiseError("Expected a dense X, but it is sparse: use X.toarray()")
        try:
            X = from_torch(X) if hasattr(X, "detach") else X
            X = validate_data(self, X, dtype="numeric", ensure_all_finite=False, reset=reset)
        except TypeError as error:
            raise LabelNoiseTypeError(str(error)) from error
        except ValueError as error:
            raise LabelNoiseError(str(error)) from error
        if X.dtype.kind not in "fiub":
            raise LabelNoiseError(f"Expected features to be numbers, but their type is {X.dtype}")
        if reset and len(X) < 3:
            raise LabelNoiseError(f"Expected at least 3 examples, but n_samples = {len(X)}")
        if X.dtype.itemsize > 8 or not X.dtype.isnative:
            with np.errstate(over="ignore"):
                X = X.astype(np.float64)
        sizes = np.maximum(X.max(axis=0), -X.min(axis=0).astype(np.float64))
        largest = float(sizes.max())
        if not np.isfinite(largest):
            finite = np.isfinite(X)
            row, column = np.argwhere(~finite)[0]
            raise LabelNoiseError(
                f"Expected finite features, but X contains NaN or infinity: row {row}, "
                f"column {column} is {X[row, column]} ({(~finite).sum()} such values in "
                f"{(~finite).any(axis=1).sum()} rows). Fill them in or drop those rows"
            )
        if reset:
            usual = largest == 0 or 1 / _USUAL < largest < _USUAL
            self._scale = 1.0 if usual else 2.0 ** -np.log2(largest).clip(-1000).round()
        if largest * self._scale > _USUAL**2:
            raise LabelNoiseError(
                f"Expected features on the scale of those that the estimate was fitted to, but "
                f"there is one of size {largest:.3g}"
            )
        X = X if self._scale == 1 else X.astype(np.float64) * self._scale
        if (sizes < _NO_WEIGHT * largest).any():
            # Such columns change no distance, but their squares are 0 where models divide by them.
            X = np.where((sizes < _NO_WEIGHT * largest), X.dtype.type(0), X)
        return X

    def _usable_rows(
        self, X: Any, labels: np.ndarray, neighbors: Any, least: int
    ) -> tuple[np.ndarray, list[Finding]]:
        """Rows that take part, more than `least`, and what to say of X.

        Where neighbours are given all do: row numbers must stay what they are.
        """
        if X is None and neighbors is None:
            raise LabelNoiseError("Expected X or neighbors, but both are None")
        if neighbors is not None:
            return np.arange(len(labels)), [check_duplicates(X, labels)]
        usable, notes = labels >= 0, []
        zero = ~X.any(axis=1)
        if self.metric == "cosine" and zero.any():
            usable &= ~zero
            notes.append(
                Finding(
                    "zero vectors",
                    False,
                    float(zero.mean()),
                    f"{zero.sum()} examples are zero vectors, which have no direction and so no "
                    f"nearest neighbour by cosine: they were left out.",
                    remedy="Use metric='euclidean', or see why the encoder gives zeros.",
                )
            )
        rows = np.flatnonzero(usable)
        if least >= len(rows):
            raise LabelNoiseError(
                f"Expected n_neighbors < the number of labelled examples, but n_neighbors = "
                f"{least}, and there are {len(rows)}"
            )
        X = X if len(rows) == len(X) else X[rows]
        return rows, [*notes, check_duplicates(X, labels[rows])]

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        names: Sequence[str] | None = None,
        images: Sequence[Any] | np.ndarray | str | os.PathLike[str] | None = None,
        texts: Sequence[Any] | np.ndarray | None = None,
    ) -> Report:
        """Gather what there is to say of the estimate, with suspect labels where it can tell them.

        What `HOC.diagnose` finds is in it, if that was called before.

        Parameters
        ----------
        path : str or path, optional
            Where to write it: .html, one file to look at in any browser, or .json.
        names, images, texts : sequences of length N, optional
            Names of the examples, their images, their texts: shown with the suspects. Images are
            files, arrays, or the folder in which `names` are files.
        """
        from labelnoise.report import report_of

        check_is_fitted(self)
        overall: Any = getattr(self, "global_", self)
        known = hasattr(overall, "suspects") and overall.examples_ is not None
        found = overall.suspects() if known else None
        report = report_of(self, suspects=found, names=names, images=images, texts=texts)
        if path is not None:
            report.save(path)
        return report

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw T as a heat map on matplotlib's axes, new ones by default."""
        from labelnoise.plots import plot_matrix

        return plot_matrix(self, ax)

    def _repr_html_inner(self) -> str:
        """What Jupyter shows: the estimate, or before `fit` scikit-learn's diagram."""
        if not hasattr(self, "classes_"):
            return str(super()._repr_html_inner())
        from labelnoise.report.notebook import summary

        return summary(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimate to a JSON file; `load` reads it.

        What it was counted from, the triples and the examples' labels, is not in it.
        """
        check_is_fitted(self)
        head = {
            "format": _FORMAT,
            "version": _VERSION,
            "written_by": f"labelnoise {labelnoise.__version__}",
        }
        try:
            text = json.dumps(head | self._content(), indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise LabelNoiseError(
                f"Expected settings and names that JSON can hold, but {error}"
            ) from error
        with write_then_rename(path) as file:
            file.write(text.encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimate that `save` wrote.

        All of it is checked: an estimate that loads can be printed, reported and saved again.
        """
        try:
            expect_room(path, _JSON_FACTOR * os.path.getsize(path))
            text = Path(path).read_text("utf-8")
            content = json.loads(text, parse_constant=finite, parse_float=finite)
            if not isinstance(content, dict) or content.get("format") != _FORMAT:
                raise ValueError(f'it has no "format": {_FORMAT!r}')
            if content["version"] != _VERSION:
                raise ValueError(f"its version is {content['version']!r} instead of {_VERSION}")
            est = cls._from_content(content)
            if not same(json.loads(json.dumps(est._content())), content):
                raise ValueError("what would be saved again differs from it")
            str(est), str(getattr(est, "global_", est))  # what they print, they must have
            return est
        except KeyError as error:
            reason = f"it has no {error}"
        except FileNotFoundError:
            reason = "there is no such file"
        except Exception as error:  # whatever a stranger's JSON leads to, as endless nesting
            reason = str(error) or type(error).__name__
        raise LabelNoiseError(
            f"Expected an estimate written by {cls.__name__}.save, or by labelnoise estimate "
            f"--out X.json, but {path} cannot be read as one: {' '.join(reason.split())}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Give what `save` writes."""
        check_is_fitted(self)
        return self._content()

    def _content(self) -> dict[str, Any]:
        """All that is written of a fitted estimator."""
        settings = {name: plain(value) for name, value in self.get_params().items()}
        if self.classes is not None:
            settings["classes"] = class_names(self.classes).tolist()
        if not isinstance(settings.get("random_state"), int | None):
            settings["random_state"] = None
        content: dict[str, Any] = {"estimator": type(self).__name__, "settings": settings}
        for name in self._stored:
            content[name] = plain(getattr(self, f"{name}_"))
        content["n_features_in"] = getattr(self, "n_features_in_", None)
        if hasattr(self, "diagnostics_"):
            content["diagnostics"] = [vars(finding) for finding in self.diagnostics_]
        return content

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> Self:
        if content["estimator"] != cls.__name__:
            raise ValueError(f"it is one of {content['estimator']}")
        est = cls(**content["settings"])
        est._check_loaded_settings()
        for name, array in read_arrays(content, cls._stored).items():
            setattr(est, f"{name}_", array)
        if content["n_features_in"] is not None:
            expect_whole("n_features_in", content["n_features_in"], 1)
            est.n_features_in_ = content["n_features_in"]
        if "diagnostics" in content:
            est.diagnostics_ = Diagnostics(tuple(map(read_finding, content["diagnostics"])))
        if content.get("confidence_interval") is not None:
            expect_contained(content["confidence_interval"], est)
        return est

    def _check_loaded_settings(self) -> None:
        encode_labels([0, 1], [0, 1], self.unlabeled)
        if self.classes is not None:
            class_names(self.classes)
        getattr(self, "_check_settings", bool)()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.single_output = True
        return tags


def all_at_once(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Make a `fit` set all that it finds in the end: a fit that is refused changes nothing."""

    @wraps(fit)
    def fitted(self: Any, *args: Any, **options: Any) -> Any:
        fresh = type(self)(**self.get_params(deep=False))
        fit(fresh, *args, **options)
        for name in list(self.__dict__):
            if name.endswith("_") or (name.startswith("_") and hasattr(type(self), name)):
                del self.__dict__[name]
        self.__dict__.update(fresh.__dict__)
        return self

    return fitted


def stages(progress: Any) -> Callable[[str], Callable[[int, int], None] | None]:
    """Name the stage of each call of ``progress(stage, done, total)``."""

    def stage(name: str) -> Callable[[int, int], None] | None:
        return None if progress is None else lambda done, total: progress(name, done, total)

    return stage


def encode_names(values: Any, n: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Distinct names of groups, sources and such in order, and the number (n,) of each's."""
    try:
        listed, values = values, np.asarray(values)
        # As objects, too: of None and NaN beside strings NumPy makes strings.
        objects = np.array(listed, object) if isinstance(listed, list | tuple) else values
    except ValueError as error:  # lists among them
        raise LabelNoiseError(f"Expected {what}s to be names, but they are not: {error}") from error
    if values.shape != (n,):
        raise LabelNoiseError(
            f"Expected one {what} for each example, but {what}s has shape {values.shape} and "
            f"there are {n} labels"
        )
    missing = missing_among(objects)
    if missing.any():
        raise LabelNoiseError(
            f"Expected no {what} to be missing, but row {np.flatnonzero(missing)[0]} has none "
            f"({missing.sum()} such rows): leave them out, or give them one of their own"
        )
    try:
        names, number = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise LabelNoiseError(
            f"Expected {what}s of one kind, but they cannot be put in order: {error}"
        ) from error
    return names, number.astype(np.intp)


def source_numbers(sources: Any, n: int) -> np.ndarray | None:
    """The number (n,) of each example's source; None where there are none."""
    return None if sources is None else encode_names(sources, n, "source")[1]


def warn_of(findings: Iterable[Finding], stacklevel: int = 3) -> None:
    """Warn the caller of `fit` of what is not right."""
    for finding in findings:
        if not finding.ok:
            said = f"{finding.sentence} {finding.remedy}".rstrip()
            warnings.warn(said, LabelNoiseWarning, stacklevel=stacklevel)
