"""Diagnostics: each speaks where it should, is silent elsewhere, and names what it found."""

import numpy as np
import pytest

from labelnoise import Consensus
from labelnoise.checks import check_fit, check_guarantee, check_rows
from labelnoise.solvers import solve
from tests.conftest import symmetric_matrix

ANIMALS = np.array(["cat", "dog", "fox"])


def test_weak_rows_are_those_whose_intervals_overlap():
    """The row that could have its maximum elsewhere is named, with what it is confused with."""
    T = np.array([[0.8, 0.1, 0.1], [0.2, 0.45, 0.35], [0.1, 0.1, 0.8]])
    interval = np.array([T - 0.1, T + 0.1])
    finding = check_rows(T, interval, ANIMALS)
    assert not finding.ok
    assert finding.value == pytest.approx(0.35 - 0.45)
    assert "dog is labelled dog 35% to 55% of the time, and fox 25% to 45%" in finding.sentence
    assert check_rows(T, np.array([T - 0.04, T + 0.04]), ANIMALS).ok


def test_guarantee_is_theorem_2():
    """With even classes and even noise, ``T_ii > (1 - 1/K + (K-1)/K) / (K-1)``."""
    for rate, holds in ((0.3, True), (0.36, False)):
        T = symmetric_matrix(3, rate)
        finding = check_guarantee(T, np.full(3, 1 / 3), ANIMALS)
        assert finding.value == pytest.approx(1 - rate - (2 / 3 + 2 / 3) / 2)
        assert (finding.value > 0) == holds
        assert finding.ok, "it is sufficient, not necessary"


def test_guarantee_names_the_rare_class():
    """A class of one in a hundred is not covered, whatever its noise."""
    sentence = check_guarantee(np.eye(3), np.array([0.495, 0.495, 0.01]), ANIMALS).sentence
    assert "does not cover fox, which is rare" in sentence


def test_fit_names_the_labels_that_fit_worst():
    """A cat, a dog and a fox that are found together more often than any T explains are named."""
    model = Consensus.from_model(symmetric_matrix(3, 0.2), np.full(3, 1 / 3), 20_000)
    solution = solve(model)
    assert check_fit(model, solution, classes=ANIMALS).ok
    extra = Consensus.from_labels(np.tile([0, 1, 2], (2000, 1)), 3)
    finding = check_fit(model + extra, solve(model + extra), classes=ANIMALS)
    assert not finding.ok
    assert "labels cat, dog, fox (2960 times" in finding.sentence
    assert "p = " in finding.sentence
