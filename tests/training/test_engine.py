"""The training loop: pictures and rows, checkpoints, the log, networks of one's own."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from labelnoise import LabelNoiseError, noise
from labelnoise.io.datasets import load_arrays, load_folder
from labelnoise.training import (
    Objective,
    Plan,
    Run,
    Schedule,
    build_network,
    train,
)
from labelnoise.training.batches import batch_source
from labelnoise.training.methods import CE
from labelnoise.training.networks import representations_of
from labelnoise.training.objectives import CrossEntropy
from tests.training.data import (
    K,
    picture_data,
    pictures,
    quick,
    row_data,
    rows,
    short_plan,
    without_seconds,
)

ROOT = Path(__file__).parents[2]


def pixels(data):
    return data.train.array.reshape(len(data.train), -1) - 128.0


def test_another_seed_is_another_run():
    data = picture_data(100)
    logs = [train(data, "ce", plan=short_plan(), network="resnet8", seed=s).log for s in (0, 1)]
    assert without_seconds(logs[0]) != without_seconds(logs[1])


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_pictures_are_learnt_in_three_stages():
    """The paper's flow on a residual network, from pixels as first representations."""
    data = picture_data(400, lambda y, **kw: noise.pair_flip(y, 0.4, **kw))
    schedule = Schedule(((0.05, 10), (0.005, 3)), batch_size=50)
    plan = Plan(first=short_plan(4).first, second=schedule, final=schedule)
    plain = train(data, "ce", plan=plan, network="resnet8")
    flow = quick("hoc-local")
    better = train(data, flow, plan=plan, network="resnet8", features=pixels(data))
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
        "from tests.training.data import picture_data, short_plan\n"
        "from labelnoise.training import train\n"
        "result = train(picture_data(100), 'ce', plan=short_plan(), network='resnet8',\n"
        "               device='cpu', folder=sys.argv[2])\n"
        "total = sum(p.double().sum().item() for p in result.classifier.networks[0].parameters())\n"
        "Path(sys.argv[3], os.environ['RANK']).write_text(f'{total:.10f}')\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *(str(script), str(ROOT), str(tmp_path / "run"), str(tmp_path)),
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
    network = build_network(name, 1000, size=224)
    assert sum(p.numel() for p in network.parameters()) == n_parameters
    small = build_network(name, 10, size=32).eval()
    with torch.no_grad():
        assert small(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
        assert representations_of(small, torch.randn(2, 3, 32, 32)).min() >= 0


def test_an_objective_and_a_network_of_ones_own():
    """A function that builds a module is enough; its last linear layer gives representations."""

    class Smoothed(Objective):
        def forward(self, logits, labels, index):
            return torch.nn.functional.cross_entropy(logits[0], labels, label_smoothing=0.1)

    class OfIt(CE):
        def fit(self, run):
            run.train("final", Smoothed(), run.plan.final)
            return {"width": run.representations().shape[1]}

    data = row_data(300)
    steps = []
    result = train(
        data,
        OfIt(),
        plan=short_plan(),
        network=lambda: nn.Sequential(nn.Linear(32, 24), nn.Tanh(), nn.Linear(24, K)),
        progress=lambda *step: steps.append(step),
    )
    assert result.learnt == {"width": 24}
    assert steps[0] == ("final", 1, 30)
    assert steps[-1] == ("final", 30, 30)
    assert result.classifier.predict(rows(10, 3)[0]).shape == (10,)


def test_rows_are_standardised_whatever_their_units():
    """Shifted and scaled columns train the same network; a constant column does no harm."""
    X, y = rows(200, 0)
    moved = np.column_stack([1000 * X + 7, np.full(200, 3.0)])
    plain = np.column_stack([X, np.zeros(200)])
    losses = [
        [entry["loss"] for entry in train(load_arrays(x, y), "ce", plan=short_plan()).log]
        for x in (plain, moved)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-3)


def test_rows_without_a_label_are_left_out():
    X, y = rows(20, 0)
    data = load_arrays(X, [None if i % 4 == 0 else f"class {k}" for i, k in enumerate(y)])
    np.testing.assert_array_equal(data.train.array, X[np.arange(20) % 4 > 0])
    assert [data.classes[k] for k in data.labels] == [
        f"class {k}" for i, k in enumerate(y) if i % 4
    ]
    with pytest.raises(LabelNoiseError, match="there are NaN or inf"):
        load_arrays(np.where(X > 0, X, np.nan), y)


def test_early_stopping_keeps_the_epoch_that_agrees_most():
    """The held-out rows are not trained on, and the best epoch's network is the result."""
    data = row_data(400)
    seen = []

    class Watching(CrossEntropy):
        def forward(self, logits, labels, index):
            seen.extend(index.tolist())
            return super().forward(logits, labels, index)

    class Watched(CE):
        def fit(self, run):
            run.train("final", Watching(), run.plan.final)
            self.networks = [run.networks[0].state_dict()]
            return {}

    schedule = Schedule(((0.2, 12),), batch_size=20)
    method = Watched()
    result = train(data, method, plan=Plan(schedule, schedule, schedule), validation=0.25)
    agreement = [entry["agreement"] for entry in result.log]
    best = int(np.argmax(agreement))
    assert len(set(seen)) == 300
    assert best < 11  # it overfits
    held_out = np.setdiff1d(np.arange(400), seen)
    answers = result.classifier.predict_proba(data.train.array[held_out]).argmax(1)
    assert np.mean(answers == data.labels[held_out]) == pytest.approx(agreement[best])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "Expected method to be one of .*, but it is 'magic'"),
        ({"plan": "long"}, "Expected plan to be one of .*, but it is 'long'"),
        ({"network": "vgg"}, "Expected network to be one of .*, but it is 'vgg'"),
        ({"network": "mlp"}, "'resnet50'.* for images.*, but it is 'mlp'"),
        ({"network": nn.Linear(2, 2)}, "methods train several, but it is a Linear"),
        (
            {"network": lambda: nn.Sequential(nn.Flatten(), nn.Linear(300, 7))},
            r"\(2, 4\).*\(2, 7\)",
        ),
        ({"validation": 1.0}, "Expected 0 <= validation < 1, but validation = 1.0"),
        ({"device": "moon"}, "Expected device to be .*, but it is 'moon'"),
        ({"features": np.zeros((3, 2))}, "as many features as training examples, but .* 3 and 100"),
    ],
)
def test_bad_settings_are_one_sentence(settings, message):
    with pytest.raises(LabelNoiseError, match=message):
        train(picture_data(100), **{"method": "ce", "plan": short_plan(), **settings})


def test_divergence_is_said():
    data = picture_data(100)
    plan = replace(short_plan(), final=Schedule(((1e20, 3),), batch_size=50))
    with pytest.raises(LabelNoiseError, match="Expected a finite loss, but in epoch"):
        train(data, "ce", plan=plan, network="resnet8")
