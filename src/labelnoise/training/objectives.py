"""What the methods minimise: losses, corrections by T, selections of examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelnoise.losses import (
    CORESLoss,
    DMILoss,
    ForwardLoss,
    GCELoss,
    PeerLoss,
    ReweightLoss,
    cores_keep,
)
from labelnoise.solvers.search import em
from labelnoise.training.recipes import RECIPES, Recipe
from labelnoise.training.schedules import Moment
from labelnoise.training.steps import Objective

_GIVEN_UP = 0.25  # a class answered less often than this share of its prior is given up
_ANSWERS = 20  # answers a class over which their share is averaged


class CrossEntropy(Objective):
    """Plain cross-entropy on the noisy labels."""

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(logits[0], labels)


class _WithWarmUp(Objective):
    """An objective that begins with plain cross-entropy, for the warm-up of its recipe."""

    warming: Tensor

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.register_buffer("warming", torch.zeros((), dtype=torch.bool))

    def at_step(self, moment: Moment) -> None:
        """Say whether the method's own loss waits."""
        self.warming.fill_(moment.passed(self.recipe.warm_up) < 1)


class Robust(_WithWarmUp):
    """A loss that needs no T: generalised cross-entropy, determinant-based mutual information."""

    def __init__(self, loss: GCELoss | DMILoss, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.loss = loss

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Give the loss."""
        plain = F.cross_entropy(logits[0], labels)
        return torch.where(self.warming, plain, self.loss(logits[0], labels))


class Transitions(nn.Module):
    """The T of each example: one for all, one of several, or a mixture of parts.

    Parameters
    ----------
    matrices : array of shape (K, K) or (M, K, K)
        T, or the matrices to choose from or to mix.
    assignment : int array of shape (N,), optional
        Which matrix each example has.
    weights : array of shape (N, M), optional
        How each example mixes them; rows sum to 1.
    """

    matrices: Tensor
    assignment: Tensor | None
    weights: Tensor | None

    def __init__(
        self,
        matrices: np.ndarray,
        assignment: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("matrices", _tensor(matrices, torch.float32))
        self.register_buffer("assignment", _tensor(assignment, torch.int64))
        self.register_buffer("weights", _tensor(weights, torch.float32))

    def full(self, index: Tensor) -> Tensor:
        """T of the examples: (K, K), or (B, K, K)."""
        if self.assignment is not None:
            return self.matrices[self.assignment[index]]
        if self.weights is not None:
            return torch.tensordot(self.weights[index], self.matrices, 1)
        return self.matrices

    def forward(self, index: Tensor, labels: Tensor) -> Tensor:
        """(B, K) each example's column of T at its label."""
        if self.assignment is not None:
            return self.matrices[self.assignment[index], :, labels]
        if self.weights is not None:
            return torch.einsum("bm,mkb->bk", self.weights[index], self.matrices[:, :, labels])
        return self.matrices.T[labels]

    def class_prior(self, labels: np.ndarray) -> np.ndarray:
        """(K,) share of each clean class that makes noisy class numbers (N,) most likely."""
        index, given = torch.arange(len(labels)), torch.from_numpy(labels)
        columns = self.cpu()(index, given).double().numpy()

        def step(prior: np.ndarray) -> np.ndarray:
            explained = columns * prior
            explained /= explained.sum(axis=1, keepdims=True).clip(1e-12)
            return explained.mean(axis=0)

        prior, _, _ = em(step, np.full(columns.shape[1], 1 / columns.shape[1]), 100)
        return prior / prior.sum()


def _tensor(values: np.ndarray | None, dtype: torch.dtype) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=dtype)


