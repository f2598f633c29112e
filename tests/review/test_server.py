"""The server answers its own page and nobody else, and never by a path."""

import io

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from labelnoise.review.server import create_app

TOKEN = "t" * 43
PORT = 8431
HOST = f"127.0.0.1:{PORT}"


@pytest.fixture
def client(review):
    """The page: its host, its origin, its token."""
    with TestClient(
        create_app(review, TOKEN, PORT),
        base_url=f"http://{HOST}/{TOKEN}/",
        headers={"origin": f"http://{HOST}"},
    ) as found:
        yield found


def answered(client, list_name, *changes, given_shown=False):
    body = {"list": list_name, "changes": list(changes), "given_shown": given_shown}
    return client.post("api/answers", json=body)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (f"/{TOKEN}/", {}, 200),
        (f"/{TOKEN}/", {"host": f"localhost:{PORT}", "origin": f"http://localhost:{PORT}"}, 200),
        ("/", {}, 404),
        (f"/{TOKEN}", {}, 404),
        (f"/{TOKEN}x/", {}, 404),
        (f"/{TOKEN[:-1]}/", {}, 404),
        ("/é/", {}, 404),
        ("//", {}, 404),
        (f"/{TOKEN}//evil.example/", {}, 404),
        (f"/{TOKEN}/", {"host": "evil.example"}, 421),
        (f"/{TOKEN}/", {"host": f"evil.example:{PORT}"}, 421),
        (f"/{TOKEN}/", {"host": "127.0.0.1"}, 421),
        (f"/{TOKEN}/", {"host": f"127.0.0.1:{PORT}.evil.example"}, 421),
        (f"/{TOKEN}/", {"origin": "http://evil.example"}, 403),
        (f"/{TOKEN}/", {"origin": "null"}, 403),
        (f"/{TOKEN}/", {"origin": f"http://127.0.0.1:{PORT + 1}"}, 403),
        (f"/{TOKEN}/", {"origin": f"http://localhost:{PORT}"}, 403),
        (f"/{TOKEN}/", {"sec-fetch-site": "cross-site"}, 403),
        (f"/{TOKEN}/", {"sec-fetch-site": "same-site"}, 403),
        (f"/{TOKEN}/", {"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_who_is_answered(client, path, headers, status):
    """Token, host and origin must be those of the page; and every response is private."""
    response = client.get(f"http://{HOST}{path}", headers=headers)
    assert response.status_code == status
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert TOKEN not in response.text


def test_changes_need_an_origin(review, client):
    """A form of another site, or a script without an origin, changes nothing."""
    body = {"given_shown": True}
    for headers in ({}, {"origin": "http://evil.example"}, {"origin": "null"}):
        with TestClient(create_app(review, TOKEN, PORT), base_url=f"http://{HOST}") as other:
            response = other.post(f"/{TOKEN}/api/settings", json=body, headers=headers)
        assert response.status_code == 403
    assert not client.get("api/state").json()["given_shown"]
    assert client.post("api/settings", json=body).json()["given_shown"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "POST"])
def test_other_methods(client, method):
    assert client.request(method, "api/state").status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "static/../server.py",
        "static/..%2fserver.py",
        "static/%2e%2e/server.py",
        "static/%2fetc%2fpasswd",
        "image/..%2f..%2fetc%2fpasswd",
        "image/-1",
        "image/600",
        "image/99999999999999999999",
        "image/1.5",
        "export/..%2fanswers.sqlite",
        "export/answers.sqlite",
        "api/example/600",
    ],
)
def test_nothing_is_served_by_its_path(client, path):
    assert client.get(path).status_code in (400, 404)


def test_static_files_and_images(client, review):
    """The page's own files have their types; an image is the file of its row."""
    for name, kind in {"main.js": "text/javascript", "review.css": "text/css"}.items():
        assert client.get(f"static/{name}").headers["content-type"].startswith(kind)
    response = client.get("image/7")
    kind, path = review.data.results.content(7)
    assert (kind, response.headers["content-type"]) == ("image", "image/png")
    assert response.content == path.read_bytes()


