"""Every method of the paper's tables: its trainings, and where its T comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.baselines import anchor_points
from labelnoise.hoc import HOC
from labelnoise.local import LocalHOC
from labelnoise.losses import DMILoss, ForwardLoss, GCELoss, ReweightLoss
from labelnoise.training.balance import balanced_batches
from labelnoise.training.engine import Run
from labelnoise.training.objectives import (
    CORES,
    Corrected,
    CoTeaching,
    CrossEntropy,
    JoCoR,
    Peer,
    Revised,
    Robust,
    Transitions,
)
from labelnoise.training.part_dependent import part_dependent
from labelnoise.training.schedules import Schedule

_MANY_CLASSES = 100  # with so many, anchor points are the plain maxima
_CLOTHING_ESTIMATES = 5


def _triples_alone() -> HOC:
    """Not refined: representations were learnt from the noisy labels."""
    return HOC(refine=False)


@dataclass
class Method:
    """A way to learn from noisy labels; `fit` says which trainings it takes."""

    name: ClassVar[str]

    def fit(self, run: Run) -> dict[str, Any]:
        """Train; give what was learnt beside the networks, such as ``transition_matrix``."""
        raise NotImplementedError


@dataclass
class CE(Method):
    """Cross-entropy on the noisy labels: what the others are to beat."""

    name = "ce"

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        run.train("final", CrossEntropy(), run.plan.final)
        return {}


@dataclass
class GCE(Method):
    """Generalised cross-entropy, L_q.

    Parameters
    ----------
    q : float
        From 0 (cross-entropy) to 1 (mean absolute error).
    truncation : float, optional
        Examples whose label's probability is below do not count.
    """

    name = "gce"
    q: float = 0.7
    truncation: float | None = None

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        run.train("final", Robust(GCELoss(self.q, self.truncation)), run.plan.final)
        return {}


@dataclass
class PeerLossMethod(Method):
    """Peer loss: the gain over answering at random.

    Parameters
    ----------
    alpha : float
        Weight of the random pairs.
    ramp_share : float
        Share of the epochs over which the weight rises from 0.
    """

    name = "peer"
    alpha: float = 1.0
    ramp_share: float = 0.5

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        run.train("final", Peer(self.alpha, _epochs(self.ramp_share, run)), run.plan.final)
        return {}


@dataclass
class DMI(Method):
    """Determinant-based mutual information, from a model that cross-entropy trained.

    Parameters
    ----------
    rate : float
        Learning rate, tiny.
    """

    name = "dmi"
    rate: float = 1e-6

    def fit(self, run: Run) -> dict[str, Any]:
        """Train by cross-entropy, then on."""
        run.train("cross-entropy", CrossEntropy(), run.plan.final)
        schedule = _continued(run.plan.final, self.rate)
        run.train("final", Robust(DMILoss()), schedule, fresh=False)
        return {}


@dataclass
class Correcting(Method):
    """Correct the loss by T.

    Parameters
    ----------
    keep_classes : bool
        Pull back a class that the network hardly answers any more, though by T and the labels
        there are examples of it: see `Corrected`. It asks for a T that is about right.
    """

    keep_classes: bool = False

    def corrected(
        self, run: Run, transitions: Transitions, loss: ForwardLoss | ReweightLoss
    ) -> Corrected:
        """Give what to minimise."""
        prior = None
        if self.keep_classes:
            balanced = run.plan.final.balanced_batches is not None
            labels = np.arange(run.n_classes) if balanced else run.data.labels
            prior = transitions.class_prior(labels)
        return Corrected(transitions, loss, prior)


@dataclass
class Anchored(Correcting):
    """Correct by a T whose rows are what a network predicts at anchor points.

    Parameters
    ----------
    keep_classes : bool
        Pull back a class that is hardly answered any more.
    percentile : float
        An anchor is the example of highest predicted probability that is not above this
        percentile. Ignored with 100 classes and more, where it is the plain maximum.
    """

    percentile: float = 97

    def transition_matrix(self, run: Run) -> np.ndarray:
        """Train on the plan's first schedule, and read T off."""
        run.train("first", CrossEntropy(), run.plan.first)
        return anchor_points(run.posteriors(), self._percentile(run))

    def _percentile(self, run: Run) -> float:
        return 100 if run.n_classes >= _MANY_CLASSES else self.percentile


@dataclass
class Forward(Anchored):
    """Forward correction with anchor points."""

    name = "forward"
    correction: ClassVar[type[ForwardLoss | ReweightLoss]] = ForwardLoss

    def fit(self, run: Run) -> dict[str, Any]:
        """Train for the anchors, then with T."""
        T = self.transition_matrix(run)
        objective = self.corrected(run, Transitions(T), self.correction())
        run.train("final", objective, run.plan.final)
        return {"transition_matrix": T}


