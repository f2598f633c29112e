"""The labelled examples that an estimate is fitted to, with their neighbours and clean class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np

from labelnoise._arrays import HOST
from labelnoise._errors import LabelNoiseError
from labelnoise.clean_class import CleanClass, counted_joint, fit_clean_class, tilted
from labelnoise.clean_class.dependence import Case
from labelnoise.clean_class.evidence import VOTERS
from labelnoise.neighbors import Neighbors, chosen_device, given_neighbors, nearest_neighbors
from labelnoise.stored import Stored, read_arrays

LEAST_EXAMPLES = 10  # a class, on average, for a model of the clean class
LARGEST_REFINED = 50_000_000  # examples times classes, for a model of the clean class
MOST_REFINED_CLASSES = 300  # with more, the search for T takes minutes


_OF_EXAMPLES = {
    "labels": Stored("n", "K"),
    "rows": Stored("n", "N"),
    "neighbors": Stored("nk", "n"),
    "distances": Stored("nk", "numbers"),
    "posterior": Stored("nK"),
}
_OF_MODEL = {
    "given_h": Stored("KK"),
    "given_h_prior": Stored("K"),
    "of_triples": Stored("KK"),
    "of_triples_prior": Stored("K"),
    "case": Stored("c", "numbers"),
}


@dataclass(frozen=True, eq=False)
class Examples:
    """What an estimate was fitted to."""

    X: Any
    """(N, d) features, or None."""
    labels: np.ndarray
    """(N,) class numbers; -1 only where neighbours were given."""
    rows: np.ndarray
    """(N,) row numbers in the data."""
    near: Neighbors | None
    """None if neighbours were found in rounds."""
    sources: np.ndarray | None = None
    center_weight: np.ndarray | None = None


def can_refine(X: Any, labels: np.ndarray, K: int) -> bool:
    """Whether there is enough, and not too much, for a model of the clean class."""
    n = int((labels >= 0).sum())
    return (
        X is not None
        and K <= MOST_REFINED_CLASSES
        and len(np.unique(labels[labels >= 0])) == K
        and LEAST_EXAMPLES * K <= n <= LARGEST_REFINED / K
    )


def neighbors_of(
    X: Any,
    labels: np.ndarray,
    k: int,
    metric: str,
    *,
    given: Any = None,
    sources: np.ndarray | None = None,
    refine: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **how: Any,
) -> Neighbors:
    """One search at the largest k that anything needs; of given neighbours as many as serve."""
    if given is not None:
        for most in (VOTERS, VOTERS // 3, k) if refine else (k,):
            try:
                return given_neighbors(given, len(labels), max(k, most), labels >= 0, sources)
            except LabelNoiseError:
                if most == k:
                    raise
    others = len(labels if sources is None else np.unique(sources)) - 1
    k = max(k, min(VOTERS, others)) if refine else k
    return nearest_neighbors(X, k, metric, sources=sources, progress=progress, **how)


def clean_class_of(
    data: Examples,
    of_triples: tuple[np.ndarray, np.ndarray],
    metric: str,
    *,
    share: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    search: str = "auto",
    device: str = "auto",
) -> CleanClass | None:
    """The model of the clean class; None where there is too little for one."""
    use = np.flatnonzero(data.labels >= 0)
    labels, near, sources = data.labels[use], data.near, data.sources
    if not can_refine(data.X, labels, len(of_triples[1])):
        return None
    if near is None or near.indices.shape[1] < min(VOTERS // 3, len(use) - 1):
        how: Any = {"search": search, "device": device}
        near = neighbors_of(
            data.X, data.labels, 2, metric, sources=data.sources, refine=True, **how
        )
    number = np.full(len(data.labels), -1)
    number[use] = np.arange(len(use))
    indices = number[near.indices[use]]
    labelled = int(np.cumprod((indices >= 0).all(axis=0)).sum())
    if labelled < 2:
        return None
    X = data.X if len(use) == len(data.labels) else data.X[use]
    chosen, arrays = chosen_device(device, X.shape[0], X.shape[1], sources), HOST
    if chosen != "cpu":
        from labelnoise.neighbors.cuda import arrays_on

        arrays = arrays_on(chosen)
    with arrays.in_full():
        return fit_clean_class(
            X,
            labels,
            indices[:, :labelled],
            of_triples,
            share=share,
            sources=sources,
            progress=progress,
            arrays=arrays,
        )


def posterior_by_triples(data: Examples, T: np.ndarray, p: np.ndarray, metric: str) -> np.ndarray:
    """(N, K) P(clean class | own label, labels of the nearest two), which adds up to T and p.

    Row n is of the n-th labelled example.
    """
    use = np.flatnonzero(data.labels >= 0)
    near = data.near  # None after `n_rounds`, which search in each sample
    if near is None:
        near = neighbors_of(data.X, data.labels, 2, metric)
    three = np.column_stack([data.labels[use], data.labels[near.indices[use, :2]]])
    posterior = posterior_of_labels(three, T, p)
    labels, K = data.labels[use], len(p)
    joint = p[:, None] * T
    shares = counted_joint(posterior, labels, K).sum(axis=0) / len(use)
    joint = joint * shares / np.maximum(joint.sum(axis=0), 1e-300)
    return tilted(posterior, labels, joint)


def posterior_of_labels(labels: np.ndarray, T: np.ndarray, p: np.ndarray) -> np.ndarray:
    """(N, K) P(class | labels (N, m), each of which is one of the class by T); -1 is none."""
    posterior = np.tile(p, (len(labels), 1))
    for column in labels.T:
        posterior *= np.where((column >= 0)[:, None], T.T[column], 1)
    posterior += 1e-12
    return posterior / posterior.sum(axis=1, keepdims=True)


def examples_to_arrays(
    data: Examples, model: CleanClass | None, posterior: np.ndarray
) -> dict[str, np.ndarray]:
    """Give labels, neighbours and the clean class of examples, all labelled, as plain arrays."""
    assert data.near is not None
    assert data.near.distances is not None
    arrays = {
        "labels": data.labels,
        "rows": data.rows,
        "neighbors": data.near.indices,
        "distances": data.near.distances,
        "posterior": posterior,
    }
    if model is not None:
        arrays["given_h"], arrays["given_h_prior"] = model.given_h
        arrays["of_triples"], arrays["of_triples_prior"] = model.of_triples
        arrays["case"] = np.array(astuple(model.case))
        if model.draws is not None:
            arrays["draws"] = model.draws
    return arrays


def examples_from_arrays(
    arrays: Mapping[str, Any], point: tuple[np.ndarray, np.ndarray], n_rows: int
) -> tuple[Examples, CleanClass | None, np.ndarray]:
    """Give examples, the model behind the point (T, class prior), and the posterior.

    Examples have no features, and the model predicts no new ones. What cannot be is a ValueError.
    """
    T, prior = point
    found = read_arrays(arrays, _OF_EXAMPLES, K=len(prior), N=n_rows)
    labels, rows = found["labels"].astype(np.intp), found["rows"].astype(np.intp)
    near = Neighbors(found["neighbors"].astype(np.intp), found["distances"])
    if min(labels.min(), rows.min(), near.indices.min()) < 0 or (np.diff(rows) <= 0).any():
        raise ValueError("rows, labels or neighbours are missing")
    data, model = Examples(None, labels, rows, near), None
    if "case" in arrays:
        own = read_arrays(arrays, _OF_MODEL, K=len(prior), c=len(fields(Case)))
        draws = Stored("dKK", "numbers", optional=True).read(arrays.get("draws"))
        if draws is not None and draws.shape[1:] != T.shape:
            raise ValueError("the size of draws does not fit")
        given_h, of_triples = (
            (own[name], own[f"{name}_prior"]) for name in ("given_h", "of_triples")
        )
        case = Case(*own["case"].tolist())
        model = CleanClass(T, prior, labels, found["posterior"], given_h, of_triples, case, draws)
    return data, model, found["posterior"]
