"""Another process on the same store: its caches know nothing of what this one does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from chalicelib import wiring
from tests.support.background import Background
from tests.support.http import Client, Gateway


class OtherProcess:
    """The gateway of another process on the same store."""

    def __init__(self, gateway: Gateway, deps: wiring.Deps) -> None:
        self._gateway = gateway
        self._deps = deps

    def handle(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wiring, "deps", lambda: self._deps)
            return self._gateway.handle(method, path, headers, body)


def client_of_another_process(api: Client, background: Background) -> Client:
    """A client of another process on the same store."""
    return Client(OtherProcess(api.gateway, wiring.Deps(background.deps.adapters)), api.token)
