"""The estimate over shards: the same as one machine's, whatever becomes of the workers."""

import os
import signal
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest

from labelnoise import HOC, LabelNoiseError
from labelnoise import distributed as module
from labelnoise.distributed import local_cluster, nearest_in_shards, remote_cluster
from labelnoise.io.shards import Shards, read_shard_labels
from labelnoise.neighbors import Points, cluster, nearest_neighbors
from labelnoise.neighbors.cluster import Nearest, Part, Space, compare, search
from labelnoise.noise import symmetric
from tests.conftest import clusters

dask_array = pytest.importorskip("dask.array")
MEMORY = 500_000_000


@pytest.fixture(scope="module")
def client():
    with local_cluster(2, f"{MEMORY}B") as client:
        yield client


def test_no_client():
    """Without a client it says how to make one. (First here: the others have one.)"""
    X, y = data(50)
    with pytest.raises(LabelNoiseError, match="make one before, as client = "):
        HOC().fit(dask_array.from_array(X), y)


def test_workers_without_a_memory_limit():
    """Threads of this process have none: tiles are as large as any."""
    from distributed import Client

    X, _ = data(100)
    with Client(
        processes=False,
        n_workers=1,
        threads_per_worker=2,
        memory_limit=None,
        dashboard_address=None,
    ):
        found = nearest_in_shards(dask_array.from_array(X))
    np.testing.assert_array_equal(found, nearest_neighbors(X).indices)


def data(n=600, d=16):
    X, y = clusters(3, n, seed=0, d=d)
    return X.astype(np.float32), symmetric(y, 0.3, random_state=0).labels


def written(folder, X, n_shards=7, kind="npy"):
    """Shards of different lengths, one of them 0; part-10 is after part-9 by number alone."""
    cuts = np.sort(np.random.default_rng(1).choice(np.arange(1, len(X)), n_shards - 2, False))
    for number, rows in enumerate(np.split(X, [*cuts, cuts[-1]])):
        path = folder / f"part-{number + 6}.{kind}"
        if kind == "npy":
            np.save(path, rows)
        elif kind == "zarr":
            import zarr

            zarr.create_array(path, data=rows, chunks=(100, 8))
        else:
            write_parquet(path, [row.tolist() for row in rows])
    return str(folder)


def write_parquet(path, lists):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array([f"row {i}" for i in range(len(lists))], pa.string())
    table = pa.table({"name": names, "x": pa.array(lists, pa.list_(pa.float32()))})
    pq.write_table(table, path, row_group_size=50)


KINDS = {
    "smooth": lambda rng: rng.standard_normal((400, 8)),
    "ties": lambda rng: rng.integers(1, 4, (400, 3)).astype(float),
    "copies": lambda rng: np.tile(rng.standard_normal((2, 4)), (150, 1)),
    "far out": lambda rng: np.vstack([rng.standard_normal((300, 4)), np.full((1, 4), 1e9)]),
    "nearly the same": lambda rng: 1e6 + rng.standard_normal((300, 4)),
    "whole numbers": lambda rng: rng.integers(0, 200, (300, 30)).astype(np.uint8),
}


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("kind", KINDS)
def test_tiles_give_the_neighbours_of_one_machine(kind, metric, rng, monkeypatch):
    """Whatever float32 cannot tell, and wherever the parts and blocks end, one of them tiny."""
    monkeypatch.setattr(cluster, "_BLOCK", 70)
    X, k = KINDS[kind](rng), 3
    n, points = len(X), Points(X, metric)
    euclidean = (points.shift, points.scale[0, 0]) if metric == "euclidean" else ()
    space = Space(metric, *euclidean)
    parts = [Part(None, range(*ends)) for ends in pairwise([0, 1, 90, 200, n])]
    tiles = {part: X[part.number.start : part.number.stop] for part in parts}
    expected = points.gap(np.arange(n), nearest_neighbors(X, k, metric).indices)

    nearest = Nearest(n, k)
    for i, a in enumerate(parts):
        for b in parts[i:]:
            both = [a] if a is b else [a, b]
            limit = np.concatenate([nearest.limit(part.number) for part in both])
            nearest.add(*compare([tiles[part] for part in both], both, space, k, limit))
    found = points.gap(np.arange(n), nearest.index)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-24)

    some = np.sort(rng.permutation(n)[:50])
    nearest = Nearest(len(some), k, some, n)
    for part in parts:
        limit = nearest.limit(slice(0, len(some)))
        nearest.add(*search(X[some], some, tiles[part], part, space, k, limit))
    found = points.gap(some, nearest.index)
    np.testing.assert_allclose(found, expected[some], rtol=1e-3, atol=1e-24)