def test_large_images_are_small_on_a_card(client, review):
    """And upright, as a browser shows them."""
    path = review.data.results.content(7)[1]
    kept = path.read_bytes()
    noise = np.random.default_rng(0).integers(0, 256, (600, 900, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    try:
        Image.fromarray(noise).save(path, "PNG", exif=exif)
        assert len(client.get("image/7").content) == path.stat().st_size
        small = Image.open(io.BytesIO(client.get("image/7?small").content))
        assert small.size == (320, 480)
    finally:
        path.write_bytes(kept)


def test_images_that_browsers_do_not_show_are_sent_as_png(client, review, tmp_path, monkeypatch):
    path = tmp_path / "x.tiff"
    Image.new("L", (9, 5), 7).save(path)
    monkeypatch.setattr(type(review.data.results), "content", lambda self, row: ("image", path))
    response = client.get("image/7")
    assert response.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(response.content)).size == (9, 5)
    path.write_bytes(b"no image")
    assert "cannot be read" in client.get("image/7").json()["error"]


def test_an_image_that_is_gone_is_only_missing(client, review):
    path = review.data.results.content(7)[1]
    hidden = path.rename(path.with_suffix(".hidden"))
    try:
        assert client.get("image/7").status_code == 404
    finally:
        hidden.rename(path)


def test_pages_of_suspects(client, review):
    """Pages put together are the whole list, in each order, whatever was answered meanwhile."""
    suspects = review.data.estimate.suspects()
    everything = {"limit": 500}
    for order in ("probability", "class", "confusion"):
        whole = client.get("api/suspects", params=everything | {"order": order}).json()
        assert whole["total"] == len(suspects)
        assert {one["row"] for one in whole["suspects"]} == {*suspects.index.tolist()}
    first = client.get("api/suspects", params={"limit": 10, "open": 1}).json()
    assert [one["row"] for one in first["suspects"]] == suspects.index[:10].tolist()
    answered(client, "clean", {"row": int(suspects.index[0]), "version": 0, "verdict": "skip"})
    again = {"offset": 10, "limit": 10, "open": 1}
    there = client.get("api/suspects", params=again | {"as_of": first["as_of"]}).json()
    assert [one["row"] for one in there["suspects"]] == suspects.index[10:20].tolist()
    fresh = client.get("api/suspects", params=again).json()
    assert [one["row"] for one in fresh["suspects"]] == suspects.index[11:21].tolist()
    assert fresh["total"] == len(suspects) - 1


def test_suspects_of_a_confusion(client, review):
    """Class numbers choose; the numbers of all confusions add up."""
    state = client.get("api/state").json()
    suspects = review.data.estimate.suspects()
    assert sum(n for *_, n in state["confusions"]) == len(suspects)
    suggested, given, n = state["confusions"][0]
    asked = {"given": given, "suggested": suggested}
    found = client.get("api/suspects", params=asked).json()
    assert found["total"] == n == len(found["suspects"])
    assert {(one["suggested"], one["given"]) for one in found["suspects"]} == {(suggested, given)}


@pytest.mark.parametrize(
    "asked",
    [{"limit": 501}, {"offset": -1}, {"limit": "x"}, {"order": "row; DROP TABLE answers"}],
)
def test_pages_that_cannot_be(client, asked):
    response = client.get("api/suspects", params=asked)
    assert response.status_code == 400
    assert "Expected" in response.json()["error"]


@pytest.mark.parametrize(
    "change",
    [
        {"row": -1, "version": 0, "verdict": "skip"},
        {"row": 600, "version": 0, "verdict": "skip"},
        {"row": True, "version": 0, "verdict": "skip"},
        {"row": 1, "version": -1, "verdict": "skip"},
        {"row": 1, "version": 0, "verdict": "delete"},
        {"row": 1, "version": 0, "verdict": "label"},
        {"row": 1, "version": 0, "verdict": "label", "label": 10},
        {"row": 1, "version": 0, "verdict": "label", "label": "1"},
        {"row": 1, "version": 0, "verdict": "skip", "label": 1},
        {"row": 1},
        [],
        "x",
    ],
)
def test_answers_that_cannot_be(client, review, change):
    """Refused with a sentence; nothing is kept."""
    response = answered(client, "measure", change)
    assert response.status_code == 400
    assert "Expected" in response.json()["error"]
    assert review.store.answers("measure") == {}


def test_bodies_that_cannot_be(client):
    """No JSON, another kind of JSON, too much of it."""
    for content in (b"", b"{", b"[]", b'"x"', b"null", b'{"list": "other", "changes": []}'):
        assert client.post("api/answers", content=content).status_code == 400
    assert client.post("api/answers", content=b" " * 2**21).status_code == 413
    for n in (0, -1, 1e9, "x", None):
        assert client.post("api/sample", json={"n": n}).status_code == 400


def test_the_running_estimate_is_that_of_verify(client, review, images):
    """The same rate and interval as `HOC.verify` finds from the same answers."""
    _, true = images
    listed = client.get("api/measure").json()["rows"]
    for row in listed[:60]:
        change = {"row": row, "version": 0, "verdict": "label", "label": int(true[row])}
        said = answered(client, "measure", change).json()["running"]
    found = review.data.estimate.verify(dict.fromkeys([], 0) | checked_table(client))
    assert said["rate"]["estimate"] == pytest.approx(found.rate.estimate)
    assert said["rate"]["low"] == pytest.approx(found.rate.low)
    assert said["to_add"] == found.rows_to_add(0.02)
    truth = (review.data.labels != true).mean()
    assert said["rate"]["low"] < truth < said["rate"]["high"]
    assert said["wrong"] == (review.data.labels != true)[listed[:60]].sum()


def checked_table(client):
    lines = client.get("export/checked.csv").text.splitlines()
    head, *rows = (line.split(",") for line in lines)
    return {name: [row[i] for row in rows] for i, name in enumerate(head)}


def test_no_estimate_before_each_stratum_has_answers(client):
    """What is shown then is the estimate before any answer, and said to be."""
    listed = client.get("api/measure").json()["rows"]
    change = {"row": listed[0], "version": 0, "verdict": "unclear"}
    said = answered(client, "measure", change).json()["running"]
    assert (said["rate"], said["to_add"]) == (None, None)
    assert (said["answered"], said["unclear"]) == (0, 1)
    assert said["until_first"] > 0


def test_the_sample_grows_without_repeating_rows(client):
    """And stays one sample: each row has a stratum, and the rows before stay first."""
    before = client.get("api/measure").json()["rows"]
    after = client.post("api/sample", json={"n": 30}).json()["rows"]
    assert after[: len(before)] == before
    assert len({*after}) == len(after) == len(before) + 30


def test_a_conflict_tells_the_other_answer(client):
    """With the status 409, and the version that is needed to change it."""
    row = client.get("api/measure").json()["rows"][0]
    change = {"row": row, "version": 0, "verdict": "label", "label": 1}
    assert answered(client, "measure", change).status_code == 200
    refused = answered(client, "measure", change | {"label": 2})
    assert refused.status_code == 409
    (current,) = refused.json()["current"]
    assert current == {"row": row, "version": 1, "verdict": "label", "label": 1}
    change |= {"label": 2, "version": 1}
    assert answered(client, "measure", change).status_code == 200


def test_findings_speak_up_when_the_answers_contradict(client, review):
    """Whoever answers one class for all contradicts the model; the estimate itself stays."""
    before = review.data.estimate.transition_matrix_.copy()
    assert client.get("api/checks").json()["findings"] == []
    for row in client.get("api/measure").json()["rows"]:
        answered(client, "measure", {"row": row, "version": 0, "verdict": "label", "label": 0})
    (finding,) = client.get("api/checks").json()["findings"]
    assert "contradict the model" in finding
    np.testing.assert_array_equal(review.data.estimate.transition_matrix_, before)
