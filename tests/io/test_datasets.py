"""Data sets come out as their files say, and files that lie are refused."""

import hashlib
import io
import os
import pickle
import pickletools
import struct
import subprocess
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from labelnoise import LabelNoiseError
from labelnoise.io import cifar as datasets
from labelnoise.io.datasets import Images, load, load_arrays, load_folder
from labelnoise.training.balance import balanced_batches

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
LABELS = np.random.default_rng(1).integers(0, 10, 20)


class Malicious:
    """Unpickled without care, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def published_pickle(content):
    """Pickle as Python 2 and its NumPy did: arrays as text, 0 and 1 for truth values."""
    written = pickletools.optimize(pickle.dumps(content, 3))
    size = struct.pack("<I", content["data"].nbytes) if "data" in content else b"none"
    for new, old in (
        (b"numpy._core", b"numpy.core"),
        (b"u1\x89\x88\x87", b"u1K\x00K\x01\x87"),
        (b"B" + size, b"T" + size),
    ):
        assert new in written or "data" not in content
        written = written.replace(new, old)
    return written


def write_cifar(folder, names, kind=""):
    """Write the training images in batches, the first 4 as test batch, and class names."""
    folder.mkdir(parents=True)
    *train, test, meta = names
    rows = IMAGES.transpose(0, 3, 1, 2).reshape(20, -1)
    parts = [*zip(train, np.split(np.arange(20), len(train)), strict=True), (test, np.arange(4))]
    for name, some in parts:
        content = {"data": rows[some], f"{kind}labels": LABELS[some].tolist()}
        (folder / name).write_bytes(published_pickle(content))
    classes = [f"class {i}" for i in range(100 if kind else 10)]
    (folder / meta).write_bytes(published_pickle({f"{kind}label_names": classes}))


def write_image(path, colour=(10, 20, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (5, 4), colour).save(path)


@pytest.fixture
def cifar10(tmp_path):
    """A folder with CIFAR-10 as published, in small."""
    write_cifar(tmp_path / "cifar-10-batches-py", datasets._CIFAR10.files)
    return tmp_path


@pytest.fixture
def cifar10_archive(cifar10):
    """The same, packed."""
    path = cifar10 / "packed" / "cifar-10-python.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        tar.add(cifar10 / "cifar-10-batches-py", "cifar-10-batches-py")
    return path


@pytest.fixture
def clothing1m(tmp_path):
    """Clothing1M with 3 noisy, 2 clean and 1 test image of 2 classes, in the folder above it."""
    home = tmp_path / "clothing1m"
    for key in "abcdef":
        write_image(home / f"images/0/{key}.jpg")
    for name, lines in {
        "noisy_label_kv": "images/0/c.jpg 1\nimages/0/a.jpg 1\nimages/0/b.jpg 0\n",
        "clean_label_kv": "images/0/d.jpg 0\nimages/0/e.jpg 1\nimages/0/f.jpg 1\n",
        "noisy_train_key_list": "images/0/b.jpg\nimages/0/a.jpg\nimages/0/c.jpg\n",
        "clean_train_key_list": "images/0/d.jpg\nimages/0/e.jpg\n",
        "clean_test_key_list": "images/0/f.jpg\n",
        "category_names_eng": "T-Shirt\nShirt\n",
    }.items():
        (home / f"{name}.txt").write_text(lines)
    return tmp_path


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_cifar10_as_published(cifar10, cifar10_archive, form):
    """Images, labels and names come from the folder or, without unpacking, from the archive."""
    data = load("cifar10", cifar10 if form == "folder" else cifar10_archive.parent)
    np.testing.assert_array_equal(data.train.array, IMAGES)
    np.testing.assert_array_equal(data.test.array, IMAGES[:4])
    np.testing.assert_array_equal(data.labels, LABELS)
    np.testing.assert_array_equal(data.test_labels, LABELS[:4])
    assert data.labels.dtype == np.int64
    assert data.classes == tuple(f"class {i}" for i in range(10))
    assert repr(data) == "ImageData(cifar10, 20 train, 0.0% wrong, 4 test, 10 classes)"
    assert os.listdir(cifar10_archive.parent) == ["cifar-10-python.tar.gz"]


def test_cifar100_has_the_fine_labels(tmp_path):
    """CIFAR-100 is read in its own folder, with its 100 classes and CIFAR-100N's labels."""
    write_cifar(tmp_path / "cifar100/cifar-100-python", ["train", "test", "meta"], "fine_")
    np.savez(tmp_path / "cifar100n_labels.npz", clean=LABELS, noisy=LABELS + 90)
    data = load("cifar100", tmp_path, "noisy")
    np.testing.assert_array_equal(data.train.array, IMAGES)
    np.testing.assert_array_equal(data.clean, LABELS)
    np.testing.assert_array_equal(data.labels, LABELS + 90)
    assert len(data.classes) == 100