def same(est, expected):
    np.testing.assert_array_equal(est.consensus_.triples, expected.consensus_.triples)
    np.testing.assert_array_equal(est.consensus_.weights, expected.consensus_.weights)
    assert est.consensus_.n_centers == expected.consensus_.n_centers
    np.testing.assert_array_equal(
        est.triples_transition_matrix_, expected.triples_transition_matrix_
    )


@pytest.mark.filterwarnings("ignore:.*zero vectors")
@pytest.mark.parametrize(("kind", "metric"), [("npy", "cosine"), ("parquet", "euclidean")])
def test_shards_give_the_estimate_of_one_machine(kind, metric, client, tmp_path):
    """Unlabelled and zero rows are left out, T is refined, intervals and findings are the same."""
    X, y = data()
    X[[3, 500]] = 0
    y = np.where(np.arange(len(y)) % 50 == 7, -1, y)
    settings = {"metric": metric, "unlabeled": -1}
    expected = HOC(**settings).fit(X, y)
    est = HOC(**settings).fit(Shards(written(tmp_path, X, kind=kind)), y)
    same(est, expected)
    np.testing.assert_allclose(est.transition_matrix_, expected.transition_matrix_, atol=1e-6)
    assert str(est.diagnostics_) == str(expected.diagnostics_)
    np.testing.assert_array_equal(
        est.confidence_interval().noise_rate, expected.confidence_interval().noise_rate
    )


def test_dask_array_gives_the_estimate_of_one_machine(client):
    """Columns in chunks, labels of Dask, more than two neighbours."""
    X, y = data()
    settings = {"n_neighbors": 4, "refine": False}
    expected = HOC(**settings).fit(X, y)
    est = HOC(**settings).fit(
        dask_array.from_array(X, chunks=(250, 9)), dask_array.from_array(y, chunks=350)
    )
    np.testing.assert_array_equal(est.consensus_.triples, expected.consensus_.triples)
    np.testing.assert_allclose(est.consensus_.weights, expected.consensus_.weights, rtol=1e-12)
    np.testing.assert_allclose(est.transition_matrix_, expected.transition_matrix_, atol=1e-6)


def test_zarr_is_read_by_rows(tmp_path):
    """Arrays in chunks, of a store."""
    X, _ = data(300)
    tiles = Shards(written(tmp_path, X, kind="zarr")).tiles(70)
    read = [np.concatenate([piece.read() for piece in tile]) for tile in tiles]
    assert [len(rows) for rows in read] == [70, 70, 70, 70, 20]
    np.testing.assert_array_equal(np.concatenate(read), X)


def test_workers_that_cannot_hold_the_data(client, tmp_path, monkeypatch):
    """A worker has memory for some tiles, and not to read and stack all rows: one death ends it."""
    X = np.random.default_rng(0).standard_normal((600, 32_000))
    assert 2 * X.nbytes + 200e6 > MEMORY
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    found = nearest_in_shards(Shards(written(tmp_path, X)), 2)
    scores = X[::100] @ X.T / np.linalg.norm(X, axis=1)
    np.testing.assert_array_equal(found[::100], np.argsort(-scores, axis=1)[:, 1:3])


@pytest.mark.filterwarnings("ignore:T is nearly singular")
@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_a_sample_of_centres(client, tmp_path):
    """Their neighbours are exact ones among all rows, and only theirs are looked for."""
    X, y = data()
    shards = Shards(written(tmp_path, X))
    is_center = np.random.default_rng(2).random(len(X)) < 0.4
    est = HOC(metric="euclidean", refine=False).fit(shards, y, center_weight=is_center)
    expected = HOC(metric="euclidean", refine=False).fit(X, y, center_weight=is_center)
    same(est, expected)
    assert est.confidence_interval().method == "independent"
    with pytest.raises(LabelNoiseError, match=r"0 or 1 .* \[0.  0.5\]"):
        HOC().fit(shards, y, center_weight=is_center / 2)


