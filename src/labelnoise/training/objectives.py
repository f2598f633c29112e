"""What the methods minimise: losses, corrections by T, selections of examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import nnls
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
from labelnoise.training.engine import Objective

_GIVEN_UP = 0.25  # of a class's share, if it is answered less
_ANSWERS = 20  # a class, over which that is seen


class CrossEntropy(Objective):
    """Plain cross-entropy on the noisy labels."""

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(logits[0], labels)


class Robust(Objective):
    """A loss that needs no T: generalised cross-entropy, determinant-based mutual information."""

    def __init__(self, loss: GCELoss | DMILoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Give the loss."""
        value: Tensor = self.loss(logits[0], labels)
        return value


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
        self.register_buffer("matrices", torch.tensor(matrices, dtype=torch.float32))
        self.register_buffer("assignment", _tensor(assignment, torch.int64))
        self.register_buffer("weights", _tensor(weights, torch.float32))

    def forward(self, index: Tensor) -> Tensor:
        """T of the examples: (K, K), or (B, K, K)."""
        if self.assignment is not None:
            return self.matrices[self.assignment[index]]
        if self.weights is not None:
            return torch.tensordot(self.weights[index], self.matrices, 1)
        return self.matrices

    def class_prior(self, labels: np.ndarray) -> np.ndarray:
        """(K,) share of each clean class that explains noisy class numbers (N,) best."""
        T = self.matrices.numpy(force=True).reshape(-1, *self.matrices.shape[-2:])
        share: np.ndarray = np.ones(1)
        if self.assignment is not None:
            share = np.bincount(self.assignment.numpy(force=True), minlength=len(T))
        elif self.weights is not None:
            share = self.weights.numpy(force=True).mean(axis=0)
        mean = np.tensordot(share / share.sum(), T, 1)
        prior, _ = nnls(mean.T, np.bincount(labels, minlength=len(mean)) / len(labels))
        return prior / prior.sum()


def _tensor(values: np.ndarray | None, dtype: torch.dtype) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=dtype)


class Corrected(Objective):
    """A loss corrected by T, forward or by reweighting, after a first epoch of cross-entropy.

    What the forward loss teaches about a class has the class's own probability as a factor: a
    network that gave a class up hardly learns it again. `warm_up` epochs of cross-entropy keep the
    first, wild steps from that. With `prior`, a class that is answered less than a quarter as often
    as there must be examples of it is pulled back, by what its share adds to the divergence of the
    answers from the prior; as long as there is none, nothing is added.

    Parameters
    ----------
    transitions : Transitions
        T.
    loss : ForwardLoss or ReweightLoss
        How to correct.
    prior : array of shape (K,), optional
        Share of each clean class.
    """

    warm_up = 1
    warming: Tensor
    prior: Tensor | None
    answered: Tensor | None

    def __init__(
        self,
        transitions: Transitions,
        loss: ForwardLoss | ReweightLoss,
        prior: np.ndarray | None = None,
    ) -> None:
        super().__init__()
        self.transitions, self.loss = transitions, loss
        self.register_buffer("warming", torch.zeros((), dtype=torch.bool))
        self.register_buffer("prior", _tensor(prior, torch.float32))
        self.register_buffer("answered", _tensor(prior, torch.float32))

    def at_epoch(self, epoch: int) -> None:
        """Say whether the correction waits."""
        self.warming.fill_(epoch < self.warm_up)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean corrected loss; with the identity for T both losses are cross-entropy."""
        T = self.transitions(index)
        T = torch.where(self.warming, torch.eye(T.shape[-1], dtype=T.dtype, device=T.device), T)
        value: Tensor = self.loss(logits[0], labels, T)
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
        value: Tensor = self.loss(logits[0], labels, self.revised(self.transitions(index)))
        return value

    def record(self) -> dict[str, Any]:
        """How far the slack has moved T."""
        return {"slack": round(float(self.slack.detach().abs().sum(1).mean()), 6)}


class Peer(Objective):
    """Peer loss; its weight ramps up from 0 over the first epochs."""

    alpha: Tensor

    def __init__(self, alpha: float, ramp_epochs: int) -> None:
        super().__init__()
        self._target, self._ramp_epochs = alpha, ramp_epochs
        self.register_buffer("alpha", torch.zeros(()))
        self.loss = PeerLoss()

    def at_epoch(self, epoch: int) -> None:
        """Set the weight."""
        self.alpha.fill_(self._target * min(1, epoch / self._ramp_epochs))

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean peer loss."""
        self.loss.alpha = self.alpha
        value: Tensor = self.loss(logits[0], labels)
        return value


