"""What the page shows of the examples: their content, given label and neighbours."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.verified.sample import chance_wrong

if TYPE_CHECKING:
    from labelnoise.results import Results

NEIGHBORS_SHOWN = 6


class Labelled:
    """The labelled examples with their class numbers, and the chance that each is wrong."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.estimate = results.estimate
        examples = self.estimate.examples_
        labelled = examples.labels >= 0
        self.labels = examples.labels[labelled]
        self.rows = examples.rows[labelled]
        self.classes: list[str] = [str(name) for name in self.estimate.classes_.tolist()]
        self.wrong = chance_wrong(self.estimate.predict_proba(), self.labels)

    def fingerprint(self) -> str:
        """Tell these labels from others."""
        digest = hashlib.sha256(repr(self.classes).encode("utf-8", "surrogatepass"))
        for array in (self.rows, self.labels):
            digest.update(np.ascontiguousarray(array, np.int64).tobytes())
        return digest.hexdigest()

    def place(self, row: int) -> int:
        """Say which of the labelled examples a row of the data is."""
        i = int(np.searchsorted(self.rows, row))
        if i == len(self.rows) or self.rows[i] != row:
            raise LabelNoiseError(f"Expected a labelled row of the data, but row {row} is none")
        return i

    def given(self, row: int) -> int:
        """Give the class number of a row's label."""
        return int(self.labels[self.place(row)])

    def name(self, row: int) -> str:
        """Give the name of a row."""
        return str(self.results.names[row])

    def neighbors(self, row: int) -> list[dict[str, int]]:
        """Give the nearest labelled examples, with their labels."""
        near = self.results.neighbors(row, NEIGHBORS_SHOWN)
        return [{"row": other, "given": self.given(other)} for other in near]
