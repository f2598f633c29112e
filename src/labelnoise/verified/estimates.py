"""What follows from verified labels: the noise rate, T, and each example's posterior."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logit, ndtri, pdtr

from labelnoise._errors import LabelNoiseError
from labelnoise.checks import Finding
from labelnoise.clean_class import counted_joint, tilted
from labelnoise.intervals import ConfidenceInterval
from labelnoise.verified.answers import Answers
from labelnoise.verified.rate import (
    NoiseRate,
    Stratum,
    noise_rate,
    rows_to_add,
    stratified_interval,
)
from labelnoise.verified.sample import chance_wrong

# Standard deviations, a priori, of what verified labels may change in the posterior's log-odds:
# the slopes of posterior and T, all labels alike, and each label or class apart.
_SLOPE_SD, _COMMON_SD, _CLASS_SD = 1.0, 2.0, 0.5
_LEAST = 1e-9  # of a probability whose logarithm is taken
_NO_MASS = 1e-5  # share of the examples
_SURE = 0.9  # chance of right or wrong by the model
_DISAGREE = 4.0  # standard errors
_TOO_MUCH = 1.5  # times as many wrong labels, or as few, as the model expected
_COPIED = 1e-4  # chance to differ from the suggestions so rarely
_MOST_COUNTED = 3000  # examples, for each draw of T
_DRAWS = 100
_SKIPPED = 0.1  # share of a sample that makes one ask which rows were left out


class Ends(NamedTuple):
    """The two estimates that the truth lies between: pairs (T, class prior)."""

    given_h: tuple[np.ndarray, np.ndarray]
    """T given the model of the clean class."""
    triples: tuple[np.ndarray, np.ndarray]
    """T that explains the label triples."""


@dataclass(frozen=True, repr=False, eq=False)
class Verification:
    """What verified labels say of the data and of the model; prints as a summary."""

    rate: NoiseRate | None
    """None where no verified rows were drawn at random."""
    own: tuple[np.ndarray, np.ndarray]
    """The model's T and class prior, without verified labels."""
    transition_matrix: np.ndarray
    class_prior: np.ndarray
    n: int
    n_wrong: int
    n_sampled: int
    skipped: int
    strata: tuple[Stratum, ...]
    """In the order of the model's chances."""
    findings: tuple[Finding, ...]
    posterior: np.ndarray | None = None
    """(N, K) corrected, 1 at verified classes. Its mean chance of a wrong label is the noise rate.
    None in a loaded one, as the answers are."""
    answers: Answers | None = None

    @property
    def model_rate(self) -> float:
        """The noise rate that the model alone says."""
        return float(1 - self.own[1] @ np.diag(self.own[0]))

    def rows_to_add(self, half_width: float = 0.02) -> int:
        """How many more rows to check for this half-width of the interval, by what was found."""
        if self.rate is None:
            raise LabelNoiseError(
                "Expected verified labels of a random sample to plan by, but these rows were "
                "chosen otherwise: use sample_size"
            )
        return rows_to_add(self.strata, half_width, self.rate.level)

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"{self.n_wrong:,} of {self.n:,} verified labels are wrong.",
                self._of_rate(),
                *(f"{one.sentence} {one.remedy}" for one in self.findings if not one.ok),
            ]
        )

    def _of_rate(self) -> str:
        if self.rate is None:
            return (
                f"The noise rate stays the model's, {self.model_rate:.1%}: these rows were not "
                f"drawn at random from all labels, so their share of wrong labels is not that of "
                f"the others. They correct the posterior and the suspects. To correct the rate, "
                f"verify a sample drawn for it (to_verify)."
            )
        others = self.n - self.n_sampled
        apart = f" {others:,} verified rows that were not drawn at random are not in it." * (
            others > 0
        )
        return f"{self.rate}. The model alone says {self.model_rate:.1%}.{apart}"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the posterior, as JSON holds it."""
        content = {n: v for n, v in vars(self).items() if n not in ("posterior", "answers")}
        return content | {
            "own": [self.own[0].tolist(), self.own[1].tolist()],
            "rate": None if self.rate is None else asdict(self.rate),
            "transition_matrix": self.transition_matrix.tolist(),
            "class_prior": self.class_prior.tolist(),
            "strata": [asdict(part) for part in self.strata],
            "findings": [vars(finding) for finding in self.findings],
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Verification:
        """Read what `to_dict` gave; a ValueError tells of what cannot be."""
        found = content["transition_matrix"], content["class_prior"]
        (T, p), own = ((np.array(T, float), np.array(p, float)) for T, p in (found, content["own"]))
        for matrix, prior in ((T, p), own):
            right = matrix.shape == (len(p), len(p)) and prior.shape == p.shape
            if not (right and np.allclose(matrix.sum(axis=1), 1)):
                raise ValueError("the verified transition matrix does not fit")
        return cls(
            **{name: content[name] for name in ("n", "n_wrong", "n_sampled", "skipped")},
            rate=None if content["rate"] is None else NoiseRate(**content["rate"]),
            own=own,
            transition_matrix=T,
            class_prior=p,
            strata=tuple(Stratum(**part) for part in content["strata"]),
            findings=tuple(Finding(**finding) for finding in content["findings"]),
        )


def verify(
    posterior: np.ndarray,
    labels: np.ndarray,
    answers: Answers,
    *,
    own: tuple[np.ndarray, np.ndarray],
    ends: Ends | None = None,
    level: float = 0.95,
) -> Verification:
    """Estimate the noise rate, T and the posterior from verified labels and a model's opinion.

    Parameters
    ----------
    posterior : array of shape (N, K)
        P(clean class | features, neighbours, own label), of labelled examples.
    labels : int array of shape (N,)
        Their class numbers.
    answers : Answers
    own : tuple of arrays of shape (K, K) and (K,)
        The model's T and class prior.
    ends : Ends, optional
        What T lies between. Default: the model's own on both sides.
    level : float, default=0.95
        Of the noise rate's interval.

    Notes
    -----
    The rate is ``sum_h W_h x_h / n_h``, with x_h of the n_h verified labels of stratum h wrong and
    a share W_h of all labels in it; see `stratified_interval`. No model enters.

    T has that rate, and the pattern of its errors from two sources: the point on the line between
    the two ends that has this rate, and the posterior, recalibrated by the verified labels. Each
    counts by how likely it makes the verified labels.
    """
    given, wrong = labels[answers.place], chance_wrong(posterior, labels)
    bad = answers.truth != given
    model_rate = float(1 - own[1] @ np.diag(own[0]))
    rate, strata = noise_rate(answers, bad, wrong, model_rate, level)
    joint, improved, _ = _joint(
        posterior, labels, answers, own, ends, None if rate is None else rate.estimate
    )
    T, p = _rows(joint, own[0])
    return Verification(
        rate,
        own,
        T,
        p,
        len(answers),
        int(bad.sum()),
        int(answers.sampled.sum()),
        answers.skipped,
        strata,
        _findings(posterior[answers.place], given, answers),
        _adding_up(improved, labels, answers, joint),
        answers,
    )


def verified_interval(
    found: Verification,
    posterior: np.ndarray,
    labels: np.ndarray,
    ends: Ends | None = None,
    level: float = 0.95,
    model_draws: np.ndarray | None = None,
) -> ConfidenceInterval:
    """Give intervals for the noise rate, by the sample alone, and for T and the class prior.

    Those of T come from a bootstrap of the sample, stratum by stratum, and reach over what the line
    between the ends and the posterior say. Both take their patterns from the model, whose own
    sampling error is added if it is known by `model_draws` (draws, K, K) of T.
    """
    answers = found.answers
    if answers is None or found.rate is None:
        raise LabelNoiseError("Expected verified labels of a random sample, but there are none")
    rng = np.random.default_rng(0)
    # The other examples only matter through sums over all: some thousand of them do.
    some = np.union1d(rng.permutation(len(labels))[:_MOST_COUNTED], answers.place)
    place = np.searchsorted(some, answers.place)
    posterior, labels = posterior[some], labels[some]
    of_stratum = [np.flatnonzero(answers.stratum == h) for h in range(len(answers.sizes))]
    matrices, priors = [found.transition_matrix], [found.class_prior]
    for _ in range(_DRAWS):
        # One row fewer makes up for the spread that a small sample lacks.
        kept = np.concatenate([rng.choice(of, max(1, len(of) - 1)) for of in of_stratum])
        names = ("truth", "stratum", "suggested")
        again = replace(
            answers, place=place[kept], **{name: getattr(answers, name)[kept] for name in names}
        )
        bad = again.truth != labels[again.place]
        shares = np.bincount(again.stratum, bad) / np.bincount(again.stratum)
        target = float(shares @ answers.sizes / answers.sizes.sum())
        for joint in _joint(posterior, labels, again, found.own, ends, target)[2]:
            T, p = _rows(joint, found.own[0])
            matrices.append(T)
            priors.append(p)
    of_T, of_prior = (_around(np.stack(values), level) for values in (matrices, priors))
    if model_draws is not None:
        T, spread = found.transition_matrix, ndtri((1 + level) / 2) * model_draws.std(axis=0)
        of_T = T + np.array([-1, 1])[:, None, None] * np.hypot(of_T - T, spread)
        of_T = of_T.clip(0, 1)
    n_wrong, n, sizes = (
        np.array([getattr(part, name) for part in found.strata])
        for name in ("n_wrong", "n", "size")
    )
    rate = np.array(stratified_interval(n_wrong, n, sizes, level))
    return ConfidenceInterval(level, of_T, of_prior, rate, "verified", of_T[1] == 0)


def _around(values: np.ndarray, level: float) -> np.ndarray:
    """Quantiles (2, ...) of values (draws, ...), reaching to the first one, the estimate."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.stack([np.minimum(low, values[0]), np.maximum(high, values[0])])


