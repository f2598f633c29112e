"""What solvers share: their settings, what they give, and the searches EM, L-BFGS and Adam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.optimize import minimize

State = TypeVar("State")


@dataclass(frozen=True)
class Settings:
    """What a solver may be told; see `labelnoise.solvers.solve`."""

    start: tuple[np.ndarray, np.ndarray] | None = None
    tol: float | None = None
    n_steps: int | None = None
    rng: np.random.Generator | None = None


@dataclass(frozen=True)
class Fit:
    """What a solver found, its rows in the order that the search ended with."""

    T: np.ndarray
    p: np.ndarray
    start: str
    loss: float = np.inf
    """Of what the solver minimises."""
    steps: int = 0
    converged: bool = False


@dataclass(frozen=True)
class Minimum:
    """Where L-BFGS ended."""

    x: np.ndarray
    value: float
    evaluations: int
    converged: bool


def em(
    step: Callable[[State], State],
    state: State,
    most_steps: int,
    settled: Callable[[State, State], bool] | None = None,
) -> tuple[State, int, bool]:
    """Repeat an EM step: the last state, how many steps were taken, and whether it settled.

    ``settled(before, after)`` says when to stop; without it all steps are taken.
    """
    for done in range(1, most_steps + 1):
        before, state = state, step(state)
        if settled is not None and settled(before, state):
            return state, done, True
    return state, most_steps, False


def lbfgs(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    most_steps: int,
    gradient: float,
    gain: float,
) -> Minimum:
    """Minimise a function that gives its value and its gradient.

    Stops when no component of the gradient exceeds `gradient`, or a step gains less than `gain`.
    """
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": most_steps,
            "maxfun": 2 * most_steps,
            "ftol": gain,
            "gtol": gradient,
            "maxcor": 20,
        },
    )
    # Status 1: out of steps. 2: the line search found nothing better, at the limit of rounding.
    return Minimum(found.x, float(found.fun), int(found.nfev), found.status != 1)


def adam(
    gradient: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
    steps: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise L problems together: each one's best iterate (a copy), and its loss.

    ``gradient(x, step)`` gives the losses (L,) and the slopes, of the shape of x (L, ...).
    """
    x, (slow, slower), rate = start, (0.9, 0.999), 0.1  # the paper's rate
    momentum, square = np.zeros_like(x), np.zeros_like(x)
    best, best_loss = x.copy(), np.full(len(x), np.inf)
    for step in range(1, steps + 1):
        loss, slope = gradient(x, step)
        better = loss < best_loss
        best[better], best_loss[better] = x[better], loss[better]
        momentum = slow * momentum + (1 - slow) * slope
        square = slower * square + (1 - slower) * slope**2
        scale = np.sqrt(square / (1 - slower**step)) + 1e-8
        x = x - rate * momentum / (1 - slow**step) / scale
    return best, best_loss
