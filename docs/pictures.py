"""Draw the pictures of docs/images, from the very data of the pages.

Needs matplotlib, and for the report playwright and Debian's chromium.

python docs/pictures.py
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from run_pages import DOCS, played
from scipy.special import softmax

from labelnoise import HOC
from labelnoise.noise import class_conditional

IMAGES = DOCS / "images"
COLOURS = ["#4477aa", "#ee8866", "#228833"]  # told apart by colour-blind readers, too
INK = "#333333"
SHOWN = 260  # examples in a picture
FAILURES = ("holds", "overlap", "memorised", "copies", "dependence", "alike")


def draw_failures() -> None:
    """One picture for each estimate of the page on assumptions."""
    estimates = []

    def keep(namespace: dict) -> None:
        est = namespace.get("est")
        if est is not None and "video" not in namespace and est not in [e[-1] for e in estimates]:
            estimates.append(tuple(namespace[name] for name in ("X", "clean", "labels", "est")))
        namespace.pop("video", None)

    played((DOCS / "assumptions.md").read_text(), after=keep)
    for name, (X, clean, labels, est) in zip(FAILURES, estimates, strict=True):
        figure, (places, truth, found) = plt.subplots(
            1, 3, figsize=(9, 2.9), width_ratios=[1.35, 1, 1], layout="constrained"
        )
        _draw_places(places, X, clean, labels, est.classes_, copies=name == "copies")
        counted = [[(labels[clean == i] == j).mean() for j in est.classes_] for i in est.classes_]
        _draw_matrix(truth, np.array(counted), est.classes_, "true T")
        _draw_matrix(found, est.transition_matrix_, est.classes_, "estimated T")
        _save(figure, name)


def draw_triple() -> None:
    """An example, its two nearest neighbours, and the three labels they carry."""
    rng = np.random.default_rng(7)
    places = {"cats": (0.0, 0.0), "dogs": (3.4, 0.4), "foxes": (1.7, 2.6)}
    X = np.array([*places.values()]).repeat(26, axis=0) + 0.52 * rng.standard_normal((78, 2))
    distance = np.linalg.norm(X[:, None] - X, axis=2)
    lonely = np.sort(distance, axis=1)[:, 2]
    centre = 26 + int(np.where(X[26:52, 0] > 3.6, lonely[26:52], 0).argmax())
    near = np.argsort(distance[centre])[:3]
    near = near[np.argsort(-X[near, 1])]

    figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    for name, colour, group in zip(places, COLOURS, np.split(X, 3), strict=True):
        axes.scatter(*group.T, s=26, color=colour, alpha=0.45, linewidths=0)
        axes.text(places[name][0] - 1.4, places[name][1] + 0.9, name, fontsize=12, color=colour)
    for row, label, height in zip(near, ("dog", "cat", "dog"), (1.5, 0.8, 0.1), strict=True):
        axes.plot([X[row, 0], 5.4], [X[row, 1], height], color="#aaaaaa", linewidth=0.8, zorder=0)
        axes.scatter(*X[row], s=60, color=COLOURS[1], edgecolors=INK, linewidths=1.4)
        axes.text(5.5, height, f"labelled {label}", va="center", fontsize=12, color=INK)
    model = r"$\sum_i\ p_i\ T_{i,dog}\ T_{i,dog}\ T_{i,cat}$"
    axes.text(7.4, 1.1, "one triple, with probability", va="center", fontsize=12, color=INK)
    axes.text(7.4, 0.45, model, va="center", fontsize=13, color=INK)
    axes.set(xlim=(-1.7, 10.2), ylim=(-1.1, 3.9), aspect="equal")
    axes.axis("off")
    _save(figure, "triple")


def draw_refined() -> None:
    """Noise that triples show, by how clear examples are, and the T of triples and the default."""
    T = np.array([[0.75, 0.2, 0.05], [0.05, 0.75, 0.2], [0.2, 0.05, 0.75]])
    names, rng = ["cat", "dog", "fox"], np.random.default_rng(0)
    centres = rng.standard_normal((3, 8))
    clean = rng.integers(0, 3, 12_000)
    X = centres[clean] + rng.standard_normal((len(clean), 8))
    labels = class_conditional(clean, T, random_state=0).labels
    far = ((X[:, None] - centres) ** 2).sum(axis=2)
    parts = np.array_split(np.argsort(-softmax(-far / 2, axis=1).max(axis=1)), 8)
    triples, refined = (HOC(refine=refine, metric="euclidean") for refine in (False, True))
    shown = []
    for part in parts:
        weight = np.zeros(len(X))
        weight[part] = 1
        shown.append(triples.fit(X, labels, center_weight=weight).noise_rate_)
    triples.fit(X, labels)
    refined.fit(X, labels)

    figure, (by_clearness, *matrices) = plt.subplots(
        1, 4, figsize=(11, 2.9), width_ratios=[1.5, 1, 1, 1], layout="constrained"
    )
    at, wrong = (np.arange(8) + 0.5) / 8, [(labels != clean)[part].mean() for part in parts]
    by_clearness.plot(at, 100 * np.array(shown), "o-", color=COLOURS[1], label="shown by triples")
    by_clearness.axhline(100 * refined.noise_rate_, color=COLOURS[0], label="the default's T")
    by_clearness.plot(at, 100 * np.array(wrong), "x", color=INK, label="wrong in truth")
    by_clearness.set(ylim=(0, None), xticks=[0.06, 0.94], xticklabels=["clearest", "least clear"])
    by_clearness.set_title("wrong labels, percent", fontsize=10, color=INK)
    by_clearness.legend(frameon=False, labelcolor=INK)
    by_clearness.spines[["top", "right"]].set_visible(False)
    _draw_matrix(matrices[0], T, names, "true T")
    _draw_matrix(matrices[1], triples.transition_matrix_, names, "the triples' T")
    _draw_matrix(matrices[2], refined.transition_matrix_, names, "the default's T")
    _save(figure, "refined")


def draw_report() -> None:
    """The page that `labelnoise demo` ends with, as a browser shows it."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        subprocess.run([sys.executable, "-m", "labelnoise", "demo"], cwd=folder, check=True)
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 858})
        page.goto(Path(folder, "demo-output", "report.html").as_uri())
        page.screenshot(path=IMAGES / "report.png")
        browser.close()


