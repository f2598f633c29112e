"""What the methods minimise, by hand: selections, ramps, corrections by T."""

import numpy as np
import pytest
import torch

from labelnoise.losses import ForwardLoss, ReweightLoss
from labelnoise.training import Recipe
from labelnoise.training.objectives import (
    CORES,
    Corrected,
    CoTeaching,
    CoTeachingPlus,
    JoCoR,
    Peer,
    Revised,
    Transitions,
)
from labelnoise.training.schedules import Moment

WARM = Recipe("", warm_up=1)


def at(step, n_steps=100, steps_per_epoch=10):
    return Moment(step, n_steps, steps_per_epoch)


def logits_of(losses):
    """Two-class logits whose cross-entropy for label 0 is as given."""
    losses = torch.tensor(losses)
    return torch.stack([-losses, torch.log1p(-torch.exp(-losses))], 1)


def test_co_teaching_gives_each_network_what_the_other_one_finds_easy():
    objective = CoTeaching(noise_rate=0.5, recipe=Recipe("", ramp=40))
    labels = torch.zeros(4, dtype=torch.long)
    first, second = [0.1, 0.2, 0.8, 0.9], [0.8, 0.1, 0.9, 0.2]
    logits = [logits_of(first).requires_grad_(), logits_of(second).requires_grad_()]
    objective.at_step(at(20))  # half way: a quarter is left out
    assert float(objective.kept_share) == 0.75
    objective.at_step(at(90))
    loss = objective(logits, labels, labels)
    # The first network finds 0 and 1 easy, the second one 1 and 3.
    assert float(loss.detach()) == pytest.approx((0.2 + 0.9) / 2 + (0.8 + 0.1) / 2, abs=1e-5)
    loss.backward()
    assert logits[0].grad.abs().sum(1).gt(0).tolist() == [False, True, False, True]
    assert logits[1].grad.abs().sum(1).gt(0).tolist() == [True, True, False, False]


def test_co_teaching_plus_looks_only_where_the_two_disagree():
    objective = CoTeachingPlus(noise_rate=0.5, recipe=Recipe("", warm_up=30, ramp=1))
    labels = torch.zeros(4, dtype=torch.long)
    first, second = [0.1, 0.2, 0.9, 0.3], [0.2, 0.8, 0.1, 0.4]  # ln 2 = .69: they differ on 1, 2
    logits = [logits_of(first), logits_of(second)]
    objective.at_step(at(29))
    before = objective(logits, labels, labels)
    assert float(before) == pytest.approx((0.1 + 0.9 + 0.2 + 0.8) / 4, abs=1e-5)
    objective.at_step(at(30))
    after = objective(logits, labels, labels)
    assert float(after) == pytest.approx((0.9 + 0.8) / 4, abs=1e-5)  # over the batch size
    agreeing = objective([logits[0], logits[0]], labels, labels)  # then all are looked at
    assert float(agreeing) == pytest.approx(2 * (0.1 + 0.2) / 4, abs=1e-5)


def test_jocor_takes_one_small_loss_set_for_both():
    objective = JoCoR(noise_rate=0.5, agreement=0.9, recipe=Recipe("", ramp=1))
    objective.at_step(at(1))
    labels = torch.zeros(2, dtype=torch.long)
    first, second = logits_of([0.1, 0.5]), logits_of([0.2, 0.6])
    p, q = first.softmax(1), second.softmax(1)
    apart = (p * (p / q).log() + q * (q / p).log()).sum(1)
    joint = 0.1 * torch.tensor([0.3, 1.1]) + 0.9 * apart
    loss = objective([first, second], labels, labels)
    assert float(loss) == pytest.approx(float(joint.min()), abs=1e-6)


def test_cores_sieves_after_warm_up_and_ramp_and_counts_its_prior_anew():
    recipe = Recipe("", warm_up=20, ramp=20)
    objective = CORES(np.array([0.5, 0.5]), beta=2.0, recipe=recipe)
    labels = torch.tensor([0, 0])
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])  # the second label is doubtful
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    costs = -logits.log_softmax(1)

    def value():
        return float(objective([logits], labels, labels))

    objective.at_step(at(19))
    assert value() == pytest.approx(float(losses.mean()))
    objective.at_step(at(31))  # half way up, and no sieve; all of both epochs' labels are 0
    expected = losses - 1.1 * costs @ torch.tensor([0.5, 0.5])
    assert value() == pytest.approx(float(expected.mean()), abs=1e-5)
    objective.at_step(at(40))
    expected = losses[0] - 2 * costs[0, 0]
    assert value() == pytest.approx(float(expected), abs=1e-5)
    assert objective.record() == {"n_kept": 1}
    assert objective.rate_factor == pytest.approx(1 / 3)


def test_peer_loss_ramps_up_while_the_rate_falls():
    objective = Peer(alpha=1.0, recipe=Recipe("", ramp=0.4))
    labels = torch.tensor([0, 1])
    logits = torch.zeros(2, 2)
    values, factors = [], []
    for step in (0, 20, 40, 90):
        objective.at_step(at(step))
        values.append(float(objective([logits], labels, labels)))
        factors.append(objective.rate_factor)
    np.testing.assert_allclose(values, np.log(2) * np.array([1, 0.5, 0, 0]), atol=1e-6)
    np.testing.assert_allclose(factors, [1, 1 / 1.5, 0.5, 0.5])


