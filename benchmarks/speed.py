"""How fast: neighbours, features to T, and the likelihood solver with many classes.

Each table compares in one run, because machines differ and are noisy: read the ratios.

    make bench-speed            # about 15 minutes on two cores
    python benchmarks/speed.py product neighbors end-to-end k100 k1000

Real features are used for "end-to-end" where LABELNOISE_DATA names a folder that has them, and
synthetic ones else. The last results are in benchmarks/results/speed.md.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tables import table
from threadpoolctl import threadpool_limits

from labelnoise import HOC, Consensus, LabelNoiseWarning, transition_error
from labelnoise.io.datasets import load
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import symmetric
from labelnoise.scores import true_transition_matrix
from labelnoise.solvers import solve
from labelnoise.solvers.likelihood import by_em
from labelnoise.solvers.search import Fit
from labelnoise.solvers.triples import SparseTriples, draw_triples

GIB = 2**30
RUNS = 3


def timed(function: Callable[[], object]) -> tuple[float, object]:
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result


def with_memory(function: Callable[[], object]) -> tuple[float, float, object]:
    """Seconds, the most memory it held beyond what was held before in GiB, and its result."""
    resident = lambda: int(Path("/proc/self/statm").read_text().split()[1])  # noqa: E731
    before = most = resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.01):
            most = max(most, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    seconds, result = timed(function)
    done.set()
    watcher.join()
    return seconds, (most - before) * resource.getpagesize() / GIB, result


def full_product(X: np.ndarray, block: int = 2048) -> None:
    """All of X X', in blocks of rows, kept nowhere: what a neighbour search cannot avoid."""
    out = np.empty((block, len(X)), np.float32)
    for start in range(0, len(X), block):
        rows = X[start : start + block]
        np.matmul(rows, X.T, out=out[: len(rows)])


def numpy_argpartition(U: np.ndarray, k: int) -> np.ndarray:
    result = []
    for start in range(0, len(U), 1024):
        scores = U[start : start + 1024] @ U.T
        scores[np.arange(len(scores)), start + np.arange(len(scores))] = -np.inf
        result.append(np.argpartition(-scores, k, axis=1)[:, :k].copy())
    return np.concatenate(result)


def scikit_learn(U: np.ndarray, k: int) -> np.ndarray:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(U).kneighbors()[1]


def faiss_flat(U: np.ndarray, k: int) -> np.ndarray:
    import faiss

    index = faiss.IndexFlatIP(U.shape[1])
    index.add(U)
    return index.search(U, k + 1)[1][:, 1:]


def torch_topk(U: np.ndarray, k: int) -> np.ndarray:
    import torch

    X = torch.from_numpy(U)
    result = []
    for start in range(0, len(X), 1024):
        scores = X[start : start + 1024] @ X.T
        result.append(scores.topk(k + 1, dim=1).indices[:, 1:])
    return torch.cat(result).numpy()


def feature_sets() -> dict[str, np.ndarray]:
    """Features with and without structure; real ones where LABELNOISE_DATA names their folder."""
    rng = np.random.default_rng(0)
    found = {}
    folder = os.environ.get("LABELNOISE_DATA")
    if folder:
        X = np.load(Path(folder, "cifar10", "efficientnet_lite2_train.npy")).astype(np.float32)
        found["EfficientNet, CIFAR-10"] = X
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        found["512 random ReLU units on them"] = random_relu(X, 512)
        images = load("cifar10").train.array
        X = images.reshape(len(images), -1).astype(np.float32) / 255
        found["512 random ReLU units on pixels"] = random_relu(X - X.mean(axis=0), 512)
    for d in (128, 512):
        found[f"without structure, {d}"] = rng.standard_normal((50_000, d), np.float32)
    return found


def random_relu(X: np.ndarray, width: int) -> np.ndarray:
    weights = np.random.default_rng(0).standard_normal((X.shape[1], width), np.float32)
    return np.maximum(X @ weights / X.shape[1] ** 0.5, 0)


def product() -> None:
    """Seconds of the processor with one thread, which other work disturbs least; least of runs."""
    rows = []
    for name, X in feature_sets().items():
        U = X / np.linalg.norm(X, axis=1, keepdims=True)
        tasks: dict[str, Callable[[], object]] = {
            "product": lambda U=U: full_product(U),
            "2": lambda X=X: nearest_neighbors(X, 2),
            "18": lambda X=X: nearest_neighbors(X, 18),
        }
        seconds = dict.fromkeys(tasks, np.inf)
        with threadpool_limits(1):
            for _ in range(RUNS):
                for task, function in tasks.items():
                    begin = time.process_time()
                    function()
                    seconds[task] = min(seconds[task], time.process_time() - begin)
        whole = seconds["product"]
        ratios = [f"{seconds[k] / whole:.2f}" for k in ("2", "18")]
        size = f"{X.shape[0]:,} x {X.shape[1]}"
        rows.append([name, size, f"{whole:.1f}", *ratios, f"{seconds['18'] / seconds['2']:.2f}"])
    table(
        "Exact nearest neighbours by cosine, of the full product",
        "features | size | product, s | k = 2 | k = 18 | k = 18 by k = 2",
        rows,
    )


