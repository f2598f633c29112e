"""Whatever arrays and settings `HOC` is given, it ends in a T that is one, or in one sentence."""

import datetime
import warnings
from contextlib import suppress

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning

from labelnoise import HOC, GroupHOC, LabelNoiseError, LocalHOC
from labelnoise._errors import LabelNoiseWarning
from tests.conftest import clusters
from tests.fuzz.trials import trials

TYPES = ["f8", "f4", "f2", "i1", "u1", "i8", "u8", "?", ">f4", ">f8", "g"]
WRONG_TYPES = ["O", "U", "c16", "M8[s]"]
WORDS = ["cat", "dog", "", " ", "=1+1", "<b>", "é", "\ud800", "a\nb", "\0", "nan", "None"]
NUMBERS = [0, 1, -1, 7, 2**31, 2**63 - 1, 2**64, 2.0, 0.5, 1e300, float("nan"), float("inf")]
ODD = [None, True, b"x", (1,), datetime.date(2020, 1, 1), pd.NA, pd.NaT, np.float32(3), 1j]
SCALES = [1.0, 0.0, -1.0, 1e-320, 1e-300, 1e-30, 1e-9, 1e9, 1e30, 1e154, 1e300]
SIZES = {True: st.sampled_from([40, 60, 30, 20, 90]), False: st.integers(0, 30)}


