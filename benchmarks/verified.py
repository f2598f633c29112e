"""Verified labels: is the interval right wherever the model is wrong, and how far do checks go?

    LABELNOISE_DATA=... python benchmarks/verified_inputs.py     # the model's part, once
    python benchmarks/verified.py > benchmarks/results/verified.md  # about 15 minutes

Every case draws samples of 50 to 500 rows, reveals their true classes, and asks for the noise rate
and T. The peers see the same model: simple random sampling with Wilson's interval, PPI++
(`ppi-python`) on a simple random sample with the model's chance that a label is wrong as its
prediction, and cleanlab's ActiveLab, which chooses the rows it would have checked first. Rates are
drawn 2,000 times (PPI++ 500 times), T 12 times.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from cleanlab.multiannotator import get_active_learning_scores
from scipy.stats import norm
from sklearn.metrics import average_precision_score
from tables import table
from threadpoolctl import threadpool_limits
from verified_inputs import FOLDER, GOOD, OTHERS

from labelnoise import transition_error
from labelnoise.scores import true_transition_matrix
from labelnoise.verified import (
    Answers,
    Ends,
    Verification,
    draw_sample,
    estimates,
    sample,
    verified_interval,
    verify,
)
from labelnoise.verified.rate import stratified_interval
from labelnoise.verified.sample import allocation, chance_wrong, strata, stratum_count

try:
    from ppi_py import ppi_mean_ci
except ImportError:  # it needs numba and statsmodels
    ppi_mean_ci = None

SIZES = (50, 100, 200, 500)
DRAWS, PPI_DRAWS, T_DRAWS = 2000, 500, 12
INTERVAL_DRAWS, COPIES = 2, 5
MAIN_N = 200


@dataclass(frozen=True, eq=False)
class Case:
    """What a model says of a data set, and the truth."""

    name: str
    good: bool
    posterior: np.ndarray
    noisy_posterior: np.ndarray
    labels: np.ndarray
    clean: np.ndarray
    own: tuple[np.ndarray, np.ndarray]
    ends: Ends
    draws: np.ndarray | None

    @property
    def wrong(self) -> np.ndarray:
        """(N,) whether each label is."""
        return self.labels != self.clean

    @property
    def rate(self) -> float:
        """True noise rate."""
        return float(self.wrong.mean())

    @property
    def truth(self) -> np.ndarray:
        """T counted from the true classes."""
        return true_transition_matrix(self.clean, self.labels, self.posterior.shape[1])

    def error(self, T: np.ndarray) -> float:
        """How far T is from the true one."""
        return transition_error(T, self.truth)


def read(name: str) -> Case:
    """One of the cases that `verified_inputs.py` prepared."""
    with np.load(FOLDER / f"{name}.npz") as file:
        pairs = {key: (file[f"T_{key}"], file[f"p_{key}"]) for key in ("own", "given_h", "triples")}
        return Case(
            name,
            name in GOOD,
            file["posterior"],
            file["noisy_posterior"],
            file["labels"],
            file["clean"],
            pairs["own"],
            Ends(pairs["given_h"], pairs["triples"]),
            file["draws"] if file["draws"].size else None,
        )


def stratified(case: Case, n: int, draws: int = DRAWS) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the intervals of so many samples."""
    rng = np.random.default_rng(n)
    f = chance_wrong(case.posterior, case.labels)
    stratum = strata(f, stratum_count(n))
    size, bad = np.bincount(stratum), np.bincount(stratum, case.wrong).astype(int)
    count = allocation(size, n)
    found = rng.hypergeometric(bad, size - bad, count, (draws, len(size)))
    return stratified_interval(found, count, size)


