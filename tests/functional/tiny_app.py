"""A Chalice app with one route of each kind, for the tests of what surrounds an app."""

from __future__ import annotations

import json
import threading
from typing import Any, cast

from chalice import AuthResponse, Chalice, Response
from chalice.app import AuthRequest

GOOD = {"Authorization": "Bearer good", "Accept": "*/*"}
OPEN = {"Accept": "*/*"}


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _authorize(request: AuthRequest) -> AuthResponse | None:
    request.token.encode("ascii")  # as a careless authorizer might: it must not see anything else
    if request.token == "Bearer good":
        return AuthResponse(routes=["*"], principal_id="somebody")
    if request.token == "Bearer limited":
        return AuthResponse(routes=["/elsewhere"], principal_id="somebody")
    if request.token == "Bearer broken":
        raise KeyError("a failure of the authorizer")
    if request.token == "Bearer odd":
        return None
    raise Exception("Unauthorized")


def _reply(**fields: Any) -> Response:
    return Response(json.dumps(fields).encode(), headers={"Content-Type": "application/json"})


def make(clock: Clock | None = None, binary: bool = True) -> Chalice:
    """The app. Its authorizer takes a second, `/slow/{seconds}` so many; `/meet/{name}` waits for a second such
    request."""
    app = Chalice("tiny")
    if binary:
        app.api.binary_types = ["*/*"]

    @app.authorizer()
    def authorizer(request: AuthRequest) -> AuthResponse | None:
        if clock:
            clock.now += 1
        return _authorize(request)

    def current() -> Any:
        assert app.current_request
        return app.current_request

    @app.route("/echo/{name}", methods=["POST", "PUT"], content_types=["*/*"])
    def echo(name: str) -> Response:
        request = current()
        body = cast(bytes, request.raw_body)
        query = {} if request.query_params is None else dict(request.query_params.items())
        return _reply(
            name=name,
            query=query,
            body=body.decode("latin-1")[:100],
            size=len(body),
            headers=dict(request.headers),
            context=request.lambda_context.aws_request_id == request.context["requestId"],
        )

    both = threading.Barrier(2)

    @app.route("/meet/{name}")
    def meet(name: str) -> Response:
        both.wait(10)  # both requests are under way: what is read now must still be one's own
        request = current()
        answer = _reply(
            name=name,
            seen=(request.uri_params or {})["name"],
            context=request.lambda_context.aws_request_id == request.context["requestId"],
        )
        both.wait(10)
        return answer

    @app.route("/private", authorizer=authorizer)
    def private() -> Response:
        return _reply(caller=current().context["authorizer"]["principalId"])

    @app.route("/when", authorizer=authorizer)
    def when() -> Response:
        return _reply(received_ms=current().context["requestTimeEpoch"])

    @app.route("/slow/{seconds}")
    def slow(seconds: str) -> Response:
        assert clock is not None
        clock.now += float(seconds)
        return _reply(seconds=seconds)

    _add_odd_answers(app)
    return app


def _add_odd_answers(app: Chalice) -> None:
    """Routes that fail, or answer otherwise than with JSON."""

    @app.route("/broken")
    def broken() -> Response:
        raise ZeroDivisionError("the app's own failure")

    @app.route("/bytes")
    def octets() -> Response:
        return Response(bytes(range(256)), headers={"Content-Type": "application/octet-stream"})

    @app.route("/empty")
    def empty() -> Response:
        return Response(b"", headers={"Content-Type": "text/plain"}, status_code=204)

    @app.route("/other")
    def other() -> Response:
        return _reply(ok=True)

    @app.route("/splitting")
    def splitting() -> Response:
        return Response(b"", headers={"Content-Type": "text/plain", "X-Bad": "a\rSet-Cookie: b"})
