"""Verified labels: the sample, the answers, and what follows from them."""

import json
from copy import copy

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

from labelnoise import HOC, LabelNoiseError, transition_error
from labelnoise.estimators.groups import GroupHOC
from labelnoise.noise import instance_dependent
from labelnoise.report import report_of
from labelnoise.scores import true_transition_matrix
from labelnoise.verified import (
    Ends,
    Verification,
    draw_sample,
    read_answers,
    sample_size,
    verify,
)
from labelnoise.verified.rate import stratified_interval
from labelnoise.verified.sample import allocation, strata
from tests.conftest import clusters, pair_matrix, symmetric_matrix

K = 3
NAMES = np.array(["cat", "dog", "emu"])


def opinion(sharpness, n=3000, rate=0.2, seed=0):
    """Labels with pair noise, and the posterior of a model that saw a look of this sharpness."""
    rng = np.random.default_rng(seed)
    T, clean = pair_matrix(K, rate, background=0.05), rng.integers(K, size=n)
    labels = (rng.random((n, 1)) > np.cumsum(T, axis=1)[clean]).sum(axis=1)
    look = sharpness * np.eye(K)[clean] + rng.standard_normal((n, K))
    joint = np.exp(sharpness * look) * T.T[labels]
    return joint / joint.sum(axis=1, keepdims=True), labels, clean


@pytest.fixture(scope="module")
def good():
    return opinion(2.0)


@pytest.fixture(scope="module")
def sure_and_wrong():
    """A model that believes every label: posterior, labels, true classes."""
    _, labels, clean = opinion(2.0)
    return 0.998 * np.eye(K)[labels] + 0.001, labels, clean


def answered(data, n=200, random_state=0, truth=None, suggestions=True, **settings):
    """Verify a sample; the model's T is symmetric at the posterior's noise rate."""
    posterior, labels, clean = data
    sample = draw_sample(posterior, labels, n, random_state=random_state)
    truth = clean if truth is None else truth
    table = sample.columns(suggestions) | {"true_label": truth[sample.row]}
    answers = read_answers(table, labels, np.arange(K))
    own = symmetric_matrix(K, mean_wrong(posterior, labels)), np.full(K, 1 / K)
    return verify(posterior, labels, answers, own=own, **settings)


def mean_wrong(posterior, labels):
    return 1 - posterior[np.arange(len(labels)), labels].mean()


# The sample


def test_sample_is_stratified_and_repeatable(good):
    """Strata of more doubt give larger chances, each row occurs once, and the seed decides."""
    posterior, labels, _ = good
    sample = draw_sample(posterior, labels, 200)
    assert len(np.unique(sample.row)) == len(sample) == 200
    wrong = 1 - posterior[np.arange(len(labels)), labels]
    doubt = (wrong * (1 - wrong))[sample.row]
    assert np.corrcoef(doubt, sample.chance)[0, 1] > 0.8
    count = np.bincount(sample.stratum)
    assert count.max() - count.min() <= 1
    np.testing.assert_allclose(sample.chance, count[sample.stratum] / sample.stratum_size)
    assert sample.stratum_size[np.unique(sample.stratum, return_index=True)[1]].sum() == len(labels)
    again = draw_sample(posterior, labels, 200)
    np.testing.assert_array_equal(sample.row, again.row)
    assert set(sample.row) != set(draw_sample(posterior, labels, 200, random_state=1).row)


def test_every_row_of_a_stratum_is_as_likely(good):
    """Over many seeds, selection is as frequent as the table says."""
    posterior, labels, _ = good
    posterior, labels = posterior[:200], labels[:200]
    seen, chance = np.zeros(200), np.zeros(200)
    for seed in range(300):
        sample = draw_sample(posterior, labels, 40, random_state=seed)
        seen[sample.row] += 1
        chance[sample.row] = sample.chance
    z = (seen / 300 - chance) / np.sqrt(chance * (1 - chance) / 300)
    assert np.abs(z).max() < 4.5
    assert z.std() < 1.3


