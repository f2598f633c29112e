"""T and p from triples: exact recovery, wrong optima, the fast forms against the formula."""

from dataclasses import replace

import numpy as np
import pytest

from labelnoise import Consensus, LabelNoiseError, transition_error
from labelnoise.checks import check_fit, check_solution
from labelnoise.consensus import expected_consensus
from labelnoise.solvers import solve
from labelnoise.solvers.likelihood import by_em
from labelnoise.solvers.paper import Norms, descend, public_start
from labelnoise.solvers.rows import project_on_simplex
from labelnoise.solvers.search import Fit, adam
from labelnoise.solvers.triples import (
    DenseTriples,
    SparseTriples,
    divergence_of_counts,
    draw_triples,
    model_of,
    sampling_divergence,
)
from tests.conftest import (
    imbalanced_prior,
    pair_matrix,
    random_matrix,
    sampled_consensus,
    symmetric_matrix,
)

CLASSES = [2, 3, 10, 100]


def interior_matrices(K):
    """Known matrices without zeros: symmetric .6 (at K = 2 that is not informative: .4), pair."""
    return {
        "symmetric": symmetric_matrix(K, 0.6 if K > 2 else 0.4),
        "pair": pair_matrix(K, 0.45, background=0.02),
    }


@pytest.mark.parametrize("K", CLASSES)
@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_moments_recover_the_truth_from_an_exact_consensus(K, kind):
    """The closed form is exact to 1e-8 on an exact consensus with priors of 1:20."""
    T, p = interior_matrices(K)[kind], imbalanced_prior(K, 20)
    found = solve(Consensus.from_model(T, p), "moments")
    np.testing.assert_allclose(found.transition_matrix, T, atol=1e-8)
    np.testing.assert_allclose(found.class_prior, p, atol=1e-8)


@pytest.mark.parametrize("K", CLASSES)
@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_likelihood_recovers_the_truth_from_a_perturbed_start(K, kind, rng):
    """From a start a good way off, the likelihood is maximised to 1e-6 of the truth."""
    T, p = interior_matrices(K)[kind], imbalanced_prior(K, 20)
    start = (0.8 * T + 0.2 * rng.dirichlet(np.ones(K), K), 0.8 * p + 0.2 / K)
    assert transition_error(start[0], T) > 0.05
    found = solve(Consensus.from_model(T, p), "likelihood", start=start, tol=1e-12)
    np.testing.assert_allclose(found.transition_matrix, T, atol=1e-6)
    np.testing.assert_allclose(found.class_prior, p, atol=1e-6)
    assert found.start == "given"


@pytest.mark.parametrize("K", [2, 3, 10])
def test_paper_comes_close_on_an_exact_consensus(K):
    """The paper's solver comes close to the truth on an exact consensus."""
    T, p = symmetric_matrix(K, 0.3), imbalanced_prior(K, 2)
    found = solve(Consensus.from_model(T, p), "paper", random_state=0)
    assert transition_error(found.transition_matrix, T) < 0.02


@pytest.mark.parametrize("K", [2, 5])
def test_paper_leaves_a_local_optimum(K, rng):
    """With class priors of 1:20 the public code's start can end far off; another one does not."""
    alone, errors = [], []
    for _ in range(3):
        T, p = random_matrix(K, rng), imbalanced_prior(K, 20)
        exact = Consensus.from_model(T, p)
        found = solve(exact, "paper", random_state=0)
        errors.append(transition_error(found.transition_matrix, T))
        only, _, _ = descend(Norms.of(exact), public_start(1, K, rng), 1501)
        alone.append(transition_error(only[0], T))
    assert max(errors) < 0.01
    assert max(alone) > 0.05


def test_the_start_of_the_papers_text_stalls_at_100_classes():
    """K I - 1 1' comes close with few classes; with 100 it saturates, and T stays the identity."""
    T, p = symmetric_matrix(5, 0.3), np.ones(5) / 5
    exact = Consensus.from_model(T, p)
    assert transition_error(solve(exact, "paper-text").transition_matrix, T) < 0.02
    T, p = symmetric_matrix(100, 0.4), np.ones(100) / 100
    exact = Consensus.from_model(T, p)
    found = solve(exact, "paper-text", n_steps=20)
    np.testing.assert_allclose(found.transition_matrix, np.eye(100), atol=1e-30)
    found = solve(exact, "paper", n_steps=20, random_state=0)
    assert transition_error(found.transition_matrix, T) < 0.4