def frozen(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def as_floats(X):
    return X.astype(float) if X.dtype.kind in "fiub" else np.zeros(X.shape)


FORMS = {
    "as it is": lambda X: X,
    "fortran": np.asfortranarray,
    "view": lambda X: np.repeat(X, 2, axis=0)[::2],
    "backwards": lambda X: X[::-1, ::-1],
    "frozen": frozen,
    "copies": lambda X: X[np.arange(len(X)) // 2],
    "list": lambda X: X.tolist(),
    "pandas": lambda X: pd.DataFrame(as_floats(X)),
    "polars": lambda X: pl.DataFrame(as_floats(X)),
}
WRONG_FORMS = {
    "masked": lambda X: np.ma.masked_array(X, X == X),
    "sparse": lambda X: sp.csr_array(as_floats(X)),
    "one axis": np.ravel,
    "no columns": lambda X: X[:, :0],
    "three axes": lambda X: X[None],
    "other length": lambda X: X[1:],
    "none": lambda X: None,
    "text": str,
    "number": len,
}


@st.composite
def features(draw, n, usual):
    """Clusters in many forms: all of them tables of numbers, if they are to be usual."""
    d, seed = draw(st.integers(1, 6)), draw(st.integers(0, 99))
    X, _ = clusters(draw(st.integers(1, 4)), n, seed, draw(st.sampled_from([0.0, 1.0, 9.0])), d)
    X[:, : draw(st.integers(0, d - 1))] = draw(st.sampled_from([0.0, 1.0, 1e6]))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X *= draw(st.sampled_from(SCALES))
        X[: draw(st.integers(0, n))] *= draw(st.sampled_from(SCALES))
        X = X.astype(draw(st.sampled_from(TYPES if usual else WRONG_TYPES + TYPES)))
        if not usual and X.size and X.dtype.kind == "f":
            X[0, 0] = draw(st.sampled_from([0, np.nan, np.inf, -np.inf]))
    forms = FORMS if usual else FORMS | WRONG_FORMS
    return forms[draw(st.sampled_from([*forms]))](X)


@st.composite
def labels(draw, n, usual):
    """Class numbers; or words, and what no one would call a label."""
    rng, K = np.random.default_rng(draw(st.integers(0, 99))), draw(st.sampled_from([2, 3, 5, 9]))
    y = np.minimum(rng.geometric(draw(st.sampled_from([0.1, 0.5, 0.9])), n) - 1, K - 1)
    if usual:
        form = draw(st.sampled_from(["i8", "u1", "f4", "U3", "O", "words", "missing", "Int8"]))
        if form == "words":
            return [WORDS[i] for i in y]
        if form == "missing":
            return [None if i == 0 and rng.random() < 0.3 else i for i in y.tolist()]
        return pd.Series(y, dtype=form) if form == "Int8" else y.astype(form)
    form = draw(st.sampled_from(["pool", "array", "column", "pandas", "length", "i8"]))
    if form == "pool":
        pool = draw(st.sampled_from([WORDS, NUMBERS, ODD, WORDS + ODD, NUMBERS + ODD]))
        return [pool[i] for i in rng.integers(0, len(pool), n)]
    if form == "array":
        return y.astype(draw(st.sampled_from(["?", "S3", "M8[D]", "c16", "V8"])))
    if form == "column":
        return y[:, None]
    if form == "pandas":
        return pd.Series(y, dtype=draw(st.sampled_from(["category", "string", "object"])))
    return y[1:] if form == "length" else y


@st.composite
def settings_of_hoc(draw, usual):
    """Up to two; right ones, if they are to be usual."""
    right = {
        "refine": st.booleans(),
        "solver": st.sampled_from(["likelihood", "moments"]),
        "n_neighbors": st.integers(2, 5),
        "metric": st.sampled_from(["cosine", "euclidean"]),
        "soft": st.sampled_from([None, 0.05, "estimate", "one number"]),
        "unlabeled": st.sampled_from([None, -1, 0, "cat", np.nan]),
        "n_rounds": st.sampled_from([None, 2]),
        "random_state": st.sampled_from([None, 0]),
    }
    wrong = [None, -1, 0, 1, 3, 1.5, np.nan, "x", "ab", (), [0, 1], [0, 0], np.eye(2), object]
    names = [*right] if usual else [*right, "classes", "sample_size"]
    chosen = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    return {name: draw(right[name] if usual else st.sampled_from(wrong)) for name in chosen}


@st.composite
def beside(draw, n, usual):
    """Neighbours, sources and weights: mostly none."""
    ring = (np.arange(n)[:, None] + [1, 2, 3]) % max(n, 1)
    graph = sp.csr_array((np.ones(3 * n), (np.repeat(np.arange(n), 3), ring.ravel())), (n, n))
    right = {
        "neighbors": [ring, graph],
        "sources": [np.arange(n), np.arange(n) // 3],
        "center_weight": [np.ones(n), np.arange(n)],
    }
    wrong = {
        "neighbors": [ring - 1, ring + 1, ring[:, :1], ring[1:], ring / 2, -graph, 7, "x"],
        "sources": [np.zeros(n), [None] * n, WORDS, 7],
        "center_weight": [np.zeros(n), -np.ones(n), [np.nan] * n, "x", ring],
    }
    name = draw(st.sampled_from([None, None, None, *right]))
    return {} if name is None else {name: draw(st.sampled_from((right if usual else wrong)[name]))}


def expect_probabilities(*arrays):
    for array in arrays:
        assert np.isfinite(array).all()
        assert array.min() >= 0
        np.testing.assert_allclose(array.sum(axis=-1), 1, atol=1e-9)


def expect_result_or_sentence(call):
    """The result of a call; None where it ended in the project's own error."""
    with suppress(LabelNoiseError):
        return call()


def fit(est, X, y, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)
        warnings.simplefilter("ignore", DataConversionWarning)  # of y in a column
        return expect_result_or_sentence(lambda: est.fit(X, y, **more))


@trials(20)
@given(st.data(), st.booleans())
def test_any_input_ends_in_a_t_or_a_sentence(data, usual):
    """Rows of T sum to 1, whatever went in; and what follows a fit works too."""
    n = data.draw(SIZES[usual])
    X, y = data.draw(features(n, usual)), data.draw(labels(n, usual))
    est = HOC(**data.draw(settings_of_hoc(usual)))
    est = fit(est, X, y, **data.draw(beside(n, usual)))
    if est is None:
        return
    expect_probabilities(est.transition_matrix_, est.class_prior_, est.inverse_transition_matrix_)
    assert -1e-9 <= est.noise_rate_ <= 1
    assert str(est)
    interval = expect_result_or_sentence(est.confidence_interval)
    if interval is not None:
        assert np.isfinite(interval.transition_matrix).all()
    posterior = expect_result_or_sentence(est.predict_proba)
    if posterior is not None:
        expect_probabilities(posterior)
        assert expect_result_or_sentence(est.suspects) is not None


@trials(10)
@given(st.data(), st.booleans(), st.booleans())
def test_any_groups_and_neighbourhoods(data, usual, local):
    """The estimators of many matrices keep to the same."""
    n = data.draw(SIZES[usual])
    X, y = data.draw(features(n, usual)), data.draw(labels(n, usual))
    if local:
        est = fit(LocalHOC(random_state=0), X, y)
    else:
        est = fit(GroupHOC(), X, y, groups=data.draw(labels(n, usual)))
    if est is not None:
        expect_probabilities(est.transition_matrices_)