def test_a_large_set_is_refined_by_a_sample(client, tmp_path, monkeypatch):
    """The triples are all rows', the refinement is a sample's, and the estimate says so."""
    monkeypatch.setattr(module, "_SAMPLE", 400)
    X, y = data()
    est = HOC().fit(Shards(written(tmp_path, X)), y)
    same(est, HOC(refine=False).fit(X, y))
    assert "a random sample of 400 of 600 examples" in est.diagnostics_["sample"].sentence
    assert (est.transition_matrix_ != est.triples_transition_matrix_).any()
    est.save(tmp_path / "T.json")
    assert HOC.load(tmp_path / "T.json").noise_rate_ == est.noise_rate_
    for what in (est.suspects, est.predict_proba):
        with pytest.raises(LabelNoiseError, match="shards"):
            what()


def test_neighbours_too_many_to_keep(client, tmp_path, monkeypatch):
    """Then intervals take triples as independent."""
    monkeypatch.setattr(module, "_LARGEST_KEPT", 100)
    X, y = data(300)
    est = HOC(refine=False).fit(Shards(written(tmp_path, X)), y)
    assert est.confidence_interval().method == "independent"


def test_command_line(run, client, tmp_path, monkeypatch):
    """Patterns of shards and labels, with a scheduler and with workers."""
    X, y = data()
    for number, rows in enumerate(np.array_split(np.arange(len(X)), 12)):
        np.save(tmp_path / f"x-{number}.npy", X[rows])
        np.save(tmp_path / f"y-{number}.npy", y[rows])
    shards = "estimate", f"{tmp_path}/x-*.npy", f"{tmp_path}/y-*.npy"
    out = tmp_path / "T.json"
    status, printed, _ = run(*shards, "--workers", client.scheduler.address, "--out", out)
    assert status == 0
    assert "around 600 examples in 3 classes" in printed
    expected = HOC(random_state=0).fit(X, y)
    assert HOC.load(out).noise_rate_ == pytest.approx(expected.noise_rate_, abs=1e-6)

    asked = []
    monkeypatch.setattr(
        module, "local_cluster", lambda workers: asked.append(workers) or nullcontext(client)
    )
    status, printed, _ = run(*shards, "--workers", 2, "--no-refine")
    assert status == 0
    assert "around 600 examples" in printed
    assert asked == [2]

    for wrong in ("--local", "--paper", "--images photos", "--search approximate"):
        status, _, said = run(*shards, "--workers", 2, *wrong.split(), "--report", "r.html")
        assert status == 2
        assert wrong.split()[0] in said
    status, _, said = run(*shards[:2], f"{tmp_path}/y-3.npy", "--workers", 2)
    assert status == 1
    assert "each of the 600 rows" in said


