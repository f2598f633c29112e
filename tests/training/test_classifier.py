"""A trained classifier predicts, is kept in a file, and comes back the same."""

import json
import os

import numpy as np
import pytest
import torch
from torch import nn

from labelnoise import LabelNoiseError
from labelnoise.io.datasets import Images, load_arrays
from labelnoise.training import Classifier, Plan, Schedule, train
from tests.training.data import K, picture_data, pictures, quick, row_data, rows, short_plan


@pytest.mark.parametrize("method", ["ce", "co-teaching"])
def test_rows_come_back_from_a_file(tmp_path, method):
    """One network or two; names of classes, and inputs in the units of the training."""
    X, y = rows(400, 0)
    data = load_arrays(5 * X + 3, np.array(["cat", "dog", "elk", "owl"])[y])
    classifier = train(data, quick(method), plan=short_plan(final=15)).classifier
    classifier.save(tmp_path / "a.safetensors")
    again = Classifier.load(tmp_path / "a.safetensors")
    new = 5 * rows(100, 1)[0] + 3
    np.testing.assert_array_equal(again.predict_proba(new), classifier.predict_proba(new))
    right = again.predict(new) == np.array(data.classes)[rows(100, 1)[1]]
    assert right.mean() > 0.9
    np.testing.assert_allclose(again.predict_proba(new).sum(1), 1, atol=1e-6)
    assert again.predict_proba(new[:0]).shape == (0, K)


def test_pictures_come_back_from_a_file(tmp_path):
    classifier = train(picture_data(200), "ce", plan=short_plan(), network="resnet8").classifier
    classifier.save(tmp_path / "a.safetensors")
    again = Classifier.load(tmp_path / "a.safetensors")
    images, y = pictures(100, 2)
    np.testing.assert_allclose(
        again.predict_proba(images), classifier.predict_proba(Images(images)), atol=1e-6
    )
    assert np.mean(again.predict(images) == y.astype(str)) > 0.7


def test_a_network_of_ones_own_needs_its_builder(tmp_path):
    data = row_data(300)

    def build():
        return nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, K))

    classifier = train(data, "ce", plan=short_plan(), network=build).classifier
    classifier.save(tmp_path / "own.safetensors")
    with pytest.raises(LabelNoiseError, match=r"use Classifier\.load with network="):
        Classifier.load(tmp_path / "own.safetensors")
    with pytest.raises(LabelNoiseError, match="does not fit the network"):
        Classifier.load(tmp_path / "own.safetensors", network=lambda: nn.Linear(32, K))
    X, _ = rows(20, 1)
    again = Classifier.load(tmp_path / "own.safetensors", network=build)
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_what_is_no_classifier_is_one_sentence(tmp_path):
    from safetensors.torch import save_file

    (tmp_path / "text").write_text("no tensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    for name, message in (
        ("none", "is no file"),
        ("text", "cannot"),
        ("other.safetensors", "None"),
    ):
        with pytest.raises(LabelNoiseError, match=message):
            Classifier.load(tmp_path / name)


def test_rows_of_another_width_are_met():
    data = row_data(300)
    classifier = train(data, "ce", plan=short_plan()).classifier
    with pytest.raises(LabelNoiseError, match=r"shape \(N, 32\).*\(5, 31\)"):
        classifier.predict_proba(np.zeros((5, 31)))


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_train_and_predict_from_the_command_line(run, tmp_path, monkeypatch):
    """Features and labels in; a model, its test accuracy and predictions out."""
    schedule = Schedule(((0.05, 5),), batch_size=32)
    monkeypatch.setitem(
        __import__("labelnoise.training.recipes", fromlist=["PLANS"]).PLANS,
        "tiny",
        Plan(schedule, schedule, schedule),
    )
    monkeypatch.chdir(tmp_path)
    data = row_data(800)
    names = np.array(["cat", "dog", "elk", "owl"])
    np.save("x.npy", data.train.array)
    np.save("y.npy", names[data.labels])
    np.save("test.npy", data.test.array)
    np.save("test_y.npy", names[data.test_labels])
    command = ["train", "x.npy", "y.npy", "--test", "test.npy", "test_y.npy", "--plan", "tiny"]
    status, output, _ = run(*command, "--folder", "run", "--json")
    found = json.loads(output)
    assert status == 0
    assert found["last_accuracy"] > 0.9
    status, output, errors = run(
        "predict", "run/model.safetensors", "test.npy", "--out", "found.csv"
    )
    assert (status, output, errors) == (0, "1,000 predictions: found.csv\n", "")
    with open("found.csv") as file:
        lines = file.read().split()
    assert lines[0] == "predicted_label,probability"
    predicted = np.array([line.split(",")[0] for line in lines[1:]])
    assert np.mean(predicted == names[data.test_labels]) == pytest.approx(found["last_accuracy"])
    before = sorted(os.listdir())
    for wrong, message in (
        (["predict", "run/model.safetensors", "x.npy", "--out", "x.txt"], "ending in .csv"),
        (["predict", "x.npy", "x.npy", "--out", "p.csv"], "labelnoise train saved"),
        (["train", "x.npy"], "labels after them"),
        (["train", "cifar10", "--test", "a", "b"], "--test goes with"),
        (["train", "no", "y.npy"], "Expected one of cifar10"),
    ):
        status, _, errors = run(*wrong)
        assert status in (1, 2)
        assert message in " ".join(errors.replace("│", " ").split())
    assert sorted(os.listdir()) == before


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_the_command_line_says_when_a_training_is_too_short(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = row_data(200)
    np.save("x.npy", data.train.array)
    np.save("y.npy", data.labels)
    _, _, errors = run("train", "x.npy", "y.npy", "--method", "jocor", "--folder", "run")
    assert "the method takes 3900 to reach its full strength" in errors
