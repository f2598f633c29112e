"""The training loop and the methods on it, with a small network and small pictures."""

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from labelnoise import HOC, LabelNoiseError, LabelNoiseWarning, LocalHOC, noise
from labelnoise.io.datasets import load_arrays, load_folder
from labelnoise.losses import ForwardLoss, ReweightLoss
from labelnoise.training import (
    METHODS,
    PLANS,
    Objective,
    Plan,
    Run,
    Schedule,
    build_network,
    method_named,
    train,
)
from labelnoise.training.batches import batch_source
from labelnoise.training.methods import CE, HOCGlobal
from labelnoise.training.objectives import (
    CORES,
    Corrected,
    CoTeaching,
    CrossEntropy,
    JoCoR,
    Peer,
    Revised,
    Transitions,
)
from labelnoise.training.part_dependent import _rows, part_dependent

K = 4


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pictures(n, seed, size=10, contrast=40):
    """Coloured squares, of another pattern for each class, and noise."""
    patterns = np.random.default_rng(99).standard_normal((K, size // 2, size // 2, 3))
    patterns = patterns.repeat(2, axis=1).repeat(2, axis=2)
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    images = 128 + contrast * patterns[y] + 40 * rng.standard_normal((n, size, size, 3))
    return np.clip(images, 0, 255).astype(np.uint8), y


def picture_data(n=400, corrupt=None, contrast=40):
    images, y = pictures(n, 0, contrast=contrast)
    test_images, test_y = pictures(200, 1, contrast=contrast)
    labels = y if corrupt is None else corrupt(y, random_state=0).labels
    return load_arrays(images, labels, test_images, test_y)


def short_plan(first=2, final=3, batch_size=50):
    return Plan(
        first=Schedule(((0.05, first),), batch_size=batch_size),
        second=Schedule(((0.05, first),), batch_size=batch_size),
        final=Schedule(((0.05, final), (0.005, 2)), batch_size=batch_size),
    )


def pixels(data):
    return data.train.array.reshape(len(data.train), -1) - 128.0


def without_seconds(log):
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in log]


def quick(name):
    """A method with settings that fit a few epochs."""
    settings = {
        "co-teaching": {"ramp_epochs": 2},
        "co-teaching+": {"ramp_epochs": 2},
        "jocor": {"ramp_epochs": 2},
        "ptd-r-v": {"n_parts": 3},
        "hoc-local": {"local": LocalHOC(n_local=5, local_size=80)},
    }
    return method_named(name, **settings.get(name, {}))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_each_method_trains_and_repeats_exactly(name):
    data = picture_data(200, lambda y, **kw: noise.symmetric(y, 0.2, **kw), contrast=100)
    plan = short_plan(first=4, batch_size=20)
    results = [
        train(data, quick(name), plan=plan, network="resnet8", features=pixels(data), seed=3)
        for _ in range(2)
    ]
    assert without_seconds(results[0].log) == without_seconds(results[1].log)
    assert results[0].last_accuracy > 0.4


def test_another_seed_is_another_run():
    data = picture_data(100)
    logs = [train(data, "ce", plan=short_plan(), network="resnet8", seed=s).log for s in (0, 1)]
    assert without_seconds(logs[0]) != without_seconds(logs[1])


@pytest.mark.parametrize("name", ["forward", "gce", "co-teaching", "cores2", "hoc-global"])
@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_what_is_made_for_strong_noise_beats_cross_entropy(name):
    data = picture_data(400, lambda y, **kw: noise.pair_flip(y, 0.4, **kw))
    schedule = Schedule(((0.05, 14), (0.005, 6)), batch_size=50)
    plan = Plan(first=short_plan(8).first, second=schedule, final=schedule)
    plain = train(data, "ce", plan=plan, network="resnet8")
    better = train(data, quick(name), plan=plan, network="resnet8", features=pixels(data))
    assert better.last_accuracy > plain.last_accuracy + 0.05


def test_batches_of_pictures_are_cropped_flipped_and_normalised():
    images, _ = pictures(64, 0)
    source = batch_source(load_arrays(images, np.arange(64) % K).train, *on_cpu(images))
    (plain,) = source.batches([np.arange(64)], augment=False, seed=0)
    assert plain.shape == (64, 3, 10, 10)
    np.testing.assert_allclose(plain.mean((0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(plain.std((0, 2, 3), correction=0), 1, atol=1e-3)
    (moved,) = source.batches([np.arange(64)], augment=True, seed=0)
    (again,) = source.batches([np.arange(64)], augment=True, seed=0)
    assert torch.equal(moved, again)
    # One pixel of padding: the middle of each picture is still there, shifted or mirrored.
    middle = plain[:, :, 1:-1, 1:-1]
    candidates = [
        torch.roll(turned, (down, right), (2, 3))[:, :, 1:-1, 1:-1]
        for turned in (moved, moved.flip(3))
        for down in (-1, 0, 1)
        for right in (-1, 0, 1)
    ]
    found = torch.stack([(c == middle).flatten(1).all(1) for c in candidates])
    assert found.any(0).all()
    assert (found.sum(1) > 0).sum() > 10  # of 18 ways to shift and mirror


def on_cpu(images):
    return load_arrays(images, np.arange(len(images)) % K).train, torch.device("cpu"), 0


def test_training_reads_files_and_balances_labels(tmp_path):
    from PIL import Image

    images, y = pictures(60, 0, size=40)
    lines = ["path,label"]
    for number, (image, label) in enumerate(zip(images, y, strict=True)):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
        if label != 3 or number < 30:  # fewer of the last class
            lines.append(f"{number}.png,{label}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    data = load_folder(tmp_path, tmp_path / "labels.csv")
    schedule = Schedule(((0.01, 1),), batch_size=8, balanced_batches=3)
    seen = []

    class Watching(CrossEntropy):
        def forward(self, logits, labels, index):
            seen.append(np.bincount(labels, minlength=K))
            return super().forward(logits, labels, index)

    run = Run(data, Plan(schedule, schedule, schedule), network="resnet8", n_workers=0)
    run.train("final", Watching(), schedule)
    assert np.array(seen).tolist() == [[2, 2, 2, 2]] * 3
    assert run.representations().shape == (len(data.labels), 64)
    assert run.log[0]["test_accuracy"] is None


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_with_balanced_epochs_the_matrix_is_a_mean_over_five():
    data = picture_data(300, lambda y, **kw: noise.symmetric(y, 0.2, **kw))
    schedule = Schedule(((0.05, 1),), batch_size=20, balanced_batches=5)
    run = Run(data, Plan(schedule, schedule, schedule), network="resnet8")
    T = HOCGlobal().transition_matrix(run, pixels(data))
    whole = HOC(classes=range(K)).fit(pixels(data), data.labels).transition_matrix_
    assert np.abs(T - whole).max() > 1e-3  # another sample
    assert np.abs(T - whole).sum() / K < 0.5
    np.testing.assert_allclose(T.sum(axis=1), 1)


class Interrupted(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("phase", ["first", "final"])
def test_a_killed_run_resumes_where_it_was(tmp_path, phase, epoch):
    data = picture_data(200, lambda y, **kw: noise.symmetric(y, 0.3, **kw))
    settings = {"plan": short_plan(first=3, final=2), "network": "resnet8"}
    undisturbed = train(data, "t-revision", **settings)

    def interrupt(run, at_phase, at_epoch):
        if (at_phase, at_epoch) == (phase, epoch):
            raise Interrupted
        return {}

    folder = tmp_path / "run"
    if (phase, epoch) != ("final", 2):  # that phase has two epochs only
        with pytest.raises(Interrupted):
            train(data, "t-revision", folder=folder, on_epoch=interrupt, **settings)
    resumed = train(data, "t-revision", folder=folder, **settings)
    assert without_seconds(resumed.log) == without_seconds(undisturbed.log)
    for mine, theirs in zip(
        resumed.networks[0].state_dict().values(),
        undisturbed.networks[0].state_dict().values(),
        strict=True,
    ):
        assert torch.equal(mine, theirs)
    written = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert without_seconds(written) == without_seconds(undisturbed.log)
    assert not list(folder.glob("*.tmp*"))


def test_a_folder_is_not_used_for_other_settings(tmp_path):
    data = picture_data(100)
    train(data, "ce", plan=short_plan(), network="resnet8", folder=tmp_path / "a")
    with pytest.raises(LabelNoiseError, match="seed was 0 and is 1"):
        train(data, "ce", plan=short_plan(), network="resnet8", folder=tmp_path / "a", seed=1)
    flipped = data.with_labels(K - 1 - data.labels)
    with pytest.raises(LabelNoiseError, match="labels was"):
        train(flipped, "ce", plan=short_plan(), network="resnet8", folder=tmp_path / "a")


def test_several_processes_train_one_network(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "import torch; torch.set_num_threads(1)\n"
        "from test_training import picture_data, short_plan\n"
        "from labelnoise.training import train\n"
        "result = train(picture_data(100), 'ce', plan=short_plan(), network='resnet8',\n"
        "               device='cpu', folder=sys.argv[2])\n"
        "total = sum(p.double().sum().item() for p in result.networks[0].parameters())\n"
        "Path(sys.argv[3], os.environ['RANK']).write_text(f'{total:.10f}')\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *(str(script), os.path.dirname(__file__), str(tmp_path / "run"), str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text()
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("name", "n_parameters"),
    [("resnet18", 11_689_512), ("resnet34", 21_797_672), ("resnet50", 25_557_032)],
)
def test_networks_are_the_published_ones(name, n_parameters):
    network = build_network(name, 1000, image_size=224)
    assert sum(p.numel() for p in network.parameters()) == n_parameters
    small = build_network(name, 10, image_size=32).eval()
    with torch.no_grad():
        assert small(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
        assert small.representations(torch.randn(2, 3, 32, 32)).min() >= 0


def test_the_papers_schedules():
    assert PLANS["cifar10"].final.n_epochs == 180
    rates = [PLANS["cifar10"].final.rate(epoch) for epoch in (0, 59, 60, 119, 120, 179)]
    assert rates == [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    assert PLANS["cifar100"].second.n_epochs == 60
    assert PLANS["clothing1m"].final.n_epochs == 80
    assert PLANS["clothing1m"].first.balanced_batches == 1000


def logits_of(losses):
    """Two-class logits whose cross-entropy for label 0 is as given."""
    losses = torch.tensor(losses)
    return torch.stack([-losses, torch.log1p(-torch.exp(-losses))], 1)


def test_co_teaching_gives_each_network_what_the_other_one_finds_easy():
    objective = CoTeaching(noise_rate=0.5, ramp_epochs=4)
    labels = torch.zeros(4, dtype=torch.long)
    first, second = [0.1, 0.2, 0.8, 0.9], [0.8, 0.1, 0.9, 0.2]
    logits = [logits_of(first).requires_grad_(), logits_of(second).requires_grad_()]
    objective.at_epoch(2)  # half way: a quarter is left out
    assert float(objective.kept_share) == 0.75
    objective.at_epoch(9)
    loss = objective(logits, labels, labels)
    # The first network finds 0 and 1 easy, the second one 1 and 3.
    assert float(loss.detach()) == pytest.approx((0.2 + 0.9) / 2 + (0.8 + 0.1) / 2, abs=1e-5)
    loss.backward()
    assert logits[0].grad.abs().sum(1).gt(0).tolist() == [False, True, False, True]
    assert logits[1].grad.abs().sum(1).gt(0).tolist() == [True, True, False, False]


def test_co_teaching_plus_looks_only_where_the_two_disagree():
    objective = CoTeaching(noise_rate=0.5, ramp_epochs=1, disagree_from=3)
    labels = torch.zeros(4, dtype=torch.long)
    first, second = [0.1, 0.2, 0.9, 0.3], [0.2, 0.8, 0.1, 0.4]  # ln 2 = .69: they differ on 1, 2
    logits = [logits_of(first), logits_of(second)]
    objective.at_epoch(2)
    before = objective(logits, labels, labels)
    assert float(before) == pytest.approx((0.1 + 0.9) / 2 + (0.2 + 0.8) / 2, abs=1e-5)
    objective.at_epoch(3)
    after = objective(logits, labels, labels)
    assert float(after) == pytest.approx(0.9 + 0.8, abs=1e-5)
    agreeing = objective([logits[0], logits[0]], labels, labels)  # then all are looked at
    assert float(agreeing) == pytest.approx(2 * (0.1 + 0.2) / 2, abs=1e-5)


def test_jocor_takes_one_small_loss_set_for_both():
    objective = JoCoR(noise_rate=0.5, ramp_epochs=1, agreement=0.9)
    objective.at_epoch(1)
    labels = torch.zeros(2, dtype=torch.long)
    first, second = logits_of([0.1, 0.5]), logits_of([0.2, 0.6])
    p, q = first.softmax(1), second.softmax(1)
    apart = (p * (p / q).log() + q * (q / p).log()).sum(1)
    joint = 0.1 * torch.tensor([0.3, 1.1]) + 0.9 * apart
    loss = objective([first, second], labels, labels)
    assert float(loss) == pytest.approx(float(joint.min()), abs=1e-6)


def test_cores_sieves_after_its_warm_up():
    objective = CORES(np.array([0.5, 0.5]), beta=2.0, warm_up=2, ramp_epochs=2)
    labels = torch.tensor([0, 0])
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])  # the second label is doubtful
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    objective.at_epoch(1)
    assert float(objective([logits], labels, labels)) == pytest.approx(float(losses.mean()))
    objective.at_epoch(3)
    mean = -logits.log_softmax(1).mean(1)
    expected = losses[0] - 2 * mean[0]
    assert float(objective([logits], labels, labels)) == pytest.approx(float(expected), abs=1e-5)
    assert objective.record() == {"kept_share": 0.5}


def test_peer_loss_ramps_up():
    objective = Peer(alpha=1.0, ramp_epochs=4)
    labels = torch.tensor([0, 1])
    logits = torch.zeros(2, 2)
    values = []
    for epoch in (0, 2, 4, 9):
        objective.at_epoch(epoch)
        values.append(float(objective([logits], labels, labels)))
    np.testing.assert_allclose(values, np.log(2) * np.array([1, 0.5, 0, 0]), atol=1e-6)


def test_each_example_has_its_own_matrix():
    rng = np.random.default_rng(0)
    matrices = rng.dirichlet(np.ones(3), (4, 3))
    index = torch.tensor([5, 0, 3])
    assignment = np.array([1, 0, 2, 3, 1, 2])
    chosen = Transitions(matrices, assignment)(index)
    np.testing.assert_allclose(chosen, matrices[[2, 1, 3]], atol=1e-6)
    weights = rng.dirichlet(np.ones(4), 6)
    mixed = Transitions(matrices, weights=weights)(index)
    np.testing.assert_allclose(
        mixed, np.einsum("nm,mij->nij", weights[[5, 0, 3]], matrices), atol=1e-6
    )
    logits, labels = torch.randn(3, 3), torch.tensor([0, 1, 2])
    loss = Corrected(Transitions(matrices, assignment), ForwardLoss())([logits], labels, index)
    f = logits.softmax(1).numpy()
    by_hand = [-np.log(f[n] @ matrices[m][:, n]) for n, m in enumerate((2, 1, 3))]
    assert float(loss) == pytest.approx(np.mean(by_hand), abs=1e-5)


@pytest.mark.parametrize("loss", [ForwardLoss(), ReweightLoss()])
def test_a_correction_begins_with_an_epoch_of_cross_entropy(loss):
    matrices = np.random.default_rng(0).dirichlet(np.ones(3), (2, 3))
    objective = Corrected(Transitions(matrices, np.array([0, 1, 0])), loss)
    logits, labels = torch.randn(3, 3), torch.tensor([0, 1, 2])
    plain = float(objective([logits], labels, torch.arange(3)))
    values = []
    for epoch in (0, 1):
        objective.at_epoch(epoch)
        values.append(float(objective([logits], labels, torch.arange(3))))
    uncorrected = float(torch.nn.functional.cross_entropy(logits, labels))
    assert values == pytest.approx([uncorrected, plain], abs=1e-6)
    assert abs(plain - uncorrected) > 1e-3


def test_a_class_that_is_given_up_is_pulled_back():
    """The forward loss hardly teaches such a class; what is added does, until it is back."""
    T, prior = np.array([[0.7, 0.3], [0.2, 0.8]]), np.array([0.4, 0.6])
    labels = torch.tensor([0, 1, 0, 1, 1])

    def pull(first_logit, prior=prior, epoch=1):
        """Gradient by the first class's logit: the more negative, the more it is pulled up."""
        objective = Corrected(Transitions(T), ForwardLoss(), prior)
        objective.at_epoch(epoch)
        logits = torch.tensor([[first_logit, 0.0]]).repeat(5, 1).requires_grad_()
        for _ in range(60):  # batches until it is seen
            loss = objective([logits], labels, torch.arange(5))
        loss.backward()
        return float(logits.grad[:, 0].sum())

    assert abs(pull(-9.0, prior=None)) < 1e-3
    assert pull(-9.0) < -0.1
    assert pull(-9.0, epoch=0) == pytest.approx(pull(-9.0, prior=None, epoch=0))
    assert pull(0.0) == pytest.approx(pull(0.0, prior=None))


def test_rare_answers_are_judged_over_several_batches():
    """With many classes a batch has none of most: that is no class given up."""
    n_classes, rng = 50, np.random.default_rng(0)
    prior = np.full(n_classes, 1 / n_classes)
    objective = Corrected(Transitions(np.eye(n_classes)), ForwardLoss(), prior)
    plain = Corrected(Transitions(np.eye(n_classes)), ForwardLoss())
    for _ in range(60):
        labels = torch.from_numpy(rng.integers(0, n_classes, 20))
        logits = 12 * torch.nn.functional.one_hot(labels, n_classes).float()
        added = float(objective([logits], labels, labels) - plain([logits], labels, labels))
        assert added < 0.05


@pytest.mark.parametrize("how", ["one", "assigned", "mixed"])
def test_shares_of_classes_follow_from_labels_and_transitions(how):
    T = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.1, 0.9]]])
    prior, n = np.array([0.3, 0.7]), 1000
    second = np.arange(n) < 250
    transitions = {
        "one": Transitions(T[0]),
        "assigned": Transitions(T, assignment=second.astype(int)),
        "mixed": Transitions(T, weights=np.tile([0.75, 0.25], (n, 1))),
    }[how]
    mean = T[0] if how == "one" else 0.75 * T[0] + 0.25 * T[1]
    labels = (np.arange(n) < round(n * (prior @ mean)[1])).astype(int)
    np.testing.assert_allclose(transitions.class_prior(labels), prior, atol=2e-3)


def test_the_slack_is_added_once_and_learns():
    T = np.array([[0.7, 0.3], [0.2, 0.8]])
    objective = Revised(Transitions(T), ReweightLoss(through_weight=True))
    logits, labels = torch.randn(5, 2), torch.tensor([0, 1, 0, 1, 1])
    plain = Corrected(Transitions(T), ReweightLoss())([logits], labels, labels)
    loss = objective([logits], labels, labels)
    assert float(loss.detach()) == pytest.approx(float(plain), abs=1e-6)
    loss.backward()
    assert objective.slack.grad.abs().min() > 0
    with torch.no_grad():
        objective.slack += torch.tensor([[0.1, -0.1], [0.3, -0.9]])
    np.testing.assert_allclose(
        objective.revised(objective.transitions(labels)).detach(), [[0.8, 0.2], [1, 0]], atol=1e-6
    )


def test_part_matrices_are_found_from_anchor_points():
    rng = np.random.default_rng(0)
    parts = rng.dirichlet(np.ones(3), (2, 3))
    n = 3000
    share = rng.uniform(0, 1, n)
    weights = np.stack([share, 1 - share], 1)
    y = rng.integers(0, 3, n)
    posteriors = np.einsum("nm,mnj->nj", weights, parts[:, y])
    representations = weights @ np.array([[1.0, 0, 0.1], [0, 1.0, 0.1]])
    # Anchors of class i are picked by the posterior of label i: make those sure examples.
    sure = np.where(np.eye(3)[y] > 0, 1.0, 0)
    for i in range(3):
        anchors = y == i
        rows = _rows(weights[anchors], posteriors[anchors])
        np.testing.assert_allclose(rows, parts[:, i], atol=1e-3)
    found, matrices = part_dependent(representations, 0.9 * sure + 0.1 / 3, 2, 100, 0)
    assert matrices.shape == (2, 3, 3)
    np.testing.assert_allclose(matrices.sum(2), 1)
    np.testing.assert_allclose(found.sum(1), 1)
    np.testing.assert_allclose(np.abs(np.corrcoef(found[:, 0], share)[0, 1]), 1, atol=0.05)


def test_small_loss_methods_ask_hoc_for_the_noise_rate():
    data = picture_data(400, lambda y, **kw: noise.symmetric(y, 0.3, **kw))
    run = Run(data, short_plan(), network="resnet8", features=pixels(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)
        assert method_named("co-teaching").rate(run) == pytest.approx(0.3, abs=0.1)
    assert method_named("co-teaching", noise_rate=0.1).rate(run) == 0.1


def test_one_can_write_an_objective_and_a_method_of_ones_own():
    class LogitNorm(Objective):
        def forward(self, logits, labels, index):
            return torch.nn.functional.cross_entropy(logits[0], labels, label_smoothing=0.1)

    class Smoothed(CE):
        def fit(self, run):
            run.train("final", LogitNorm(), run.plan.final)
            return {"answer": 42}

    steps = []
    result = train(
        picture_data(100),
        Smoothed(),
        plan=short_plan(),
        network="resnet8",
        progress=lambda *step: steps.append(step),
    )
    assert result.learnt == {"answer": 42}
    assert steps[0] == ("final", 1, 10)
    assert steps[-1] == ("final", 10, 10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "Expected method to be one of .*, but it is 'magic'"),
        ({"plan": "long"}, "Expected plan to be one of .*, but it is 'long'"),
        ({"network": "vgg"}, "Expected network to be one of .*, but it is 'vgg'"),
        ({"device": "moon"}, "Expected device to be .*, but it is 'moon'"),
        ({"features": np.zeros((3, 2))}, "as many features as training images, but .* 3 and 100"),
    ],
)
def test_bad_settings_are_one_sentence(settings, message):
    with pytest.raises(LabelNoiseError, match=message):
        train(picture_data(100), **{"method": "ce", "plan": short_plan(), **settings})


def test_unknown_settings_of_a_method():
    with pytest.raises(LabelNoiseError, match="settings that method 'ce' has"):
        method_named("ce", q=0.5)


def test_divergence_is_said():
    data = picture_data(100)
    plan = replace(short_plan(), final=Schedule(((1e20, 3),), batch_size=50))
    with pytest.raises(LabelNoiseError, match="Expected a finite loss, but in epoch"):
        train(data, "ce", plan=plan, network="resnet8")
