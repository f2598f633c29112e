"""The methods of `paper_tables.py` that are not in the library: peers, bounds, the figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from labelnoise import HOC, feasibility, transition_error
from labelnoise.losses import ForwardLoss, ReweightLoss
from labelnoise.neighbors import nearest_neighbors
from labelnoise.training import Method, Objective, Run, Schedule, method_named
from labelnoise.training.methods import CE, Anchored, Correcting, HOCGlobal
from labelnoise.training.objectives import Corrected, CrossEntropy, Revised, Transitions

TOLD_THE_RATE = ("co-teaching", "co-teaching+", "jocor")
TO_THE_END = Schedule(((0.1, 12), (0.01, 12)), batch_size=256, augment=False)
REVISION = Schedule(((5e-7, 5),), batch_size=256, weight_decay=0.0, optimizer="adam")


class SmoothedLoss(Objective):
    """Cross-entropy with as much mass on the other classes as labels are wrong."""

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing

    def forward(
        self, logits: Sequence[torch.Tensor], labels: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        """Mean loss."""
        return F.cross_entropy(logits[0], labels, label_smoothing=self.smoothing)


@dataclass(kw_only=True)
class Smoothed(Method):
    """Label smoothing, its strength from the estimated T."""

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        est = HOC(refine=False).fit(run.first_representations(), run.data.labels)
        K = run.n_classes
        run.train("final", SmoothedLoss(est.noise_rate_ * K / (K - 1)), run.plan.final)
        return {"transition_matrix": est.transition_matrix_}


class FlooredLoss(ForwardLoss):
    """Where the mean of a batch is below what the right model would have, the gradient turns."""

    floor: float

    def forward(self, *batch: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        """Give the loss."""
        return (super().forward(*batch, **given) - self.floor).abs() + self.floor


@dataclass(kw_only=True)
class Floored(HOCGlobal):
    """HOC Global by a forward loss that does not sink below that of the right model.

    Where classes do not overlap, that is ``-sum_k p_k sum_j T[k, j] ln T[k, j]``.
    """

    def corrected(self, run: Run, transitions: Transitions, loss: Any) -> Corrected:
        """Give what to minimise."""
        prior = transitions.class_prior(run.data.labels)
        entropy = torch.special.entr(transitions.matrices).sum(1).double().numpy()
        loss = FlooredLoss()
        loss.floor = float(prior @ entropy)
        return Corrected(transitions, loss, self.recipe, prior if self.keep_classes else None)


@dataclass(kw_only=True)
class Given(Correcting):
    """Forward correction with a T that is given."""

    T: np.ndarray
    name = "hoc-global"  # and its recipe
    keep_classes: bool = True

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        objective = self.corrected(run, Transitions(self.T), ForwardLoss(q=self.q))
        run.train("final", objective, run.plan.final)
        return {"transition_matrix": self.T}


class Extractor(Method):
    """Cross-entropy until the labels are known by heart, for the representations."""

    name = "feasibility"

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        run.train("final", CrossEntropy(), TO_THE_END)
        return {}


class WatchedRevised(Revised):
    """Says in the log how far the revised T is from the true one."""

    truth: np.ndarray

    def record(self) -> dict[str, Any]:
        """Give the error."""
        T = self.revised(self.transitions.matrices).numpy(force=True)
        return {"error": transition_error(T, self.truth)}


@dataclass(kw_only=True)
class Figure3(Method):
    """T-Revision by two losses, and HOC on the network that the revision begins with."""

    truth: np.ndarray

    def fit(self, run: Run) -> dict[str, Any]:
        """Train for the anchors; with each loss, train and revise."""
        T = Anchored().transition_matrix(run)
        curves, hoc = {}, {}
        for name, loss, revising in (
            ("forward", ForwardLoss(), ForwardLoss()),
            ("reweight", ReweightLoss(), ReweightLoss(through_weight=True)),
        ):
            run.train(name, Corrected(Transitions(T), loss), run.plan.final)
            found = HOC(refine=False).fit(run.representations(), run.data.labels)
            hoc[name] = transition_error(found.transition_matrix_, self.truth)
            objective = WatchedRevised(Transitions(T), revising)
            objective.truth = self.truth
            n_before = len(run.log)
            run.train("final", objective, REVISION, fresh=False)
            errors = [entry["error"] for entry in run.log[n_before:]]
            curves[name] = [transition_error(T, self.truth), *errors]
        return {"curves": curves, "hoc": hoc}


VARIANTS: dict[str, Callable[[np.ndarray], Method]] = {
    "ce, clean labels": lambda truth: CE(),
    "ce, smoothed": lambda truth: Smoothed(),
    "ce, stopped early": lambda truth: CE(),
    "forward, true T": lambda truth: Given(T=truth),
    "forward, T of HOC()": lambda truth: Estimated(),
    "hoc-global, stopped early": lambda truth: method_named("hoc-global"),
    "hoc-global, no class pulled": lambda truth: method_named("hoc-global", keep_classes=False),
    "hoc-global, floor": lambda truth: Floored(),
    "hoc-global, q = .7": lambda truth: method_named("hoc-global", q=0.7),
    "hoc-global, q = 1": lambda truth: method_named("hoc-global", q=1.0),
}


@dataclass(kw_only=True)
class Estimated(Correcting):
    """Forward correction with the T of the default HOC on the first representations."""

    name = "hoc-global"  # and its recipe
    keep_classes: bool = True

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        est = HOC(classes=range(run.n_classes))
        T = est.fit(run.first_representations(), run.data.labels).transition_matrix_
        objective = self.corrected(run, Transitions(T), ForwardLoss(q=self.q))
        run.train("final", objective, run.plan.final)
        return {"transition_matrix": T}


def make_method(name: str, truth: np.ndarray, rate: float) -> Method:
    """Give a method by its name in the tables; some are told the true noise rate."""
    if name in VARIANTS:
        return VARIANTS[name](truth)
    if name == "feasibility":
        return Extractor()
    if name == "figure 3":
        return Figure3(truth=truth)
    return method_named(name, **({"noise_rate": rate} if name in TOLD_THE_RATE else {}))


def feasible_shares(X: np.ndarray, clean: np.ndarray) -> dict[str, float]:
    """Share of feasible triples, among all and in samples of a tenth."""

    def share(X: np.ndarray, clean: np.ndarray) -> float:
        return feasibility(clean, nearest_neighbors(X, 2).indices)

    rng = np.random.default_rng(0)
    samples = [rng.choice(len(X), len(X) // 10, replace=False) for _ in range(10)]
    return {
        "feasible 50k": share(X, clean),
        "feasible 5k": float(np.mean([share(X[s], clean[s]) for s in samples])),
    }
