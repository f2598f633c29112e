"""The paper's own choices side by side: its procedure, its readings, its starts, its sample sizes.

"public" is the public code's procedure as the paper and METHOD describe it, written a second
time with PyTorch's autograd and Adam, a dense c3 and its last iterate. It counts in the same
random samples as `HOC.paper()`, so only the solvers differ.

    LABELNOISE_DATA=... python benchmarks/paper_items.py

Its last results are in benchmarks/results/paper_items.md.
"""

from __future__ import annotations

import os
import time
import warnings
from datetime import date
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from tables import table

from labelnoise import HOC, Consensus, LabelNoiseWarning, transition_error
from labelnoise.baselines import anchor_points
from labelnoise.checks.guarantees import consensus_bound, sample_sizes
from labelnoise.clean_class.linear import noisy_posteriors
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import symmetric
from labelnoise.scores import clean_accuracy, feasibility, true_transition_matrix
from labelnoise.solvers import solve

ROUNDS = 10  # the paper takes 50 of 15,000 from 50,000
SAMPLE = 6_000
MOST = 20_000  # examples of a data set
STEPS = 1501


def data() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Features, clean and noisy labels by name."""
    X, y = load_digits(return_X_y=True)
    sets = {"digits, symmetric .3": (X, y, symmetric(y, 0.3, random_state=0).labels)}
    folder = os.environ.get("LABELNOISE_DATA")
    if folder:
        where = Path(folder, "cifar10")
        labels = np.load(where / "cifar10.npz")
        clean = labels["train_clean"].astype(int)
        X = np.load(where / "efficientnet_lite2_train.npy").astype(np.float32)
        sets["lite2, human"] = (X, clean, labels["train_human"].astype(int))
        sets["lite2, symmetric .4"] = (X, clean, symmetric(clean, 0.4, random_state=0).labels)
    return {name: tuple(part[:MOST] for part in parts) for name, parts in sets.items()}


def sample_of(n: int) -> int:
    return min(SAMPLE, 2 * n // 3)


def public_procedure(X: np.ndarray, y: np.ndarray, K: int, seed: int) -> np.ndarray:
    """T by the public code's procedure, written again."""
    import torch

    rng, size = np.random.default_rng(seed), sample_of(len(X))
    c3 = np.zeros((K, K, K))
    for _ in range(ROUNDS):
        sample = rng.choice(len(X), size, replace=False)
        unit = torch.tensor(X[sample], dtype=torch.float32)
        unit = unit / unit.norm(dim=1, keepdim=True)
        for start in range(0, size, 2000):
            near = unit[start : start + 2000] @ unit.T
            near[torch.arange(len(near)), start + torch.arange(len(near))] = -2
            one, two = near.topk(2, dim=1).indices.numpy().T
            own = y[sample[start : start + 2000]]
            np.add.at(c3, (own, y[sample[one]], y[sample[two]]), 1 / size / ROUNDS)
    seen = torch.tensor(c3)
    torch.manual_seed(seed)
    T_logits = (5 * torch.eye(K, dtype=torch.float64) - 1).requires_grad_()
    p_logits = (1 / K + 0.1 * torch.rand(K, dtype=torch.float64)).requires_grad_()
    adam = torch.optim.Adam([T_logits, p_logits], lr=0.1)
    for _ in range(STEPS):
        T, p = torch.softmax(T_logits, 1), torch.softmax(p_logits, 0)
        expected = torch.einsum("i,ia,ib,ic->abc", p, T, T, T)
        loss = (seen - expected).norm()
        loss = loss + (seen.sum(2) - expected.sum(2)).norm()
        loss = loss + (seen.sum((1, 2)) - expected.sum((1, 2))).norm()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return torch.softmax(T_logits, 1).detach().numpy()


