"""The services of a local run, which can be created again: `POST /v1/reset` begins with an empty store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalice.app import Chalice

from chalicelib.api import http
from chalicelib.api.calls import Call, Context, Reach, Response
from chalicelib.wiring import Deps
from local.clock import HandClock


class Services:
    """In the place of `wiring.deps`: the same services at each call, until `renew`."""

    def __init__(self, make: Callable[[], Deps]) -> None:
        self._make = make
        self._deps = make()

    def __call__(self) -> Deps:
        return self._deps

    def renew(self, token: str) -> None:
        """Others, on a store with nothing in it but this admin token."""
        deps = self._make()
        deps.tokens.ensure_admin(token)
        self._deps = deps


class ResetController:
    """Forgets everything. What is under way goes on with what it has read, and finds nothing of it any more."""

    def __init__(self, services: Services, clock: HandClock, token: str, clear: Callable[[], None]) -> None:
        self._services = services
        self._clock = clock
        self._token = token
        self._clear = clear

    def register(self, app: Chalice, authorizer: Any) -> None:
        """Give the app the call."""
        reset = Call("POST", "/v1/reset", self.reset, ("admin",), None, (), False, reach=Reach.SERVICE)
        http.register(app, authorizer, [reset])

    def reset(self, context: Context) -> Response[None]:
        """Start again, at the machine's time."""
        with self._clock.steps:  # a move that is under way would go on with the new services
            self._clock.reset()
            self._clear()
            self._services.renew(self._token)
        return Response(None, 204)
