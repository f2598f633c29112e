"""A file that loads can be printed, reported and saved again, whoever changed it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelnoise import HOC, AnnotatorHOC, GroupHOC, LocalHOC
from labelnoise.report import report_of
from tests.conftest import clusters
from tests.fuzz.trials import nothing_else_changes, result, trials

X, Y = clusters(3, 60, 0, d=3)
ODD = [None, True, False, 0, 1, -1, 2, 0.5, -0.1, 1e-300, 1e308, 10**30, "", "x", "a\0", "\ud800"]
ODD += [[], {}, [[]], [1, 2], ["a", "a"], "<script>", "1", {"a": 1}, [None], [[0.5, 0.5]] * 2]
RAW = ["NaN", "Infinity", "-Infinity", "1e999", "[" * 2000, "9" * 5000]


KINDS = [HOC, HOC, GroupHOC, LocalHOC, AnnotatorHOC]


def fitted():
    """An estimate of each of these kinds."""
    names = np.array(["cat", "dog", "owl"])[Y]
    groups = np.arange(60) % 2
    three = np.column_stack([Y, Y, np.roll(Y, 1)])
    return [
        HOC(refine=False, unlabeled=np.nan, random_state=0).fit(X, names),
        HOC(classes=[0, 1, 2]).fit(X, Y),
        GroupHOC().fit(X, Y, groups=groups),
        LocalHOC(n_local=4, local_size=20, random_state=0).fit(X, Y),
        AnnotatorHOC().fit(three),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files of estimates of each kind, by their numbers."""
    folder = tmp_path_factory.mktemp("stored")
    with nothing_else_changes():
        for number, est in enumerate(fitted()):
            est.save(folder / f"{number}.json")
    return folder


def paths(content, path=()):
    """The places in nested JSON."""
    yield path
    if isinstance(content, dict | list):
        for key, value in _items(content):
            yield from paths(value, (*path, key))


def tampered(text, data):
    """One to three values replaced, removed or copied."""
    content = json.loads(text)
    for _ in range(data.draw(st.integers(1, 3))):
        places = sorted({path[:3] for path in paths(content) if path}, key=repr)
        *above, key = data.draw(st.sampled_from(places))
        inner = content
        for step in above:
            inner = inner[step]
        how = data.draw(st.sampled_from(["odd", "odd", "raw", "remove", "swap"]))
        if how == "odd":
            inner[key] = data.draw(st.sampled_from(ODD))
        elif how == "raw":
            inner[key] = f"RAW{data.draw(st.sampled_from(RAW))}"
        elif how == "remove":
            del inner[key]
        else:
            other = data.draw(st.sampled_from([k for k, _ in _items(inner)]))
            inner[key], inner[other] = inner[other], inner[key]
        if not content:
            break
    changed = json.dumps(content)
    for raw in RAW:
        changed = changed.replace(f'"RAW{raw}"', raw)
    return changed


def _items(content):
    return content.items() if isinstance(content, dict) else enumerate(content)


@trials(120)
@given(st.data(), st.integers(0, 4))
def test_what_loads_can_be_used(folder, data, number):
    """Printed, reported, saved; and loaded again, it says the same."""
    path, kind = folder / "tampered.json", KINDS[number]
    path.write_text(tampered((folder / f"{number}.json").read_text(), data))
    with nothing_else_changes():
        est = result(lambda: kind.load(path))
        if est is None:
            return
        assert str(est).encode()
        page = report_of(est).to_html()
        assert page.encode()
        assert "<script>alert" not in page
        est.save(path)
        assert str(kind.load(path)) == str(est)