def test_a_part_from_the_top_is_a_sample_of_all_strata(good):
    """Whoever stops at half has answered half of each stratum."""
    posterior, labels, _ = good
    half = draw_sample(posterior, labels, 200).stratum[:100]
    count = np.bincount(half)
    assert count.min() >= 4
    assert count.max() <= 9


def test_sample_can_be_continued(good):
    """No row comes twice, strata stay, and two small tables make one large one."""
    posterior, labels, _ = good
    first = draw_sample(posterior, labels, 100)
    second = draw_sample(posterior, labels, 100, after=first.to_frame())
    third = draw_sample(posterior, labels, 50, after=[first, second])
    rows = np.concatenate([first.row, second.row, third.row])
    assert len(np.unique(rows)) == 250
    both = np.bincount(np.append(first.stratum, second.stratum))
    assert both.max() - both.min() <= 1
    np.testing.assert_allclose(second.chance, both[second.stratum] / second.stratum_size)
    assert third.half_width < second.half_width < first.half_width


def test_a_table_of_another_estimate_cannot_be_continued(good):
    posterior, labels, _ = good
    other, _, _ = opinion(0.5, seed=1)
    table = draw_sample(other, labels, 100)
    with pytest.raises(LabelNoiseError, match="drawn from this estimate"):
        draw_sample(posterior, labels, 100, after=table)