def _joint(
    posterior: np.ndarray,
    labels: np.ndarray,
    answers: Answers,
    own: tuple[np.ndarray, np.ndarray],
    ends: Ends | None,
    rate: float | None,
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """(K, K) P(clean, label) of this noise rate, the recalibrated posterior, and the joint's parts.

    Without a rate the joint stays the model's.
    """
    shares = np.bincount(labels, minlength=len(own[1])) / len(labels)
    joint: np.ndarray = own[1][:, None] * own[0]
    if rate is None:
        line = _with_labels(joint, shares)
        line = _with_rate(line, 1 - np.trace(joint))
        return line, _recalibrated(posterior, labels, answers, line), (line,)
    line = joint if ends is None else _between(ends, rate)
    line = _with_rate(_with_labels(line, shares), rate)
    improved = _recalibrated(posterior, labels, answers, line)
    counted = _with_rate(counted_joint(improved, labels, len(shares)) / len(labels), rate)
    joint = _by_likelihood(line, counted, answers, labels[answers.place])
    return joint, improved, (line, counted)


def _rows(joint: np.ndarray, otherwise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T and class prior of P(clean, label), with rows of another T where a class has no mass."""
    p = joint.sum(axis=1)
    known = p > _NO_MASS
    return np.where(known[:, None], joint / np.where(known, p, 1)[:, None], otherwise), p


def _between(ends: Ends, rate: float) -> np.ndarray:
    """(K, K) P(clean, label) on the line between the ends, where its noise rate is this one."""
    first, last = (p[:, None] * T for T, p in ends)
    low, high = 1 - np.trace(first), 1 - np.trace(last)
    share = 0.5 if abs(high - low) < 1e-6 else np.clip((rate - low) / (high - low), 0, 1)
    joint: np.ndarray = (1 - share) * first + share * last
    return joint


def _with_labels(joint: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The same with these shares of labels; a label that has no mass is right."""
    mass = joint.sum(axis=0)
    scaled: np.ndarray = joint * np.where(mass > 0, shares / np.where(mass > 0, mass, 1), 0)
    return scaled + np.diag(np.where(mass > 0, 0, shares))


def _with_rate(joint: np.ndarray, rate: float) -> np.ndarray:
    """The same with this noise rate: the odds of all labels to be wrong get one factor."""
    mass = joint.sum(axis=0)
    right = np.diag(joint)
    chance = np.clip(1 - right / np.where(mass > 0, mass, 1), 1e-9, 1 - 1e-9)
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        above = mass @ expit(logit(chance) + middle) > rate
        low, high = (low, middle) if above else (middle, high)
    wrong = mass * expit(logit(chance) + low)
    others = joint - np.diag(right)
    others = np.where(others.sum(axis=0) > 0, others, mass[:, None] * (1 - np.eye(len(mass))))
    total = others.sum(axis=0)
    others = others * (wrong / np.where(total > 0, total, 1))
    result: np.ndarray = others + np.diag(mass - wrong)
    return result


def _recalibrated(
    posterior: np.ndarray, labels: np.ndarray, answers: Answers, line: np.ndarray
) -> np.ndarray:
    """(N, K) the posterior with the log-odds that make verified labels most likely.

    ``softmax_k(a log P(k) + d log L(k | y) + (b + c[y]) [k = y] + e[k])``, with normal priors
    around the posterior as it is. Rows may have been chosen by anything that P is made of.
    """
    K = posterior.shape[1]
    by_label = line / np.maximum(line.sum(axis=0), 1e-300)
    evidence = np.log(np.maximum(posterior, _LEAST))
    pattern = np.log(np.maximum(by_label, _LEAST)).T
    place, truth, given = answers.place, answers.truth, labels[answers.place]
    own = np.eye(K)
    start = np.array([1.0, *np.zeros(2 + 2 * K)])
    sd = np.array([_SLOPE_SD, _SLOPE_SD, _COMMON_SD, *[_CLASS_SD] * 2 * K])

    def changed(q: np.ndarray, rows: Any, y: np.ndarray) -> np.ndarray:
        # By label, then one row each: pattern, trust in the label and in the class.
        bonus = q[1] * pattern + np.diag(q[2] + q[3 : 3 + K]) + q[3 + K :]
        return log_softmax(q[0] * evidence[rows] + bonus[y], axis=1)

    def loss(q: np.ndarray) -> tuple[float, np.ndarray]:
        chance, change = changed(q, place, given), (q - start) / sd
        excess = np.exp(chance) - own[truth]
        at_label = np.bincount(given, excess[np.arange(len(place)), given], K)
        by_slopes = [(excess * evidence[place]).sum(), (excess * pattern[given]).sum()]
        gradient = np.array([*by_slopes, at_label.sum(), *at_label, *excess.sum(axis=0)])
        value = (change**2).sum() / 2 - chance[np.arange(len(place)), truth].sum()
        return value, gradient + change / sd

    best = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return np.exp(changed(best, slice(None), labels))


def _by_likelihood(
    line: np.ndarray, counted: np.ndarray, answers: Answers, given: np.ndarray
) -> np.ndarray:
    """Mix two joints by how likely each makes the true classes of the sample, given the labels."""
    inside = answers.sampled
    at = answers.truth[inside], given[inside]
    n = np.bincount(answers.stratum[inside], minlength=len(answers.sizes))
    weight = (answers.sizes / n)[answers.stratum[inside]]
    weight = weight / weight.mean()
    one, other = (joint[at] / joint.sum(axis=0)[at[1]] + _LEAST for joint in (line, counted))
    share = np.linspace(0.02, 0.98, 49)[:, None]
    likely = np.log((1 - share) * one + share * other) @ weight
    likely = likely + np.log(share * (1 - share))[:, 0]
    best = float(share[likely.argmax(), 0])
    return (1 - best) * line + best * counted


def _adding_up(
    posterior: np.ndarray, labels: np.ndarray, answers: Answers, joint: np.ndarray
) -> np.ndarray:
    """(N, K) with the verified classes, and the others such that all have this rate and pattern."""
    N, K = posterior.shape
    found = np.zeros((K, K))
    np.add.at(found, (answers.truth, labels[answers.place]), 1)
    others = np.setdiff1d(np.arange(N), answers.place)
    rest = max(len(others), 1)
    wrong = N * (1 - np.trace(joint)) - found.sum() + np.trace(found)
    shares = np.bincount(labels[others], minlength=K) / rest
    pattern = _with_labels(np.maximum(N * joint - found, 1e-9), shares)
    target = _with_rate(pattern, np.clip(wrong / rest, 0, 1))
    corrected = np.empty((N, K))
    corrected[others] = tilted(posterior[others], labels[others], target)
    corrected[answers.place] = np.eye(K)[answers.truth]
    return corrected


def _findings(posterior: np.ndarray, given: np.ndarray, answers: Answers) -> tuple[Finding, ...]:
    """Whether the answers contradict the model, look copied from it, or are incomplete."""
    findings = [_contradiction(chance_wrong(posterior, given), answers.truth != given)]
    shown = answers.suggested >= 0
    if shown.any():
        findings.append(_copied(posterior[shown], answers.suggested[shown], answers.truth[shown]))
    sample = int(answers.sampled.sum()) + answers.skipped
    if sample:
        share = answers.skipped / sample
        sentence = f"{answers.skipped} of {sample} rows of the sample were skipped."
        remedy = (
            "The rate holds if they were skipped whatever their label. If they were the hard ones, "
            "it is too low: answer them too."
        )
        ok = share <= _SKIPPED
        findings.append(Finding("skipped", ok, share, sentence, remedy="" if ok else remedy))
    return tuple(findings)


def _contradiction(wrong: np.ndarray, bad: np.ndarray) -> Finding:
    """Whether labels that the model was sure of are otherwise, or the rate is far from its own."""
    right, sure_wrong = wrong < 1 - _SURE, wrong > _SURE
    surprises = int((bad & right).sum() + (~bad & sure_wrong).sum())
    expected = wrong[right].sum() + (1 - wrong[sure_wrong]).sum()
    spread = wrong * (1 - wrong)
    z_sure = (surprises - expected) / max(np.sqrt(spread[right | sure_wrong].sum()), 1.0)
    found, in_all = bad.sum(), wrong.sum()
    z = (found - in_all) / max(np.sqrt(spread.sum()), 1.0)
    far = abs(z) > _DISAGREE and max(found, in_all) > _TOO_MUCH * min(found, in_all)
    often = surprises > (1 - _SURE) * (right | sure_wrong).sum()
    ok = not (far or (often and z_sure > _DISAGREE))
    sentence = (
        f"Of {len(bad)} verified labels {found} are wrong, and the model expected {in_all:.1f} "
        f"({z:+.1f} standard errors). It was sure of {(right | sure_wrong).sum()}, and {surprises} "
        f"of these are otherwise."
    )
    if ok:
        return Finding("verified", ok, float(max(z_sure, abs(z))), sentence)
    remedy = (
        "The features may have been learnt from these labels, or one gives the label away: rely on "
        "the verified rate, and look for features that have not seen the labels."
        if found > in_all
        else "Either the features do not tell the classes, or whoever checked left labels as they "
        "were: have some of the model's surest suspects checked once more."
    )
    sentence = f"The verified labels contradict the model. {sentence}"
    return Finding("verified", ok, float(max(z_sure, abs(z))), sentence, "serious", remedy)


def _copied(posterior: np.ndarray, suggested: np.ndarray, truth: np.ndarray) -> Finding:
    """Whether answers differ from the suggestions beside them hardly ever, as copies do."""
    m, differ = len(truth), int((suggested != truth).sum())
    expected = float((1 - posterior[np.arange(m), suggested]).sum())
    ok = bool(pdtr(differ, expected) >= _COPIED)
    sentence = (
        f"{differ} of {m} answers differ from the suggestion beside them, and {expected:.1f} were "
        f"expected to."
    )
    if ok:
        return Finding("copied answers", ok, float(differ), sentence)
    sentence = (
        f"The answers may be copied from the suggestions, and then certify nothing. {sentence}"
    )
    remedy = "Have some of these rows checked by somebody who does not see the suggestions."
    return Finding("copied answers", ok, float(differ), sentence, "serious", remedy)