def test_a_malicious_pickle_is_refused(cifar10):
    """A batch that names a function is an error, and the function is not called."""
    batch = cifar10 / "cifar-10-batches-py/data_batch_3"
    batch.write_bytes(pickle.dumps(Malicious(cifar10 / "called")))
    with pytest.raises(LabelNoiseError, match=r"asks for \w+\.mkdir"):
        load("cifar10", cifar10)
    assert not (cifar10 / "called").exists()


@pytest.mark.parametrize("damage", [b"", b"no pickle", published_pickle({"labels": [1]})])
def test_a_damaged_batch_is_one_sentence(cifar10, damage):
    """Whatever is wrong with a file, the error says which data it is in."""
    (cifar10 / "cifar-10-batches-py/test_batch").write_bytes(damage)
    with pytest.raises(LabelNoiseError, match="cifar-10-batches-py cannot be read as such"):
        load("cifar10", cifar10)


def test_cifar10_from_jpegs(tmp_path):
    """Each image of the packed form is the one that was packed, with the labels beside it."""
    colours, jpegs = IMAGES[:10, 0, 0].astype(int), []
    for colour in colours:
        Image.new("RGB", (32, 32), tuple(colour)).save(file := io.BytesIO(), "JPEG")
        jpegs.append(file.getvalue())
    shared = next(i for i, values in enumerate(zip(*jpegs, strict=False)) if len({*values}) > 1)
    content = {"jpeg_header": np.frombuffer(jpegs[0][:shared], np.uint8), "train_human": LABELS[:8]}
    for part, some in (("train", slice(8)), ("test", slice(8, 10))):
        rest = [jpeg[shared:] for jpeg in jpegs[some]]
        content[f"{part}_bytes"] = np.frombuffer(b"".join(rest), np.uint8)
        content[f"{part}_offsets"] = np.cumsum([0, *map(len, rest)])
        content[f"{part}_clean"] = np.arange(10, dtype=np.uint8)[some]
    (tmp_path / "cifar10").mkdir()
    np.savez(tmp_path / "cifar10/cifar10.npz", **content)
    data = load("cifar10", tmp_path, "human")
    images = np.concatenate([data.train.array, data.test.array]).astype(int)
    assert images.shape == (10, 32, 32, 3)
    assert np.abs(images - colours[:, None, None]).max() <= 3
    assert data.labels.tolist() == LABELS[:8].tolist()
    assert data.clean.tolist() == list(range(8))
    assert data.classes[3] == "cat"


@pytest.mark.parametrize("zipped", [True, False])
def test_cifar10n_labels(cifar10, zipped):
    """Each name gives its own labels from the published file, in either of PyTorch's formats."""
    published = ("clean_label", "aggre_label", "random_label1", "random_label2", "random_label3")
    content = {key: (LABELS + i) % 10 for i, key in enumerate([*published, "worse_label"])}
    path = cifar10 / "CIFAR-10_human.pt"
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    for shift, name in enumerate(["aggregate", "random1", "random2", "random3", "worst"], 1):
        data = load("cifar10", cifar10, name)
        np.testing.assert_array_equal(data.labels, (LABELS + shift) % 10)
    torch.save(content | {"clean_label": LABELS[::-1].copy()}, path)
    with pytest.raises(LabelNoiseError, match="Expected labels in the order of the images"):
        load("cifar10", cifar10, "worst")
    torch.save(content | {"more": Malicious(cifar10 / "called")}, path)
    with pytest.raises(LabelNoiseError, match="more than arrays"):
        load("cifar10", cifar10, "worst")
    assert not (cifar10 / "called").exists()


