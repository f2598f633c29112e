"""Findings: their severity, their order, and what is printed of them."""

import pytest

from labelnoise import HOC
from labelnoise.checks import Diagnostics, Finding
from labelnoise.noise import symmetric
from tests.conftest import clusters

FINE = Finding("fine", True, 1.0, "It is fine.")
OPEN = Finding("open", True, None, "It was not looked at.")
WARNED = Finding("warned", False, 2.0, "It is odd.", remedy="Look at it.")
SERIOUS = Finding("serious", False, 3.0, "It is wrong.", "serious", "Start again.")


def test_severity_follows_from_what_was_measured():
    """What is not tested is never "ok", and what is not ok is a warning unless said otherwise."""
    found = [finding.severity for finding in (FINE, OPEN, WARNED, SERIOUS)]
    assert found == ["ok", "not tested", "warning", "serious"]


@pytest.mark.parametrize("severity", ["serious", "warning", "silly"])
def test_severity_agrees_with_ok(severity):
    """A finding cannot be ok and serious, and severities are those that there are."""
    with pytest.raises(ValueError, match="severity"):
        Finding("f", True, 1.0, "?", severity)


def test_the_most_urgent_comes_first():
    """Whatever the order they are given in."""
    found = Diagnostics((FINE, OPEN, WARNED, SERIOUS))
    assert list(found) == [SERIOUS, WARNED, OPEN, FINE]
    assert found.serious == (SERIOUS,)
    assert found.warnings == (WARNED,)
    assert not found.ok
    assert found.rest == "1 check passed, 1 not tested"
    assert "Start again." in str(found).splitlines()[0]


def test_replaced_findings_are_looked_up_by_name():
    """A later look at the same thing replaces the earlier one; others stay."""
    again = Finding("warned", True, 1.0, "It is fine now.")
    found = Diagnostics((WARNED, FINE)).replaced([again])
    assert set(found) == {again, FINE}


def test_print_says_serious_findings_before_the_number_and_warnings_after():
    """What passed is one line at the end."""
    X, clean = clusters(3, 300, 0)
    est = HOC(metric="euclidean").fit(X, symmetric(clean, 0.2, random_state=0).labels)
    est.diagnostics_ = Diagnostics((FINE, OPEN, WARNED, SERIOUS))
    lines = str(est).splitlines()
    number = next(i for i, line in enumerate(lines) if "of the labels are wrong" in line)
    assert lines.index(str(SERIOUS)) < number < lines.index(str(WARNED))
    assert lines[-1].startswith("1 check passed, 1 not tested")
    assert "It is fine." not in str(est)


def test_no_number_where_there_is_nothing_to_estimate_from():
    """The finding "basis" takes the place of the number."""
    X, clean = clusters(3, 300, 0)
    est = HOC(metric="euclidean").fit(X, symmetric(clean, 0.2, random_state=0).labels)
    basis = Finding("basis", False, 0.0, "It cannot be estimated.", "serious", "Get data.")
    est.diagnostics_ = est.diagnostics_.replaced([basis])
    assert not est.diagnostics_.estimable
    assert "of the labels are wrong" not in str(est)
    assert est.transition_matrix_.shape == (3, 3)
