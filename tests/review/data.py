"""Small folders of results: images, texts, a table, with noise that is known."""

import csv

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from labelnoise import HOC
from labelnoise.io.features import Features
from labelnoise.io.labels import read_labels
from labelnoise.io.sources import Source
from labelnoise.noise import symmetric
from labelnoise.results import Results

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digits(rate=0.2, seed=0):
    """Features (N, 64), true class numbers, noisy class numbers."""
    X, true = load_digits(return_X_y=True)
    return X.astype(np.float32), true, symmetric(true, rate, random_state=seed).labels


def image_results(folder, classes=WORDS, file_name="{:04d}.png", size=64, keep=slice(None)):
    """Digits as images in a folder per class: the results, and true class numbers by row."""
    X, true, noisy = (values[keep] for values in digits())
    photos = folder / "photos"
    of_name = {}
    for n, (x, label) in enumerate(zip(X, noisy, strict=True)):
        name = f"{classes[label]}/{file_name.format(n)}"
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.kron(255 - 15 * x.reshape(8, 8), np.ones((size // 8, size // 8)))
        Image.fromarray(pixels.astype(np.uint8)).save(photos / name)
        of_name[name] = n
    labels = read_labels(str(photos))
    order = [of_name[name] for name in labels.names]
    features = Features(str(photos), X[order], labels.names)
    source = Source("images", str(photos), str(photos))
    number = {name: k for k, name in enumerate(classes)}
    results = written(folder / "results", source, features, labels)
    place = {number[name]: k for k, name in enumerate(results.estimate.classes_.tolist())}
    return results, np.array([place[k] for k in true[order].tolist()])


def table_results(folder, kind="texts"):
    """Digits as a CSV file of texts, or as a table, with labels in a column."""
    X, true, noisy = digits()
    path = folder / "data.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["text", "label", "note"])
        for n, label in enumerate(noisy.tolist()):
            writer.writerow([f'Text {n}, with "quotes"\nand lines', WORDS[label], f"  {n:05d}"])
    features = Features(str(path), X, None, numbered=True)
    source = Source(kind, str(path), str(path), "label", "text" if kind == "texts" else None)
    results = written(folder / "results", source, features, source.read_labels(features))
    classes = results.estimate.classes_.tolist()
    return results, np.array([classes.index(WORDS[k]) for k in true.tolist()])


def written(folder, source, features, labels):
    """Fit, write and read again."""
    folder.mkdir()
    est = HOC().fit(features.array, labels.array)
    Results.write(folder, est, source, features, labels, {})
    return Results.open(folder)
