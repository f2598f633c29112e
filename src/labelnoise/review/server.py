"""The page and what it asks for, on this machine alone.

Every address begins with a random token, so nobody else can ask: neither another user of this
machine, nor a page of another site that is open in the same browser. Nothing in a request is a
path of a file: examples are asked for by their row number.
"""

from __future__ import annotations

import io
import json
import secrets
import socket
import tempfile
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelnoise._errors import LabelNoiseError
from labelnoise.io.images import reduced
from labelnoise.review import export, measure
from labelnoise.review.export import Review
from labelnoise.review.store import Change, ConflictError, as_json

HOST = "127.0.0.1"
_LARGEST_BODY = 2**20  # bytes
_MOST_CHANGES = 10_000
_MOST_ADDED = 1000  # rows of the sample at a time
_LARGEST_MATRIX = 40  # classes, of T on the page
_CARD, _SCREEN = 480, 4096  # pixels of a side, at most
_LARGEST_CARD = 2**17  # bytes of an image that is sent as it is
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Others, as TIFF, are shown as PNG.
_IMAGES = {
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Lets through only requests of the page itself, and marks every response as private."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        refused = self._refusal(scope) if scope["type"] == "http" else HTTPStatus.FORBIDDEN
        if refused:
            await Response(refused.phrase, refused)(scope, receive, send_marked)
            return
        path = "/" + scope["path"].split("/", 2)[2]
        await self._app({**scope, "path": path, "root_path": ""}, receive, send_marked)

    def _refusal(self, scope: Scope) -> HTTPStatus | None:
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            headers[name.decode("latin-1")] = value.decode("latin-1")
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts:  # a site may give its own name this address
            return HTTPStatus.MISDIRECTED_REQUEST
        if origin != f"http://{host}" and (origin is not None or scope["method"] != "GET"):
            return HTTPStatus.FORBIDDEN
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return HTTPStatus.FORBIDDEN
        token = scope["path"].split("/", 2)[1:2]
        known = secrets.compare_digest("".join(token).encode("utf-8", "replace"), self._token)
        return None if known and scope["path"].count("/") > 1 else HTTPStatus.NOT_FOUND


class Pages:
    """What the page asks for."""

    def __init__(self, review: Review) -> None:
        self.review = review
        self.data, self.store, self.suspects = review.data, review.store, review.suspects
        files = resources.files("labelnoise.review").joinpath("static")
        self._static = {
            file.name: (file.read_bytes(), _TYPES[Path(file.name).suffix])
            for file in files.iterdir()
            if Path(file.name).suffix in _TYPES
        }

    def routes(self) -> list[Route]:
        """List the addresses, below the token."""
        reads: dict[str, Callable[[Request], Response]] = {
            "/": lambda request: self._file("page.html"),
            "/static/{name}": lambda request: self._file(request.path_params["name"]),
            "/image/{row:int}": self.image,
            "/api/state": self.state,
            "/api/measure": self.measure,
            "/api/checks": self.checks,
            "/api/suspects": self.suspect_page,
            "/api/example/{row:int}": self.example,
            "/export/{name}": self.export,
        }
        writes: dict[str, Callable[[Any], Response]] = {
            "/api/answers": self.answer,
            "/api/sample": self.extend_sample,
            "/api/settings": self.change_settings,
        }
        return [
            *(Route(path, read, methods=["GET"]) for path, read in reads.items()),
            *(Route(path, _of_body(write), methods=["POST"]) for path, write in writes.items()),
        ]

    def _file(self, name: str) -> Response:
        if name not in self._static:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        content, kind = self._static[name]
        return Response(content, media_type=kind)

    def state(self, request: Request) -> Response:
        """Give what does not change while the page is open, and the settings."""
        T = self.data.estimate.transition_matrix_
        return _json(
            {
                "classes": self.data.classes,
                "kind": self.data.results.kind,
                "folder": str(self.data.results.folder.resolve()),
                "confusions": self.suspects.confusions(),
                "transition_matrix": T.round(4).tolist() if len(T) <= _LARGEST_MATRIX else None,
                "half_widths": measure.HALF_WIDTHS,
                "exports": list(export.files(self.review)),
                **self._settings(),
            }
        )

    def measure(self, request: Request) -> Response:
        """Give the rows of the sample, the answers, and what they say."""
        return self._measured()

    def checks(self, request: Request) -> Response:
        """Give what speaks against the answers or the model."""
        return _json({"findings": measure.findings(self.data, self.store)})

    def suspect_page(self, request: Request) -> Response:
        """Give some of the suspects, with their answers.

        `as_of` is the last answer that is looked at where `open` leaves decided rows out, so that
        places in the list stay the same while one works through it.
        """
        number = _numbers(request, "offset", "limit", "given", "suggested", "as_of", "open")
        as_of = self.store.last_id() if number["as_of"] is None else number["as_of"]
        total, found = self.suspects.page(
            offset=number["offset"] or 0,
            limit=number["limit"] or 100,
            order=request.query_params.get("order", "probability"),
            given=number["given"],
            suggested=number["suggested"],
            without=self.store.decided("clean", as_of) if number["open"] else (),
        )
        answers = self.store.answers("clean", [suspect["row"] for suspect in found])
        for suspect in found:
            row = suspect["row"]
            suspect["name"], suspect["answer"] = self.data.name(row), as_json(answers.get(row))
            suspect["near"] = [near["given"] for near in self.data.neighbors(row)]
            suspect["content"] = self._content(row)
        return _json({"total": total, "as_of": as_of, "suspects": found})

    def example(self, request: Request) -> Response:
        """Give an example. On the list that measures, nothing of it but what `given_shown` lets."""
        row = request.path_params["row"]
        given = self.data.given(row)
        if request.query_params.get("list") == "measure":
            shown: dict[str, Any] = {"content": self._content(row)}
            if self._settings()["given_shown"]:
                shown |= {"given": given, "name": self.data.name(row)}
            return _json({"row": row, **shown})
        neighbors = [
            near | {"name": self.data.name(near["row"]), "content": self._content(near["row"])}
            for near in self.data.neighbors(row)
        ]
        return _json(
            {
                "row": row,
                "given": given,
                "name": self.data.name(row),
                "content": self._content(row),
                "neighbors": neighbors,
            }
        )

    def image(self, request: Request) -> Response:
        """Send the image of a row: as it is, or one that fits on a card."""
        row, small = request.path_params["row"], "small" in request.query_params
        self.data.place(row)
        kind, path = self.data.results.content(row)
        if kind != "image" or not path.is_file():
            raise HTTPException(HTTPStatus.NOT_FOUND)
        suffix, large = path.suffix.lower(), path.stat().st_size > _LARGEST_CARD
        if suffix in _IMAGES and not (small and large):
            return FileResponse(path, media_type=_IMAGES[suffix])
        png = io.BytesIO()
        reduced(str(path), path.name, _CARD if small else _SCREEN).save(png, "PNG")
        return Response(png.getvalue(), media_type="image/png")

    def answer(self, body: Any) -> Response:
        """Keep answers; the response comes when they are on the disk."""
        if body["list"] not in ("measure", "clean") or len(body["changes"]) > _MOST_CHANGES:
            raise LabelNoiseError("Expected the list measure or clean, and fewer changes")
        changes = [self._change(change) for change in body["changes"]]
        shown = bool(body["given_shown"]) or body["list"] == "clean"
        try:
            kept = self.store.record(body["list"], changes, shown)
        except ConflictError as conflict:
            current = [as_json(answer) for answer in conflict.current]
            return _json({"error": str(conflict), "current": current}, HTTPStatus.CONFLICT)
        said: dict[str, Any] = {"answers": [as_json(answer) for answer in kept]}
        if body["list"] == "measure":
            said["running"] = self._running()
        return _json(said)

    def _change(self, change: Any) -> Change:
        row, version, verdict = change["row"], change["version"], change["verdict"]
        label = change.get("label")
        if not all(type(number) is int for number in (row, version)) or version < 0:
            raise LabelNoiseError("Expected row and version to be whole numbers >= 0")
        self.data.place(row)
        if verdict not in ("label", "unclear", "skip", "withdrawn"):
            raise LabelNoiseError(f"Expected a verdict that there is, but it is {verdict!r}")
        a_class = type(label) is int and 0 <= label < len(self.data.classes)
        if not (a_class if verdict == "label" else label is None):
            raise LabelNoiseError(f"Expected a class number with verdict label, but it is {label}")
        return Change(row, version, verdict, label)

    def extend_sample(self, body: Any) -> Response:
        """Add rows to the sample."""
        if not (type(body["n"]) is int and 0 < body["n"] <= _MOST_ADDED):
            raise LabelNoiseError(f"Expected 0 < n <= {_MOST_ADDED}, but n = {body['n']!r}")
        measure.extend_sample(self.data, self.store, body["n"])
        return self._measured()

    def change_settings(self, body: Any) -> Response:
        """Show or hide the given label; aim at another half-width."""
        if "given_shown" in body:
            self.store.set("given_shown", str(int(bool(body["given_shown"]))))
        if "half_width" in body:
            if body["half_width"] not in measure.HALF_WIDTHS:
                raise LabelNoiseError(f"Expected a half_width of {measure.HALF_WIDTHS}")
            self.store.set("half_width", str(body["half_width"]))
        return _json({**self._settings(), "running": self._running()})

    def export(self, request: Request) -> Response:
        """Send one of the files."""
        files = export.files(self.review)
        if (name := request.path_params["name"]) not in files:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            files[name](path)
            content = path.read_bytes()
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    def _measured(self) -> Response:
        listed = measure.sample_of(self.data, self.store)
        answers = self.store.answers("measure")
        return _json(
            {
                "rows": [row for row, _, _ in listed],
                "answers": [as_json(answers[row]) for row, _, _ in listed if row in answers],
                "running": self._running(),
            }
        )

    def _settings(self) -> dict[str, Any]:
        return {
            "given_shown": self.store.setting("given_shown", "0") == "1",
            "half_width": float(self.store.setting("half_width", "0.02")),
        }

    def _running(self) -> dict[str, Any]:
        half_width = self._settings()["half_width"]
        return measure.running(self.data, self.store, half_width).as_json()

    def _content(self, row: int) -> dict[str, Any]:
        try:
            kind, content = self.data.results.content(row)
        except LabelNoiseError as error:
            return {"kind": "missing", "text": str(error)}
        if kind == "text":
            return {"kind": kind, "text": content}
        if kind == "row":
            cells = (
                (str(name), "" if cell is None else str(cell)) for name, cell in content.items()
            )
            return {"kind": kind, "cells": list(cells)}
        return {"kind": kind}


def _of_body(write: Callable[[Any], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Read the JSON of a request, if it is not too much, and work on it in a thread."""
    from starlette.concurrency import run_in_threadpool

    def explained(body: Any) -> Response:
        try:
            return write(body)
        except (KeyError, TypeError, AttributeError) as error:
            raise LabelNoiseError(
                f"Expected a request of the page, but it lacks {error}"
            ) from error

    async def read(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _LARGEST_BODY:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            content = json.loads(body)
        except ValueError:
            raise HTTPException(HTTPStatus.BAD_REQUEST) from None
        return await run_in_threadpool(explained, content)

    return read


def _numbers(request: Request, *names: str) -> dict[str, int | None]:
    found = {name: request.query_params.get(name) for name in names}
    try:
        return {name: None if text is None else int(text) for name, text in found.items()}
    except ValueError:
        raise LabelNoiseError(f"Expected whole numbers, but there are {found}") from None


def _json(content: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    # In ASCII: names of files need not be Unicode.
    return Response(json.dumps(content), status, media_type="application/json")


def _refused(request: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)


def create_app(review: Review, token: str, port: int) -> ASGIApp:
    """Make the application that answers below ``http://127.0.0.1:port/token/``."""
    app = Starlette(routes=Pages(review).routes(), exception_handlers={LabelNoiseError: _refused})
    app.router.redirect_slashes = False
    return Guard(app, token, port)


def serve(review: Review, port: int, ready: Callable[[str], object]) -> None:
    """Answer until somebody interrupts; `ready` is told the address."""
    import uvicorn

    token = secrets.token_urlsafe(32)
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise LabelNoiseError(
            f"Expected a port that is free, but {port} cannot be used: {error.strerror}"
        ) from error
    with listening:
        port = listening.getsockname()[1]
        # No log of requests: their addresses have the token.
        config = uvicorn.Config(
            create_app(review, token, port),
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
        )
        ready(f"http://{HOST}:{port}/{token}/")
        uvicorn.Server(config).run(sockets=[listening])
