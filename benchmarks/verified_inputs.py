"""What `benchmarks/verified.py` draws from: the model's opinion of 22 data sets, and the truth.

    LABELNOISE_DATA=... python benchmarks/verified_inputs.py   # again after the model has changed

Each data set is fitted with `HOC()` once. The result goes to benchmarks/cache/verified, which is
not committed: posterior, labels, true classes, the ends between which T lies, draws of T
for its interval, and the out-of-fold probabilities of a logistic regression, which cleanlab takes.
"""

from __future__ import annotations

import warnings

import numpy as np
from _data import CACHE, data, noisy_labels

from labelnoise import HOC, LabelNoiseWarning
from labelnoise.clean_class.linear import noisy_posteriors

FOLDER = CACHE / "verified"
SIZE = "N=15000"
# Features that tell classes and have not seen the labels, and others.
GOOD = (
    "lite2, human", "lite2, aggregate", "lite2, worst", "lite0, human", "lite0, aggregate",
    "lite0, worst", "lite0, symmetric .2", "lite2, instance .4", "lite2, paper's .6",
    "digits, symmetric .3", "digits, pair .3", "digits, instance .4",
)  # fmt: skip
OTHERS = (
    "lite2, instance .4 raw", "early, human", "early, aggregate", "early, worst",
    "early, instance .6 raw", "memorised, human", "pixels, instance .4 raw", "raters, rater",
    "leak, human", "random, human",
)  # fmt: skip


def case(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, noisy labels and clean class numbers."""
    features, kind = name.split(", ")
    source = "lite2" if features in ("leak", "random") else features
    whole = source if source == "digits" else f"{source} {SIZE}"
    X, clean, _ = data(whole)
    labels = noisy_labels(whole, kind, 0)
    if features == "leak":  # the label itself is among the features
        X = np.hstack([X / X.std(), 3 * np.eye(10, dtype=X.dtype)[labels]])
    if features == "random":
        X = np.random.default_rng(1).standard_normal((len(X), 32))
    return X, labels, clean


def main() -> None:
    warnings.simplefilter("ignore", LabelNoiseWarning)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in (*GOOD, *OTHERS):
        X, labels, clean = case(name)
        est = HOC().fit(X, labels)
        posterior, found = est.predict_proba(), est.clean_class_
        own = est.transition_matrix_, est.class_prior_
        given_h, triples = (own, own) if found is None else (found.given_h, found.of_triples)
        pairs = {"own": own, "given_h": given_h, "triples": triples}
        points = {
            f"{letter}_{key}": value
            for key, pair in pairs.items()
            for letter, value in zip("Tp", pair, strict=True)
        }
        np.savez(
            FOLDER / f"{name}.npz",
            posterior=posterior,
            noisy_posterior=noisy_posteriors(X, labels, posterior.shape[1]),
            labels=labels,
            clean=clean,
            draws=np.empty(0) if found is None or found.draws is None else found.draws,
            **points,
        )
        rate = (labels != clean).mean()
        print(f"{name}: {rate:.3f} wrong, by the model {est.noise_rate_:.3f}", flush=True)


if __name__ == "__main__":
    main()