def _draw_places(axes, X, clean, labels, classes, copies: bool) -> None:
    if copies:  # those that have one, each with its copy
        rows = np.r_[: SHOWN // 3, 3000 : 3000 + SHOWN // 3, 1500 : 1500 + SHOWN // 3]
        X = X + np.where(np.arange(len(X)) < 3000, 0.0, 0.12)[:, None]
    else:
        rows = np.random.default_rng(0).permutation(len(X))[:SHOWN]
    for name, colour in zip(classes, COLOURS, strict=True):
        mine, wrong = rows[clean[rows] == name], (labels != clean)
        axes.scatter(*X[mine[~wrong[mine]], :2].T, s=14, color=colour, alpha=0.6, linewidths=0)
        axes.scatter(*X[mine[wrong[mine]], :2].T, s=26, color=colour, marker="x", linewidths=1.6)
        frame = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": colour}
        at = np.median(X[clean == name, :2], axis=0)
        axes.text(*at, name, ha="center", va="center", fontsize=10, color=INK, bbox=frame)
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.set_title("true classes; x: label is wrong", fontsize=10, color=INK)
    axes.spines[:].set_color("#cccccc")


def _draw_matrix(axes, T, classes, title: str) -> None:
    shade = np.where(np.eye(len(T), dtype=bool), 0.12, 2 * T)  # errors are what to look at
    axes.imshow(shade, cmap="Oranges", vmin=0, vmax=1.4)
    for (i, j), share in np.ndenumerate(T):
        weight = "bold" if i == j else "normal"
        axes.text(j, i, f"{100 * share:.0f}", ha="center", va="center", color=INK, weight=weight)
    axes.set_xticks(range(len(T)), classes, color=INK)
    axes.set_yticks(range(len(T)), classes, color=INK)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{title}, percent", fontsize=10, color=INK)
    axes.set_xlabel("label", color=INK)
    axes.set_ylabel("true class", color=INK)


def _save(figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    mpl.use("Agg")
    # The same file each time: no date, no random names.
    mpl.rcParams.update({"svg.hashsalt": "labelnoise", "savefig.facecolor": "white"})
    IMAGES.mkdir(exist_ok=True)
    draw_failures()
    draw_triple()
    draw_refined()
    draw_report()
