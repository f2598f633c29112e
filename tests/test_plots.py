"""The pictures show the numbers of the estimate."""

import sys

import matplotlib as mpl
import numpy as np
import pytest

from labelnoise import HOC, LabelNoiseError
from labelnoise.noise import symmetric
from labelnoise.plots import plot_local_errors, plot_matrix
from labelnoise.report.data import short_percent
from tests.conftest import clusters

mpl.use("Agg")
from matplotlib import pyplot


@pytest.fixture(scope="module")
def est():
    """An estimate with classes whose names would be formulas or markup."""
    X, y = clusters(3, 600, seed=0)
    names = np.array(["$x_", "b", "c"])
    est = HOC(classes=names).fit(X, names[symmetric(y, 0.2, random_state=0).labels])
    est.diagnose()
    return est


@pytest.fixture
def ax():
    """Axes that are closed again."""
    figure, ax = pyplot.subplots()
    yield ax
    figure.canvas.draw()  # whatever cannot be drawn fails here
    pyplot.close("all")


def test_matrix(est, ax):
    """T[i, j] is in row i, column j, and the rows are named."""
    assert est.plot(ax) is ax
    texts = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in ax.texts}
    assert texts[0, 2] == short_percent(est.transition_matrix_[0, 2])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["$x_", "b", "c"]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("true class", "label")
    wrong, right = (image.get_array() for image in ax.images)
    assert wrong.mask.diagonal().all()
    np.testing.assert_array_equal(right.compressed(), np.diag(est.transition_matrix_))


def test_local_errors(ax):
    """A histogram of local errors, with their mean and the global error as lines."""
    errors = np.array([0.1, 0.12, 0.14, 0.08])
    plot_local_errors(errors, 0.097, ax)
    assert sum(bar.get_height() for bar in ax.patches) == 4
    assert [line.get_xdata()[0] for line in ax.lines] == [pytest.approx(0.11), 0.097]


def test_new_axes_and_no_matplotlib(est, monkeypatch):
    """Without axes there are new ones; without matplotlib, the command that brings it."""
    assert plot_matrix(est).figure is not plot_matrix(est).figure
    pyplot.close("all")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(LabelNoiseError, match=r"pip install '\.\[plots\]'"):
        est.plot()
