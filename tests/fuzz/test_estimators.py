"""Whatever an estimator is given, it ends in a T that is one, or in one sentence."""

import datetime
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning

from labelnoise import HOC, AnnotatorHOC, ForwardClassifier, GroupHOC, LocalHOC
from tests.conftest import clusters
from tests.fuzz.trials import content, nothing_else_changes, result, trials

TYPES = ["f8", "f4", "f2", "i1", "u1", "i8", "u8", "?", ">f4", ">f8", "g"]
WRONG_TYPES = ["O", "U", "c16", "M8[s]"]
WORDS = ["cat", "dog", "", " ", "=1+1", "<b>", "é", "\ud800", "a\nb", "\0", "nan", "None"]
NUMBERS = [0, 1, -1, 7, 2**31, 2**63 - 1, 2**64, 2.0, 0.5, 1e300, float("nan"), float("inf")]
ODD = [None, True, b"x", (1,), datetime.date(2020, 1, 1), pd.NA, pd.NaT, np.float32(3), 1j]
SCALES = [1.0, 0.0, -1.0, 1e-320, 1e-200, 1e-100, 1e-30, 1e-9, 1e9, 1e60, 1e154, 1e200, 1e300]
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
    "nullable": lambda X: pd.DataFrame(as_floats(X)).convert_dtypes(),
    "arrow": lambda X: pa.table({str(i): column for i, column in enumerate(as_floats(X).T)}),
    "tensor": lambda X: torch.tensor(as_floats(X), requires_grad=True),
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
        X[:, : draw(st.integers(0, d - 1))] *= draw(st.sampled_from(SCALES))
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
        form = draw(
            st.sampled_from(["i8", "u1", "f4", "U3", "O", "words", "missing", "Int8", "category"])
        )
        if form == "words":
            return [WORDS[i] for i in y]
        if form == "missing":
            return [None if i == 0 and rng.random() < 0.3 else i for i in y.tolist()]
        return pd.Series(y, dtype=form) if form in ("Int8", "category") else y.astype(form)
    form = draw(st.sampled_from(["pool", "array", "column", "pandas", "length", "i8"]))
    if form == "pool":
        pool = draw(st.sampled_from([WORDS, NUMBERS, ODD, WORDS + ODD, NUMBERS + ODD]))
        return [pool[i] for i in rng.integers(0, len(pool), n)]
    if form == "array":
        return y.astype(draw(st.sampled_from(["?", "S3", "M8[D]", "c16", "V8", "f2"])))
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
    ones = np.ones(n)
    broken = graph.copy()
    broken.indices = broken.indices + n
    right = {
        "neighbors": [ring, graph],
        "sources": [np.arange(n), np.arange(n) // 3],
        "center_weight": [
            ones,
            np.arange(n),
            ones * 1e-300,
            np.where(ones.cumsum() % 2, 1e-300, 1e300),
        ],
    }
    wrong = {
        "neighbors": [ring - 1, ring + 1, ring[:, :1], ring[1:], ring / 2, -graph, broken, 7, "x"],
        "sources": [np.zeros(n), [None] * n, WORDS, 7],
        "center_weight": [
            np.zeros(n),
            -np.ones(n),
            [np.nan] * n,
            "x",
            ring,
            np.full(n, 1e308),
            1j * ones,
        ],
    }
    name = draw(st.sampled_from([None, None, None, *right]))
    return {} if name is None else {name: draw(st.sampled_from((right if usual else wrong)[name]))}


ESTIMATORS = {
    "HOC": lambda draw: HOC(**draw(settings_of_hoc(True))),
    "triples": lambda draw: HOC(
        refine=False, solver=draw(st.sampled_from(["likelihood", "moments"]))
    ),
    "odd HOC": lambda draw: HOC(**draw(settings_of_hoc(False))),
    "paper": lambda _: HOC.paper(n_rounds=2, sample_size=20, random_state=0),
    "local": lambda _: LocalHOC(n_local=3, local_size=10, random_state=0),
    "groups": lambda draw: GroupHOC(shrinkage=draw(st.sampled_from(["auto", 0, 3.0, -1, "x"]))),
    "annotators": lambda draw: AnnotatorHOC(per_annotator=draw(st.booleans())),
    "forward": lambda _: ForwardClassifier(),
}


@st.composite
def arguments(draw, name, usual):
    """What `fit` is given, by the estimator's name."""
    n = draw(SIZES[usual])
    X, y = draw(features(n, usual)), draw(labels(n, usual))
    if name == "annotators":
        several = [y, draw(labels(n, usual)), y]
        rows = [list(row) for row in zip(*several, strict=False)]
        return {"labels": rows} | ({"X": X} if draw(st.booleans()) else {})
    if name == "groups":
        return {"X": X, "y": y, "groups": draw(labels(n, usual))}
    more = draw(beside(n, usual)) if name in ("HOC", "triples", "odd HOC") else {}
    return {"X": X, "y": y, **more}


def expect_probabilities(*arrays):
    for array in arrays:
        assert np.isfinite(array).all()
        assert array.min() >= 0
        np.testing.assert_allclose(array.sum(axis=-1), 1, atol=1e-9)


def refused(call):
    """What a call gives, or None: refused by this project, or by scikit-learn's own checks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataConversionWarning)  # of y in a column
        return result(call)


def expect_usable(est, X):
    """What follows a fit works or is refused, and says what can be."""
    fitted = vars(est)
    expect_probabilities(
        *(fitted[n] for n in ("transition_matrix_", "class_prior_") if n in fitted)
    )
    assert str(est).encode()
    for call in ("confidence_interval", "suspects", "predict_proba"):
        if hasattr(est, call) and not isinstance(est, ForwardClassifier):
            found = refused(getattr(est, call))
            if call == "predict_proba" and found is not None:
                expect_probabilities(found)
    if hasattr(est, "noise_rate_"):
        assert -1e-9 <= est.noise_rate_ <= 1 + 1e-9


@pytest.mark.parametrize("name", ESTIMATORS)
@trials(8)
@given(data=st.data(), usual=st.booleans())
def test_any_input_ends_in_a_t_or_a_sentence(name, data, usual):
    """Rows of T sum to 1, whatever went in; a second fit gives the same, and is refused alike."""
    est, given = ESTIMATORS[name](data.draw), data.draw(arguments(name, usual))
    with nothing_else_changes(given):
        if refused(lambda: est.fit(**given)) is None:
            left = {attribute for attribute in vars(est) if attribute.endswith("_")}
            of_sklearn = {"n_features_in_", "feature_names_in_"}
            assert left <= (of_sklearn if name in ("forward", "annotators") else set())
            return
        expect_usable(est, given.get("X"))
        before = str(est)
        wrong = dict(given)
        wrong[data.draw(st.sampled_from([*given]))] = data.draw(st.sampled_from([None, [], 7, "x"]))
        if refused(lambda: est.fit(**wrong)) is None:
            assert str(est) == before
            again = type(est)(**est.get_params())
            assert refused(lambda: again.fit(**given)) is not None
            assert str(again) == before


@trials(12)
@given(data=st.data(), name=st.sampled_from(["HOC", "triples", "local", "groups"]))
def test_what_is_stored_comes_back(tmp_path_factory, data, name):
    """A file says the same as the estimate that was saved, or saving was refused."""
    est, given = ESTIMATORS[name](data.draw), data.draw(arguments(name, True))
    path = tmp_path_factory.mktemp("stored") / "a.json"
    with nothing_else_changes(given):
        if refused(lambda: est.fit(**given)) is not None:
            est.save(path)
            assert content(type(est).load(path).to_dict()) == content(est.to_dict())