@dataclass
class Reweight(Forward):
    """Reweighting with anchor points."""

    name = "reweight"
    correction = ReweightLoss


@dataclass
class TRevision(Anchored):
    """Reweighting with anchor points, then T is revised beside the network.

    Parameters
    ----------
    keep_classes, percentile
        See `Anchored`.
    rate : float
        Adam's learning rate in the revision.
    """

    name = "t-revision"
    rate: float = 5e-7

    def fit(self, run: Run) -> dict[str, Any]:
        """Train for the anchors, then with T, then with its slack."""
        return self.revise(run, Transitions(self.transition_matrix(run)))

    def revise(self, run: Run, transitions: Transitions) -> dict[str, Any]:
        """Train with T, then on with a slack on it."""
        run.train("reweighted", self.corrected(run, transitions, ReweightLoss()), run.plan.final)
        objective = Revised(transitions, ReweightLoss(through_weight=True))
        schedule = _continued(run.plan.final, self.rate)
        run.train("final", objective, schedule, fresh=False, adam=True)
        if transitions.matrices.ndim > 2:
            return {}
        return {"transition_matrix": objective.revised(transitions.matrices).numpy(force=True)}


@dataclass
class PTD(TRevision):
    """Part-dependent T (PTD-R-V): reweighting and revision with a T(x) mixed from parts.

    Parameters
    ----------
    keep_classes, percentile, rate
        See `TRevision`.
    n_parts : int
        Into how many parts the representations are factored.
    """

    name = "ptd-r-v"
    n_parts: int = 20

    def fit(self, run: Run) -> dict[str, Any]:
        """Train for anchors and parts, then with T(x), then with a slack."""
        run.train("first", CrossEntropy(), run.plan.first)
        weights, parts = part_dependent(
            run.representations(),
            run.posteriors(),
            self.n_parts,
            self._percentile(run),
            run.seed,
        )
        return self.revise(run, Transitions(parts, weights=weights))


@dataclass
class _SmallLoss(Method):
    """Leave out the examples of large loss, as many as labels are thought to be wrong.

    Parameters
    ----------
    noise_rate : float, optional
        Share of wrong labels; by default what HOC estimates from the first representations.
    ramp_epochs : int
        Epochs until so many are left out.
    """

    noise_rate: float | None = None
    ramp_epochs: int = 10

    def rate(self, run: Run) -> float:
        """Share of wrong labels."""
        if self.noise_rate is not None:
            return self.noise_rate
        return _triples_alone().fit(run.first_representations(), run.data.labels).noise_rate_


@dataclass
class CoTeachingMethod(_SmallLoss):
    """Co-teaching: two networks pick small-loss examples for each other."""

    name = "co-teaching"

    def fit(self, run: Run) -> dict[str, Any]:
        """Train two networks."""
        rate = self.rate(run)
        run.train("final", CoTeaching(rate, self.ramp_epochs), run.plan.final)
        return {"noise_rate": rate}


@dataclass
class CoTeachingPlus(_SmallLoss):
    """Co-teaching+: after a warm-up, only among examples on which the two disagree.

    Parameters
    ----------
    noise_rate, ramp_epochs
        See Co-teaching.
    warm_up_share : float
        Share of the epochs with plain co-teaching.
    """

    name = "co-teaching+"
    warm_up_share: float = 0.1

    def fit(self, run: Run) -> dict[str, Any]:
        """Train two networks."""
        rate = self.rate(run)
        warm_up = _epochs(self.warm_up_share, run)
        run.train("final", CoTeaching(rate, self.ramp_epochs, warm_up), run.plan.final)
        return {"noise_rate": rate}


@dataclass
class JoCoRMethod(_SmallLoss):
    """JoCoR: two networks with one loss that wants them to agree.

    Parameters
    ----------
    noise_rate, ramp_epochs
        See Co-teaching.
    agreement : float, optional
        Weight of the agreement; by default 0.9, and 0.85 with 100 classes and more.
    """

    name = "jocor"
    agreement: float | None = None

    def fit(self, run: Run) -> dict[str, Any]:
        """Train two networks."""
        rate = self.rate(run)
        agreement = self.agreement
        if agreement is None:
            agreement = 0.85 if run.n_classes >= _MANY_CLASSES else 0.9
        run.train("final", JoCoR(rate, self.ramp_epochs, agreement), run.plan.final)
        return {"noise_rate": rate}