def test_the_sparse_regulariser(rng):
    """The public code's ln(p + eps) takes mass off classes that are not there."""
    K = 5
    T, p = symmetric_matrix(K, 0.3), np.array([0.6, 0.4, 0, 0, 0])
    norms = Norms.of(sampled_consensus(T, p, 250, 0))
    start = public_start(1, K, rng)
    (plain,), (sparse,) = (descend(norms, start, 501, sparse=on)[1] for on in (False, True))
    assert sparse[2:].sum() < 0.5 * plain[2:].sum()
    assert sparse[:2].sum() > plain[:2].sum()


def test_where_the_assumptions_end():
    """Two classes with both rates above one half come out mirrored; equal rows are singular."""
    T, p = np.array([[0.3, 0.7], [0.8, 0.2]]), np.array([0.4, 0.6])
    found = solve(Consensus.from_model(T, p))
    np.testing.assert_allclose(found.transition_matrix, T[::-1], atol=1e-6)
    np.testing.assert_allclose(found.class_prior, p[::-1], atol=1e-6)
    T = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    exact = Consensus.from_model(T, np.ones(3) / 3, 1000)
    findings = {f.name: f for f in check_solution(exact, solve(exact), np.arange(3))}
    assert not findings["nonsingular"].ok


@pytest.mark.parametrize("K", [2, 4])
def test_norms_are_those_on_paper(K, rng):
    """The objective in Gram form is the sum of the three norms, and its gradient its slope."""
    consensus = sampled_consensus(random_matrix(K, rng), imbalanced_prior(K, 3), 300, 0)
    T, p = random_matrix(K, rng), rng.dirichlet(np.ones(K))
    norms = Norms.of(consensus)

    def on_paper(T, p):
        expected = expected_consensus(T, p)
        observed = (consensus.c1, consensus.c2, consensus.c3)
        return sum(np.linalg.norm(o - e) for o, e in zip(observed, expected, strict=True))

    (loss,), (grad_T,), (grad_p,) = norms.loss_and_gradient(T[None], p[None])
    assert loss == pytest.approx(on_paper(T, p), abs=1e-12)
    step = 1e-6
    for i in range(K):
        up, down = p.copy(), p.copy()
        up[i] += step
        down[i] -= step
        slope = (on_paper(T, up) - on_paper(T, down)) / (2 * step)
        assert grad_p[i] == pytest.approx(slope, abs=1e-6)
        for j in range(K):
            up, down = T.copy(), T.copy()
            up[i, j] += step
            down[i, j] -= step
            slope = (on_paper(up, p) - on_paper(down, p)) / (2 * step)
            assert grad_T[i, j] == pytest.approx(slope, abs=1e-6)


def test_the_best_iterate_is_kept_as_a_copy():
    """When the loss rises at the end, the best iterate is returned, not the last."""
    seen = []

    def rising(x, step):
        seen.append(float((x**2).sum()))
        return (x**2).sum(axis=1), 2 * x if step < 30 else -2 * x

    best, loss = adam(rising, np.array([[1.0, 2.0]]), 80)
    assert seen[-1] > 1.5 * min(seen)
    assert loss[0] == min(seen) == (best**2).sum()


@pytest.mark.parametrize("K", [2, 5, 12])
def test_dense_and_sparse_models_agree_with_a_loop(K, rng):
    """Both forms give the posterior joint and divergence that a loop over triples gives."""
    labels = draw_triples(random_matrix(K, rng), imbalanced_prior(K, 3), 400, rng)
    T, p = random_matrix(K, rng), rng.dirichlet(np.ones(K))
    joint, frequency = np.zeros((K, K)), {}
    for triple in labels:
        posterior = p * T[:, triple].prod(axis=1)
        for label in triple:
            joint[:, label] += posterior / posterior.sum() / 3 / len(labels)
        key = tuple(sorted(triple))
        frequency[key] = frequency.get(key, 0) + 1 / len(labels)
    c3 = expected_consensus(T, p)[2]
    divergence = 0.0
    for key, f in frequency.items():
        orders = {1: 1, 2: 3, 3: 6}[len(set(key))]
        divergence += f * np.log(f / (orders * c3[key]))
    contraction = np.einsum(
        "abc,ib,ic->ia", _symmetrised(Consensus.from_labels(labels, K).c3), T, T
    )
    for form in (DenseTriples, SparseTriples):
        model = form(*Consensus.from_labels(labels, K).sorted_triples(), K)
        found, d = model.joint_and_divergence(T, p)
        np.testing.assert_allclose(found, joint, atol=1e-14)
        np.testing.assert_allclose(model.joint(T, p), joint, atol=1e-14)
        assert d == pytest.approx(divergence, abs=1e-12)
        np.testing.assert_allclose(model.contraction(T), contraction, atol=1e-14)


def _symmetrised(c3):
    orders = [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0), (2, 0, 1)]
    return sum(c3.transpose(order) for order in orders) / 6