def neighbors() -> None:
    k = 2
    for n, d in ((50_000, 512), (100_000, 256)):
        X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
        U = X / np.linalg.norm(X, axis=1, keepdims=True)
        products = [timed(lambda U=U: full_product(U))[0]]
        seconds, memory, ours = with_memory(lambda X=X: nearest_neighbors(X, k))
        rows = [["labelnoise", seconds, memory, 1.0]]
        peers = {"faiss IndexFlatIP": faiss_flat, "torch mm + topk": torch_topk}
        if n <= 50_000:  # these two take minutes beyond
            peers["scikit-learn brute"] = scikit_learn
            peers["numpy + argpartition"] = numpy_argpartition
        for name, search in peers.items():
            seconds, memory, found = with_memory(lambda s=search, U=U: s(U, k))
            same = np.mean(np.sort(found, axis=1) == np.sort(ours.indices, axis=1))
            rows.append([name, seconds, memory, same])
        products.append(timed(lambda U=U: full_product(U))[0])
        product = float(np.mean(products))
        table(
            f"Exact 2-NN by cosine, {n:,} x {d} (the full product took {product:.1f} s)",
            "method | seconds | of the full product | extra GiB | same neighbours as ours",
            [
                [name, f"{s:.1f}", f"{s / product:.2f}", f"{m:.2f}", f"{same:.4%}"]
                for name, s, m, same in rows
            ],
        )