def simple(case: Case, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for simple random samples, by Wilson's interval."""
    N, bad = len(case.labels), int(case.wrong.sum())
    found = np.random.default_rng(n).hypergeometric(bad, N - bad, n, (DRAWS, 1))
    return stratified_interval(found, np.array([n]), np.array([N]))


def ppi(case: Case, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for PPI++."""
    rng, f = np.random.default_rng(n), chance_wrong(case.posterior, case.labels)
    ends = []
    for _ in range(PPI_DRAWS):
        rows = rng.choice(len(f), n, replace=False)
        others = np.delete(f, rows)
        low, high = ppi_mean_ci(case.wrong[rows].astype(float), f[rows], others, alpha=0.05)
        ends.append([low[0], high[0]])
    return np.array(ends)[:, 0], np.array(ends)[:, 1]


def covered(ends: tuple[np.ndarray, np.ndarray], rate: float) -> float:
    return float(((ends[0] <= rate) & (rate <= ends[1])).mean())


def half_width(ends: tuple[np.ndarray, np.ndarray]) -> float:
    return float((ends[1] - ends[0]).mean() / 2)


def answered(case: Case, n: int, seed: int, truth: np.ndarray | None = None) -> Verification:
    """One sample with its answers, and all that follows."""
    truth = case.clean if truth is None else truth
    drawn = draw_sample(case.posterior, case.labels, n, random_state=seed)
    order = np.argsort(drawn.row)
    rows, stratum = drawn.row[order], drawn.stratum[order]
    size = np.zeros(stratum.max() + 1, int)
    size[drawn.stratum] = drawn.stratum_size
    suggested = case.posterior.argmax(axis=1)[rows]
    answers = Answers(rows, truth[rows], stratum, size, suggested)
    return verify(case.posterior, case.labels, answers, own=case.own, ends=case.ends)


def finding(found: Verification, name: str) -> bool:
    """Whether it was raised."""
    return not next(one for one in found.findings if one.name == name).ok


def rates(cases: list[Case]) -> list[str]:
    """Tables of coverage and half-width; gives sentences for the head."""
    cover, width, of_ppi, said = [], [], [], []
    covers, ratios, good, ppi_covers = [], [], {n: [] for n in SIZES}, []
    for case in cases:
        cells: list[list[str]] = [[], [], []]
        for n in SIZES:
            mine, theirs = stratified(case, n), simple(case, n)
            ratio = half_width(mine) / half_width(theirs)
            covers.append((covered(mine, case.rate), case.name, n))
            ratios.append((ratio, case.name, n))
            if case.good:
                good[n].append(ratio)
            cells[0] += [f"{covers[-1][0]:.3f}", f"{covered(theirs, case.rate):.3f}"]
            cells[1] += [f"{100 * half_width(mine):.1f} ({ratio:.2f})"]
            if ppi_mean_ci is not None:
                other = ppi(case, n)
                ppi_covers.append(covered(other, case.rate))
                share = half_width(other) / half_width(theirs)
                cells[2] += [f"{ppi_covers[-1]:.3f} ({share:.2f})"]
        head = [case.name, f"{case.rate:.3f}"]
        cover.append(head + cells[0])
        width.append(head + cells[1])
        of_ppi.append(head + cells[2])
    low, high = min(covers), max(covers)
    above = sum(value > 0.98 for value, *_ in covers)
    said.append(
        f"Coverage of the noise rate's 95% interval: {low[0]:.3f} ({low[1]}, n = {low[2]}) to "
        f"{high[0]:.3f} ({high[1]}, n = {high[2]}), mean {np.mean([c[0] for c in covers]):.3f}; "
        f"{sum(c[0] < 0.93 for c in covers)} of {len(covers)} below .93, {above} above .98."
    )
    means = ", ".join(f"{np.mean(good[n]):.2f} (n = {n})" for n in SIZES)
    said.append(
        f"Half-width over that of a simple random sample, mean of the good features: {means}; the "
        f"widest of all {max(ratios)[0]:.2f} ({max(ratios)[1]}, n = {max(ratios)[2]})."
    )
    if ppi_covers:
        said.append(
            f"PPI++: coverage {min(ppi_covers):.3f} to {max(ppi_covers):.3f}, "
            f"{sum(c < 0.93 for c in ppi_covers)} of {len(ppi_covers)} below .93."
        )
    each = " | ".join(f"n = {n} | random {n}" for n in SIZES)
    table("Coverage of the noise rate's 95% interval", f"case | wrong | {each}", cover)
    columns = " | ".join(f"n = {n}" for n in SIZES)
    table(
        "Half-width in points (over a simple random sample's)", f"case | wrong | {columns}", width
    )
    if ppi_mean_ci is not None:
        title = "PPI++: coverage (half-width over a simple random sample's)"
        table(title, f"case | wrong | {columns}", of_ppi)
    return said


def matrices(cases: list[Case]) -> list[str]:
    """The table of T's error, and that of the checks; gives sentences for the head."""
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(of_case, cases))
    of_ten = [i for i, case in enumerate(cases) if len(case.truth) == 10]
    ten = [(found[i].errors[MAIN_N], cases[i].name) for i in of_ten]
    worse = [
        (one.errors[MAIN_N] - one.before, case.name) for one, case in zip(found, cases, strict=True)
    ]
    columns = " | ".join(f"n = {n}" for n in SIZES)
    table(
        "Error of T",
        f"case | model alone | triples | {columns} | entries inside their interval, n = {MAIN_N} "
        f"| diagonal",
        [one.row for one in found],
    )
    table(
        f"Checks and suspects, n = {MAIN_N}",
        "case | contradicts the model | looks copied: true answers | suggestions copied | "
        "given labels copied: contradicts | wrong among the sample | among ActiveLab's rows | "
        "average precision of suspects: model | sample | ActiveLab's rows",
        [one.checks for one in found],
    )
    return [
        f"T with {MAIN_N} verified labels, ten classes: mean error "
        f"{np.mean([e for e, _ in ten]):.3f}, largest {max(ten)[0]:.3f} ({max(ten)[1]}); "
        f"{sum(e > 0.12 for e, _ in ten)} of {len(ten)} above .12. Against the model without "
        f"verified labels at most {max(worse)[0]:+.3f} ({max(worse)[1]})."
    ]


class Found(NamedTuple):
    """What verified labels make of a case."""

    before: float
    errors: dict[int, float]
    row: list[str]
    checks: list[str]


def of_case(case: Case) -> Found:
    """Errors of T, coverage of its intervals, checks and suspects."""
    before, errors = case.error(case.own[0]), {}
    row = [case.name, f"{before:.3f}", f"{case.error(case.ends.triples[0]):.3f}"]
    with threadpool_limits(1):
        for n in SIZES:
            found = [answered(case, n, seed) for seed in range(T_DRAWS)]
            errors[n] = float(np.mean([case.error(one.transition_matrix) for one in found]))
            row.append(f"{errors[n]:.3f}")
            if n == MAIN_N:
                main = found
        suggestions = case.posterior.argmax(axis=1)
        copied = [answered(case, MAIN_N, seed, suggestions) for seed in range(COPIES)]
        lazy = [answered(case, MAIN_N, seed, case.labels) for seed in range(COPIES)]
        entries = np.mean([inside(case, one) for one in main[:INTERVAL_DRAWS]], axis=0)
        checks = [case.name]
        for drawn, name in (
            (main, "verified"),
            (main, "copied answers"),
            (copied, "copied answers"),
            (lazy, "verified"),
        ):
            checks.append(f"{np.mean([finding(one, name) for one in drawn]):.0%}")
        checks += ranked(case, main[0])
    return Found(before, errors, row + [f"{value:.2f}" for value in entries], checks)


def inside(case: Case, found: Verification) -> list[float]:
    """Shares of the entries of T, and of its diagonal, that are inside their intervals."""
    interval = verified_interval(
        found, case.posterior, case.labels, case.ends, model_draws=case.draws
    )
    low, high = interval.transition_matrix
    right = (low - 1e-9 <= case.truth) & (case.truth <= high + 1e-9)
    return [right.mean(), np.diag(right).mean()]


def ranked(case: Case, found: Verification) -> list[str]:
    """Wrong labels among the chosen rows, and the ranking of those that neither chose."""
    n = MAIN_N
    scores = get_active_learning_scores(case.labels[:, None], case.noisy_posterior)[0]
    chosen = np.sort(np.argsort(scores, kind="stable")[:n])
    answers = Answers(chosen, case.clean[chosen], np.full(n, -1), np.empty(0, int), np.full(n, -1))
    other = verify(case.posterior, case.labels, answers, own=case.own, ends=case.ends)
    mine = draw_sample(case.posterior, case.labels, n, random_state=0).row
    rest = np.setdiff1d(np.arange(len(case.labels)), np.append(mine, chosen))
    posteriors = (case.posterior, found.posterior, other.posterior)
    precision = [
        average_precision_score(case.wrong[rest], chance_wrong(posterior, case.labels)[rest])
        for posterior in posteriors
        if posterior is not None
    ]
    shares = [f"{case.wrong[rows].mean():.2f}" for rows in (mine, chosen)]
    return shares + [f"{value:.3f}" for value in precision]


@contextmanager
def changed(*patches: Any) -> Iterator[None]:
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def ablation(cases: list[Case]) -> None:
    """What each constant and each part is worth."""
    rows = []
    of_sample = partial(mock.patch.object, sample)
    for title, patches in (
        ("as it is", []),
        ("DOUBT = .01", [of_sample("DOUBT", 0.01)]),
        ("DOUBT = .1", [of_sample("DOUBT", 0.1)]),
        ("5 rows a stratum, 15 strata", [of_sample("ROWS_PER_STRATUM", 5)]),
        (
            "5 rows a stratum, 40 strata",
            [of_sample("ROWS_PER_STRATUM", 5), of_sample("MOST_STRATA", 40)],
        ),
        ("20 rows a stratum", [of_sample("ROWS_PER_STRATUM", 20)]),
        ("at most 6 strata", [of_sample("MOST_STRATA", 6)]),
        ("at most 30 strata", [of_sample("MOST_STRATA", 30)]),
    ):
        row = [title]
        with changed(*patches):
            for n in SIZES:
                cover, ratio = [], []
                for case in cases:
                    ends = stratified(case, n, 1000)
                    cover.append(covered(ends, case.rate))
                    if case.good:
                        ratio.append(half_width(ends) / half_width(simple(case, n)))
                row.append(f"{np.mean(ratio):.3f} ({min(cover):.3f})")
        rows.append(row)
    columns = " | ".join(f"n = {n}" for n in SIZES)
    table(
        "The sample: half-width over a simple random sample's on good features (lowest coverage "
        "of all cases)",
        f"with | {columns}",
        rows,
    )
    rows = []
    of_estimates = partial(mock.patch.object, estimates)
    for title, patches in (
        ("as it is", []),
        ("the line alone", [of_estimates("_by_likelihood", lambda line, *_: line)]),
        ("the posterior alone", [of_estimates("_by_likelihood", lambda _, counted, *__: counted)]),
        ("half of each", [of_estimates("_by_likelihood", lambda a, b, *_: (a + b) / 2)]),
        ("labels and classes alike", [of_estimates("_CLASS_SD", 1e-6)]),
        ("posterior as it was", [of_estimates("_recalibrated", lambda posterior, *_: posterior)]),
        ("probabilities of .001 at least", [of_estimates("_LEAST", 1e-3)]),
    ):
        with changed(*patches):
            error = {
                case.name: np.mean(
                    [
                        case.error(answered(case, MAIN_N, seed).transition_matrix)
                        for seed in range(4)
                    ]
                )
                for case in cases
            }
        useless = np.mean([error[case.name] for case in cases if not case.good])
        good = np.mean([error[case.name] for case in cases if case.good])
        rows.append([title, f"{good:.3f}", f"{useless:.3f}", f"{max(error.values()):.3f}"])
    table(
        f"Error of T, n = {MAIN_N}, mean of 4 draws",
        "with | good features | others | largest",
        rows,
    )


def versions() -> str:
    found = [f"cleanlab {version('cleanlab')}"]
    try:
        found.append(f"ppi-python {version('ppi-python')}")
    except PackageNotFoundError:
        found.append("ppi-python not installed")
    return ", ".join(found)


def main() -> None:
    begin = time.perf_counter()
    cases = [read(name) for name in (*GOOD, *OTHERS)]
    print(
        f"# Verified labels\n\n{date.today()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{versions()}. {len(cases)} data sets of {min(len(c.labels) for c in cases):,} to "
        f"{max(len(c.labels) for c in cases):,} labels."
    )
    said = rates(cases) + matrices(cases)
    ablation(cases)
    # Two coverages in a hundred of 2,000 draws are this far from 95%.
    said.append(f"Chance alone moves a coverage by {norm.ppf(0.99) * np.sqrt(0.0475 / DRAWS):.3f}.")
    print("\n### In short\n")
    print("\n".join(f"- {sentence}" for sentence in said))
    print(f"\nAll took {(time.perf_counter() - begin) / 60:.0f} minutes.")


if __name__ == "__main__":
    main()
