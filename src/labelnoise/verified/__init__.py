"""Verified labels: a rate of wrong labels that no assumption can spoil.

`sample` chooses the rows to check, `answers` reads what was found, `rate` gives the share of wrong
labels by the sample alone, and `estimates` what follows for T and every example's posterior.
"""

from labelnoise.verified.answers import Answers, read_answers
from labelnoise.verified.estimates import Ends, Verification, verified_interval, verify
from labelnoise.verified.rate import NoiseRate, Stratum, noise_rate, rows_to_add
from labelnoise.verified.sample import Sample, draw_sample, sample_size

__all__ = [
    "Answers",
    "Ends",
    "NoiseRate",
    "Sample",
    "Stratum",
    "Verification",
    "draw_sample",
    "noise_rate",
    "read_answers",
    "rows_to_add",
    "sample_size",
    "verified_interval",
    "verify",
]