def test_each_example_has_its_own_matrix():
    rng = np.random.default_rng(0)
    matrices = rng.dirichlet(np.ones(3), (4, 3))
    index, labels = torch.tensor([5, 0, 3]), torch.tensor([0, 1, 2])
    assignment, weights = np.array([1, 0, 2, 3, 1, 2]), rng.dirichlet(np.ones(4), 6)
    chosen, mixed = Transitions(matrices, assignment), Transitions(matrices, weights=weights)
    own = {chosen: matrices[[2, 1, 3]], mixed: np.einsum("nm,mij->nij", weights, matrices)}
    own[mixed] = own[mixed][[5, 0, 3]]
    logits = torch.randn(3, 3)
    f = logits.softmax(1).numpy()
    for transitions, T in own.items():
        columns = T[np.arange(3), :, np.arange(3)]
        np.testing.assert_allclose(transitions.full(index), T, atol=1e-6)
        np.testing.assert_allclose(transitions(index, labels), columns, atol=1e-6)
        loss = Corrected(transitions, ForwardLoss(), WARM)([logits], labels, index)
        assert float(loss) == pytest.approx(-np.log((f * columns).sum(1)).mean(), abs=1e-5)


@pytest.mark.parametrize("loss", [ForwardLoss(), ReweightLoss()])
def test_a_correction_begins_with_cross_entropy(loss):
    matrices = np.random.default_rng(0).dirichlet(np.ones(3), (2, 3))
    objective = Corrected(Transitions(matrices, np.array([0, 1, 0])), loss, WARM)
    logits, labels = torch.randn(3, 3), torch.tensor([0, 1, 2])
    plain = float(objective([logits], labels, torch.arange(3)))
    values = []
    for step in (0, 1):
        objective.at_step(at(step))
        values.append(float(objective([logits], labels, torch.arange(3))))
    uncorrected = float(torch.nn.functional.cross_entropy(logits, labels))
    assert values == pytest.approx([uncorrected, plain], abs=1e-6)
    assert abs(plain - uncorrected) > 1e-3


def test_a_class_that_is_given_up_is_pulled_back():
    """The forward loss hardly teaches such a class; what is added does, until it is back."""
    T, prior = np.array([[0.7, 0.3], [0.2, 0.8]]), np.array([0.4, 0.6])
    labels = torch.tensor([0, 1, 0, 1, 1])

    def pull(first_logit, prior=prior, step=1):
        """Gradient by the first class's logit: the more negative, the more it is pulled up."""
        objective = Corrected(Transitions(T), ForwardLoss(), WARM, prior)
        objective.at_step(at(step))
        logits = torch.tensor([[first_logit, 0.0]]).repeat(5, 1).requires_grad_()
        for _ in range(60):  # batches until it is seen
            loss = objective([logits], labels, torch.arange(5))
        loss.backward()
        return float(logits.grad[:, 0].sum())

    assert abs(pull(-9.0, prior=None)) < 1e-3
    assert pull(-9.0) < -0.1
    assert pull(-9.0, step=0) == pytest.approx(pull(-9.0, prior=None, step=0))
    assert pull(0.0) == pytest.approx(pull(0.0, prior=None))


def test_rare_answers_are_judged_over_several_batches():
    """With many classes a batch has none of most: that is no class given up."""
    n_classes, rng = 50, np.random.default_rng(0)
    prior = np.full(n_classes, 1 / n_classes)
    objective = Corrected(Transitions(np.eye(n_classes)), ForwardLoss(), WARM, prior)
    plain = Corrected(Transitions(np.eye(n_classes)), ForwardLoss(), WARM)
    for _ in range(60):
        labels = torch.from_numpy(rng.integers(0, n_classes, 20))
        logits = 12 * torch.nn.functional.one_hot(labels, n_classes).float()
        added = float(objective([logits], labels, labels) - plain([logits], labels, labels))
        assert added < 0.05


@pytest.mark.parametrize("how", ["one", "assigned", "mixed"])
def test_shares_of_classes_follow_from_labels_and_transitions(how):
    T = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.1, 0.9]]])
    prior, n = np.array([0.3, 0.7]), 1000
    second = np.arange(n) % 4 == 0
    mean = T[0] if how == "one" else 0.75 * T[0] + 0.25 * T[1]
    labels = (np.arange(n) < round(n * (prior @ mean)[1])).astype(int)
    transitions = {
        "one": Transitions(T[0]),
        "assigned": Transitions(T, assignment=second.astype(int)),
        "mixed": Transitions(T, weights=np.tile([0.75, 0.25], (n, 1))),
    }[how]
    np.testing.assert_allclose(transitions.class_prior(labels), prior, atol=5e-3)


def test_the_slack_is_added_once_and_learns():
    T = np.array([[0.7, 0.3], [0.2, 0.8]])
    objective = Revised(Transitions(T), ReweightLoss(through_weight=True))
    logits, labels = torch.randn(5, 2), torch.tensor([0, 1, 0, 1, 1])
    plain = Corrected(Transitions(T), ReweightLoss(), WARM)([logits], labels, labels)
    loss = objective([logits], labels, labels)
    assert float(loss.detach()) == pytest.approx(float(plain), abs=1e-6)
    loss.backward()
    assert objective.slack.grad.abs().min() > 0
    with torch.no_grad():
        objective.slack += torch.tensor([[0.1, -0.1], [0.3, -0.9]])
    np.testing.assert_allclose(
        objective.revised(objective.transitions.full(labels)).detach(),
        [[0.8, 0.2], [1, 0]],
        atol=1e-6,
    )
