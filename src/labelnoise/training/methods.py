"""Every method of the paper's tables: its trainings, and where its T comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.baselines import anchor_points
from labelnoise.estimators.local import LocalHOC
from labelnoise.hoc import HOC
from labelnoise.losses import DMILoss, ForwardLoss, GCELoss, ReweightLoss
from labelnoise.training.balance import balanced_batches
from labelnoise.training.engine import Run
from labelnoise.training.objectives import (
    CORES,
    Corrected,
    CoTeaching,
    CoTeachingPlus,
    CrossEntropy,
    JoCoR,
    Peer,
    Revised,
    Robust,
    Transitions,
)
from labelnoise.training.part_dependent import part_dependent
from labelnoise.training.recipes import RECIPES, Recipe
from labelnoise.training.schedules import Schedule

_MANY_CLASSES = 100  # from here on, anchor points are the plain maxima, as published
_CLOTHING_ESTIMATES = 5


def _triples_alone() -> HOC:
    """Not refined: representations were learnt from the noisy labels."""
    return HOC(refine=False)


@dataclass(kw_only=True)
class Method:
    """A way to learn from noisy labels; `fit` says which trainings it takes."""

    name: ClassVar[str] = ""
    recipe: Recipe | None = None
    """How the last training is done; by default that of `RECIPES`."""

    def __post_init__(self) -> None:
        self.recipe = self.recipe or RECIPES.get(self.name, Recipe(""))

    def schedule(self, run: Run) -> Schedule:
        """Give the schedule of the last training."""
        return self._recipe.schedule(run.plan.final, len(run.data.labels))

    @property
    def _recipe(self) -> Recipe:
        assert self.recipe is not None
        return self.recipe

    def fit(self, run: Run) -> dict[str, Any]:
        """Train; give what was learnt beside the networks, such as ``transition_matrix``."""
        raise NotImplementedError


@dataclass(kw_only=True)
class CE(Method):
    """Cross-entropy on the noisy labels, with which the others compare."""

    name = "ce"

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        run.train("final", CrossEntropy(), self.schedule(run))
        return {}


@dataclass(kw_only=True)
class GCE(Method):
    """Generalised cross-entropy, L_q."""

    name = "gce"
    q: float = 0.7
    """From 0 (cross-entropy) to 1 (mean absolute error)."""

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once; the warm-up is cross-entropy."""
        loss = GCELoss(self.q)
        run.train("final", Robust(loss, self._recipe), self.schedule(run))
        return {}


@dataclass(kw_only=True)
class PeerLossMethod(Method):
    """Peer loss: the gain over answering at random."""

    name = "peer"
    alpha: float = 3.0
    """Weight of the random pairs at the end of the ramp."""

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        run.train("final", Peer(self.alpha, self._recipe), self.schedule(run))
        return {}


@dataclass(kw_only=True)
class DMI(Method):
    """Determinant-based mutual information, from the best network of cross-entropy."""

    name = "dmi"

    def fit(self, run: Run) -> dict[str, Any]:
        """Train by cross-entropy, take the best epoch by held-out noisy labels, and go on."""
        run.train("cross-entropy", CrossEntropy(), run.plan.final, best=True)
        run.train("final", Robust(DMILoss(), self._recipe), self.schedule(run), fresh=False)
        return {}


@dataclass(kw_only=True)
class Correcting(Method):
    """Correct the loss by T."""

    keep_classes: bool = False
    """Pull back a class that the network hardly answers any more, though by T and the labels there
    are examples of it: see `Corrected`. It asks for a T that is about right."""
    q: float = 0.0
    """Of `ForwardLoss`: above 0 the loss is bounded."""

    def corrected(
        self, run: Run, transitions: Transitions, loss: ForwardLoss | ReweightLoss
    ) -> Corrected:
        """Give what to minimise."""
        prior = None
        if self.keep_classes:
            balanced = run.plan.final.balanced_batches is not None
            labels = np.arange(run.n_classes) if balanced else run.data.labels
            prior = transitions.class_prior(labels)
        return Corrected(transitions, loss, self._recipe, prior)


