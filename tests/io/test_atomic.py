"""Files appear complete or not at all."""

import os

import pytest

from labelnoise import LabelNoiseError
from labelnoise.io.atomic import write_then_rename


def test_a_failure_leaves_the_old_file(tmp_path):
    """An error while writing leaves what was there, and nothing else."""
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted():
        with write_then_rename(path) as file:
            file.write(b"half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_written_file_has_ordinary_rights(tmp_path):
    """The file is as readable as one that open() makes."""
    (tmp_path / "plain").touch()
    with write_then_rename(tmp_path / "ours") as file:
        file.write(b"all of it")
    assert (tmp_path / "ours").read_bytes() == b"all of it"
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_missing_folder_is_one_sentence(tmp_path):
    """A folder that is not there is the user's mistake."""
    with (
        pytest.raises(LabelNoiseError, match="cannot be written: No such file"),
        write_then_rename(tmp_path / "no" / "file"),
    ):
        pass


def test_a_folder_in_the_way_is_one_sentence(tmp_path):
    """Writing onto a folder fails with the project's error and leaves nothing behind."""
    (tmp_path / "taken").mkdir()

    def write():
        with write_then_rename(tmp_path / "taken") as file:
            file.write(b"x")

    with pytest.raises(LabelNoiseError, match="taken"):
        write()
    assert os.listdir(tmp_path) == ["taken"]


def test_links_are_followed(tmp_path):
    """What a link names is replaced, also if it does not exist yet; the link stays."""
    (tmp_path / "old").write_text("old")
    for name in ("old", "new"):
        (tmp_path / f"to-{name}").symlink_to(name)
        with write_then_rename(tmp_path / f"to-{name}") as file:
            file.write(b"x")
        assert (tmp_path / f"to-{name}").is_symlink()
        assert (tmp_path / name).read_text() == "x"


def test_devices_and_endless_links_stay(tmp_path):
    """To rename a file onto one would destroy it."""
    (tmp_path / "null.npy").symlink_to(os.devnull)
    (tmp_path / "endless").symlink_to("endless")
    for name in ("null.npy", "endless"):
        with (
            pytest.raises(LabelNoiseError, match="is not a regular file"),
            write_then_rename(tmp_path / name),
        ):
            pass
    assert (tmp_path / "null.npy").is_char_device()