def procedures() -> None:
    """Error of T by each reading of the paper, beside the public procedure and the default."""
    rows = []
    for name, (X, clean, y) in data().items():
        K, size = int(clean.max()) + 1, sample_of(len(X))
        truth, how = true_transition_matrix(clean, y, K), {"n_rounds": ROUNDS, "sample_size": size}
        begin = time.process_time()
        errors = [transition_error(public_procedure(X, y, K, 0), truth)]
        seconds = [time.process_time() - begin]
        for est in (
            HOC.paper(**how, random_state=0),
            HOC.paper(**how, solver="paper-text", random_state=0),
            HOC.paper(**how, neighbors_in="all", random_state=0),
            HOC(refine=False),
        ):
            begin = time.process_time()
            errors.append(transition_error(est.fit(X, y).transition_matrix_, truth))
            seconds.append(time.process_time() - begin)
        near = nearest_neighbors(X, 2).indices
        independent = Consensus.from_neighbors(y, near, K, independent=True)
        errors.append(transition_error(solve(independent).transition_matrix, truth))
        rows.append(
            [name, *(f"{error:.4f}" for error in errors), f"{abs(errors[1] - errors[0]):.4f}"]
        )
        rows.append([f"{name}: CPU seconds", *(f"{took:.1f}" for took in seconds), "", ""])
    table(
        f"Error of T, {ROUNDS} rounds of {SAMPLE:,} of {MOST:,} examples (digits: 1,198 of 1,797)",
        "data | public procedure | HOC.paper() | start K I - 1 1' | neighbours in all data | "
        "HOC(refine=False) | the same, E_3* alone | HOC.paper() - public",
        rows,
    )


def sizes() -> None:
    """What estimates rest on: feasibility, |E_3*|, the bound of Lemma 1, usable anchor points."""
    rows = []
    for name, (X, clean, y) in data().items():
        K, near = int(clean.max()) + 1, nearest_neighbors(X, 5).indices
        truth, given = true_transition_matrix(clean, y, K), noisy_posteriors(X, y, K)
        surely = np.linalg.solve(truth.T, given.T).T  # P(clean | x), with the true T
        found = sample_sizes(near[:, :2], surely)
        counted = Consensus.from_neighbors(y, near[:, :2], K)
        errors = (
            transition_error(solve(counted).transition_matrix, truth),
            transition_error(anchor_points(given), truth),
        )
        rows.append(
            [
                name,
                *(f"{feasibility(clean, near, k):.1%}" for k in (1, 2, 5)),
                f"{found.n:,}",
                f"{found.n_independent:,}",
                f"{found.n_anchors:,}",
                f"{consensus_bound(found.n_independent):.4f}",
                *(f"{error:.3f}" for error in errors),
            ]
        )
    table(
        "Remark 1: what HOC and anchor points rest on (anchor: P(clean | x) >= .99, true T)",
        "data | 1-NN feasible | 2-NN | 5-NN | N | E_3* | N_AC | Lemma 1's bound | "
        "error, triples | error, anchor points",
        rows,
    )


def hidden_accuracy() -> None:
    """The accuracy that noisy test labels hide: a linear classifier, T from other examples."""
    from sklearn.linear_model import LogisticRegression

    rows = []
    for name, (X, clean, y) in data().items():
        half = np.random.default_rng(0).permutation(len(X)) < len(X) // 2
        est = HOC().fit(X[half], y[half])
        model = LogisticRegression(max_iter=300).fit(X[half] / np.abs(X).max(), clean[half])
        predicted = model.predict(X[~half] / np.abs(X).max())
        variance = est.confidence_interval().transition_variance()
        for of_T, matrix, error in (
            ("HOC()", est.transition_matrix_, variance),
            ("true", true_transition_matrix(clean, y, int(clean.max()) + 1), None),
        ):
            found = clean_accuracy(
                y[~half], predicted, matrix, classes=est.classes_, variance=error
            )
            rows.append([name, of_T, f"{found}", f"{(predicted == clean[~half]).mean():.1%}"])
    table("Accuracy from noisy test labels", "data | T | estimate | clean accuracy", rows)


if __name__ == "__main__":
    warnings.simplefilter("ignore", LabelNoiseWarning)
    print(f"# The paper's choices side by side\n\n{date.today()}, {os.cpu_count()} cores, seed 0.")
    procedures()
    sizes()
    hidden_accuracy()
