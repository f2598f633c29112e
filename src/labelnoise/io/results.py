"""A fitted estimator in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from labelnoise.io.atomic import write_then_rename
from labelnoise.io.tables import Column, write_table

ESTIMATES = (".json", ".npy", ".csv", ".parquet")


def write_estimate(path: str | os.PathLike[str], est: Any) -> None:
    """Write a fitted estimator: all of it to .json, its T to .npy, .csv or .parquet.

    The matrices of groups and neighbourhoods are one .npy array, or one table with a column that
    says to which group or neighbourhood a row belongs.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        est.save(path)
        return
    K, parts = len(est.classes_), dict[str, Column]()
    T = getattr(est, "transition_matrices_", None)
    if T is None:
        T = est.transition_matrix_
    else:
        name, of = ("group", est.groups_) if hasattr(est, "groups_") else ("part", range(len(T)))
        parts = {name: np.repeat(np.asarray(of), K)}
    if suffix == ".npy":
        with write_then_rename(path) as file:
            np.save(file, T)
        return
    rows = T.reshape(-1, K)
    true = {"true class": np.tile(est.classes_, len(rows) // K)}
    given = {f"labelled {name}": rows[:, j] for j, name in enumerate(est.classes_)}
    write_table(path, {**parts, **true, **given})
