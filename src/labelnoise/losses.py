"""PyTorch losses for noisy labels: some undo the noise that a T describes, some need no T.

Each is called as ``loss(logits, target)``, with logits of shape (B, K) and class numbers of
shape (B,); `reduction` and `ignore_index` are those of `torch.nn.CrossEntropyLoss`. Logits in half
precision are computed in float32. T and priors are buffers in float64, cast to the logits' type
at use; for a device without float64 (MPS), convert the loss by `float` before it moves. Under
`torch.compile` and on a GPU no Python branch looks at a value, so that every loss can be compiled
and captured in a CUDA graph; on a CPU a target outside the classes raises `LabelNoiseError`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise._validation import probability_rows
from labelnoise._validation import transition_matrix as checked_matrix
from labelnoise.io.packages import install

try:
    import torch
except ModuleNotFoundError as error:
    raise ImportError(
        f"Expected PyTorch to be installed, but it is not: {install('torch')}"
    ) from error
from torch import Tensor, nn

_REDUCTIONS = ("mean", "sum", "none")
_LARGEST_CONDITION = 1e6  # of T, at which one of float32's seven digits is left
_LARGEST_EXPONENT = 40.0  # its exponential times a batch of losses fits float32
_NEGLIGIBLE = math.exp(-_LARGEST_EXPONENT)
_LOG_LEAST = math.log(1e-8)  # this is added to probabilities whose loss is rewarded


class _Loss(nn.Module):
    """A loss with a value for each example, and what becomes of these values."""

    def __init__(self, reduction: str, ignore_index: int) -> None:
        super().__init__()
        if reduction not in _REDUCTIONS:
            raise LabelNoiseError(f"Expected reduction in {_REDUCTIONS}, but it is {reduction!r}")
        self.reduction = reduction
        self.ignore_index = ignore_index

    def _reduce(self, losses: Tensor, kept: Tensor) -> Tensor:
        losses = torch.where(kept, losses, 0.0)
        if self.reduction == "none":
            return losses
        return losses.sum() / kept.sum() if self.reduction == "mean" else losses.sum()


class _TransitionLoss(_Loss):
    """A loss that takes a transition matrix, one for all examples or one for each."""

    transition_matrix: Tensor | None

    def __init__(
        self, transition_matrix: Any = None, *, reduction: str = "mean", ignore_index: int = -100
    ) -> None:
        super().__init__(reduction, ignore_index)
        self.register_buffer("transition_matrix", None)
        if transition_matrix is not None:
            self.transition_matrix = _probabilities(transition_matrix, "transition_matrix", 2)

    def _matrix(self, given: Tensor | None, log_f: Tensor) -> Tensor:
        T = self.transition_matrix if given is None else given
        if T is None:
            raise LabelNoiseError(
                "Expected a transition_matrix, at construction or at the call, but both are None"
            )
        B, K = log_f.shape
        if T.shape not in ((K, K), (B, K, K)):
            raise LabelNoiseError(
                f"Expected transition_matrix of shape ({K}, {K}) or ({B}, {K}, {K}) to fit the "
                f"logits, but its shape is {tuple(T.shape)}"
            )
        return T.to(log_f)


class _ColumnLoss(_TransitionLoss):
    """A loss for which the column of T at an example's label is enough."""

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        transition_matrix: Tensor | None = None,
        *,
        columns: Tensor | None = None,
    ) -> Tensor:
        """Give the loss of logits (B, K) and noisy labels (B,).

        A `transition_matrix` of shape (K, K), or (B, K, K) with one for each example, takes the
        place of the fixed one; so do `columns` of shape (B, K), ``T(x_n)[:, y_n]``, the chance
        of the example's label by each class. Only shapes are checked. Both can be learnt.
        """
        log_f, target, kept = _read(logits, target, self.ignore_index)
        if columns is None:
            T = self._matrix(transition_matrix, log_f)
            if T.dim() == 2:
                columns = T.mT.index_select(0, target)
            else:
                columns = T.gather(2, target[:, None, None].expand(-1, T.shape[1], 1)).squeeze(2)
        elif columns.shape != log_f.shape:
            raise LabelNoiseError(
                f"Expected columns of the logits' shape {tuple(log_f.shape)}, but their shape is "
                f"{tuple(columns.shape)}"
            )
        return self._reduce(self._losses(log_f, target, columns.to(log_f)), kept)

    def _losses(self, log_f: Tensor, target: Tensor, columns: Tensor) -> Tensor:
        raise NotImplementedError