def test_labels_of_ones_own(cifar10):
    """A .npy file and an array are taken; a pickle inside a .npy file is not."""
    mine, path = (LABELS + 1) % 10, cifar10 / "mine.npy"
    np.save(path, mine.astype(np.uint8))
    for labels in (path, str(path), mine.tolist()):
        np.testing.assert_array_equal(datasets.load_cifar10(cifar10, labels).labels, mine)
    np.save(path, np.array([Malicious(cifar10 / "called")]), allow_pickle=True)
    with pytest.raises(LabelNoiseError, match=r"mine\.npy cannot be read"):
        datasets.load_cifar10(cifar10, path)
    assert not (cifar10 / "called").exists()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("wurst", "one of .*'aggregate', 'clean'.* but labels = 'wurst'"),
        ("worst", r"'worst' in cifar10\.npz or CIFAR-10_human\.pt"),
        ("human", r"'human' in cifar10\.npz in .* not there"),
        ([0] * 19, r"shape \(20,\)"),
        ([0.5] * 20, "integers.* float64"),
        ([0] * 19 + [10], "n_classes - 1 = 9, but they range from 0 to 10"),
        ([-1] * 20, "n_classes - 1 = 9, but they range from -1"),
    ],
)
def test_labels_that_cannot_be(cifar10, labels, message):
    """Unknown names, missing files and wrong numbers are one sentence each."""
    with pytest.raises(LabelNoiseError, match=message):
        datasets.load_cifar10(cifar10, labels)


def test_download(cifar10_archive, tmp_path, monkeypatch):
    """The archive is fetched once, told of, and kept only if its MD5 sum is the published one."""
    monkeypatch.setattr(datasets, "_CIFAR_HOME", cifar10_archive.parent.as_uri() + "/")
    root, steps = tmp_path / "new", []
    with pytest.raises(LabelNoiseError, match="the MD5 sum is"):
        datasets.load_cifar10(root, download=True)
    assert os.listdir(root) == []
    md5 = hashlib.md5(cifar10_archive.read_bytes()).hexdigest()
    monkeypatch.setattr(datasets, "_CIFAR10", replace(datasets._CIFAR10, md5=md5))
    for _ in range(2):
        data = datasets.load_cifar10(root, download=True, progress=lambda *step: steps.append(step))
        np.testing.assert_array_equal(data.train.array, IMAGES)
    size = cifar10_archive.stat().st_size
    assert steps == [("download", size, size)]
    cifar10_archive.unlink()
    with pytest.raises(LabelNoiseError, match=r"Expected to fetch .*tar\.gz to .*No such file"):
        datasets.load_cifar10(tmp_path / "other", download=True)


def test_clothing1m(clothing1m):
    """Labels follow the key list, the test set is clean, and the images may be on another disk."""
    (clothing1m / "clothing1m/images").rename(clothing1m / "disk")
    (clothing1m / "clothing1m/images").symlink_to(clothing1m / "disk")
    data = load("clothing1m", clothing1m)
    assert data.classes == ("T-Shirt", "Shirt")
    assert [os.path.basename(path) for path in data.train.paths] == ["b.jpg", "a.jpg", "c.jpg"]
    assert data.labels.tolist() == [0, 1, 1]
    assert data.clean is None
    assert data.test_labels.tolist() == [1]
    assert data.test[0].shape == (4, 5, 3)
    clean = load("clothing1m", clothing1m, "clean")
    assert clean.labels.tolist() == clean.clean.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "label", "message"),
    [
        ("../secret.jpg", "0", "1 of 4 are outside it, such as .*secret"),
        ("/etc/passwd", "0", "1 of 4 are outside it, such as /etc/passwd"),
        ("images/0/z.jpg", "0", r"1 of 4 are missing .* such as .*z\.jpg"),
        ("images/0/d.jpg", "2", "n_classes - 1 = 1, but they range from 0 to 2"),
        ("images/0/d.jpg", "two", r"noisy_label_kv\.txt to have a number .*: .*'two'"),
        ("images/0/d.jpg", "", r"noisy_label_kv\.txt to have a number"),
    ],
)
def test_clothing1m_that_is_wrong(clothing1m, name, label, message):
    """Images outside, missing or without a label, and labels that are none, are refused."""
    for file, line in (("train_key_list", name), ("label_kv", f"{name} {label}")):
        with open(clothing1m / f"clothing1m/noisy_{file}.txt", "a") as text:
            text.write(line + "\n")
    with pytest.raises(LabelNoiseError, match=message):
        load("clothing1m", clothing1m)


