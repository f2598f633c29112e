"""Scores against the truth, and other tools' conventions."""

import numpy as np
import pytest

from labelnoise import (
    LabelNoiseError,
    feasibility,
    from_cleanlab,
    to_cleanlab,
    transition_error,
)
from labelnoise.scores import true_transition_matrix
from tests.conftest import pair_matrix


def test_error_is_the_mean_absolute_row_difference():
    """Two rows off by .2 in two places each: .4."""
    T = np.array([[0.8, 0.2], [0.2, 0.8]])
    assert transition_error(np.eye(2), T) == pytest.approx(0.4)
    assert transition_error(T, T) == 0
    assert transition_error(np.eye(2), np.eye(2)[::-1]) == 2


def test_true_t_is_counted():
    """T from clean and noisy labels; a class that does not occur is left as it is."""
    T = true_transition_matrix([0, 0, 0, 0, 1], [0, 0, 0, 1, 1], 3)
    np.testing.assert_array_equal(T, [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 1]])


def test_feasibility_looks_at_two_neighbours():
    """Both neighbours must share the clean label; a third does not count."""
    clean = np.array(["a", "a", "a", "b"])
    neighbors = np.array([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 1, 2]])
    assert feasibility(clean, neighbors) == 0.5


def test_cleanlab_has_columns_where_we_have_rows():
    """The converters transpose, there and back, and catch a matrix the wrong way round."""
    T = pair_matrix(3, 0.2)
    T[0] = [0.6, 0.3, 0.1]
    np.testing.assert_array_equal(to_cleanlab(T), T.T)
    np.testing.assert_array_equal(from_cleanlab(to_cleanlab(T)), T)
    with pytest.raises(LabelNoiseError, match="transposed"):
        to_cleanlab(T.T)
    with pytest.raises(LabelNoiseError, match="transposed"):
        from_cleanlab(T)


@pytest.mark.parametrize(
    "call",
    [
        lambda: transition_error(np.eye(2), np.eye(3)),
        lambda: transition_error(np.ones((2, 3)), np.ones((2, 3))),
        lambda: feasibility([0, 1], [[0]]),
        lambda: true_transition_matrix([0, 1], [0], 2),
        lambda: to_cleanlab(np.ones((2, 3))),
    ],
)
def test_bad_shapes(call):
    """Shapes that do not fit are said."""
    with pytest.raises(LabelNoiseError, match="shape"):
        call()
