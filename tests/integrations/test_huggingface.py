"""Data sets of Hugging Face in and out, without a network."""

import io
import warnings

import numpy as np
import pytest

from labelnoise import HOC, LabelNoiseError
from labelnoise.integrations import huggingface
from labelnoise.io import encoders
from labelnoise.noise import pair_flip
from tests.conftest import clusters

pytest.importorskip("datasets")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from datasets import (
        ClassLabel,
        Dataset,
        DatasetDict,
        Features,
        Image,
        List,
        Value,
    )

NAMES = ["owl", "cat", "dog"]  # not in alphabetical order
N = 300


@pytest.fixture(scope="module")
def animals():
    """A data set with embeddings, class labels of which 20 are missing, and the true classes."""
    X, y = clusters(3, N, 0)
    noisy = pair_flip(y, 0.2, random_state=0).labels
    noisy[:20] = -1
    kinds = Features(
        {
            "embedding": List(Value("float32")),
            "label": ClassLabel(names=NAMES),
            "id": Value("string"),
        }
    )
    rows = {"embedding": X.tolist(), "label": noisy.tolist(), "id": [f"{i}.png" for i in range(N)]}
    return Dataset.from_dict(rows, kinds), X, noisy, y


def fitted(data):
    X = huggingface.features(data, "embedding")
    return HOC(classes=huggingface.class_names(data)).fit(X, huggingface.labels(data))


def test_from_a_data_set_and_back(animals):
    """Class names keep their order; the columns that are added are those of the frame."""
    data, X, noisy, y = animals
    est = fitted(data)
    assert est.classes_.tolist() == NAMES
    plain = HOC().fit(X.astype(np.float32)[20:], noisy[20:])
    np.testing.assert_allclose(est.transition_matrix_, plain.transition_matrix_, atol=1e-6)
    found = est.suspects()
    new = huggingface.add_columns(data, found)
    assert new.column_names == [
        *data.column_names, "is_label_issue", "label_score", "predicted_label", "probability_wrong"
    ]  # fmt: skip
    assert data.column_names == ["embedding", "label", "id"]
    assert new.features["predicted_label"] == data.features["label"]
    assert np.flatnonzero(new["is_label_issue"]).tolist() == sorted(found.index)
    assert new["label_score"][:20] == new["predicted_label"][:20] == [None] * 20
    assert new["label_score"][20:] == found.label_score[20:].tolist()
    assert np.mean(np.array(new["predicted_label"][20:]) == y[20:]) > 0.95
    again = huggingface.add_columns(new, found)
    assert again.column_names == new.column_names


def test_a_folder_on_disk(animals, tmp_path):
    """A folder of `save_to_disk` gives the same, one with splits needs their name."""
    data, *_ = animals
    data.save_to_disk(tmp_path / "one")
    DatasetDict(train=data, test=data.select(range(5))).save_to_disk(tmp_path / "splits")
    one = huggingface.load(tmp_path / "one")
    train = huggingface.load(tmp_path / "splits", "train")
    for found in (one, train):
        np.testing.assert_array_equal(
            huggingface.features(found, "embedding"), huggingface.features(data, "embedding")
        )
        assert huggingface.labels(found).tolist() == huggingface.labels(data).tolist()
    for folder, split, message in (
        ("splits", None, "one of train, test"),
        ("one", "train", "Expected no split"),
        ("none", None, "cannot be loaded"),
    ):
        with pytest.raises(LabelNoiseError, match=message):
            huggingface.load(tmp_path / folder, split)


def test_labels_that_are_no_class_labels(animals):
    """Strings and numbers stay what they are, whatever the format; None is missing."""
    data, *_ = animals
    some = Dataset.from_dict({"word": ["a", None, "b"], "number": [1, 2, None]})
    assert huggingface.labels(some, "word").tolist() == ["a", None, "b"]
    assert huggingface.labels(some, "number").tolist() == [1, 2, None]
    assert huggingface.class_names(some, "word") is None
    formatted = data.with_format("numpy")
    assert huggingface.labels(formatted).tolist() == huggingface.labels(data).tolist()
    found = HOC().fit(huggingface.features(data, "embedding"), huggingface.labels(data)).suspects()
    words = data.remove_columns("label").add_column("label", huggingface.labels(data).tolist())
    new = huggingface.add_columns(words, found)
    assert new["predicted_label"][20:] == found.predicted_label[20:].tolist()


def test_images_of_any_size(monkeypatch):
    """Each image goes through the encoder by itself; one that is broken has a row of zeros."""
    pil = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(encoders, "torch_device", lambda device, extra: "cpu")
    monkeypatch.setattr(
        encoders,
        "image_encoder",
        lambda encoder, device: (
            lambda image: image.mean(axis=(0, 1)),
            lambda batch: batch + len(encoder),
        ),
    )
    files = []
    for i in range(5):
        file = io.BytesIO()
        pil.new("RGB", (4 + i, 9 - i), (10 * i, 20, 30)).save(file, "png")
        files.append({"bytes": file.getvalue(), "path": None})
    files[3]["bytes"] = b"no image"
    data = Dataset.from_dict({"image": files}, Features({"image": Image()}))
    found = huggingface.features(data, "image", "abc")
    expected = [[10 * i + 3, 23, 33] for i in range(5)]
    expected[3] = [0, 0, 0]
    np.testing.assert_allclose(found, expected)


def test_texts_and_missing_ones(monkeypatch):
    """Texts are encoded; an empty one has a row of zeros."""

    class Encoder:
        def encode(self, texts, **how):
            return np.array([[len(text), text.count("a"), 1] for text in texts], float)

    monkeypatch.setattr(encoders, "torch_device", lambda device, extra: "cpu")
    monkeypatch.setattr(encoders, "text_encoder", lambda encoder, device: Encoder())
    data = Dataset.from_dict({"text": ["aa", "", "abc", None]})
    X = huggingface.features(data, "text")
    np.testing.assert_allclose(X, [[2, 2, 1], [0, 0, 0], [3, 1, 1], [0, 0, 0]])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda data: huggingface.labels(data, "colour"), "one of embedding, label, id"),
        (lambda data: huggingface.features(data, "embedding", "minilm"), "no encoder"),
        (lambda data: huggingface.features(data, "label"), "lists of numbers"),
        (lambda data: huggingface.labels({"train": data}), "of type dict"),
        (
            lambda data: huggingface.add_columns(data.select(range(9)), fitted(data).suspects()),
            "with 300 examples, but it has 9",
        ),
    ],
)
def test_bad_input(animals, ask, message):
    """Each mistake gives one LabelNoiseError with the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        ask(animals[0])


def test_lists_of_different_lengths():
    """They are no features."""
    data = Dataset.from_dict({"x": [[1.0, 2.0], [3.0]]})
    with pytest.raises(LabelNoiseError, match="lists of numbers of one length"):
        huggingface.features(data, "x")