def test_folder(tmp_path):
    """Numbers are sorted as numbers, and the test set has the training set's classes."""
    for name in "abc":
        write_image(tmp_path / f"sub/{name}.png", colour=(1, 2, ord(name)))
    (tmp_path / "labels.csv").write_text("path,label\nsub/a.png,10\nsub/b.png,9\n")
    (tmp_path / "test.csv").write_text("path,label\nsub/c.png,10\n")
    data = load(str(tmp_path))
    assert data.classes == ("9", "10")
    assert data.labels.tolist() == [1, 0]
    assert data.test_labels.tolist() == [1]
    assert data.train[1][3, 4].tolist() == [1, 2, ord("b")]
    (tmp_path / "other.csv").write_text("label,path\n10,sub/a.png\n9,sub/b.png\n")
    other = load_folder(tmp_path, tmp_path / "other.csv", path_column=1, label_column=0)
    assert other.labels.tolist() == [1, 0]
    assert other.test is None
    (tmp_path / "test.csv").write_text("path,label\nsub/c.png,11\n")
    with pytest.raises(LabelNoiseError, match=r"Expected labels among classes .*'11'"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("../secret/s.png,y", "1 of 2 are outside it"),
        ("link.png,y", r"1 of 2 are outside it, such as link\.png"),
        ("linked/s.png,y", "1 of 2 are outside it"),
        (",y", "1 of 2 are outside it"),
        ("no.png,y", r"1 of 2 are missing or may not be read, such as .*no\.png"),
        ("a\0.png,y", "null"),
        ("a.png", r"Expected 2 columns, got 1: a\.png"),
        ("a.png,", r"Expected a label for each image of .*, but a\.png has none"),
        ('"a.png,y', "cannot be read: unexpected end of data"),
    ],
)
def test_folder_with_a_wrong_csv(tmp_path, lines, message):
    """No path leaves the folder, also not through a link; what else is wrong is one sentence."""
    root = tmp_path / "root"
    write_image(root / "a.png")
    write_image(tmp_path / "secret/s.png")
    (root / "link.png").symlink_to(tmp_path / "secret/s.png")
    (root / "linked").symlink_to(tmp_path / "secret")
    (root / "labels.csv").write_text(f"path,label\na.png,x\n{lines}\n")
    with pytest.raises(LabelNoiseError, match=message):
        load(str(root))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_images_of_all_kinds_are_rgb(tmp_path, mode):
    """Grey, palette and transparent images come out as three channels."""
    Image.new("RGB", (5, 4), (90, 90, 90)).convert(mode).save(tmp_path / "image.tiff")
    image = Images(paths=[str(tmp_path / "image.tiff")])[0]
    assert image.shape == (4, 5, 3)
    assert image.dtype == np.uint8
    assert np.abs(image.astype(int) - 90).max() < 40


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_damaged_images_are_one_sentence(tmp_path, monkeypatch):
    """Truncated, foreign and huge files are named; Pillow alone would only warn of the last."""
    Image.fromarray(IMAGES[0]).save(tmp_path / "large.jpg")
    Image.fromarray(IMAGES[0]).save(tmp_path / "script.eps")
    (tmp_path / "short.jpg").write_bytes((tmp_path / "large.jpg").read_bytes()[:1000])
    for name, limit, reason in (
        ("short.jpg", 1024, "truncated"),
        ("script.eps", 1024, "cannot identify"),
        ("large.jpg", 1023, "32 x 32 pixels, more than the 1023"),
    ):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(LabelNoiseError, match=f"{name} cannot be read as one: .*{reason}"):
            Images(paths=[str(tmp_path / name)])[0]


