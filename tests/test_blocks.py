"""Blocks of rows, memory, and the threads of linear algebra."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from labelnoise import HOC
from labelnoise._blocks import block_bytes, one_blas_thread, thread_count
from labelnoise.io.memory import free_memory
from labelnoise.noise import symmetric
from tests.conftest import clusters


def blas_threads():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


def test_limits_that_overlap_leave_the_process_as_it_was():
    """Of two that overlap, the first to leave changes nothing and the last restores."""
    with threadpool_limits(2, "blas"):
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert set(blas_threads()) == {1}
        assert thread_count() >= 2
        first.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert set(blas_threads()) == {2}


def test_a_limit_is_lifted_after_an_error():
    with threadpool_limits(2, "blas"):
        try:
            with one_blas_thread():
                raise RuntimeError
        except RuntimeError:
            pass
        assert set(blas_threads()) == {2}


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_fits_in_threads_leave_the_process_as_it_was():
    """Several fits at once, after which BLAS has its threads."""
    X, clean = clusters(3, 600, seed=0)
    labels = [symmetric(clean, rate, random_state=0).labels for rate in (0.1, 0.2, 0.3, 0.4)]
    alone = [HOC().fit(X, y).transition_matrix_ for y in labels]
    found = {}

    def fit(number):
        found[number] = HOC().fit(X, labels[number]).transition_matrix_

    with threadpool_limits(2, "blas"):
        threads = [threading.Thread(target=fit, args=(number,)) for number in range(len(labels))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(blas_threads()) == {2}
    for number, expected in enumerate(alone):
        np.testing.assert_allclose(found[number], expected, atol=1e-3)


def test_blocks_are_smaller_where_memory_is_short(monkeypatch):
    for free, expected in ((2**40, 64 * 2**20), (2**26, 2 * 2**20), (0, 2**20)):
        monkeypatch.setattr("labelnoise._blocks._free_at_first", lambda free=free: free)
        assert block_bytes() == expected


def test_limits_of_the_process_and_of_its_group_count(tmp_path, monkeypatch):
    group = tmp_path / "memory"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text("3000")
    (group / "memory.usage_in_bytes").write_text("2500")
    (group / "memory.stat").write_text("active_file 100\ninactive_file 200\n")
    monkeypatch.setattr("labelnoise.io.memory._CGROUP", tmp_path)
    assert free_memory() == 3000 - 2500 + 100 + 200
    (group / "memory.limit_in_bytes").write_text("100")
    assert free_memory() == 0
