"""Base of the estimators with a T for each part of the data."""

from __future__ import annotations

from typing import Any, Self

from labelnoise._estimator import Estimator
from labelnoise.hoc import HOC


class ManyMatrices(Estimator):
    """An estimator with a `HOC` of all data as `global_`."""

    global_: HOC

    def _content(self) -> dict[str, Any]:
        return super()._content() | {"global": self.global_._content()}

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> Self:
        est = super()._from_content(content)
        est.global_ = HOC._from_content(content["global"])
        if len(est.global_.classes_) != len(est.classes_):
            raise ValueError("the T of all data has another size")
        return est
