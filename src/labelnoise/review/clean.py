"""The list that cleans: the suspects, by probability, by class and by confusion."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.review.data import Labelled

LONGEST_PAGE = 500


class SuspectList:
    """Labels that are probably wrong, with class numbers in place of names."""

    def __init__(self, data: Labelled) -> None:
        found = data.estimate.suspects()
        number = {name: k for k, name in enumerate(data.estimate.classes_.tolist())}
        place = np.searchsorted(data.rows, found.index)
        self.row = np.asarray(found.index)
        self.given = data.labels[place]
        self.suggested = np.array([number[name] for name in found.suggested.tolist()], np.intp)
        self.probability = np.asarray(found.probability)
        self._number = {row: i for i, row in enumerate(self.row.tolist())}
        pair = self.suggested * len(data.classes) + self.given
        _, of, count = np.unique(pair, return_inverse=True, return_counts=True)
        self._pair, self._pair_count = pair, count[of]
        self._orders: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.row)

    def find(self, row: int) -> dict[str, Any] | None:
        """Give what is suspected of a row; None if it is no suspect."""
        i = self._number.get(row)
        return None if i is None else self._entry(i)

    def confusions(self) -> list[tuple[int, int, int]]:
        """Give (suggested, given, number of suspects), the largest number first."""
        pairs = np.column_stack([self.suggested, self.given])
        kinds, count = np.unique(pairs, axis=0, return_counts=True)
        order = np.argsort(-count, kind="stable")
        return [(*kinds[i].tolist(), int(count[i])) for i in order.tolist()]

    def page(
        self,
        *,
        offset: int,
        limit: int,
        order: str = "probability",
        given: int | None = None,
        suggested: int | None = None,
        without: Collection[int] = (),
    ) -> tuple[int, list[dict[str, Any]]]:
        """Give how many suspects fit, and some of them.

        Parameters
        ----------
        offset, limit : int
            Which of those that fit.
        order : {"probability", "class", "confusion"}
            The surest first; by given label; the most frequent confusion first.
        given, suggested : int, optional
            Class numbers.
        without : collection of int
            Rows to leave out.
        """
        if not (offset >= 0 and 0 < limit <= LONGEST_PAGE):
            raise LabelNoiseError(
                f"Expected offset >= 0 and 0 < limit <= {LONGEST_PAGE}, but offset = {offset} and "
                f"limit = {limit}"
            )
        kept = np.ones(len(self), bool)
        if given is not None:
            kept &= self.given == given
        if suggested is not None:
            kept &= self.suggested == suggested
        gone = [self._number[row] for row in without if row in self._number]
        kept[gone] = False
        at = self._order(order)
        at = at[kept[at]]
        return len(at), [self._entry(i) for i in at[offset : offset + limit].tolist()]

    def _order(self, order: str) -> np.ndarray:
        if order not in self._orders:
            surest = -self.probability
            keys = {
                "probability": (surest,),
                "class": (surest, self.given),
                "confusion": (surest, self._pair, -self._pair_count),
            }
            if order not in keys:
                raise LabelNoiseError(f"Expected an order of {list(keys)}, but it is {order!r}")
            self._orders[order] = np.lexsort(keys[order])
        return self._orders[order]

    def _entry(self, i: int) -> dict[str, Any]:
        return {
            "row": int(self.row[i]),
            "given": int(self.given[i]),
            "suggested": int(self.suggested[i]),
            "probability": round(float(self.probability[i]), 4),
        }
