"""An estimate in words: what `print(est)` and the command line show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.intervals import ConfidenceInterval

if TYPE_CHECKING:
    from labelnoise.hoc import HOC

_LARGEST_PRINTED = 12
_LARGEST_QUICK = 40  # classes for which intervals take about a second


def summary(est: HOC, verbose: bool = False, all_in: str = "est.diagnostics_ has all") -> str:
    """Serious findings, the noise rate with its interval, T, and what else needs attention.

    Where there is nothing to estimate from, no number is given. `all_in` says where all findings
    are, which `verbose` prints.
    """
    found = est.diagnostics_
    lines = [str(finding) for finding in found.serious]
    verified = est.verified_ is not None and est.verified_.rate is not None
    if found.estimable or verified:
        lines += rate_lines(est)
        lines += [str(finding) for finding in found.warnings]
    if verbose:
        lines += [str(finding) for finding in found if not finding.needs_attention]
    lines.append(f"{found.rest}; {all_in}.")
    return "\n".join(lines)


def rate_lines(est: HOC) -> list[str]:
    """The noise rate with its interval, the largest confusions and T."""
    classes = [str(name) for name in est.classes_]
    interval = quick_interval(est)
    triples = f"around {est.consensus_.n_centers:,} examples " if hasattr(est, "consensus_") else ""
    found = est.diagnostics_
    refined = ", and from the features" if "dependence" in found else ""
    either = "learnt" in found and found["learnt"].severity == "note"
    if either:
        refined += ", if the features do not know the labels"
    lines = [
        f"{est.noise_rate_:.1%} of the labels are wrong, by an estimate from label triples "
        f"{triples}in {len(classes)} classes{refined}."
    ]
    if est.verified_ is not None:
        lines = [str(est.verified_)]
    if interval is not None and interval.method != "verified":
        low, high = interval.noise_rate
        lines.append(
            f"{'If they do not, it' if either else 'By chance it'} could be {low:z.1%} to "
            f"{high:z.1%} (95% interval, {interval.condition})."
        )
        if interval.caveat:
            lines.append(f"WARNING  {interval.caveat.capitalize()}.")
    return lines + confusion_lines(est.transition_matrix_, est.joint_, classes, interval)


def confusion_lines(
    T: np.ndarray, joint: np.ndarray, classes: list[str], interval: ConfidenceInterval | None = None
) -> list[str]:
    """The largest confusions as sentences, and T as a table if it is not too large for one."""
    confusions, lines, sentences = joint - np.diag(np.diag(joint)), [], []
    largest = np.argsort(-confusions, axis=None)[:5]
    for i, j in zip(*np.unravel_index(largest, T.shape), strict=True):
        if i != j and T[i, j] >= 0.0005:
            ends = "" if interval is None else _ends(*interval.transition_matrix[:, i, j])
            sentences.append(
                f"  {T[i, j]:.1%}{ends} of true {classes[i]} are labelled {classes[j]}"
            )
    if sentences:
        lines += ["Most frequent confusions:", *sentences]
    if len(T) <= _LARGEST_PRINTED:
        width = max(5, *(len(name) for name in classes))
        lines.append("Transition matrix, in percent (rows: true class, columns: label):")
        lines.append(" " * (width + 2) + " ".join(f"{name:>{width}}" for name in classes))
        for name, row in zip(classes, T, strict=True):
            lines.append(f"  {name:>{width}}" + "".join(f" {100 * v:>{width}.1f}" for v in row))
    return lines


def quick_interval(est: HOC) -> ConfidenceInterval | None:
    """The intervals, where there are any and they take no time."""
    if len(est.classes_) > _LARGEST_QUICK:
        return None
    try:
        return est.confidence_interval()
    except LabelNoiseError:
        return None


def _ends(low: float, high: float) -> str:
    return f" ({100 * low:.1f} to {100 * high:.1f})"