@dataclass
class CORES2(Method):
    """CORES2: a confidence regulariser, and a sieve by it.

    Parameters
    ----------
    beta : float
        Strength of the regulariser in the end.
    warm_up_share : float
        Share of the epochs with cross-entropy on all examples.
    ramp_share : float
        Share of the epochs over which the strength then rises.
    """

    name = "cores2"
    beta: float = 2.0
    warm_up_share: float = 0.1
    ramp_share: float = 0.3

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        counts = np.bincount(run.data.labels, minlength=run.n_classes)
        warm_up, ramp = _epochs(self.warm_up_share, run), _epochs(self.ramp_share, run)
        objective = CORES(counts / counts.sum(), self.beta, warm_up, ramp)
        run.train("final", objective, run.plan.final)
        return {}


@dataclass
class HOCGlobal(Correcting):
    """Forward correction with HOC's T: from first representations, then from better ones.

    Parameters
    ----------
    keep_classes : bool
        Pull back a class that is hardly answered any more.
    estimator : HOC
        How T is estimated; ``HOC.paper()`` for the paper's procedure.
    """

    name = "hoc-global"
    keep_classes: bool = True
    estimator: HOC = field(default_factory=_triples_alone)

    def fit(self, run: Run) -> dict[str, Any]:
        """Stage 1, then the final training with the T of its representations."""
        self.stage(run, "stage 1", run.plan.first, run.first_representations)
        T = self.stage(run, "final", run.plan.final, run.representations)
        return {"transition_matrix": T}

    def stage(
        self,
        run: Run,
        phase: str,
        schedule: Schedule,
        representations: Callable[[], np.ndarray],
    ) -> np.ndarray:
        """Estimate T and train with it; T."""
        T = self.transition_matrix(run, representations())
        run.train(phase, self.corrected(run, Transitions(T), ForwardLoss()), schedule)
        return T

    def transition_matrix(self, run: Run, representations: np.ndarray) -> np.ndarray:
        """T; with balanced epochs the mean over five of them, as the paper has it."""
        labels, schedule = run.data.labels, run.plan.final
        classes = np.arange(run.n_classes)
        estimator = _with(self.estimator, classes=classes)
        if schedule.balanced_batches is None:
            return estimator.fit(representations, labels).transition_matrix_
        random = np.random.default_rng(run.seed)
        found = []
        for _ in range(_CLOTHING_ESTIMATES):
            epoch = np.unique(
                balanced_batches(labels, schedule.batch_size, schedule.balanced_batches, random)
            )
            found.append(estimator.fit(representations[epoch], labels[epoch]).transition_matrix_)
        return np.mean(found, axis=0)


@dataclass
class HOCLocal(HOCGlobal):
    """The paper's three-stage flow: twice with HOC's T, then with a T for each neighbourhood.

    Parameters
    ----------
    keep_classes : bool
        Pull back a class that is hardly answered any more.
    estimator : HOC
        How the global T is estimated.
    local : LocalHOC
        How the local ones are.
    """

    name = "hoc-local"
    keep_classes: bool = False
    local: LocalHOC = field(default_factory=LocalHOC)

    def fit(self, run: Run) -> dict[str, Any]:
        """Stages 1, 2 and 3, each with fresh weights."""
        self.stage(run, "stage 1", run.plan.first, run.first_representations)
        T = self.stage(run, "stage 2", run.plan.second, run.representations)
        local = _with(self.local, classes=np.arange(run.n_classes), random_state=run.seed)
        local.fit(run.representations(), run.data.labels)
        matrices = [*local.transition_matrices_, local.global_.transition_matrix_]
        assignment = local.assignment_ % len(matrices)  # -1, not covered: the global one
        transitions = Transitions(np.stack(matrices), assignment)
        run.train("final", self.corrected(run, transitions, ForwardLoss()), run.plan.final)
        return {"transition_matrix": T}


def _with(estimator: Any, **settings: Any) -> Any:
    """A copy of an estimator with other settings."""
    return type(estimator)(**{**estimator.get_params(deep=False), **settings})


def _epochs(share: float, run: Run) -> int:
    return max(1, round(share * run.plan.final.n_epochs))


def _continued(schedule: Schedule, rate: float) -> Schedule:
    """A further training, a third as long as the one before."""
    return replace(schedule, rates=((rate, max(1, round(schedule.n_epochs / 3))),))


METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        CE,
        Forward,
        Reweight,
        TRevision,
        PeerLossMethod,
        DMI,
        GCE,
        CoTeachingMethod,
        CoTeachingPlus,
        JoCoRMethod,
        CORES2,
        PTD,
        HOCGlobal,
        HOCLocal,
    )
}


def method_named(name: str, **settings: Any) -> Method:
    """Look up a method, with its settings.

    Examples
    --------
    >>> method_named("gce", q=0.5)
    GCE(q=0.5, truncation=None)
    """
    if name not in METHODS:
        raise LabelNoiseError(f"Expected method to be one of {tuple(METHODS)}, but it is {name!r}")
    try:
        return METHODS[name](**settings)
    except TypeError as error:
        raise LabelNoiseError(f"Expected settings that method {name!r} has, but {error}") from error
