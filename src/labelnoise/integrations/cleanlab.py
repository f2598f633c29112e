"""An issue type for cleanlab's Datalab: label errors by `HOC`, beside those that it finds itself.

Importing this module registers the issue type "hoc". It needs no predictions of a model::

    import labelnoise.integrations.cleanlab
    from cleanlab import Datalab

    lab = Datalab(data, label_name="label")
    lab.find_issues(issue_types={"hoc": {"features": X}})
    lab.get_issues("hoc")

What else is handed over goes to `HOC`: ``{"features": X, "metric": "euclidean"}``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.hoc import HOC
from labelnoise.io.packages import package
from labelnoise.scores import to_cleanlab

_Datalab: Any = package("cleanlab.datalab.internal.issue_manager", "datalab")
_pandas: Any = package("pandas", "datalab")


class HOCIssueManager(_Datalab.IssueManager):
    """Labels that are probably wrong by the labels of their neighbours, for Datalab.

    `lab.get_info("hoc")` has the noise rate, T (rows are true classes), cleanlab's `noise_matrix`
    (columns are true classes), and the given and predicted label of each example.
    """

    issue_name: ClassVar[str] = "hoc"
    description: ClassVar[str] = (
        "Examples whose label is probably wrong, by an estimate of the noise from the labels of "
        "nearest neighbours."
    )
    verbosity_levels: ClassVar[dict[int, list[str]]] = {0: ["noise_rate"], 1: [], 2: [], 3: []}

    def find_issues(self, features: Any = None, knn_graph: Any = None, **settings: Any) -> None:
        """Estimate the noise, and judge each label."""
        if features is None and knn_graph is None:
            raise LabelNoiseError(
                'Expected features or a knn_graph, as in issue_types={"hoc": {"features": X}}, but '
                "there is neither"
            )
        names = list(self.datalab.class_names)
        est = HOC(classes=range(len(names)), **settings)
        est.fit(features, self.datalab.labels, neighbors=knn_graph)
        found = est.suspects()
        scores = np.nan_to_num(found.label_score, nan=1.0)  # of rows that took no part
        self.issues = _pandas.DataFrame(
            {f"is_{self.issue_name}_issue": found.is_label_issue, self.issue_score_key: scores}
        )
        self.summary = self.make_summary(score=1 - est.noise_rate_)
        self.info = self.collect_info(est, names)

    def collect_info(self, est: HOC, names: list[Any]) -> dict[str, Any]:
        """Gather what Datalab keeps of the estimate."""
        found = est.suspects()
        return {
            "noise_rate": est.noise_rate_,
            "transition_matrix": est.transition_matrix_,
            "noise_matrix": to_cleanlab(est.transition_matrix_),
            "class_names": names,
            "given_label": _named(found.given_label, names),
            "predicted_label": _named(found.predicted_label, names),
            "findings": [finding.sentence for finding in est.diagnostics_ if not finding.ok],
        }


def _named(labels: np.ndarray, names: list[Any]) -> list[Any]:
    return [None if label is None else names[label] for label in labels.tolist()]


package("cleanlab.datalab.internal.issue_manager_factory", "datalab").register(HOCIssueManager)