def test_stores_of_any_kind(tmp_path):
    """Shards and labels of a store that is no folder of this machine, files of one name in two."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    X, y = data(30)
    store = f"memory://{tmp_path.name}"
    for number, rows in enumerate((slice(0, 20), slice(20, 30))):
        with memory.open(f"{store}/{number}/x.npy", "wb") as file:
            np.save(file, X[rows])
        with memory.open(f"{store}/{number}/y.csv", "wb") as file:
            file.write("\n".join(["name,colour", *(f"a,{label}" for label in y[rows])]).encode())
    shards = Shards(f"{store}/*/x.npy")
    assert shards.shape == X.shape
    assert "30 x 16 of float32, in 2" in repr(shards)
    read = [np.concatenate([piece.read() for piece in tile]) for tile in shards.tiles(13)]
    assert [len(rows) for rows in read] == [13, 13, 4]
    np.testing.assert_array_equal(np.concatenate(read), X)
    np.testing.assert_array_equal(read_shard_labels(f"{store}/*/y.csv:colour", shards), y)
    with pytest.raises(LabelNoiseError, match=r"each of the 30 rows of .*, but .* has 20"):
        read_shard_labels(f"{store}/0/y.csv:colour", shards)


def broken(folder, what):
    """A folder of shards in which something is wrong."""
    X, _ = data(300)
    path = folder / "part-9.npy"
    written(folder, X)
    rows = np.load(path)
    if what == "gap":
        path.unlink()
    elif what == "columns":
        np.save(path, rows[:, 1:])
    elif what == "type":
        np.save(path, rows.astype(np.float64))
    elif what == "axes":
        np.save(path, rows[:, 0])
    elif what == "by columns":
        np.save(path, np.asfortranarray(rows))
    elif what == "empty file":
        path.write_bytes(b"")
    elif what == "not finite":
        rows[-1, 0] = np.nan
        np.save(path, rows)
    elif what == "cut off":
        path.write_bytes(path.read_bytes()[:-8])
    elif what == "others":
        folder = folder / "others"
        folder.mkdir()
        (folder / "notes.txt").touch()
    elif what == "nothing":
        folder = folder / "no-such-folder"
    elif what == "no rows":
        folder = folder / "part-11.npy"
        np.save(folder, rows[:0])
    elif what == "lists":
        folder = folder / "part-9.parquet"
        write_parquet(folder, [[1.0], [2.0, 3.0, 4.0]])
    return str(folder), path


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("gap", "numbered without gaps.* number 9 is missing"),
        ("columns", "of one number and type"),
        ("type", "of one number and type"),
        ("axes", "a table of numbers, but .*part-9.npy"),
        ("by columns", "part-9.npy cannot be read: it is stored by columns"),
        ("empty file", "part-9.npy cannot be read"),
        ("cut off", "part-9.npy cannot be read: it is cut off"),
        ("others", "files ending in .npy, .parquet, .zarr, but there is only .*notes.txt"),
        ("nothing", "there is none at .*no-such-folder"),
        ("no rows", "with rows, but those of .*part-11.npy have none"),
    ],
)
def test_shards_that_cannot_be_opened(what, sentence, tmp_path):
    """One sentence that names the shard, before any work."""
    folder, _ = broken(tmp_path, what)
    with pytest.raises(LabelNoiseError, match=sentence):
        Shards(folder)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("not finite", "part-9.npy has NaN or infinity"),
        ("deleted", "part-9.npy cannot be read: No such file"),
        ("lists", "part-9.parquet has some of 1 and 3"),
    ],
)
def test_shards_that_break_while_they_are_read(what, sentence, client, tmp_path):
    """A worker's error is the user's, in one sentence."""
    folder, path = broken(tmp_path, what)
    shards = Shards(folder)
    if what == "deleted":
        path.unlink()
    with pytest.raises(LabelNoiseError, match=sentence):
        HOC().fit(shards, np.arange(shards.shape[0]) % 2)


def test_what_does_not_go_with_shards(tmp_path):
    """Settings that need all rows at hand, labels of another number, arrays of another kind."""
    X, y = data(300)
    shards = Shards(written(tmp_path, X))
    for settings, given in (({}, {"sources": y}), ({}, {"neighbors": X}), ({"n_rounds": 2}, {})):
        with pytest.raises(LabelNoiseError, match="in shards"):
            HOC(**settings).fit(shards, y, **given)
    with pytest.raises(LabelNoiseError, match="search = 'approximate'"):
        HOC(search="approximate").fit(shards, y)
    with pytest.raises(LabelNoiseError, match="X has 300 rows and y 299"):
        HOC().fit(shards, y[1:])
    with pytest.raises(LabelNoiseError, match="a table of numbers"):
        HOC().fit(dask_array.from_array(X[:, 0]), y)
    unknown = dask_array.from_array(X)
    with pytest.raises(LabelNoiseError, match="compute_chunk_sizes"):
        HOC().fit(unknown[unknown[:, 0] > 0], y)


def test_no_scheduler(monkeypatch):
    """An address where nobody answers, in one sentence."""
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    where = "tcp://127.0.0.1:9"
    with pytest.raises(LabelNoiseError, match=f"scheduler at {where}.*"), remote_cluster(where):
        pass


def test_a_killed_worker_changes_nothing(client, tmp_path):
    """One of two is killed in the middle: no triple is lost or counted twice. (The last test.)"""
    X, y = data(3000)
    victims = list(client.run(os.getpid).values())
    stages = []

    def progress(stage, done, total):
        stages.append((stage, done, total))
        if stage == "neighbors" and done == total // 2:
            os.kill(victims[0], signal.SIGKILL)

    est = HOC(refine=False).fit(Shards(written(tmp_path, X)), y, progress=progress)
    assert victims[0] not in client.run(os.getpid).values()
    same(est, HOC(refine=False).fit(X, y))
    done = [number for stage, number, _ in stages if stage == "neighbors"]
    assert done == list(range(1, stages[-1][2] + 1))