def test_arrays():
    """Any labels become class numbers, and other labels make other data."""
    data = load_arrays(IMAGES[:3], ["b", "a", "b"], IMAGES[:1], ["b"])
    assert data.classes == ("a", "b")
    assert data.test_labels.tolist() == [1]
    assert load_arrays(IMAGES[:3], [7, 7, 5], classes=[7, 6, 5]).labels.tolist() == [0, 0, 2]
    other = data.with_labels([0, 0, 0])
    assert (other.labels.tolist(), data.labels.tolist()) == ([0, 0, 0], [1, 0, 1])
    assert other.test is data.test


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([IMAGES[:2, 0], [0, 1]], r"of shape \(2, 32, 3\)"),
        ([IMAGES[:3], [0, 1]], "labels of shape"),
        ([IMAGES[:2], [0, 1], None, [0]], "test images with their labels"),
    ],
)
def test_arrays_that_do_not_fit(arguments, message):
    """Images of another kind and labels that do not match them are refused."""
    with pytest.raises(LabelNoiseError, match=message):
        load_arrays(*arguments)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar10", r"cifar-10-python\.tar\.gz or the folder cifar-10-batches-py in .*download"),
        ("cifar100", r"cifar-100-python\.tar\.gz or the folder cifar-100-python in .*download"),
        ("clothing1m", r"Clothing1M's folder images and its text files in .*Cysu"),
        ("mnist", "one of cifar10, cifar100, clothing1m, or a folder"),
        ("{empty}", r"a folder of images for each class in .* but there are no images"),
    ],
)
def test_missing_data_say_what_to_put_where(tmp_path, monkeypatch, name, message):
    """Data that are not where the environment says are one sentence."""
    monkeypatch.setenv("LABELNOISE_DATA", str(tmp_path))
    with pytest.raises(LabelNoiseError, match=message):
        load(name.format(empty=tmp_path))


def test_no_place_is_one_sentence(monkeypatch):
    """Without a root there is no built-in place to look."""
    monkeypatch.delenv("LABELNOISE_DATA", raising=False)
    with pytest.raises(LabelNoiseError, match="LABELNOISE_DATA to name the folder"):
        load("cifar10")


def test_balanced_batches():
    """Rare labels repeat, frequent ones do not, and every batch has its share of each."""
    labels = np.repeat([0, 3, 4], [2000, 30, 7])
    batches = balanced_batches(labels, 8, 100, np.random.default_rng(0))
    assert batches.shape == (100, 8)
    per_batch = np.array([np.bincount(batch, minlength=5) for batch in labels[batches]])
    assert set(per_batch[:, [0, 3, 4]].ravel()) <= {2, 3, 4}
    assert sorted(per_batch.sum(axis=0)) == [0, 0, 266, 267, 267]
    for label, uses in ((0, {0, 1}), (3, {8, 9}), (4, {38, 39})):
        assert set(np.bincount(batches.ravel(), minlength=2037)[labels == label]) <= uses
    with pytest.raises(LabelNoiseError, match="batch_size = 0"):
        balanced_batches(labels, 0, 1, np.random.default_rng(0))


def test_extras_are_named_when_missing(cifar10, monkeypatch):
    """The module needs neither Pillow nor PyTorch, and says what to install when it does."""
    code = "import sys, labelnoise.io.datasets; sys.exit(len({'PIL', 'torch'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    (cifar10 / "CIFAR-10_human.pt").touch()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LabelNoiseError, match=r"pip install '\.\[torch\]'"):
        load("cifar10", cifar10, "worst")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(LabelNoiseError, match=r"pip install '\.\[images\]'"):
        Images(paths=["a.png"])[0]