@dataclass(kw_only=True)
class Anchored(Correcting):
    """Correct by a T whose rows are what a network predicts at anchor points."""

    percentile: float = 97
    """An anchor is the example of highest predicted probability that is not above this percentile.
    Ignored with 100 classes and more, where it is the plain maximum."""

    def transition_matrix(self, run: Run) -> np.ndarray:
        """Train on the plan's first schedule, and read T off."""
        run.train("first", CrossEntropy(), run.plan.first)
        return anchor_points(run.posteriors(), self._percentile(run))

    def _percentile(self, run: Run) -> float:
        return 100 if run.n_classes >= _MANY_CLASSES else self.percentile


@dataclass(kw_only=True)
class Forward(Anchored):
    """Forward correction with anchor points."""

    name = "forward"

    def loss(self) -> ForwardLoss | ReweightLoss:
        """Give the corrected loss."""
        return ForwardLoss(q=self.q)

    def fit(self, run: Run) -> dict[str, Any]:
        """Train for the anchors, then with T."""
        T = self.transition_matrix(run)
        objective = self.corrected(run, Transitions(T), self.loss())
        run.train("final", objective, self.schedule(run))
        return {"transition_matrix": T}


@dataclass(kw_only=True)
class Reweight(Forward):
    """Reweighting with anchor points."""

    name = "reweight"

    def loss(self) -> ReweightLoss:
        """Give the corrected loss."""
        return ReweightLoss()


@dataclass(kw_only=True)
class TRevision(Anchored):
    """Reweighting with anchor points, then T is revised beside the network.

    One network goes through all three trainings. Of the second, the best epoch by held-out noisy
    labels is taken, as published; the revision is as long.
    """

    name = "t-revision"

    def fit(self, run: Run) -> dict[str, Any]:
        """Train for the anchors, then with T, then with its slack."""
        return self.revise(run, Transitions(self.transition_matrix(run)))

    def revise(self, run: Run, transitions: Transitions) -> dict[str, Any]:
        """Train with T, then on with a slack on it."""
        reweighted = self.corrected(run, transitions, ReweightLoss())
        run.train("reweighted", reweighted, run.plan.final, fresh=False, best=True)
        objective = Revised(transitions, ReweightLoss(through_weight=True))
        run.train("final", objective, self.schedule(run), fresh=False)
        T = transitions.matrices
        if T.ndim > 2:
            return {}
        return {"transition_matrix": objective.revised(T).numpy(force=True)}


@dataclass(kw_only=True)
class PTD(TRevision):
    """Part-dependent T (PTD-R-V): reweighting and revision with a T(x) mixed from parts."""

    name = "ptd-r-v"
    n_parts: int = 20
    """Into how many parts the representations are factored."""

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


@dataclass(kw_only=True)
class _SmallLoss(Method):
    """Leave out the examples of large loss, as many as labels are thought to be wrong."""

    noise_rate: float | None = None
    """Share of wrong labels; by default what HOC estimates from the first representations."""

    def rate(self, run: Run) -> float:
        """Share of wrong labels."""
        if self.noise_rate is not None:
            return self.noise_rate
        return _triples_alone().fit(run.first_representations(), run.data.labels).noise_rate_


@dataclass(kw_only=True)
class CoTeachingMethod(_SmallLoss):
    """Co-teaching: two networks pick small-loss examples for each other."""

    name = "co-teaching"
    objective: ClassVar[type[CoTeaching | CoTeachingPlus]] = CoTeaching

    def fit(self, run: Run) -> dict[str, Any]:
        """Train two networks."""
        rate = self.rate(run)
        run.train("final", self.objective(rate, self._recipe), self.schedule(run))
        return {"noise_rate": rate}


@dataclass(kw_only=True)
class CoTeachingPlusMethod(CoTeachingMethod):
    """Co-teaching+: after a warm-up, only among examples on which the two disagree."""

    name = "co-teaching+"
    objective = CoTeachingPlus


