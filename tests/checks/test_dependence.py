"""What is said of noise that may depend on the example."""

import re
from dataclasses import replace

import numpy as np
import pytest

from labelnoise import HOC
from labelnoise.checks import check_clean_class
from labelnoise.noise import symmetric
from tests.conftest import clusters, symmetric_matrix


@pytest.fixture(scope="module")
def found():
    """The model of the clean class of clusters, with 20% of the labels wrong."""
    X, y = clusters(3, 600, 0)
    return HOC().fit(X, symmetric(y, 0.2, random_state=0).labels).clean_class_


@pytest.mark.parametrize(
    ("gain", "b", "of_triples", "severity", "said"),
    [
        (2.0, 0.5, 0.4, "note", r"too few to show .* 20\.0% are wrong, as T says; .* up to 40\.0%"),
        (2.0, 0.5, 0.25, "ok", "does not seem to depend"),
        (2.0, 0.0, 0.4, "ok", "does not seem to depend"),
        (20.0, 0.5, 0.4, "warning", r"Between 20\.0% and 40\.0% of the labels are wrong"),
        (20.0, 0.5, 0.21, "ok", "Noise depends on the example"),
    ],
)
def test_what_labels_show(found, gain, b, of_triples, severity, said):
    """Shown, too few labels to show it, or no sign; and whether it matters."""
    ends = [(symmetric_matrix(3, rate), np.full(3, 1 / 3)) for rate in (0.2, of_triples)]
    case = replace(found.case, gain=gain, b=b, c=0.0)
    finding = check_clean_class(replace(found, case=case, given_h=ends[0], of_triples=ends[1]))[0]
    assert finding.severity == severity
    assert re.search(said, finding.sentence)
    assert bool(finding.remedy) == (severity != "ok")