def plain_paper(X: np.ndarray, y: np.ndarray, K: int, rounds: int = 50) -> np.ndarray:
    """The paper's procedure, written plainly: search in each round, count in Python, Adam."""
    import torch

    rng = np.random.default_rng(0)
    c1, c2, c3 = np.zeros(K), np.zeros((K, K)), np.zeros((K, K, K))
    size = min(15_000, len(X))
    for _ in range(rounds):
        sample = rng.choice(len(X), size, replace=False)
        F = torch.nn.functional.normalize(torch.from_numpy(X[sample]), dim=1)
        distance = 1 - F @ F.T
        distance.fill_diagonal_(2)
        nearest = distance.topk(2, dim=1, largest=False).indices.numpy()
        labels = y[sample]
        for n in range(size):
            a, b, c = labels[n], labels[nearest[n, 0]], labels[nearest[n, 1]]
            c1[a] += 1
            c2[a, b] += 1
            c3[a, b, c] += 1
    i = np.arange(K)
    c2 = np.stack([c2[i, (i + r) % K] for r in range(K)])
    c3 = np.stack([c3[i, (i + r) % K, (i + s) % K] for r in range(K) for s in range(K)])
    observed = [torch.from_numpy(c / (rounds * size)) for c in (c1, c2, c3)]
    logits_T = (5 * torch.eye(K, dtype=torch.float64) - 1).requires_grad_()
    logits_p = torch.full((K,), 1 / K, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([logits_T, logits_p], lr=0.1)
    for _ in range(1500):
        T, p = logits_T.softmax(1), logits_p.softmax(0)
        # As printed: T_r is T with its columns shifted by r, and c3 has a vector for each r, s.
        shifted = [T.roll(-r, dims=1) for r in range(K)]
        second = torch.stack([(T * shifted[r]).T @ p for r in range(K)])
        third = torch.stack(
            [(T * shifted[r] * shifted[s]).T @ p for r in range(K) for s in range(K)]
        )
        expected = (T.T @ p, second, third)
        loss = sum((o - e).norm() for o, e in zip(observed, expected, strict=True))
        adam.zero_grad()
        loss.backward()
        adam.step()
    return logits_T.softmax(1).detach().numpy()


def end_to_end() -> None:
    folder = os.environ.get("LABELNOISE_DATA")
    cases = {}
    if folder:
        X = np.load(Path(folder, "cifar10", "efficientnet_lite2_train.npy")).astype(np.float32)
        labels = np.load(Path(folder, "cifar10", "cifar10.npz"))
        clean = labels["train_clean"].astype(int)
        cases["CIFAR-10, human labels"] = labels["train_human"].astype(int)
    else:
        rng = np.random.default_rng(0)
        clean = rng.integers(0, 10, 50_000)
        centres = 1.2 * rng.standard_normal((10, 128), dtype=np.float32)
        X = centres[clean] + rng.standard_normal((50_000, 128), dtype=np.float32)
    cases["symmetric .4"] = symmetric(clean, 0.4, random_state=0).labels
    rows = []
    for name, noisy in cases.items():
        T = true_transition_matrix(clean, noisy, 10)
        plain_seconds, plain = timed(lambda noisy=noisy: plain_paper(X, noisy, 10))
        for method, est in {
            "HOC()": HOC(),
            "HOC(refine=False)": HOC(refine=False),
            "HOC.paper()": HOC.paper(random_state=0),
        }.items():
            seconds, est = timed(lambda est=est, noisy=noisy: est.fit(X, noisy))
            rows.append(
                [
                    name,
                    method,
                    f"{seconds:.1f}",
                    f"{plain_seconds:.1f}",
                    f"{plain_seconds / seconds:.1f}",
                    f"{transition_error(est.transition_matrix_, T):.4f}",
                    f"{transition_error(plain, T):.4f}",
                ]
            )
    table(
        f"Features to T, {len(X):,} x {X.shape[1]}, K = 10, against the paper's procedure "
        f"written plainly (50 rounds of 15,000)",
        "labels | method | seconds | plain seconds | times faster | error | plain error",
        rows,
    )


def k100() -> None:
    K, n = 100, 50_000
    prior = np.geomspace(1, 5, K)
    prior /= prior.sum()
    uniform = (1 - np.eye(K)) / (K - 1)
    models = {
        "symmetric .2": 0.8 * np.eye(K) + 0.2 * uniform,
        "symmetric .6": 0.4 * np.eye(K) + 0.6 * uniform,
        "pair .45": 0.55 * np.eye(K) + 0.45 * np.roll(np.eye(K), 1, axis=1),
    }
    rows = []
    for name, T in models.items():
        labels = draw_triples(T, prior, n, np.random.default_rng(0))
        consensus = Consensus.from_labels(labels, K)
        seconds, found = timed(lambda consensus=consensus: solve(consensus))
        distinct = len(consensus.sorted_triples()[1])
        error = transition_error(found.transition_matrix, T)
        adam, paper = timed(lambda c=consensus: solve(c, "paper", random_state=0))
        paper_error = transition_error(paper.transition_matrix, T)
        ours, theirs = f"{error:.3f}", f"{paper_error:.3f}"
        rows.append([name, f"{distinct:,}", f"{seconds:.1f}", ours, f"{adam:.1f}", theirs])
    table(
        f"Likelihood solver with all its starts, K = {K}, {n:,} triples, class ratio 1:5, and the "
        f"paper's objective (301 steps of Adam)",
        "noise | distinct triples | seconds | error | paper seconds | paper error",
        rows,
    )


def k1000() -> None:
    K, n = 1000, 1_000_000
    rng = np.random.default_rng(0)
    T = 0.7 * np.eye(K) + 0.1 / K
    for i in range(K):
        T[i, rng.choice(K, 10, replace=False)] += 0.02
    T /= T.sum(axis=1, keepdims=True)
    labels = draw_triples(T, np.ones(K) / K, n, rng)
    consensus = Consensus.from_labels(labels, K)
    triples, frequencies = consensus.sorted_triples()
    start = Fit(0.5 * np.eye(K) + 0.5 / K, np.ones(K) / K, "diagonal")
    seconds, memory, fit = with_memory(
        lambda: by_em(SparseTriples(triples, frequencies, K), start, 30)
    )
    rows = [
        [
            "30 EM steps",
            f"{seconds:.0f}",
            f"{memory:.2f}",
            f"{transition_error(fit.T, T):.3f}",
        ]
    ]
    seconds, memory, found = with_memory(lambda: solve(consensus))
    error = transition_error(found.transition_matrix, T)
    rows.append(["solve(), all of it", f"{seconds:.0f}", f"{memory:.2f}", f"{error:.3f}"])
    table(
        f"K = {K:,}, {n:,} triples, {len(triples):,} distinct",
        "what | seconds | extra GiB | error",
        rows,
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore", LabelNoiseWarning)
    parts = {
        "product": product,
        "neighbors": neighbors,
        "end-to-end": end_to_end,
        "k100": k100,
        "k1000": k1000,
    }
    asked = sys.argv[1:] or list(parts)
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} cores")
    for name in asked:
        parts[name]()
