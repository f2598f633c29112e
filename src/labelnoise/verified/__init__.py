"""Verified labels: a rate of wrong labels that no assumption can spoil.

`sample` chooses the rows to check, `answers` reads what was found, and `estimates` computes what
follows for the noise rate, T and every example's posterior.
"""

from labelnoise.verified.answers import Answers, read_answers
from labelnoise.verified.estimates import Ends, NoiseRate, Stratum, Verification, verify
from labelnoise.verified.sample import Sample, draw_sample, sample_size

__all__ = [
    "Answers",
    "Ends",
    "NoiseRate",
    "Sample",
    "Stratum",
    "Verification",
    "draw_sample",
    "read_answers",
    "sample_size",
    "verify",
]
