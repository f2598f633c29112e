"""A finding is one thing that was looked at: how bad it is, a sentence, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

Severity = Literal["serious", "warning", "note", "not tested", "ok"]
"""From the most to the least urgent. Serious: the number cannot be relied on. Note: worth reading,
but nothing was found wrong."""

BASIS = "basis"  # name of the finding that says whether there is anything to estimate from


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    """Whether nothing was found wrong, also where nothing could be tested."""
    value: float | None
    """The number behind the sentence; None where nothing could be measured."""
    sentence: str
    """What was found, and what it does to T."""
    severity: Severity = ""  # type: ignore[assignment]
    """By default "warning" if not `ok`, else "ok" if there is a value and "not tested" if not."""
    remedy: str = ""
    """What to do about it."""

    def __post_init__(self) -> None:
        if self.value is not None:
            object.__setattr__(self, "value", float(self.value))
        if str(self.severity) == "":
            fine = "not tested" if self.value is None else "ok"
            object.__setattr__(self, "severity", fine if self.ok else "warning")
        wrong = self.severity in ("serious", "warning")
        if self.severity not in get_args(Severity) or self.ok == wrong:
            raise ValueError(f"a finding with ok = {self.ok} has the severity {self.severity!r}")

    @property
    def needs_attention(self) -> bool:
        """Whether it is shown with the number."""
        return self.severity in ("serious", "warning", "note")

    def __str__(self) -> str:
        remedy = f" {self.remedy}" if self.needs_attention and self.remedy else ""
        mark = self.severity if self.severity == "ok" else self.severity.upper()
        return f"{mark:<10}  {self.sentence}{remedy}"


@dataclass(frozen=True, repr=False)
class Diagnostics(Sequence[Finding]):
    """All findings about one estimate, the most urgent first; prints as a list.

    ``diagnostics["fit"]`` is one of them.
    """

    findings: tuple[Finding, ...]

    def __post_init__(self) -> None:
        urgency = get_args(Severity).index
        found = sorted(self.findings, key=lambda finding: urgency(finding.severity))
        object.__setattr__(self, "findings", tuple(found))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            for finding in self.findings:
                if finding.name == key:
                    return finding
            raise KeyError(key)
        return self.findings[key]

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __contains__(self, name: object) -> bool:
        return any(name in (finding, finding.name) for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return all(finding.ok for finding in self.findings)

    @property
    def serious(self) -> tuple[Finding, ...]:
        """Findings for which the number cannot be relied on."""
        return tuple(finding for finding in self if finding.severity == "serious")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Warnings and notes: what needs attention, but is not serious."""
        return tuple(finding for finding in self if finding.severity in ("warning", "note"))

    @property
    def estimable(self) -> bool:
        """Whether there is anything to estimate from: without it no number is shown."""
        return BASIS not in self or bool(self[BASIS].ok)

    @property
    def rest(self) -> str:
        """How many checks passed and how many were not tested, in words."""
        passed, untested = (
            sum(finding.severity == kind for finding in self) for kind in ("ok", "not tested")
        )
        left = f", {untested} not tested" if untested else ""
        return f"{passed} check{'' if passed == 1 else 's'} passed{left}"

    def replaced(self, new: Iterable[Finding]) -> Diagnostics:
        """Give these findings with new ones in place of those of the same names."""
        new = tuple(new)
        names = {finding.name for finding in new}
        return Diagnostics((*(finding for finding in self if finding.name not in names), *new))

    def __repr__(self) -> str:
        return "\n".join(map(str, self))


def listed(classes: np.ndarray, numbers: Sequence[int], most: int = 5) -> str:
    """Name classes in a sentence."""
    shown = [str(classes[i]) for i in numbers[:most]]
    more = len(numbers) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