class Corrected(_WithWarmUp):
    """A loss corrected by T, forward or by reweighting, after some cross-entropy.

    What the forward loss teaches about a class has the class's own probability as a factor: a
    network that gave a class up hardly learns it again. The warm-up keeps the first, wild steps
    from that. With `prior`, a class that is answered less than a quarter as often as there must be
    examples of it is pulled back, by what its share adds to the divergence of the answers from
    the prior; where there is none, nothing is added.

    Parameters
    ----------
    transitions : Transitions
        T.
    loss : ForwardLoss or ReweightLoss
        How to correct.
    recipe : Recipe
        Its warm-up.
    prior : array of shape (K,), optional
        Share of each clean class.
    """

    prior: Tensor | None
    answered: Tensor | None

    def __init__(
        self,
        transitions: Transitions,
        loss: ForwardLoss | ReweightLoss,
        recipe: Recipe = RECIPES["forward"],
        prior: np.ndarray | None = None,
    ) -> None:
        super().__init__(recipe)
        self.transitions, self.loss = transitions, loss
        self.register_buffer("prior", _tensor(prior, torch.float32))
        self.register_buffer("answered", _tensor(prior, torch.float32))

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean corrected loss; in the warm-up plain cross-entropy."""
        corrected = self.loss(logits[0], labels, columns=self.transitions(index, labels))
        value = torch.where(self.warming, F.cross_entropy(logits[0], labels), corrected)
        if self.prior is not None and self.answered is not None:
            value = value + self._given_up(logits[0], self.prior, self.answered)
        return value

    def _given_up(self, logits: Tensor, prior: Tensor, answered: Tensor) -> Tensor:
        """Divergence that is due to classes that are hardly answered any more."""
        now = torch.softmax(logits.float(), 1).mean(0)
        pace = min(1.0, len(logits) / (_ANSWERS * len(prior)))
        answered.lerp_(now.detach(), pace)
        lately = answered.clamp_min(1e-8) + now - now.detach()  # a batch teaches by its own share
        missing = torch.log(_GIVEN_UP * prior.clamp_min(1e-6) / lately).clamp_min(0)
        return torch.where(self.warming, 0, (prior * missing).sum())


class Revised(Objective):
    """A corrected loss, with a slack on T that is learnt beside the network."""

    def __init__(self, transitions: Transitions, loss: ForwardLoss | ReweightLoss) -> None:
        super().__init__()
        n_classes = transitions.matrices.shape[-1]
        self.transitions = transitions
        self.slack = nn.Parameter(torch.zeros(n_classes, n_classes))
        self.loss = loss

    def revised(self, T: Tensor) -> Tensor:
        """T with the slack added once, its rows made to sum to 1 again."""
        moved = (T + self.slack).clamp_min(0)
        return moved / moved.sum(-1, keepdim=True).clamp_min(1e-12)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean corrected loss under the revised T."""
        value: Tensor = self.loss(logits[0], labels, self.revised(self.transitions.full(index)))
        return value

    def record(self) -> dict[str, Any]:
        """How far the slack has moved T."""
        return {"slack": round(float(self.slack.detach().abs().sum(1).mean()), 6)}


class Peer(Objective):
    """Peer loss; its weight rises from 0, and the learning rate falls with it."""

    alpha: Tensor

    def __init__(self, alpha: float, recipe: Recipe) -> None:
        super().__init__()
        self._target, self.recipe = alpha, recipe
        self.register_buffer("alpha", torch.zeros(()))
        self.loss = PeerLoss()

    def at_step(self, moment: Moment) -> None:
        """Set the weight."""
        alpha = self._target * moment.passed(self.recipe.ramp)
        self.alpha.fill_(alpha)
        self.rate_factor = 1 / (1 + alpha)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean peer loss."""
        self.loss.alpha = self.alpha
        value: Tensor = self.loss(logits[0], labels)
        return value


class _Selecting(Objective):
    """Two networks that learn from the examples of small loss, fewer of them as time goes on."""

    n_networks = 2
    kept_share: Tensor

    def __init__(self, noise_rate: float, recipe: Recipe) -> None:
        super().__init__()
        self._noise_rate, self.recipe = noise_rate, recipe
        lengths = (recipe.warm_up, recipe.ramp)
        self.n_steps_needed = max((n for n in lengths if isinstance(n, int)), default=0)
        self.register_buffer("kept_share", torch.ones(()))

    def at_step(self, moment: Moment) -> None:
        """Set the share of examples to keep: from 1 down to 1 - noise rate."""
        self.kept_share.fill_(1 - self._noise_rate * moment.passed(self.recipe.ramp))

    def smallest(self, losses: Tensor, among: Tensor | None = None) -> Tensor:
        """Weights of the examples: 1 for the smallest losses (`among` some), else 0."""
        losses = losses.detach()
        n: Tensor | int = len(losses)
        if among is not None:
            losses = losses.masked_fill(~among, torch.inf)
            n = among.sum()
        rank = losses.argsort().argsort()
        return (rank < (self.kept_share * n).floor().clamp_min(1)).to(losses.dtype)

    def record(self) -> dict[str, Any]:
        """Share of examples that are kept."""
        return {"kept_share": round(float(self.kept_share), 4)}


class CoTeaching(_Selecting):
    """Each of two networks picks its small-loss examples for the other one."""

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Sum of both networks' mean losses on what the other one picked."""
        first, second = (F.cross_entropy(answer, labels, reduction="none") for answer in logits)
        return _mean(first, self.smallest(second)) + _mean(second, self.smallest(first))


