"""Exact nearest neighbours on a GPU, by products in half precision that are then made good.

Scores are symmetric, so only tiles on and above the diagonal are computed. Of each tile no more
is kept than the maximum of every 16 scores along its rows and along its columns: the k best
columns of a row are in its k best groups. The columns of a few more groups than that are scored
again, a few more than k of them are ranked in float64, and a row for which half precision cannot
tell is searched again in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from labelnoise._arrays import Arrays
from labelnoise._errors import LabelNoiseError
from labelnoise.io.packages import install
from labelnoise.neighbors import METRICS
from labelnoise.neighbors.points import Neighbors, Progress

try:
    import torch
except ModuleNotFoundError as error:
    raise LabelNoiseError(
        f"Expected PyTorch to be installed, but it is not: {install('torch')}"
    ) from error
from torch import Tensor

_TILE = 16384
_GROUP = 16  # scores of which only the maximum is kept
_STRIDE = 128  # from one member of a group to the next, so that maxima are taken side by side
_BLOCK = _GROUP * _STRIDE  # tiles are made of whole blocks
_SPARE = 6  # groups, and columns, kept beyond k
_SHARE = 0.6  # of the free memory that features may take
_ELEMENTS = 2**26  # of the largest temporary array, tiles and maxima apart
_SCALE = 64.0  # keeps small features out of the subnormal numbers, and scores in range
_LEAST = 2.0**-34  # rounding error that remains for small numbers
_LOWEST = -4.0  # less than any score
_LARGER = 256  # blocks of arithmetic, than on a processor


def nearest_on_device(
    X: np.ndarray | Tensor,
    k: int,
    metric: str = "cosine",
    device: str | torch.device = "cuda",
    *,
    progress: Progress | None = None,
    tile: int = _TILE,
) -> Neighbors:
    """Find each row's nearest other rows, exactly, on a GPU.

    Parameters
    ----------
    X : array or tensor of shape (N, d)
        Finite numbers. An array may be memory-mapped: it is sent in pieces, again and again where
        the GPU cannot hold it. Of a tensor on the GPU nothing is copied to the host.
    k : int
        How many neighbours, fewer than N.
    metric : {"cosine", "euclidean"}
        As for `labelnoise.neighbors.nearest_neighbors`.
    device : str or torch.device
        "cuda", "cuda:1" or, to try it out, "cpu".
    progress : callable, optional
        Called as ``progress(tiles_done, tiles)``.
    tile : int
        Rows in a tile, rounded up to a multiple of 2048; fewer where memory is short. It changes
        speed and memory, which is about N * tile / 4 bytes beside the features, not the result.

    Returns
    -------
    Neighbors
        What `labelnoise.neighbors.nearest_neighbors` returns, but for ties.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> nearest_on_device(X, 1, device="cpu").indices.ravel().tolist()
    [1, 0, 3, 2]
    """
    if metric not in METRICS:
        raise LabelNoiseError(f"Expected metric to be one of {METRICS}, but metric = {metric!r}")
    if not 1 <= k < len(X):
        raise LabelNoiseError(f"Expected 1 <= k < n_samples, but k = {k}, n_samples = {len(X)}")
    with torch.no_grad(), _full_accumulation():
        points = _Points(X, metric, _checked(device))
        count = min(k + _SPARE, points.n - 1)
        tile = _round_up(tile, _BLOCK)
        while tile > _BLOCK and points.n * tile // 4 > (1 - _SHARE) * _free_bytes(points.device):
            tile = _round_up(tile // 2, _BLOCK)
        best, groups = _best_groups(points, k + _SPARE, tile, progress)
        candidates, worst = _candidates(points, best, groups, count)
        everyone = torch.arange(points.n, device=points.device)
        indices, gap = _rank(points, everyone, candidates, k)
        unsettled = everyone[~points.settled(gap[:, -1], worst)]
        step = max(1, 2 * _ELEMENTS // points.n)
        for rows in unsettled.split(step) if len(unsettled) else ():
            indices[rows], gap[rows] = _rank(points, rows, _by_float64(points, rows, k), k)
        return Neighbors(indices.cpu().numpy(), points.distance(gap).cpu().numpy())


def arrays_on(device: str | torch.device) -> Arrays:
    """Arrays of PyTorch there, for what `labelnoise.refinement` does with them."""
    checked = _checked(device)
    return Arrays(torch, checked, _LARGER, _SHARE * _free_bytes(checked))


def _checked(device: str | torch.device) -> torch.device:
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = torch.device("meta")
    if chosen.type not in ("cuda", "cpu"):
        raise LabelNoiseError(f"Expected device 'cuda' or 'cpu', but device = {str(device)!r}")
    gpus = torch.cuda.device_count()
    if chosen.type == "cuda" and (chosen.index or 0) >= gpus:
        raise LabelNoiseError(
            f"Expected a GPU that PyTorch can use as {str(device)!r}, but it finds {gpus} GPUs"
        )
    return chosen


@contextmanager
def _full_accumulation() -> Iterator[None]:
    """Have products of half precision added up in float32 throughout."""
    settings = torch.backends.cuda.matmul
    before = settings.allow_fp16_reduced_precision_reduction
    settings.allow_fp16_reduced_precision_reduction = False
    try:
        yield
    finally:
        settings.allow_fp16_reduced_precision_reduction = before


def _free_bytes(device: torch.device) -> float:
    """What is free, and what PyTorch keeps for arrays to come."""
    if device.type == "cpu":
        return float("inf")
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


class _Points:
    """Rows prepared for comparison, as `labelnoise.neighbors.Points` has them.

    A *near* row is one times _SCALE in half precision. The score of two rows is the product of
    the near ones over ``_SCALE**2``; Euclidean ones have more columns, to make it ``-gap / 2``.
    """

    def __init__(self, X: Any, metric: str, device: torch.device) -> None:
        if isinstance(X, Tensor):
            X = X if X.device.type == device.type else X.to(device)
            device = X.device
        self.X, self.device, self.cosine = X, device, metric == "cosine"
        self.n, self.d = X.shape
        self.padded = _round_up(self.n, _BLOCK)
        self.width = _round_up(self.d + (0 if self.cosine else 4), 8)  # as tensor cores like it
        self.near_type = torch.float16 if device.type == "cuda" else torch.float32
        pieces = _row_blocks(self.n, 4 * self.d)
        shape = (1 if self.cosine else 2, self.padded, self.width)
        room = _SHARE * _free_bytes(device) - math.prod(shape) * self.near_type.itemsize
        if not isinstance(X, Tensor):
            self.host_type = np.float32 if np.can_cast(X.dtype, np.float32) else np.float64
            if room >= X.size * np.dtype(self.host_type).itemsize:
                held = torch.empty(X.shape, dtype=self._sent(pieces[0]).dtype, device=device)
                for rows in pieces:
                    held[rows] = self._sent(rows)
                self.X = held

        self.shift: Tensor | None = None
        if self.cosine:
            scale = torch.cat([_norm(self._double(rows)) for rows in pieces])
        else:
            # Distances do not see a common shift, but rounding does.
            self.shift = self._double(slice(0, None, max(1, self.n // 1000))).median(0).values
            largest = [_norm(self._double(rows) - self.shift).max() for rows in pieces]
            scale = torch.stack(largest).max().expand(self.n)
        if not scale.isfinite().all():
            raise LabelNoiseError("Expected finite features, but X contains NaN or infinity")
        self.zero = scale == 0
        self.scale = scale.masked_fill(self.zero, 1)[:, None]

        self.norm = torch.empty_like(scale)
        # The largest error of a near row, relative to its norm, and of half its square.
        self.rounding = self.level = 0.0
        self.held: list[Tensor] = []  # the near rows, if there is room for them
        if room >= 0:
            self.held = list(torch.zeros(shape, dtype=self.near_type, device=device))
        for rows in pieces:
            exact, near = self.exact(rows), self._made_near(rows)
            for kept, made in zip(self.held, near, strict=False):
                kept[rows] = made
            norm = self.norm[rows] = torch.linalg.vector_norm(exact, dim=1)
            rounded = near[0][:, : self.d].double() / _SCALE
            half = near[0][:, self.d : self.d + 2].double().sum(1) / _SCALE**2
            level = rounded.square().sum(1) / 2 - (0.5 if self.cosine else half)
            error = torch.linalg.vector_norm(rounded - exact, dim=1)
            self.rounding = max(self.rounding, float((error / norm).nan_to_num().max()))
            self.level = max(self.level, float((level.abs() * (norm > 0)).max()))

    def _sent(self, rows: slice | Tensor) -> Tensor:
        """Rows of an array, copied to the device."""
        index = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        return torch.from_numpy(np.array(self.X[index], self.host_type)).to(self.device)

    def _double(self, rows: slice | Tensor) -> Tensor:
        held = self.X[rows] if isinstance(self.X, Tensor) else self._sent(rows)
        return held.double()

    def exact(self, rows: slice | Tensor) -> Tensor:
        """The rows in float64."""
        result = self._double(rows)
        return (result if self.shift is None else result - self.shift) / self.scale[rows]

    def _made_near(self, rows: slice | Tensor) -> list[Tensor]:
        """The near rows as the left and as the right factor of a product."""
        exact = self.exact(rows) * _SCALE
        left = torch.nn.functional.pad(exact, (0, self.width - self.d)).to(self.near_type)
        if self.cosine:
            return [left, left]
        right = left.clone()
        half = left.double().square().sum(-1) / 2
        # Half the square needs more digits than one number of half precision has.
        for place in (self.d, self.d + 1):
            left[..., place] = half
            half = half - left[..., place]
            right[..., place] = -1
            left[..., place + 2] = 1
            right[..., place + 2] = -left[..., place]
        return [left, right]

    def near(self, rows: slice | Tensor, side: int) -> Tensor:
        """Near rows as a left (0) or right (1) factor, with zeros for rows beyond the last."""
        if self.held:
            return self.held[side % len(self.held)][rows]
        if isinstance(rows, Tensor):
            return self._made_near(rows.clamp(max=self.n - 1))[side]
        made = self._made_near(slice(rows.start, min(rows.stop, self.n)))[side]
        return torch.nn.functional.pad(made, (0, 0, 0, rows.stop - rows.start - len(made)))

    def gap(self, rows: Tensor, others: Tensor) -> Tensor:
        """Squared distance of each row to its listed others, in float64, as on the CPU."""
        difference = self.exact(others).sub_(self.exact(rows)[:, None])
        result = torch.linalg.vector_norm(difference, dim=2).square_()
        if self.cosine:
            result[self.zero[rows][:, None] | self.zero[others]] = 2.0
        return result

    def settled(self, gap: Tensor, worst: Tensor) -> Tensor:
        """Whether a row's farthest neighbour is clearly nearer than what was left out.

        Of what was left out all scores are at most `worst`, and only what is not farther than
        `gap` matters: its norm and the error of its score are bounded by that.
        """
        distance = gap.sqrt()
        reach = (self.norm + distance).clamp(max=1)
        apart = 2 * self.rounding * reach
        error = apart * distance + apart.square() / 2 + 2 * self.level + _LEAST
        error += (self.width / 16 + 1) * 2.0**-22 * reach.square()
        worst = worst.clamp(min=_LOWEST)
        error += worst.abs() * torch.finfo(self.near_type).eps / 2
        return (1 - gap / 2 if self.cosine else -gap / 2) - error > worst

    def distance(self, gap: Tensor) -> Tensor:
        """The distance, in the units of the data, of a gap."""
        return gap / 2 if self.cosine else gap.sqrt() * self.scale[0]


def _norm(rows: Tensor) -> Tensor:
    """Norms of rows, also of values whose squares a double cannot hold."""
    largest = rows.abs().amax(1, keepdim=True)
    largest[largest == 0] = 1
    return largest[:, 0] * torch.linalg.vector_norm(rows / largest, dim=1)


def _best_groups(
    points: _Points, count: int, tile: int, progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """Maxima and numbers of the `count` best groups of columns of each row, unordered."""
    n, size = points.n, points.padded
    count = min(count, size // _GROUP)
    groups = torch.zeros((size, count), dtype=torch.int32, device=points.device)
    best = torch.full_like(groups, -torch.inf, dtype=points.near_type)
    side = -(-size // tile)
    done, total = 0, side * (side + 1) // 2
    for first in range(0, size, tile):
        last = min(first + tile, size)
        left = points.near(slice(first, last), 0)
        along = best.new_empty((last - first, (size - first) // _GROUP))
        down = best.new_empty((size - last, (last - first) // _GROUP))
        for start in range(first, size, tile):
            stop = min(start + tile, size)
            scores = left @ points.near(slice(start, stop), 1).T
            if start == first:
                scores.fill_diagonal_(-torch.inf)
            if stop > n:
                scores[:, n - start :] = -torch.inf
            place = slice((start - first) // _GROUP, (stop - first) // _GROUP)
            along[:, place] = scores.view(len(left), -1, _GROUP, _STRIDE).amax(2).flatten(1)
            if start > first:
                parts = scores.view(-1, _GROUP, _STRIDE, stop - start).amax(1).flatten(0, 1)
                down[start - last : stop - last] = parts.T
            done += 1
        _merge(best[first:last], groups[first:last], along, first // _GROUP)
        _merge(best[last:], groups[last:], down, first // _GROUP)
        if progress:
            progress(done, total)
    return best[:n], groups[:n]


def _members(groups: Tensor) -> Tensor:
    """The columns (n, 16 m) of groups (n, m)."""
    groups = groups.long()
    first = groups // _STRIDE * _BLOCK + groups % _STRIDE
    return (first[..., None] + torch.arange(0, _BLOCK, _STRIDE, device=first.device)).flatten(1)


def _merge(best: Tensor, groups: Tensor, maxima: Tensor, first: int) -> None:
    """Merge the maxima (n, w) of groups that are numbered from `first` into the best (n, m)."""
    count, parts = best.shape[1], maxima.shape[1] // _GROUP
    for rows in _row_blocks(len(best), count * _GROUP):
        # The best are in the best of 16 at a time.
        coarse = maxima[rows].view(-1, _GROUP, parts).amax(1)
        top = coarse.topk(min(count, parts), sorted=False).indices[..., None]
        columns = (top + torch.arange(_GROUP, device=top.device) * parts).flatten(1)
        found = torch.cat([best[rows], maxima[rows].gather(1, columns)], 1)
        best[rows], at = found.topk(count, sorted=False)
        groups[rows] = torch.cat([groups[rows], (columns + first).int()], 1).gather(1, at)


def _row_blocks(n: int, width: int) -> list[slice]:
    step = max(1, _ELEMENTS // width)
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def _candidates(points: _Points, best: Tensor, groups: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best columns of each row, unordered, -1 for none; no score left out is higher."""
    n, width = points.n, groups.shape[1] * _GROUP
    candidates = torch.empty((n, count), dtype=torch.int64, device=points.device)
    worst = torch.full((n,), -torch.inf, dtype=torch.float64, device=points.device)
    if groups.shape[1] < points.padded // _GROUP:
        worst = best.amin(1).double()
    for rows in _row_blocks(n, width * points.width // (8 if points.held else 1)):
        columns = _members(groups[rows])
        scores = points.near(columns, 1) @ points.near(rows, 0)[..., None]
        own = torch.arange(rows.start, rows.stop, device=points.device)[:, None]
        empty = (best[rows] == -torch.inf).repeat_interleave(_GROUP, 1)
        scores = scores[..., 0].masked_fill_(empty | (columns == own) | (columns >= n), -torch.inf)
        scores, at = scores.topk(count, sorted=False)
        candidates[rows] = columns.gather(1, at).masked_fill_(scores == -torch.inf, -1)
        if count < n - 1:
            worst[rows] = worst[rows].maximum(scores.amin(1).double())
    return candidates, worst / _SCALE**2


def _rank(points: _Points, rows: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest candidates of each row, and their gaps, by float64."""
    gap = torch.cat(
        [
            points.gap(rows[part], candidates[part].clamp(min=0))
            for part in _row_blocks(len(rows), candidates.shape[1] * points.d)
        ]
    )
    gap, order = gap.masked_fill_(candidates < 0, torch.inf).sort(dim=1, stable=True)
    return candidates.gather(1, order[:, :k]), gap[:, :k].clone()


def _by_float64(points: _Points, rows: Tensor, k: int) -> Tensor:
    """A few more than the k nearest of each row by products in float64."""
    own, n = points.exact(rows), points.n
    scores = own.new_empty((len(rows), n))
    for columns in _row_blocks(n, points.d):
        other = points.exact(columns)
        scores[:, columns] = own @ other.T
        if not points.cosine:
            scores[:, columns] -= other.square().sum(1) / 2
    scores.scatter_(1, rows[:, None], -torch.inf)
    return scores.topk(min(k + _SPARE, n - 1)).indices