def test_float32_sums_of_many_classes_agree_with_float64(rng, monkeypatch):
    """From hundreds of classes on float32 is used, which costs no more than its rounding."""
    K = 40
    labels = draw_triples(random_matrix(K, rng), np.ones(K) / K, 2000, rng)
    triples = Consensus.from_labels(labels, K).sorted_triples()
    T, p = random_matrix(K, rng), rng.dirichlet(np.ones(K))
    exact, d = SparseTriples(*triples, K).joint_and_divergence(T, p)
    monkeypatch.setattr("labelnoise.solvers.triples._FLOAT32_FROM", 10)
    monkeypatch.setattr("labelnoise.solvers.triples._CHUNK", 500)
    rough, d32 = SparseTriples(*triples, K).joint_and_divergence(T, p)
    np.testing.assert_allclose(rough, exact, atol=1e-7)
    assert d32 == pytest.approx(d, abs=1e-5)


WRONG_OPTIMA = {
    "10 classes, 1:20": (10, 20, None, range(6)),
    "100 classes, 1:5": (100, 5, None, range(1)),
    "100 classes, 1:20, shuffled": (100, 20, 5, range(1)),
}


@pytest.mark.parametrize("case", WRONG_OPTIMA)
def test_wrong_optima_are_avoided_and_found_out(case):
    """EM from the diagonal can end wrong, and the fit says so; the default never does."""
    K, ratio, shuffle, seeds = WRONG_OPTIMA[case]
    T, p = pair_matrix(K, 0.45), imbalanced_prior(K, ratio)
    if shuffle:
        np.random.default_rng(shuffle).shuffle(p)
    n_stuck = 0
    for seed in seeds:
        consensus = sampled_consensus(T, p, 50_000, seed)
        found = solve(consensus)
        assert transition_error(found.transition_matrix, T) < 0.05
        assert check_fit(consensus, found).ok
        model = model_of(*consensus.sorted_triples(), K)
        diagonal = Fit(0.6 * np.eye(K) + 0.4 / K, np.ones(K) / K, "given")
        fit = by_em(model, diagonal, 1000)
        stuck = replace(
            found,
            transition_matrix=fit.T,
            class_prior=fit.p,
            divergence=fit.loss,
            start="given",
        )
        verdict = check_fit(consensus, stuck)
        wrong = stuck.divergence > found.divergence + 1e-4
        n_stuck += wrong
        assert verdict.ok == (not wrong)
        assert ("probably a wrong optimum" in verdict.sentence) == wrong
    assert n_stuck > 0


def test_exact_consensus_with_a_wrong_optimum():
    """On the exact consensus of the 1:20 pair flip the diagonal start fails; ours does not."""
    T, p = pair_matrix(10, 0.45), imbalanced_prior(10, 20)
    consensus = Consensus.from_model(T, p, n_centers=50_000)
    found = solve(consensus)
    assert transition_error(found.transition_matrix, T) < 1e-3


def test_repair_reaches_what_no_start_does(monkeypatch):
    """With few triples no start leads to the best optimum, and moving rows does."""
    T, p = pair_matrix(20, 0.45), imbalanced_prior(20, 10)
    consensus = sampled_consensus(T, p, 1500, 0)
    found = solve(consensus)
    from_truth = solve(consensus, start=(T, p))
    assert found.divergence <= from_truth.divergence + 1e-6
    monkeypatch.setattr("labelnoise.solvers.likelihood._REPAIR_ROUNDS", 0)
    assert solve(consensus).divergence > found.divergence + 0.001


def test_never_worse_than_its_starts(rng):
    """On random problems the likelihood found is at least that reached from the truth."""
    worse = 0
    for seed in range(20):
        K = int(rng.integers(2, 8))
        T, p = random_matrix(K, rng), rng.dirichlet(np.full(K, 5))
        consensus = sampled_consensus(T, p, 3000, seed)
        gap = solve(consensus).divergence - solve(consensus, start=(T, p)).divergence
        worse += gap > 1 / 3000
    assert worse == 0


def test_rows_sum_to_one_whatever_the_solver(rng):
    """T and p are probabilities, on noisy counts too."""
    consensus = sampled_consensus(random_matrix(6, rng), imbalanced_prior(6, 30), 60, 1)
    for solver in ("likelihood", "moments", "paper"):
        found = solve(consensus, solver, random_state=0)
        np.testing.assert_allclose(found.transition_matrix.sum(axis=1), 1)
        assert found.class_prior.sum() == pytest.approx(1)
        assert found.transition_matrix.min() >= 0
        assert found.class_prior.min() >= 0


