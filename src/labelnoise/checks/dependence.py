"""What the model of the clean class found of noise and overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from labelnoise.checks.findings import Finding
from labelnoise.checks.learnt import NEAR_ENDS
from labelnoise.clean_class.dependence import LEAST_EFFECT

if TYPE_CHECKING:
    from labelnoise.clean_class import CleanClass
    from labelnoise.clean_class.dependence import Case

_FAR_ENDS = 0.1
_REMEDY = "Have a hundred labels verified: they settle it."


def check_clean_class(found: CleanClass) -> list[Finding]:
    """Whether noise depends on the example, and whether each class has clear examples."""
    case = found.case
    low, high = (1 - float(p @ np.diag(T)) for T, p in (found.given_h, found.of_triples))
    where = "that are hard to tell" if case.b > 0 else "that are easy to tell"
    if case.depends:
        sentence = (
            f"Noise depends on the example: labels are wrong more often on examples {where}. "
            f"Labels cannot tell this noise from classes that overlap. Between "
            f"{min(low, high):z.1%} and {max(low, high):z.1%} of the labels are wrong, and T is "
            f"taken between the two."
        )
    elif case.b > LEAST_EFFECT and high - low > _FAR_ENDS:
        sentence = (
            f"The labels are too few to show whether noise depends on the example. If it does not, "
            f"{low:z.1%} are wrong, as T says; if it does, up to {high:z.1%}."
        )
        return [Finding("dependence", True, case.gain, sentence, "note", _REMEDY), _clear(case)]
    else:
        sentence = "Noise does not seem to depend on the example, beside its class."
    ok = not case.depends or abs(high - low) < NEAR_ENDS
    remedy = "" if ok else _REMEDY
    return [Finding("dependence", ok, case.gain, sentence, remedy=remedy), _clear(case)]


def _clear(case: Case) -> Finding:
    sentence = (
        "Each class has clear examples."
        if case.clear
        else f"A class overlaps so much with others that even of its clearest examples only "
        f"{case.clearest:.1%} are of it, by the features. How much is noise rests on the form of "
        f"the model, and T may be far off."
    )
    remedy = "Use features in which classes lie further apart, or have a hundred labels verified."
    if case.clear:
        remedy = ""
    return Finding("clear", case.clear, case.clearest, sentence, remedy=remedy)
