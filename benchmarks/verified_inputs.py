"""What `benchmarks/verified.py` draws from: the model's opinion of twenty data sets, and the truth.

    LABELNOISE_DATA=... python benchmarks/verified_inputs.py   # 10 minutes; again after a new model

Each data set is fitted with `HOC()` once. The result goes to benchmarks/cache/verified, which is
not committed: posterior, labels, true classes, the two ends between which T lies, and the
out-of-fold probabilities of a logistic regression, which cleanlab takes.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from labelnoise import HOC, LabelNoiseWarning
from labelnoise.linear import noisy_posteriors
from labelnoise.noise import instance_dependent, pair_flip, symmetric

CACHE = Path(__file__).parent / "cache" / "verified"
N = 15_000

Data = tuple[np.ndarray, np.ndarray, np.ndarray]  # features, labels, true classes


def _rows() -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(50_000, N, replace=False))


def _folder() -> Path:
    return Path(os.environ["LABELNOISE_DATA"])


def _cifar(features: str, labels: str) -> Data:
    rows = _rows()
    with np.load(_folder() / "cifar10" / "cifar10.npz") as archive:
        clean = archive["train_clean"].astype(int)[rows]
        given = archive[labels].astype(int)[rows] if labels.startswith("train") else clean
        X = _pixels(archive, rows) if features == "pixels" else None
    if X is None:
        X = np.load(_folder() / "cifar10" / f"{features}_train.npy")[rows].astype(np.float32)
    if labels == "paper":
        with np.load(_folder() / "paper_instance_06.npz") as archive:
            given = archive["cifar10"].astype(int)[rows]
    return X, given, clean


def _pixels(archive: np.lib.npyio.NpzFile, rows: np.ndarray) -> np.ndarray:
    """Images by PCA to 48."""
    from PIL import Image

    head, raw = archive["jpeg_header"].tobytes(), archive["train_bytes"].tobytes()
    ends = archive["train_offsets"]
    images = [np.asarray(Image.open(io.BytesIO(head + raw[ends[i] : ends[i + 1]]))) for i in rows]
    flat = np.stack(images).reshape(len(rows), -1).astype(np.float32) / 255
    return PCA(48, random_state=0).fit_transform(flat).astype(np.float32)


def _instance(features: str, rate: float, scale: str) -> Data:
    X, _, clean = _cifar(features, "clean")
    return X, instance_dependent(X, clean, rate, scale=scale, random_state=0).labels, clean


def _leak() -> Data:
    """The label itself among the features."""
    X, given, clean = _cifar("efficientnet_lite2", "train_human")
    return np.hstack([X / X.std(), 3 * np.eye(10, dtype=X.dtype)[given]]), given, clean


def _random() -> Data:
    """Features that know nothing."""
    _, given, clean = _cifar("efficientnet_lite2", "train_human")
    return np.random.default_rng(1).standard_normal((N, 32)).astype(np.float32), given, clean


def _tweets() -> Data:
    """One of three raters; the truth is the majority's answer."""
    with np.load(_folder() / "tweets_raters.npz") as archive:
        X, counts = (archive[name] for name in archive.files)
        if X.shape[1] == 3:
            X, counts = counts, X
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(X), N, replace=False))
    counts = counts[rows].astype(float)
    share = np.cumsum(counts / counts.sum(axis=1, keepdims=True), axis=1)
    given = (rng.random((N, 1)) > share[:, :-1]).sum(axis=1)
    return X[rows].astype(np.float32), given, counts.argmax(axis=1)


def _digits(noise: Callable[..., object], rate: float, **how: str) -> Data:
    X, clean = load_digits(return_X_y=True)
    of = (X, clean) if noise is instance_dependent else (clean,)
    return X, noise(*of, rate, random_state=0, **how).labels, clean  # type: ignore[attr-defined]


def _symmetric(features: str, rate: float) -> Data:
    X, _, clean = _cifar(features, "clean")
    return X, symmetric(clean, rate, random_state=0).labels, clean


LITE0, LITE2 = "efficientnet_lite0", "efficientnet_lite2"
EARLY, MEMORISED = "resnet18_human_early", "resnet18_human_memorised"
AGGREGATE, WORST = "train_cifar10n_aggregate", "train_cifar10n_worst"
GOOD = "good"  # features that tell classes, and have not seen the labels
CASES: dict[str, tuple[str, Callable[[], Data]]] = {
    "lite2, human": (GOOD, lambda: _cifar(LITE2, "train_human")),
    "lite2, aggregate": (GOOD, lambda: _cifar(LITE2, AGGREGATE)),
    "lite2, worst": (GOOD, lambda: _cifar(LITE2, WORST)),
    "lite0, human": (GOOD, lambda: _cifar(LITE0, "train_human")),
    "lite0, aggregate": (GOOD, lambda: _cifar(LITE0, AGGREGATE)),
    "lite0, worst": (GOOD, lambda: _cifar(LITE0, WORST)),
    "lite0, symmetric .2": (GOOD, lambda: _symmetric(LITE0, 0.2)),
    "lite2, instance .4": (GOOD, lambda: _instance(LITE2, 0.4, "unit")),
    "lite2, instance .4, raw": ("", lambda: _instance(LITE2, 0.4, "raw")),
    "lite2, the paper's .6": (GOOD, lambda: _cifar(LITE2, "paper")),
    "digits, symmetric .3": (GOOD, lambda: _digits(symmetric, 0.3)),
    "digits, pair .3": (GOOD, lambda: _digits(pair_flip, 0.3)),
    "digits, instance .4": (GOOD, lambda: _digits(instance_dependent, 0.4)),
    "early, human": ("", lambda: _cifar(EARLY, "train_human")),
    "early, aggregate": ("", lambda: _cifar(EARLY, AGGREGATE)),
    "early, worst": ("", lambda: _cifar(EARLY, WORST)),
    "early, instance .6, raw": ("", lambda: _instance(EARLY, 0.6, "raw")),
    "memorised, human": ("", lambda: _cifar(MEMORISED, "train_human")),
    "images, instance .4, raw": ("", lambda: _instance("pixels", 0.4, "raw")),
    "tweets": ("", _tweets),
    "leak, human": ("", _leak),
    "random features, human": ("", _random),
}


def ends_of(est: HOC) -> dict[str, np.ndarray]:
    """The model's own T and class prior, T given h, and the triples' T."""
    own, found = (est.transition_matrix_, est.class_prior_), est.clean_class_
    given_h, triples = (own, own) if found is None else (found.given_h, found.of_triples)
    pairs = {"own": own, "given_h": given_h, "triples": triples}
    return {
        f"{letter}_{key}": value
        for key, pair in pairs.items()
        for letter, value in zip("Tp", pair, strict=True)
    }


def main() -> None:
    warnings.simplefilter("ignore", LabelNoiseWarning)
    CACHE.mkdir(parents=True, exist_ok=True)
    for number, (name, (_, make)) in enumerate(CASES.items()):
        path = CACHE / f"{number:02}.npz"
        if path.exists() and "--again" not in sys.argv:
            continue
        X, labels, clean = make()
        est = HOC().fit(X, labels)
        posterior = est.predict_proba()
        arrays = {"posterior": posterior, "labels": labels, "clean": clean, **ends_of(est)}
        arrays["noisy_posterior"] = noisy_posteriors(X, labels, posterior.shape[1])
        np.savez(path, name=name, **arrays)
        wrong = 1 - posterior[np.arange(len(labels)), labels]
        print(
            f"{name}: {(labels != clean).mean():.3f} wrong, T {est.noise_rate_:.3f}, "
            f"posterior {wrong.mean():.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