def test_table_speaks_the_users_language(good):
    """Row numbers and names of the user's data; the model's opinion only if asked for."""
    posterior, labels, _ = good
    rows = 2 * np.arange(len(labels)) + 1
    sample = draw_sample(posterior, labels, 50, rows=rows, classes=NAMES)
    frame = sample.to_frame()
    assert list(frame) == ["row", "stratum", "stratum_size", "chance", "given_label", "true_label"]
    assert (frame["true_label"] == "").all()
    np.testing.assert_array_equal(frame["given_label"], NAMES[labels[(frame["row"] - 1) // 2]])
    suggested = sample.columns(suggestions=True)["suggested_label"]
    np.testing.assert_array_equal(suggested, NAMES[posterior[(frame["row"] - 1) // 2].argmax(1)])
    assert "50 rows to check, in 5 strata" in str(sample)


def test_allocation_is_as_equal_as_it_can_be():
    sizes = np.array([3, 100, 100, 7])
    assert allocation(sizes, 40).tolist() == [3, 15, 15, 7]
    assert allocation(sizes, 210).tolist() == sizes.tolist()
    assert allocation(sizes, 20, np.array([0, 9, 1, 0])).tolist() == [3, 9, 4, 4]


def test_strata_hold_equal_doubt():
    wrong = np.random.default_rng(0).random(10_000) ** 3
    stratum = strata(wrong, 8)
    doubt = np.bincount(stratum, np.sqrt(wrong * (1 - wrong) + 0.05))
    assert np.ptp(doubt) < 0.01 * doubt.mean()
    means = np.sort(np.bincount(stratum, wrong) / np.bincount(stratum))
    assert (np.diff(means) > 0).all()


def test_planned_size_is_what_the_interval_needs(good):
    """The interval of a sample of the planned size has about the planned half-width."""
    posterior, labels, _ = good
    n = sample_size(posterior, labels, 0.025)
    rate = answered(good, n).rate
    assert (rate.high - rate.low) / 2 == pytest.approx(0.025, rel=0.15)
    assert sample_size(posterior, labels, 0.0125) > 2 * n
    more = answered(good, 100).rows_to_add(0.025)
    assert 100 + more == pytest.approx(n, rel=0.3)


# The interval


def test_one_stratum_is_wilsons_interval():
    low, high = stratified_interval(np.array([7]), np.array([50]), np.array([10**9]))
    z, p, n = ndtri(0.975), 7 / 50, 50
    centre, root = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    expected = np.array([centre - root, centre + root]) / (1 + z * z / n)
    np.testing.assert_allclose([low, high], expected, rtol=1e-6)


def test_counts_without_spread_still_leave_doubt():
    """No wrong label among the verified ones is no proof; a census is."""
    n, sizes = np.array([20, 20]), np.array([1000, 1000])
    low, high = stratified_interval(np.array([0, 0]), n, sizes)
    assert low == 0
    assert 0.04 < high < 0.15
    low, high = stratified_interval(np.array([20, 20]), n, sizes)
    assert high == 1
    assert 0.85 < low < 0.96
    low, high = stratified_interval(np.array([3, 1000]), sizes, sizes)
    np.testing.assert_allclose([low, high], 1003 / 2000)


@pytest.mark.parametrize("model", ["good", "sure_and_wrong"])
@pytest.mark.parametrize("n", [50, 200])
def test_interval_covers_whatever_the_model_is(model, n, request):
    """Coverage of a 95% interval over 2,000 samples; without a model it is no wider than Wilson's.

    A standard error is .005.
    """
    posterior, labels, clean = request.getfixturevalue(model)
    bad = labels != clean
    stratum = strata(1 - posterior[np.arange(len(labels)), labels], max(1, n // 10))
    sizes, wrong = np.bincount(stratum), np.bincount(stratum, bad).astype(int)
    count = allocation(sizes, n)
    rng = np.random.default_rng(0)
    found = rng.hypergeometric(wrong, sizes - wrong, count, (2000, len(sizes)))
    low, high = stratified_interval(found, count, sizes)
    assert 0.93 < ((low <= bad.mean()) & (bad.mean() <= high)).mean() < 0.99
    found = rng.hypergeometric(bad.sum(), (~bad).sum(), n, (2000, 1))
    wilson = np.ptp(stratified_interval(found, np.array([n]), np.array([len(bad)])), axis=0)
    ratio = (high - low).mean() / wilson.mean()
    assert ratio < (0.8 if model == "good" and n == 200 else 1.1)


# The answers


@pytest.fixture
def table(good):
    """A sample with its answers, under names of classes."""
    posterior, labels, clean = good
    sample = draw_sample(posterior, labels, 60, classes=NAMES)
    return sample.to_frame().assign(true_label=NAMES[clean[sample.row]])


def test_all_forms_of_a_table_say_the_same(good, table, tmp_path):
    """Frame, columns, CSV with commas or semicolons, and in parts."""
    labels = good[1]
    table["note"] = ['said "no, never"\nand left'] * len(table)
    table.to_csv(tmp_path / "comma.csv", index=False)
    table.to_csv(tmp_path / "semicolon.csv", index=False, sep=";", encoding="utf-8-sig")
    forms = [
        table,
        {name: list(table[name]) for name in table},
        tmp_path / "comma.csv",
        str(tmp_path / "semicolon.csv"),
        [table[:20], table[20:]],
        table.sample(frac=1, random_state=0),
    ]
    first = read_answers(forms[0], labels, NAMES)
    assert len(first) == 60
    np.testing.assert_array_equal(NAMES[first.truth], table.sort_values("row")["true_label"])
    for form in forms[1:]:
        other = read_answers(form, labels, NAMES)
        for name in ("place", "truth", "stratum", "sizes"):
            np.testing.assert_array_equal(getattr(other, name), getattr(first, name))


def test_numbers_come_back_from_a_spreadsheet(good):
    """Classes that are numbers may come back as 2.0, and unanswered rows as NaN."""
    labels = good[1]
    sample = draw_sample(good[0], labels, 60)
    frame = sample.to_frame()
    frame["true_label"] = np.where(np.arange(60) < 50, 2.0, np.nan)
    answers = read_answers(frame, labels, np.arange(K))
    assert answers.truth.tolist() == [2] * 50
    assert answers.skipped == 0
    frame["true_label"] = ["2.0"] * 30 + [" "] * 30
    assert len(read_answers(frame, labels, np.arange(K))) == 30


def test_rows_of_ones_own_are_not_of_the_sample(good, table):
    """A mapping or Series has no design, unless it is declared a random sample."""
    labels = good[1]
    for given in ({5: "dog", 2: "cat"}, pd.Series(["dog", "cat"], index=[5, 2])):
        answers = read_answers(given, labels, NAMES)
        assert answers.place.tolist() == [2, 5]
        assert answers.truth.tolist() == [0, 1]
        assert not answers.sampled.any()
        declared = read_answers(given, labels, NAMES, random_sample=True)
        assert declared.sampled.all()
        assert declared.sizes.tolist() == [len(labels)]
    free = int(np.setdiff1d(np.arange(len(labels)), table["row"])[0])
    both = read_answers([table, {free: "emu"}], labels, NAMES)
    assert both.sampled.sum() == 60
    assert len(both) == 61


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="true_label"), "has no true_label"),
        (lambda t: t.drop(columns="stratum"), "both columns"),
        (lambda t: t.assign(true_label=""), "at least one verified label"),
        (lambda t: t.assign(true_label=["catt"] + ["cat"] * 59), "row {0} has 'catt'"),
        (lambda t: t.assign(row=[9999, *t["row"][1:]]), "row 9999 is none"),
        (lambda t: t.assign(row=[1.5, *t["row"][1:]]), "whole numbers"),
        (lambda t: t.assign(row=[None, *t["row"][1:]]), "one is empty"),
        (lambda t: t.assign(stratum_size=7), "add up to the 3000"),
        (lambda t: t.assign(stratum_size=range(60)), "one stratum_size"),
        (lambda t: t[t["stratum"] != 2], "all rows of a stratum were deleted"),
        (lambda t: t.assign(given_label="emu"), "drawn from other data"),
        (lambda t: [t, t[:1].assign(true_label="none")], "has 'none'"),
        (lambda t: [t.assign(true_label="cat"), {int(t["row"][0]): "dog"}], "cat and dog"),
        (lambda t: {}, "at least one verified label"),
        (lambda t: 7, "of type int"),
        (lambda t: "/no/such.csv", "cannot be read"),
    ],
)
def test_bad_answers_are_refused_by_row(good, table, change, message):
    with pytest.raises(LabelNoiseError, match=message.format(table["row"][0])):
        read_answers(change(table), good[1], NAMES)


def test_a_table_cannot_be_declared_a_random_sample(good, table):
    with pytest.raises(LabelNoiseError, match="random_sample=False"):
        read_answers(table, good[1], NAMES, random_sample=True)


# What follows


def test_everything_has_the_verified_rate(good):
    """Rate, T and the posterior agree to the last label, and verified rows are certain."""
    posterior, labels, clean = good
    found = answered(good)
    assert found.rate.low < (labels != clean).mean() < found.rate.high
    T, p = found.transition_matrix, found.class_prior
    assert 1 - p @ np.diag(T) == pytest.approx(found.rate.estimate, abs=1e-6)
    assert mean_wrong(found.posterior, labels) == pytest.approx(found.rate.estimate, abs=1e-4)
    counted = np.eye(K)[labels].T @ found.posterior / len(labels)
    np.testing.assert_allclose(counted.T, p[:, None] * T, atol=1e-3)
    rows = draw_sample(posterior, labels, 200).row
    np.testing.assert_array_equal(found.posterior[rows], np.eye(K)[clean[rows]])


@pytest.mark.parametrize("model", ["good", "sure_and_wrong"])
def test_T_comes_nearer(model, request):
    """A good model gives the pattern of errors, too; one that is sure and wrong, the rate alone."""
    data = request.getfixturevalue(model)
    posterior, labels, clean = data
    truth = true_transition_matrix(clean, labels, K)
    symmetric = transition_error(symmetric_matrix(K, (labels != clean).mean()), truth)
    before = transition_error(symmetric_matrix(K, mean_wrong(posterior, labels)), truth)
    error = np.mean(
        [transition_error(answered(data, 300, seed).transition_matrix, truth) for seed in range(5)]
    )
    if model == "good":
        assert error < 0.5 * min(symmetric, before)
    else:
        assert error < min(0.6 * before, 1.2 * symmetric)


def test_T_lies_between_the_ends_where_they_are_right(sure_and_wrong):
    """With the true T in the line between the ends, a useless posterior does little harm."""
    _, labels, clean = sure_and_wrong
    truth = true_transition_matrix(clean, labels, K)
    p = np.bincount(clean) / len(clean)
    ends = Ends((np.eye(K), p), (2 * truth - np.eye(K), p))
    with_ends = answered(sure_and_wrong, 100, ends=ends).transition_matrix
    without = answered(sure_and_wrong, 100).transition_matrix
    assert transition_error(with_ends, truth) < 0.8 * transition_error(without, truth)


def test_rows_chosen_otherwise_leave_the_rate(good):
    """Checked suspects correct the posterior; the summary says why the rate stays."""
    posterior, labels, clean = good
    suspects = np.argsort(posterior[np.arange(len(labels)), labels])[:100]
    answers = read_answers(dict(zip(suspects, clean[suspects], strict=True)), labels, np.arange(K))
    own = symmetric_matrix(K, 0.25), np.full(K, 1 / K)
    found = verify(posterior, labels, answers, own=own)
    assert found.rate is None
    assert mean_wrong(found.posterior, labels) == pytest.approx(0.25, abs=1e-3)
    assert "stays the model's, 25.0%" in str(found)
    assert "not drawn at random" in str(found)
    np.testing.assert_array_equal(found.posterior[suspects], np.eye(K)[clean[suspects]])
    with pytest.raises(LabelNoiseError, match="random sample to plan by"):
        found.rows_to_add()


def test_where_most_labels_are_verified_they_decide(good):
    """The others have what is left of the wrong labels."""
    data = tuple(part[:200] for part in good)
    found = answered(data, 170)
    assert mean_wrong(found.posterior, data[1]) == pytest.approx(found.rate.estimate, abs=1e-3)
    assert np.isfinite(found.posterior).all()


def test_further_rows_do_not_move_the_rate(good):
    """Suspects checked beside the sample are counted apart."""
    posterior, labels, clean = good
    sample = draw_sample(posterior, labels, 200)
    table = sample.columns() | {"true_label": clean[sample.row]}
    suspects = np.argsort(posterior[np.arange(len(labels)), labels])[:100]
    extra = {int(n): int(clean[n]) for n in suspects}
    own = symmetric_matrix(K, 0.25), np.full(K, 1 / K)
    alone, both = (
        verify(posterior, labels, read_answers(given, labels, np.arange(K)), own=own)
        for given in (table, [table, extra])
    )
    assert vars(both.rate) == vars(alone.rate)
    assert f"{both.n - both.n_sampled} verified rows that were not drawn at random" in str(both)


def test_a_sure_model_that_is_wrong_is_found_out(sure_and_wrong, good):
    """And one that is right is not."""
    found = answered(sure_and_wrong)
    assert not found.findings[0].ok
    assert found.findings[0].value > 4
    assert found.findings[0].severity == "serious"
    assert "contradict the model" in str(found)
    assert all(finding.ok for seed in range(10) for finding in answered(good, 200, seed).findings)


def test_copied_answers_are_found_out(good):
    """Suggestions, where whoever checked could see them, and the given labels themselves."""
    posterior, labels, _ = good
    copied = answered(good, truth=posterior.argmax(axis=1))
    assert [finding.name for finding in copied.findings if not finding.ok] == ["copied answers"]
    assert "may be copied from the suggestions" in str(copied)
    unseen = answered(good, truth=posterior.argmax(axis=1), suggestions=False)
    assert all(finding.ok for finding in unseen.findings)
    left = answered(good, truth=labels)
    assert not left.findings[0].ok
    assert left.findings[0].value > 4
    assert "left labels as they were" in str(left)


def test_many_skipped_rows_are_said(good):
    """Not those below the last answer: whoever stops early has checked a random sample."""
    posterior, labels, clean = good
    frame = draw_sample(posterior, labels, 100).to_frame()
    own = symmetric_matrix(K, 0.2), np.full(K, 1 / K)
    for empty, said in ((slice(10, 40), True), (slice(70, None), False)):
        frame["true_label"] = clean[frame["row"]].astype(object)
        frame.iloc[empty, -1] = None
        found = verify(posterior, labels, read_answers(frame, labels, np.arange(K)), own=own)
        assert found.rate.n == 70
        sentence = "30 of 100 rows of the sample were skipped. The rate holds if"
        assert (sentence in str(found)) == said


def test_too_few_answers_for_a_rate(good):
    posterior, labels, clean = good
    frame = draw_sample(posterior, labels, 100).to_frame()
    frame["true_label"] = [*clean[frame["row"][:3]], *[None] * 97]
    answers = read_answers(frame, labels, np.arange(K))
    with pytest.raises(LabelNoiseError, match="from the top of the table"):
        verify(posterior, labels, answers, own=(np.eye(K), np.full(K, 1 / K)))


def test_no_wrong_label_found_keeps_the_models_rate_within_the_interval(good):
    found = answered(good, 50, truth=good[1])
    assert found.rate.low == 0
    assert found.rate.estimate == pytest.approx(found.rate.high)


def test_what_is_stored_comes_back(good):
    found = answered(good)
    again = Verification.from_dict(json.loads(json.dumps(found.to_dict())))
    assert str(again) == str(found)
    assert again.strata == found.strata
    assert again.findings == found.findings
    assert again.posterior is None
    np.testing.assert_array_equal(again.transition_matrix, found.transition_matrix)
    with pytest.raises(ValueError, match="does not fit"):
        Verification.from_dict(found.to_dict() | {"transition_matrix": [[1.0]]})


def test_strata_show_model_against_verified(good):
    """In the order of the model's chance, with as many labels as there are."""
    found = answered(good)
    model = [part.model for part in found.strata]
    assert model == sorted(model)
    assert sum(part.size for part in found.strata) == len(good[1])
    assert sum(part.n_wrong for part in found.strata) == found.n_wrong
    inside = [part.low <= part.model <= part.high for part in found.strata]
    assert np.mean(inside) > 0.7


@pytest.mark.parametrize("n", [5, 3001, 20.5, "many"])
def test_sample_size_must_be_possible(good, n):
    with pytest.raises(LabelNoiseError, match="whole number from 10 to"):
        draw_sample(good[0], good[1], n)


def test_planned_half_width_must_be_possible(good):
    with pytest.raises(LabelNoiseError, match="half_width"):
        sample_size(good[0], good[1], 2)


# Of an estimate


@pytest.fixture(scope="module")
def data():
    """Clusters that overlap with noise that depends on the example: X, labels, true classes."""
    X, clean = clusters(K, 900, 0, separation=0.8)
    noisy = instance_dependent(X, clean, 0.3, random_state=0).labels
    return X, NAMES[noisy], NAMES[clean]


@pytest.fixture(scope="module")
def fitted(data):
    X, y, _ = data
    return HOC().fit(X, y)


@pytest.fixture
def est(fitted):
    return copy(fitted)  # `verify` changes no array


def checked(est, truth, n=120, **settings):
    sample = est.to_verify(n, **settings)
    return sample.to_frame().assign(true_label=truth[sample.row])


def test_everything_follows_the_verified_rate(data, est):
    """Noise rate, T, posterior, suspects, interval, summary and report say one thing."""
    _, y, truth = data
    model_rate, table = est.noise_rate_, checked(est, truth)
    found = est.verify(table)
    assert found is est.verified_
    assert found.model_rate == pytest.approx(model_rate)
    assert est.noise_rate_ == pytest.approx(found.rate.estimate, abs=1e-6)
    right = est.predict_proba()[np.arange(len(y)), np.searchsorted(NAMES, y)]
    assert 1 - right.mean() == pytest.approx(est.noise_rate_, abs=1e-4)
    suspects = est.suspects()
    assert not set(suspects.index) & set(table["row"])
    wrong = (table["true_label"] != table["given_label"]).sum()
    assert suspects.expected_errors + wrong == pytest.approx(len(y) * est.noise_rate_, abs=0.1)
    interval = est.confidence_interval()
    assert interval.method == "verified"
    np.testing.assert_allclose(interval.noise_rate, [found.rate.low, found.rate.high])
    low, high = interval.transition_matrix
    assert ((low <= est.transition_matrix_) & (est.transition_matrix_ <= high)).all()
    assert "of 120 verified labels are wrong" in str(est)
    assert est.diagnostics_["verified"] in found.findings
    page = report_of(est, suspects=suspects).to_html()
    assert "Verified labels" in page
    assert page.count("<td>10</td>") >= 12  # verified labels of the strata


def test_verify_again_starts_from_the_model(data, est):
    """Answers do not add up: the last ones count, with rows of both tables if both are given."""
    truth = data[2]
    first = checked(est, truth)
    once = est.verify(first)
    second = checked(est, truth, 60, after=first)
    both = est.verify([first, second])
    assert both.n == 180
    assert both.own is not once.transition_matrix
    np.testing.assert_array_equal(both.own[0], once.own[0])
    again = est.verify(first)
    np.testing.assert_allclose(again.transition_matrix, once.transition_matrix)
    assert [finding.name for finding in est.diagnostics_].count("verified") == 1


def test_verified_at_fit_is_verified_after(data, est):
    X, y, truth = data
    table = checked(est, truth)
    found = est.verify(table)
    at_once = HOC().fit(X, y, verified=table)
    np.testing.assert_allclose(at_once.transition_matrix_, found.transition_matrix)
    assert HOC().fit(X, y).verified_ is None


def test_rows_are_those_of_the_data(data):
    """Unlabelled rows shift none of the row numbers."""
    X, y, truth = data
    y = np.where(np.arange(len(y)) % 5 == 0, None, y)
    est = HOC().fit(X, y)
    table = checked(est, truth)
    assert (table["row"] % 5 != 0).all()
    np.testing.assert_array_equal(table["given_label"], y[table["row"]])
    assert est.verify(table).rate.n == 120
    with pytest.raises(LabelNoiseError, match="row 5 is none"):
        est.verify({5: "cat"})


def test_files_keep_what_was_verified(data, est, tmp_path):
    est.verify(checked(est, data[2]))
    est.save(tmp_path / "noise.json")
    again = HOC.load(tmp_path / "noise.json")
    assert str(again.verified_) == str(est.verified_)
    np.testing.assert_allclose(
        again.confidence_interval().noise_rate, est.confidence_interval().noise_rate
    )
    assert "of 120 verified labels are wrong" in str(again)
    with pytest.raises(LabelNoiseError, match="it was loaded"):
        again.to_verify(50)


@pytest.mark.parametrize("settings", [{"refine": False}, {"solver": "moments"}])
def test_triples_alone_can_be_verified(data, settings):
    """T of the triples, by any solver, is corrected and gets an interval."""
    X, y, truth = data
    est = HOC(**settings).fit(X, y)
    before = est.noise_rate_
    found = est.verify(checked(est, truth))
    rate = (y != truth).mean()
    assert found.rate.low < rate < found.rate.high
    assert abs(est.noise_rate_ - rate) < abs(before - rate)
    low, high = est.confidence_interval().noise_rate
    assert low < est.noise_rate_ < high


def test_groups_follow_the_verified_rate(data, est):
    """Random groups: their mean rate, weighted, is the verified one."""
    X, y, truth = data
    groups = np.random.default_rng(0).integers(3, size=len(y))
    found = GroupHOC().fit(X, y, groups=groups, verified=checked(est, truth))
    rate = found.global_.verified_.rate.estimate
    assert found.global_.noise_rate_ == pytest.approx(rate, abs=1e-6)
    weighted = np.bincount(groups) @ found.noise_rates_ / len(y)
    assert weighted == pytest.approx(rate, abs=0.005)


def test_sample_size_by_default_is_planned(est):
    sample = est.to_verify(half_width=0.04)
    assert sample.half_width == pytest.approx(0.04, rel=0.1)
