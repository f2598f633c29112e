"""Signs that features know the labels: learnt from them, or with a column that gives them away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labelnoise.checks.around import WALKERS, Around
from labelnoise.checks.findings import BASIS, Finding
from labelnoise.clean_class.dependence import LEAST_EFFECT

if TYPE_CHECKING:
    from labelnoise.clean_class import CleanClass

# Chosen on networks trained on noisy labels of digits, CIFAR-10 features, tweets and clusters, and
# on these data as they are: benchmarks/results/diagnostics.md.
CLEARLY = 4.0  # standard errors of the agreement that T given h leaves to overlap
FLAT = 0.3  # fall of agreement over a walk, as a share of what overlap should make it
LEAST_COLUMNS = 4  # in fewer, a walk does not leave the place
BEYOND_CHANCE = 3.0  # log-likelihood gained by noise on unclear examples: by chance in 1 of 20
NEAR_ENDS = 0.02  # noise rates: then it does not matter which end is right
NOTHING_WRONG = 0.01  # noise rate given h
FAR_BETTER = 1 / 3  # of the errors of the neighbours' vote
LEAST_ERRORS = 30  # of the vote
ROWS_OF_A_COLUMN = 2000
EXACTLY = 0.98  # of a class's examples have a value, and of the value's examples are of it
LEAST_OF_A_CLASS = 20
MOST_COLUMNS = 100  # of one value in a class, as zeros in bags of words
_SEED = 0

REMEDY = (
    "If the encoder was trained on these labels, or a feature was made from them, use features "
    "that have not seen them. Else have 50 labels verified (to_verify): they settle it."
)


def check_columns(X: Any, labels: np.ndarray, classes: np.ndarray) -> Finding:
    """Whether a single column tells a class exactly, as a copy of the label does.

    Then it has one value for nearly all examples of the class, and for hardly any others. A
    sample of rows is looked at.
    """
    rows = np.random.default_rng(_SEED).permutation(len(labels))[:ROWS_OF_A_COLUMN]
    some, label = np.asarray(X)[rows], labels[rows]
    counts = np.bincount(label, minlength=len(classes))
    told = []
    for k in np.flatnonzero(counts >= LEAST_OF_A_CLASS):
        own = some[label == k]
        value = np.median(own, axis=0)
        inside = (own == value).mean(axis=0)
        for column in np.flatnonzero(inside >= EXACTLY)[:MOST_COLUMNS]:
            if (some[:, column] == value[column]).sum() * EXACTLY <= counts[k]:
                told.append(f"column {column} tells {classes[k]}")
                break
    if not told:
        return Finding("columns", True, 0.0, "No single column tells a class exactly.")
    sentence = (
        f"Single columns tell labels exactly, as if they were made from them: "
        f"{', '.join(told[:3])}."
    )
    remedy = "Leave these columns out, unless they are measured without knowing the label."
    return Finding("columns", False, float(len(told)), sentence, "serious", remedy)


def check_learnt(X: Any, around: Around, found: CleanClass) -> Finding:
    """Whether features predict wrong labels, too.

    Features of a network that was trained on these labels put a mislabelled example among those of
    its label. Three signs:

    - features predict the labels far better than the votes of neighbours do;
    - features seem to show that classes overlap, but the agreement of neighbours hardly falls with
      distance, as it does where classes overlap; and noise is on unclear examples, or overlap would
      be most of what neighbours disagree in;
    - hardly any label is wrong by the features. Clean labels look the same.
    """
    h, triples = (1 - float(p @ np.diag(T)) for T, p in (found.given_h, found.of_triples))
    predicted, voted = found.case.predicted, around.voted
    measure = f"Features predict {predicted:.1%} of the labels, and the votes of neighbours "
    measure += f"{voted:.1%}."
    errors = 1 - voted
    if errors * len(around.labels) >= LEAST_ERRORS and 1 - predicted < FAR_BETTER * errors:
        sentence = (
            f"The features give the labels away: they predict {predicted:.1%} of the labels, but "
            f"the votes of neighbours only {voted:.1%}."
        )
        return Finding("learnt", False, 0.0, sentence, "serious", REMEDY)
    fall, error = fall_of_agreement(X, around, found)
    case = found.case
    on_unclear = case.gain > BEYOND_CHANCE and case.b > LEAST_EFFECT
    flat = triples - h > NEAR_ENDS and fall + error < FLAT
    if flat and (on_unclear or h < triples / 2):
        sentence = (
            f"The features predict wrong labels, too: they leave {h:.1%} of the labels wrong, and "
            f"neighbours {triples:.1%}, which agree equally whether near or far and so hardly "
            f"differ in class. The features were learnt from labels of this task, or noise follows "
            f"them. T is that of the label triples; more labels may be wrong."
        )
        return Finding("learnt", False, fall, sentence, "serious", REMEDY)
    if h < NEAR_ENDS:
        sentence = (
            f"By the features hardly any label is wrong ({h:z.1%}). Either that is so, or the "
            f"features know the labels, and any number may be wrong."
        )
        return Finding("learnt", True, predicted, sentence, "note", REMEDY)
    return Finding("learnt", True, fall, f"The features do not seem to know the labels. {measure}")


def fall_of_agreement(X: Any, around: Around, found: CleanClass) -> tuple[float, float]:
    """Fall of neighbours' agreement over a walk, as a share of that by overlap; standard error.

    Where neighbours agree less than T given h lets them, h takes the rest for overlap of classes.
    If that is so, examples at a distance agree still less.
    """
    T, p = found.given_h
    expected, chance = float(p @ (T**2).sum(axis=1)), around.chance
    near = around.same[:, :2].mean(axis=1)
    lost, left = expected - near.mean(), near.mean() - chance
    draws = T[None] if found.draws is None else found.draws
    of_T = float(np.einsum("k,dkj->d", p, draws**2).std())
    least = CLEARLY * float(np.hypot(near.std() / np.sqrt(len(near)), of_T))
    few = around.near.shape[1] < 2 * WALKERS or X.shape[1] < LEAST_COLUMNS
    if few or lost <= least or left <= 0:
        return 1.0, 0.0
    fall = near - around.far()
    scale = (expected - chance) / (left * lost)
    return float(fall.mean() * scale), float(fall.std() / np.sqrt(len(near)) * scale)


def knows_labels(columns: Finding, learnt: Finding, found: CleanClass | None) -> Finding | None:
    """Where nothing is left to estimate from: that finding, in place of the number."""
    nothing = False
    if learnt.severity == "serious" and found is not None:
        T, p = found.given_h
        nothing = 1 - float(p @ np.diag(T)) < NOTHING_WRONG
    if not nothing and columns.ok:
        return None
    sentence = "The noise rate cannot be estimated, because the features seem to know the labels."
    return Finding(BASIS, False, 0.0, sentence, "serious", REMEDY)
