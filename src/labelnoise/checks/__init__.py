"""What an estimate stands on, checked: each check is one function that gives a `Finding`."""

from labelnoise.checks.at_fit import check_examples, check_refined, check_triples, widened
from labelnoise.checks.copies import check_duplicates, row_keys
from labelnoise.checks.dependence import check_clean_class
from labelnoise.checks.findings import Diagnostics, Finding
from labelnoise.checks.fit import check_fit, overlap_of
from labelnoise.checks.matrix import (
    SURELY,
    check_guarantee,
    check_matrix,
    check_pairs,
    check_rows,
    check_solution,
)
from labelnoise.checks.search import LEAST_FOUND, check_search

__all__ = [
    "LEAST_FOUND",
    "SURELY",
    "Diagnostics",
    "Finding",
    "check_clean_class",
    "check_duplicates",
    "check_examples",
    "check_fit",
    "check_guarantee",
    "check_matrix",
    "check_pairs",
    "check_refined",
    "check_rows",
    "check_search",
    "check_solution",
    "check_triples",
    "overlap_of",
    "row_keys",
    "widened",
]