@dataclass(kw_only=True)
class JoCoRMethod(_SmallLoss):
    """JoCoR: two networks with one loss that wants them to agree."""

    name = "jocor"
    agreement: float | None = None
    """Weight of the agreement; by default 0.9, and 0.85 with 100 classes and more."""

    def fit(self, run: Run) -> dict[str, Any]:
        """Train two networks."""
        rate = self.rate(run)
        agreement = self.agreement
        if agreement is None:
            agreement = 0.85 if run.n_classes >= _MANY_CLASSES else 0.9
        run.train("final", JoCoR(rate, agreement, self._recipe), self.schedule(run))
        return {"noise_rate": rate}


@dataclass(kw_only=True)
class CORES2(Method):
    """CORES2: a confidence regulariser, and a sieve by it."""

    name = "cores2"
    beta: float = 2.0
    """Strength of the regulariser in the end."""

    def fit(self, run: Run) -> dict[str, Any]:
        """Train once."""
        counts = np.bincount(run.data.labels, minlength=run.n_classes)
        objective = CORES(counts / counts.sum(), self.beta, self._recipe)
        run.train("final", objective, self.schedule(run))
        return {}


@dataclass(kw_only=True)
class HOCGlobal(Correcting):
    """Forward correction with HOC's T: from first representations, then from better ones."""

    name = "hoc-global"
    keep_classes: bool = True
    estimator: HOC = field(default_factory=_triples_alone)
    """How T is estimated; ``HOC.paper()`` for the paper's procedure."""

    def fit(self, run: Run) -> dict[str, Any]:
        """Stage 1, then the final training with the T of its representations."""
        self.stage(run, "stage 1", run.plan.first, run.first_representations)
        T = self.stage(run, "final", self.schedule(run), run.representations)
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
        run.train(phase, self.corrected(run, Transitions(T), ForwardLoss(q=self.q)), schedule)
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


@dataclass(kw_only=True)
class HOCLocal(HOCGlobal):
    """The paper's three-stage flow: twice with HOC's T, then with a T for each neighbourhood."""

    name = "hoc-local"
    keep_classes: bool = False
    local: LocalHOC = field(default_factory=LocalHOC)
    """How the T of each neighbourhood is estimated."""

    def fit(self, run: Run) -> dict[str, Any]:
        """Stages 1, 2 and 3, each with fresh weights."""
        self.stage(run, "stage 1", run.plan.first, run.first_representations)
        T = self.stage(run, "stage 2", run.plan.second, run.representations)
        local = _with(self.local, classes=np.arange(run.n_classes), random_state=run.seed)
        local.fit(run.representations(), run.data.labels)
        matrices = [*local.transition_matrices_, local.global_.transition_matrix_]
        assignment = local.assignment_ % len(matrices)  # -1, not covered: the global one
        transitions = Transitions(np.stack(matrices), assignment)
        objective = self.corrected(run, transitions, ForwardLoss(q=self.q))
        run.train("final", objective, self.schedule(run))
        return {"transition_matrix": T}


def _with(estimator: Any, **settings: Any) -> Any:
    """A copy of an estimator with other settings."""
    return type(estimator)(**{**estimator.get_params(deep=False), **settings})


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
        CoTeachingPlusMethod,
        JoCoRMethod,
        CORES2,
        PTD,
        HOCGlobal,
        HOCLocal,
    )
}


def method_named(name: str, **settings: Any) -> Method:
    """Look up a method, with settings: its own, or those of its recipe.

    Examples
    --------
    >>> method_named("gce", q=0.5).q
    0.5
    >>> method_named("co-teaching", ramp=500).recipe.ramp
    500
    """
    if name not in METHODS:
        raise LabelNoiseError(f"Expected method to be one of {tuple(METHODS)}, but it is {name!r}")
    known = {part.name for part in fields(METHODS[name])} - {"recipe"}
    of_recipe = {key: value for key, value in settings.items() if key not in known}
    own = {key: value for key, value in settings.items() if key in known}
    try:
        return METHODS[name](recipe=replace(RECIPES[name], **of_recipe), **own)
    except TypeError as error:
        choices = sorted(known | {part.name for part in fields(Recipe)})
        raise LabelNoiseError(
            f"Expected settings that method {name!r} has, {', '.join(choices)}, but they are "
            f"{', '.join(settings)}"
        ) from error