class ForwardLoss(_ColumnLoss):
    """Forward correction: cross-entropy between the noisy labels and ``T' softmax(logits)``.

    A network that minimises it predicts the clean class.

    Parameters
    ----------
    transition_matrix : array or tensor of shape (K, K), optional
        ``T[i, j]`` is the chance that a true i is labelled j. A buffer: it moves with `to`.
        Without it, one has to be given at each call.
    q : float in [0, 1], default=0
        0 is the logarithm. Above 0 the loss is bounded, ``(1 - (T' f)[y]^q) / q``; with labels
        that depend on the example 0.7 was between 0.7 points worse and 2.3 better.

    Notes
    -----
    ``-log((T' f)[y])``, f the softmax. A label that no class is given (its column of T is 0)
    costs nothing. The gradient of class i has f[i] as a factor, so a network that has given a
    class up hardly learns it again: begin with some cross-entropy. Patrini et al., 2017,
    arXiv:1609.03683.

    Examples
    --------
    >>> import torch
    >>> loss = ForwardLoss([[0.8, 0.2], [0.4, 0.6]])
    >>> loss(torch.zeros(1, 2), torch.tensor([0]))  # -log(.5 * .8 + .5 * .4)
    tensor(0.5108)
    """

    def __init__(
        self,
        transition_matrix: Any = None,
        *,
        q: float = 0.0,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__(transition_matrix, reduction=reduction, ignore_index=ignore_index)
        if not 0 <= q <= 1:
            raise LabelNoiseError(f"Expected q in [0, 1], but q = {q}")
        self.q = q

    def _losses(self, log_f: Tensor, target: Tensor, columns: Tensor) -> Tensor:
        log_noisy = _log_noisy(log_f, columns)
        return -torch.expm1(self.q * log_noisy) / self.q if self.q else -log_noisy


class BackwardLoss(_TransitionLoss):
    """Backward correction: a mix of each class's loss whose mean is the loss of clean labels.

    Unbiased, but of higher variance than `ForwardLoss`, and it can be negative.

    Parameters
    ----------
    transition_matrix : array or tensor of shape (K, K), optional
        As for `ForwardLoss`, and not singular; one that is given at a call is not checked.

    Notes
    -----
    ``(T^-1 l)[y]``, l the K classes' cross-entropies. Patrini et al., 2017, arXiv:1609.03683.
    """

    inverse: Tensor | None

    def __init__(
        self, transition_matrix: Any = None, *, reduction: str = "mean", ignore_index: int = -100
    ) -> None:
        super().__init__(transition_matrix, reduction=reduction, ignore_index=ignore_index)
        self.register_buffer("inverse", None)
        if self.transition_matrix is not None:
            T = self.transition_matrix.cpu()
            condition = torch.linalg.cond(T).item()
            if not condition < _LARGEST_CONDITION:
                raise LabelNoiseError(
                    f"Expected transition_matrix to have a condition number below 1e6, but it is "
                    f"{condition:.1e}: use ForwardLoss, which needs no inverse"
                )
            self.inverse = torch.linalg.inv(T).to(self.transition_matrix)

    def forward(
        self, logits: Tensor, target: Tensor, transition_matrix: Tensor | None = None
    ) -> Tensor:
        """Give the loss of logits (B, K) and noisy labels (B,); see `ForwardLoss`."""
        log_f, target, kept = _read(logits, target, self.ignore_index)
        return self._reduce(self._corrected(log_f, target, transition_matrix), kept)

    def _corrected(self, log_f: Tensor, target: Tensor, given: Tensor | None) -> Tensor:
        T = self._matrix(given, log_f)
        if given is None and self.inverse is not None:
            return -(self.inverse.to(log_f).index_select(0, target) * log_f).sum(1)
        # solve_ex does not look at its result, for which a GPU would have to be waited for.
        solved = torch.linalg.solve_ex(T, -log_f if T.dim() == 3 else -log_f.mT).result
        return _of_label(solved if T.dim() == 3 else solved.mT, target)


class ReweightLoss(_ColumnLoss):
    """Importance reweighting: cross-entropy, weighted by how much a label is to be believed.

    Parameters
    ----------
    transition_matrix : array or tensor of shape (K, K), optional
        As for `ForwardLoss`.
    through_weight : bool, default=False
        Whether the weight takes part in the gradient. T-Revision learns T that way; training
        with a fixed T holds the weight constant.

    Notes
    -----
    ``f[y] / (T' f)[y] * -log f[y]``, f the softmax. Liu and Tao, 2016, arXiv:1411.7718.
    """

    def __init__(
        self,
        transition_matrix: Any = None,
        *,
        through_weight: bool = False,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__(transition_matrix, reduction=reduction, ignore_index=ignore_index)
        self.through_weight = through_weight

    def _losses(self, log_f: Tensor, target: Tensor, columns: Tensor) -> Tensor:
        log_own = _of_label(log_f, target)
        log_weight = log_own - _log_noisy(log_f, columns)
        weight = log_weight.clamp(max=_LARGEST_EXPONENT).exp()
        return -(weight if self.through_weight else weight.detach()) * log_own


class PeerLoss(_Loss):
    """Peer loss: cross-entropy, less that of examples paired with labels of others.

    Parameters
    ----------
    alpha : float or scalar tensor, default=1.0
        Weight of the pairs. An attribute that may be set between batches, as it is usually
        raised from 0; in a CUDA graph, a tensor on the GPU that is changed in place.
    generator : torch.Generator, optional
        Draws the pairs, on the device of the logits.

    Notes
    -----
    ``CE(x_n, y_n) - alpha CE(x_a, y_b)``, a and b from two random orders of the batch. 1e-8
    is added to all probabilities: else there would be no lower bound. Liu and Guo, 2020,
    arXiv:1910.03231.
    """

    def __init__(
        self,
        alpha: float | Tensor = 1.0,
        *,
        generator: torch.Generator | None = None,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__(reduction, ignore_index)
        self.alpha = alpha
        self.generator = generator

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the loss of logits (B, K) and noisy labels (B,)."""
        log_f, target, kept = _read(logits, target, self.ignore_index)
        log_f = _bounded(log_f)
        shuffled = log_f.index_select(0, self._order(kept))
        others = target.index_select(0, self._order(kept))
        losses = -_of_label(log_f, target) + self.alpha * _of_label(shuffled, others)
        return self._reduce(losses, kept)

    def _order(self, kept: Tensor) -> Tensor:
        """For each example that is kept another one of these, in a random order."""
        chance = torch.rand(kept.shape, device=kept.device, generator=self.generator)
        kept_first = torch.where(kept, chance, 1.0).argsort()
        return kept_first.index_select(0, (kept.cumsum(0) - 1).clamp(min=0))


class DMILoss(nn.Module):
    """Determinant-based mutual information of labels and predictions, for fine-tuning.

    Start from a network trained with cross-entropy, with a small learning rate and many examples
    of each class in a batch: predictions that do not depend on x have an infinite loss.

    Notes
    -----
    ``-log(abs(det U))``, ``U = onehot(y)' f``, f the softmax: not divided by the batch size,
    which would only add a constant. A class without a label in the batch would make the
    determinant 0; its row and column are left out instead, so that the other classes still
    learn. Xu et al., 2019, arXiv:1909.03388.
    """

    def __init__(self, *, ignore_index: int = -100) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the loss, one number, of logits (B, K) and noisy labels (B,)."""
        log_f, target, kept = _read(logits, target, self.ignore_index)
        count = log_f.new_zeros(log_f.shape[1]).index_add(0, target, kept.to(log_f.dtype))
        # index_add and not a matrix product: autocast and TF32 would round that.
        f = torch.where(kept[:, None], log_f.exp(), 0.0)
        U = torch.diag((count == 0).to(log_f.dtype)).index_add(0, target, f)
        return -torch.linalg.slogdet(U).logabsdet


class GCELoss(_Loss):
    """Generalised cross-entropy: between cross-entropy (q to 0) and absolute error (q = 1).

    Parameters
    ----------
    q : float in (0, 1], default=0.7

    Notes
    -----
    ``(1 - f[y]^q) / q``, f the softmax. Zhang and Sabuncu, 2018, arXiv:1805.07836.
    """

    def __init__(
        self,
        q: float = 0.7,
        *,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__(reduction, ignore_index)
        if not 0 < q <= 1:
            raise LabelNoiseError(f"Expected q in (0, 1], but q = {q}")
        self.q = q

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the loss of logits (B, K) and noisy labels (B,)."""
        log_f, target, kept = _read(logits, target, self.ignore_index)
        log_own = _of_label(log_f, target)
        return self._reduce(-torch.expm1(self.q * log_own) / self.q, kept)


class CORESLoss(_Loss):
    """CORES2: cross-entropy, less its mean over the labels that one would expect anyway.

    What is subtracted rewards confident predictions. After some epochs the examples that
    `cores_keep` rejects are left out.

    Parameters
    ----------
    prior : array or tensor of shape (K,)
        Share of each class among the noisy labels. A buffer: it moves with `to`.
    beta : float or scalar tensor, default=2.0
        Weight of the mean, to be changed as `PeerLoss`'s alpha is.

    Notes
    -----
    ``CE(f, y) - beta sum_j prior[j] CE(f, j)``. 1e-8 is added to all probabilities: else there
    would be no lower bound. Cheng et al., 2021, arXiv:2010.02347.
    """

    prior: Tensor

    def __init__(
        self,
        prior: Any,
        beta: float | Tensor = 2.0,
        *,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__(reduction, ignore_index)
        self.register_buffer("prior", _probabilities(prior, "prior", 1))
        self.beta = beta

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Give the loss of logits (B, K) and noisy labels (B,)."""
        log_f, target, kept = _read(logits, target, self.ignore_index)
        if len(self.prior) != log_f.shape[1]:
            raise LabelNoiseError(
                f"Expected logits of as many classes as prior, but prior has {len(self.prior)} "
                f"and the logits {log_f.shape[1]}"
            )
        log_f = _bounded(log_f)
        expected = (self.prior.to(log_f) * log_f).sum(1)
        return self._reduce(-_of_label(log_f, target) + self.beta * expected, kept)


def cores_keep(logits: Tensor, target: Tensor, *, ignore_index: int = -100) -> Tensor:
    """Which examples CORES2 trains on: those whose label costs no more than the average label.

    ``CE(f, y) <= mean_j CE(f, j)`` for each of logits (B, K) and labels (B,); False where the
    label is to be ignored.
    """
    log_f, target, kept = _read(logits, target, ignore_index)
    return kept & (_of_label(log_f, target) >= log_f.mean(1))


def _read(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, labels that can be looked up, and which of them count."""
    if logits.dim() != 2 or target.shape != logits.shape[:1] or target.is_floating_point():
        raise LabelNoiseError(
            f"Expected logits of shape (B, K) and a target of integers of shape (B,), but these "
            f"are {tuple(logits.shape)} and {target.dtype} of shape {tuple(target.shape)}"
        )
    kept = target != ignore_index
    if target.device.type == "cpu" and not torch.compiler.is_compiling():
        outside = target[kept & ((target < 0) | (target >= logits.shape[1]))]
        if len(outside):
            raise LabelNoiseError(
                f"Expected a target of class numbers from 0 to {logits.shape[1] - 1}, or the "
                f"ignore_index {ignore_index}, but it has {outside[0].item()}"
            )
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide, 1), torch.where(kept, target, 0).long(), kept


def _of_label(values: Tensor, target: Tensor) -> Tensor:
    return values.gather(1, target[:, None]).squeeze(1)


def _bounded(log_f: Tensor) -> Tensor:
    return torch.logaddexp(log_f, torch.full_like(log_f, _LOG_LEAST))


def _log_noisy(log_f: Tensor, columns: Tensor) -> Tensor:
    """``log((T' f)[y])`` for each example, from its column of T.

    A sum of ``f T`` scaled by its largest term, and not logsumexp with log T: where T is 0 the
    derivative of log T is infinite, but that of the sum is not, and lets a T be learnt there.
    """
    # A label that no class is given tells nothing about the class.
    columns = torch.where((columns < _NEGLIGIBLE).all(1, keepdim=True), 1.0, columns)
    log_T = torch.threshold(columns.detach(), _NEGLIGIBLE, 0.0).log()
    log_top = (log_f.detach() + log_T).amax(1, keepdim=True)
    # The limit is only reached where T is negligible: there it bounds the slope.
    scaled = (log_f - log_top).clamp(max=_LARGEST_EXPONENT).exp()
    return log_top.squeeze(1) + (scaled * columns).sum(1).log()


def _probabilities(given: Any, name: str, ndim: int) -> Tensor:
    """A float64 copy of a prior (K,) or a transition matrix (K, K), on its device."""
    device = None
    if isinstance(given, Tensor):
        if given.requires_grad:
            raise LabelNoiseError(
                f"Expected a constant {name}, but it requires a gradient: give it at each call to "
                f"learn it"
            )
        device, given = given.device, given.detach().cpu().double().numpy()
    if ndim == 2:
        values = checked_matrix(given, name)
    else:
        values = probability_rows(np.array(given, float, ndmin=2), name).reshape(-1)
    return torch.tensor(values, dtype=torch.float64, device=device)
