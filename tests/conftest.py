"""Data and models that several tests use."""

import sys

import numpy as np
import pytest
from scipy.stats import rankdata

from labelnoise import Consensus, cli, transition_error
from labelnoise.solvers.triples import draw_triples


def symmetric_matrix(K, rate):
    return (1 - rate) * np.eye(K) + rate / (K - 1) * (1 - np.eye(K))


def pair_matrix(K, rate, background=0.0):
    """Class i to i + 1 with the given rate, and a background of uniform noise."""
    T = (1 - rate) * np.eye(K) + rate * np.roll(np.eye(K), 1, axis=1)
    return (1 - background) * T + background / K


def random_matrix(K, rng):
    return 0.5 * np.eye(K) + 0.5 * rng.dirichlet(np.ones(K), K)


def imbalanced_prior(K, ratio):
    p = np.geomspace(1, ratio, K)
    return p / p.sum()


def sampled_consensus(T, p, n, seed):
    """Count n triples drawn from the model."""
    rng = np.random.default_rng(seed)
    return Consensus.from_labels(draw_triples(T, p, n, rng), len(p))


def clusters(K, n, seed, separation=4.0, d=16):
    """Gaussian clusters, far enough apart that neighbours share their class."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((K, d)) * separation
    y = rng.integers(0, K, n)
    return centres[y] + rng.standard_normal((n, d)), y


def noise_on_unclear(X, y, rate, seed):
    """Labels that are wrong where an example is about as near to the centre of another class."""
    rng = np.random.default_rng(seed)
    centres = np.stack([X[y == k].mean(axis=0) for k in range(y.max() + 1)])
    far = ((X[:, None] - centres) ** 2).sum(axis=2)
    own = far[np.arange(len(y)), y]
    far[np.arange(len(y)), y] = np.inf
    unclear = rankdata(own - far.min(axis=1)) / len(y)
    wrong = rng.random(len(y)) < 4 * rate * unclear**3
    return np.where(wrong, far.argmin(axis=1), y)


def trivial_error(T, y, labels):
    """The error of the better of two constant answers: no noise, symmetric at the true rate."""
    answers = np.eye(len(T)), symmetric_matrix(len(T), (labels != y).mean())
    return min(transition_error(answer, T) for answer in answers)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command line in this process; gives status, output and error output."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["labelnoise", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code or 0, *capsys.readouterr()

    monkeypatch.setenv("COLUMNS", "100")
    return run
