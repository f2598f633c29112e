"""No answer is lost, and none is overwritten."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from labelnoise import LabelNoiseError
from labelnoise.review.store import Change, ConflictError, Store, has_answers

WRITER = """
import sys
from pathlib import Path
from labelnoise.review.store import Change, Store
store = Store(Path(sys.argv[1]), "data")
for row in range(100_000):
    store.record("measure", [Change(row, 0, "label", row % 10)], False)
    print(row, flush=True)
"""


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "answers.sqlite", "data")
    yield found
    found.close()


def test_answers_come_back(store):
    """The last of each row, on its own list, with what was shown."""
    store.record("measure", [Change(3, 0, "label", 1), Change(5, 0, "unclear")], True)
    store.record("clean", [Change(3, 0, "label", 2)], True)
    store.record("measure", [Change(3, 1, "withdrawn")], False)
    found = store.answers("measure")
    assert {(a.row, a.version, a.verdict, a.label, a.given_shown) for a in found.values()} == {
        (3, 2, "withdrawn", None, False),
        (5, 1, "unclear", None, True),
    }
    assert store.answers("clean")[3].label == 2
    assert store.answers("measure", [5, 6]).keys() == {5}


def test_a_killed_writer_loses_no_answer_that_it_reported(tmp_path):
    """kill -9 in the middle of writing: all that was printed is in the file."""
    path = tmp_path / "answers.sqlite"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        for _ in range(25):
            last = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split("\n")[:-1]
    last = int(rest[-1]) if rest else last
    store = Store(path, "data")
    found = store.answers("measure")
    store.close()
    assert found.keys() >= {*range(last + 1)}
    assert len(found) <= last + 2  # one may be kept that it could not report any more
    assert all(answer.label == row % 10 for row, answer in found.items())


def test_synchronous_is_full(store):
    """What makes an answer survive a power cut, too."""
    assert store._value("PRAGMA journal_mode") == "wal"
    assert store._value("PRAGMA synchronous") == 2


def test_the_second_answer_to_a_version_is_refused(store, tmp_path):
    """With the first one in the refusal; and nothing of the refused group is kept."""
    other = Store(tmp_path / "answers.sqlite", "data")
    store.record("clean", [Change(1, 0, "label", 4)], True)
    with pytest.raises(ConflictError, match="nothing was recorded") as refused:
        other.record("clean", [Change(0, 0, "label", 5), Change(1, 0, "label", 5)], True)
    assert [(answer.row, answer.label) for answer in refused.value.current] == [(1, 4)]
    assert other.answers("clean").keys() == {1}
    other.record("clean", [Change(1, 1, "label", 5)], True)
    assert store.answers("clean")[1].label == 5
    other.close()


def test_of_many_writers_one_wins(tmp_path):
    """Eight connections answer the same rows at once: each row gets one answer."""
    stores = [Store(tmp_path / "answers.sqlite", "data") for _ in range(8)]
    won = [[] for _ in stores]

    def write(number):
        for row in range(20):
            try:
                stores[number].record("measure", [Change(row, 0, "label", number)], False)
                won[number].append(row)
            except ConflictError:
                pass

    threads = [threading.Thread(target=write, args=[number]) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = stores[0].answers("measure")
    for one in stores:
        one.close()
    assert {row: a.label for row, a in found.items()} == {
        row: number for number, rows in enumerate(won) for row in rows
    }
    assert sum(map(len, won)) == 20
    assert {answer.version for answer in found.values()} == {1}


def test_decided_rows_as_of_an_earlier_answer(store):
    """Later answers do not count; withdrawn ones neither."""
    store.record("clean", [Change(1, 0, "label", 0), Change(2, 0, "skip")], True)
    then = store.last_id()
    store.record("clean", [Change(3, 0, "label", 0), Change(1, 1, "withdrawn")], True)
    assert store.decided("clean", then) == {1, 2}
    assert store.decided("clean", store.last_id()) == {2, 3}


def test_the_sample_is_extended_once(store):
    """By the window that saw all of it."""
    assert store.extend_sample([(4, 0, 10), (2, 1, 10)], 0)
    assert not store.extend_sample([(9, 0, 10)], 0)
    assert store.extend_sample([(9, 0, 10)], 2)
    assert store.sample() == [(4, 0, 10), (2, 1, 10), (9, 0, 10)]


def test_answers_to_other_data_are_not_mixed_in(store, tmp_path):
    """Where there are any; a file that was only looked at is used for the new data."""
    path = tmp_path / "answers.sqlite"
    store.extend_sample([(4, 0, 10)], 0)
    assert not has_answers(path)
    other = Store(path, "other data")
    assert other.sample() == []
    with pytest.raises(LabelNoiseError, match="answers to other labels"):
        store.record("clean", [Change(1, 0, "skip")], True)  # its window shows the old data
    other.record("clean", [Change(1, 0, "skip")], True)
    other.close()
    assert has_answers(path)
    with pytest.raises(LabelNoiseError, match="answers to other labels"):
        Store(path, "data")


@pytest.mark.parametrize("content", [b"row,true_label\n", b"\0" * 4096])
def test_a_file_that_is_no_database(tmp_path, content):
    path = tmp_path / "answers.sqlite"
    path.write_bytes(content)
    with pytest.raises(LabelNoiseError, match=r"answers\.sqlite cannot be used"):
        Store(path, "data")
    assert path.read_bytes() == content


def test_an_answer_to_a_version_that_never_was(store):
    with pytest.raises(LabelNoiseError, match="version 0"):
        store.record("clean", [Change(1, 7, "skip")], True)
    assert store.answers("clean") == {}