class CoTeachingPlus(_Selecting):
    """Co-teaching, after its warm-up only among the examples on which the networks disagree.

    The losses of the picked examples are summed and divided by the batch size: the fewer they
    are, the smaller is the step.
    """

    only_disagreeing: Tensor

    def __init__(self, noise_rate: float, recipe: Recipe) -> None:
        super().__init__(noise_rate, recipe)
        self.register_buffer("only_disagreeing", torch.zeros((), dtype=torch.bool))

    def at_step(self, moment: Moment) -> None:
        """Set the share to keep, and whether agreement leaves an example out."""
        super().at_step(moment)
        self.only_disagreeing.fill_(moment.passed(self.recipe.warm_up) == 1)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Sum of both networks' losses on what the other one picked, over the batch size."""
        first, second = (F.cross_entropy(answer, labels, reduction="none") for answer in logits)
        differ = logits[0].argmax(1) != logits[1].argmax(1)
        among = differ | ~(self.only_disagreeing & differ.any())  # all, where none disagree
        picked = self.smallest(second, among), self.smallest(first, among)
        return (first * picked[0] + second * picked[1]).mean()


class JoCoR(_Selecting):
    """Two networks that agree: one joint loss, one set of small-loss examples for both."""

    def __init__(self, noise_rate: float, agreement: float, recipe: Recipe) -> None:
        super().__init__(noise_rate, recipe)
        self._agreement = agreement

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean joint loss of the examples where it is small."""
        first, second = (F.log_softmax(answer, 1) for answer in logits)
        wrong = F.nll_loss(first, labels, reduction="none") + F.nll_loss(
            second, labels, reduction="none"
        )
        apart = ((first.exp() - second.exp()) * (first - second)).sum(1)  # KL both ways
        joint = (1 - self._agreement) * wrong + self._agreement * apart
        return _mean(joint, self.smallest(joint))


class CORES(Objective):
    """Confidence-regularised cross-entropy; after warm-up and ramp a sieve drops examples."""

    beta: Tensor
    sieving: Tensor
    counts: Tensor

    def __init__(self, prior: np.ndarray, beta: float, recipe: Recipe) -> None:
        super().__init__()
        self._target, self.recipe = beta, recipe
        self.loss = CORESLoss(prior, reduction="none")
        self.register_buffer("beta", torch.zeros(()))
        self.register_buffer("sieving", torch.zeros((), dtype=torch.bool))
        self.register_buffer("counts", torch.zeros(len(prior), dtype=torch.float64))

    def at_step(self, moment: Moment) -> None:
        """Set the strength, whether to sieve, and at an epoch's begin the prior anew."""
        recipe = self.recipe
        beta = self._target * moment.passed(recipe.ramp, after=recipe.warm_up)
        self.beta.fill_(beta)
        self.rate_factor = 1 / (1 + beta)
        self.sieving.fill_(beta == self._target)
        if moment.step and moment.step % moment.steps_per_epoch == 0:
            self.loss.prior.copy_(self.counts / self.counts.sum().clamp_min(1))
            self.counts.zero_()

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean loss of the examples that the sieve keeps."""
        self.loss.beta = self.beta
        keep = cores_keep(logits[0].detach(), labels) | ~self.sieving
        self.counts.index_add_(0, labels, keep.to(self.counts.dtype))
        return _mean(self.loss(logits[0], labels), keep.float())

    def record(self) -> dict[str, Any]:
        """How many examples the sieve kept in this epoch."""
        return {"n_kept": int(self.counts.sum())}


def _mean(losses: Tensor, weight: Tensor) -> Tensor:
    return (losses * weight).sum() / weight.sum().clamp_min(1)