class _Selecting(Objective):
    """Two networks that learn from the examples of small loss, fewer of them as time goes on."""

    n_networks = 2
    kept_share: Tensor

    def __init__(self, noise_rate: float, ramp_epochs: int) -> None:
        super().__init__()
        self._noise_rate, self._ramp_epochs = noise_rate, ramp_epochs
        self.register_buffer("kept_share", torch.ones(()))

    def at_epoch(self, epoch: int) -> None:
        """Set the share of examples to keep: 1 - tau min(t / ramp, 1)."""
        self.kept_share.fill_(1 - self._noise_rate * min(1, epoch / self._ramp_epochs))

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
    """Each of two networks picks its small-loss examples for the other one.

    Parameters
    ----------
    noise_rate : float
        Share of examples to leave out in the end.
    ramp_epochs : int
        Epochs until then.
    disagree_from : int, optional
        Co-teaching+: from this epoch on, only examples on which the two disagree.
    """

    only_disagreeing: Tensor

    def __init__(
        self, noise_rate: float, ramp_epochs: int, disagree_from: int | None = None
    ) -> None:
        super().__init__(noise_rate, ramp_epochs)
        self._disagree_from = disagree_from
        self.register_buffer("only_disagreeing", torch.zeros((), dtype=torch.bool))

    def at_epoch(self, epoch: int) -> None:
        """Set the share to keep, and whether agreement leaves an example out."""
        super().at_epoch(epoch)
        if self._disagree_from is not None:
            self.only_disagreeing.fill_(epoch >= self._disagree_from)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Sum of both networks' mean losses on what the other one picked."""
        first, second = (F.cross_entropy(answer, labels, reduction="none") for answer in logits)
        differ = logits[0].argmax(1) != logits[1].argmax(1)
        among = differ | ~(self.only_disagreeing & differ.any())  # all, where none disagree
        return _mean(first, self.smallest(second, among)) + _mean(
            second, self.smallest(first, among)
        )


class JoCoR(_Selecting):
    """Two networks that agree: one joint loss, one set of small-loss examples for both."""

    def __init__(self, noise_rate: float, ramp_epochs: int, agreement: float) -> None:
        super().__init__(noise_rate, ramp_epochs)
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
    """Confidence-regularised cross-entropy; after a warm-up a sieve leaves examples out."""

    beta: Tensor
    sieving: Tensor
    kept: Tensor

    def __init__(self, prior: np.ndarray, beta: float, warm_up: int, ramp_epochs: int) -> None:
        super().__init__()
        self._target, self._warm_up, self._ramp_epochs = beta, warm_up, ramp_epochs
        self.loss = CORESLoss(prior, reduction="none")
        self.register_buffer("beta", torch.zeros(()))
        self.register_buffer("sieving", torch.zeros((), dtype=torch.bool))
        self.register_buffer("kept", torch.zeros(()))

    def at_epoch(self, epoch: int) -> None:
        """Set the strength, and whether to sieve."""
        ramp = min(1, max(0, epoch + 1 - self._warm_up) / self._ramp_epochs)
        self.beta.fill_(self._target * ramp)
        self.sieving.fill_(epoch >= self._warm_up)

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Mean loss of the examples that the sieve keeps."""
        self.loss.beta = self.beta
        keep = cores_keep(logits[0].detach(), labels) | ~self.sieving
        self.kept.copy_(keep.float().mean())
        return _mean(self.loss(logits[0], labels), keep.float())

    def record(self) -> dict[str, Any]:
        """Share of the last batch that the sieve kept."""
        return {"kept_share": round(float(self.kept), 4)}


def _mean(losses: Tensor, weight: Tensor) -> Tensor:
    return (losses * weight).sum() / weight.sum().clamp_min(1)
