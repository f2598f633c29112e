"""Labels of any kind become class numbers, or are refused in one sentence at the door."""

import datetime

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from labelnoise import HOC, LabelNoiseError
from labelnoise.labels import encode_labels
from tests.conftest import clusters


@pytest.mark.parametrize(
    ("y", "numbers", "classes"),
    [
        (np.array([2, 1, 2], np.float16), [1, 0, 1], [1, 2]),
        (np.array([65504, 1], np.float16), [1, 0], [1, 65504]),
        (np.array([2, 1, 2], np.longdouble), [1, 0, 1], [1, 2]),
        ([" a", "a", None], [0, 1, -1], [" a", "a"]),
        ([True, False, pd.NA], [1, 0, -1], [False, True]),
        (pd.Series(["b", None, "a"], dtype="category"), [1, -1, 0], ["a", "b"]),
        (pd.Series([3, None, 1], dtype="Int64"), [1, -1, 0], [1, 3]),
    ],
)
def test_labels_become_numbers(y, numbers, classes):
    """Whatever holds them; missing ones are -1."""
    found, names = encode_labels(y)
    assert (found.tolist(), names.tolist()) == (numbers, classes)


@pytest.mark.parametrize(
    ("y", "problem"),
    [
        (["a", "a\0"], r"without NUL characters, but there is 'a\\x00'"),
        (["a", "\ud800"], "Unicode text"),
        ([b"a", b"b"], "bytes. Convert them with str"),
        (np.array(["a", "b"], "S"), r"\|S1: convert them with astype"),
        ([datetime.date(2020, 1, 1)] * 2, "date. Convert them with str"),
        (np.array(["2020", "2021"], "M8[D]"), "datetime64.*: convert them with astype"),
        ([1.0, np.inf], "infinity"),
        ([1.5, 2], "fractional"),
    ],
)
def test_what_is_no_label(y, problem):
    with pytest.raises(LabelNoiseError, match=problem):
        encode_labels(y)


@pytest.mark.parametrize("unlabeled", [np.nan, None, pd.NA, np.float32("nan")])
def test_missing_values_name_no_label(tmp_path, unlabeled):
    """They are unlabelled anyway; a stored estimate has none."""
    X, y = clusters(2, 200, 0)
    HOC(refine=False, unlabeled=unlabeled).fit(X, y).save(tmp_path / "a.json")
    assert HOC.load(tmp_path / "a.json").unlabeled is None


@pytest.mark.parametrize("unlabeled", [np.inf, b"x", [1], np.array([1, 2]), 1j, object()])
def test_what_cannot_name_a_label(unlabeled):
    with pytest.raises(LabelNoiseError, match="Expected unlabeled to be one label"):
        encode_labels([0, 1, 1], unlabeled=unlabeled)


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e-30, 1e30, 1e60, 1e200])
def test_a_column_of_another_size(scale):
    """A column too small to change a distance changes nothing; one that is huge decides alone."""
    X, y = clusters(3, 200, 0, d=4)
    X[:, 3] *= scale
    others = X * ([1, 1, 1, 0] if scale < 1 else [0, 0, 0, 1])
    T, expected = (HOC(metric="euclidean").fit(rows, y).transition_matrix_ for rows in (X, others))
    np.testing.assert_allclose(T, expected, atol=1e-6)


def test_tensors_are_features():
    """With a gradient or of half precision, as networks give them."""
    X, y = clusters(3, 200, 0)
    tensor = torch.tensor(X, dtype=torch.float32)
    expected = HOC(refine=False).fit(tensor.numpy(), y).transition_matrix_
    found = HOC(refine=False).fit(tensor.requires_grad_(), y).transition_matrix_
    np.testing.assert_array_equal(found, expected)
    half = HOC(refine=False).fit(tensor.detach().bfloat16(), y).transition_matrix_
    np.testing.assert_allclose(half, expected, atol=0.05)


@pytest.mark.parametrize(
    "weight", [np.full(30, 1e308), np.full(30, 1e-300), 1j * np.ones(30), ["1"] * 30, np.zeros(30)]
)
def test_weights_that_cannot_be(weight):
    X, y = clusters(2, 30, 0)
    with pytest.raises(LabelNoiseError, match="Expected center_weight to be"):
        HOC(refine=False).fit(X, y, center_weight=weight)


@pytest.mark.parametrize("shift", [30, -30, 10**6])
def test_graphs_with_rows_that_are_not_there(shift):
    """SciPy does not look, and reads beyond its arrays."""
    _, y = clusters(2, 30, 0)
    ring = ((np.arange(30)[:, None] + [1, 2, 3]) % 30).ravel()
    graph = sp.csr_array((np.ones(90), ring, np.arange(0, 91, 3)), (30, 30))
    graph.indices = graph.indices + shift
    with pytest.raises(LabelNoiseError, match="row numbers from 0 to n_samples - 1"):
        HOC(refine=False).fit(None, y, neighbors=graph)
