"""People's labels, by how many there are and how well features tell classes: what overlap hides.

    LABELNOISE_DATA=... python benchmarks/hidden_noise.py > benchmarks/results/hidden_noise.md

People are wrong on hard examples, where classes overlap. The model of the clean class in which
noise depends on the class alone finds too little of it. The refinement adds .2 times the root of
what it finds, which was chosen on these tables: CIFAR-10 on EfficientNet-lite0, some of its
examples and the first of its 128 columns.
"""

import warnings
from unittest import mock

import accuracy
import numpy as np
from tables import table

from labelnoise import HOC, refinement, transition_error
from labelnoise.clean_class.linear import noisy_posteriors
from labelnoise.scores import true_transition_matrix

PARTS = ((50_000, 128), (20_000, 128), (10_000, 128), (5_000, 128), (50_000, 96), (50_000, 64))
LABELS = ("aggregate", "human", "random1", "worst")


def row(features: np.ndarray, clean: np.ndarray, kind: str, n: int, d: int) -> list[str]:
    labels = accuracy.noisy_labels(accuracy.Cell("lite0", kind, 0))
    some = np.random.default_rng(7).permutation(len(clean))[:n]
    X, y, labels = np.ascontiguousarray(features[some, :d]), clean[some], labels[some]
    truth, of_class_alone = true_transition_matrix(y, labels, 10), []

    def case_of(model, parameters):
        _, T, prior = model.result(parameters)
        of_class_alone.append(1 - prior @ np.diag(T))
        return found(model, parameters)

    found = refinement._case_of
    with mock.patch.object(refinement, "_case_of", case_of):
        est = HOC().fit(X, labels)
    wrong, rate = (labels != y).mean(), of_class_alone[0]
    P = noisy_posteriors(X, labels, 10)
    others = (accuracy.ESTIMATORS[name](X, labels, 10, None, P) for name in ("cleanlab", "T-layer"))
    matrices = (est.transition_matrix_, est.triples_transition_matrix_, *others)
    errors = (f"{transition_error(T, truth):.3f}" for T in matrices)
    hidden = (wrong - rate) / np.sqrt(rate)
    rates = (wrong, rate, est.noise_rate_)
    return [f"{n:,} x {d}", kind, *(f"{r:.3f}" for r in rates), f"{hidden:.2f}", *errors]


def main() -> None:
    warnings.simplefilter("ignore")
    print(f"# Noise that overlap hides\n\n{__doc__.split(chr(10) * 2)[2]}")
    features, clean, _ = accuracy.data("lite0")
    table(
        "People's labels of CIFAR-10, EfficientNet-lite0",
        "examples | labels | wrong | found if by class alone | by HOC() | hidden / root of found | "
        "error of HOC() | triples | cleanlab | T layer",
        [row(features, clean, kind, n, d) for n, d in PARTS for kind in LABELS],
    )


if __name__ == "__main__":
    main()