@pytest.mark.parametrize(
    ("solver", "tolerance"), [("likelihood", 1e-6), ("moments", 1e-8), ("paper", 0.02)]
)
def test_renaming_classes_renames_the_answer(solver, tolerance, rng):
    """Permuting the class numbers permutes T and p, and changes nothing else."""
    K = 5
    T, p = random_matrix(K, rng), imbalanced_prior(K, 4)
    labels = draw_triples(T, p, 5000, rng)
    order = rng.permutation(K)
    plain = solve(Consensus.from_labels(labels, K), solver, random_state=0)
    renamed = solve(Consensus.from_labels(order[labels], K), solver, random_state=0)
    back = renamed.transition_matrix[np.ix_(order, order)]
    np.testing.assert_allclose(back, plain.transition_matrix, atol=tolerance)
    np.testing.assert_allclose(renamed.class_prior[order], plain.class_prior, atol=tolerance)


def test_absent_and_rare_classes(rng):
    """A label that never occurs gets the identity's row and prior 0; the rest is unaffected."""
    T, p = symmetric_matrix(3, 0.2), np.ones(3) / 3
    labels = draw_triples(T, p, 3000, rng)
    within = np.array([0, 2, 4])[labels]
    found = solve(Consensus.from_labels(within, 5))
    plain = solve(Consensus.from_labels(labels, 3))
    assert found.occurring.tolist() == [True, False, True, False, True]
    np.testing.assert_array_equal(found.transition_matrix[1], np.eye(5)[1])
    assert found.class_prior[1] == 0
    keep = np.ix_([0, 2, 4], [0, 2, 4])
    np.testing.assert_array_equal(found.transition_matrix[keep], plain.transition_matrix)


def test_sampling_divergence_is_that_of_a_chi_square(rng):
    """With few cells and many triples it is half the number of free cells, over n."""
    T, p = symmetric_matrix(3, 0.4), np.ones(3) / 3
    mean, _ = sampling_divergence(T, p, 100_000)
    assert mean == pytest.approx(9 / 2 / 100_000, rel=0.2)


@pytest.mark.parametrize("n", [300, 10**9])
def test_sampling_divergence_is_that_of_simulated_counts(n, rng):
    """Mean and deviation agree with draws, few or very many; listed or drawn cells agree."""
    T, p = random_matrix(8, rng), imbalanced_prior(8, 5)
    exact = Consensus.from_model(T, p)
    drawn = []
    for _ in range(200):
        counts = rng.multinomial(n, exact.frequencies).astype(float)
        triples = Consensus(exact.triples, counts, 8, n).sorted_triples()
        drawn.append(SparseTriples(*triples, 8).joint_and_divergence(T, p)[1])
    mean, deviation = sampling_divergence(T, p, n)
    assert mean == pytest.approx(np.mean(drawn), rel=0.03)
    assert deviation == pytest.approx(np.std(drawn), rel=0.2)
    _, chance = exact.sorted_triples()
    cells = rng.choice(len(chance), 100_000, p=chance / chance.sum())
    sampled = divergence_of_counts(chance[cells], np.full(100_000, 1e-5), n)
    np.testing.assert_allclose(sampled, (mean, deviation), rtol=0.02)


def test_projection_is_the_nearest_probability_vector(rng):
    """No random probability vector is nearer, and those that are one stay."""
    rows = rng.standard_normal((20, 5))
    nearest = project_on_simplex(rows)
    np.testing.assert_allclose(nearest.sum(axis=1), 1)
    assert nearest.min() >= 0
    others = rng.dirichlet(np.ones(5), (500, 20))
    ours = ((rows - nearest) ** 2).sum(-1)
    assert (((rows - others) ** 2).sum(-1) >= ours - 1e-12).all()
    np.testing.assert_allclose(project_on_simplex(nearest), nearest)


@pytest.mark.parametrize(
    ("labels", "solver", "message"),
    [
        (np.array([[0, 0, 0]]), "likelihood", "only class number 0"),
        (np.full((3, 3), -1), "likelihood", "consensus is empty"),
        (np.array([[0, 1, 1]]), "newton", "solver = 'newton'"),
    ],
)
def test_bad_input(labels, solver, message):
    """The message has the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        solve(Consensus.from_labels(labels, 2), solver)


def test_many_classes_with_an_excluded_triple_give_no_nan():
    """In float32 too, a triple that the model excludes counts nothing."""
    model = SparseTriples(np.array([[0, 1, 2], [3, 3, 3]]), np.array([0.5, 0.5]), 200)
    joint, _ = model.joint_and_divergence(np.eye(200), np.ones(200) / 200)
    assert np.isfinite(joint).all()
    assert joint[3, 3] == pytest.approx(0.5)
