"""What all operations share: the transport."""

from __future__ import annotations

from typing import Any, TypeVar

from ..calls import Call, path
from .pager import Pager
from .transport import Transport

T = TypeVar("T")


class Caller:
    """Asks the service."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _ask(
        self,
        kind: type[T],
        method: str,
        where: str,
        body: Any = None,
        *,
        repeatable: bool = True,
        **query: Any,
    ) -> T:
        call = Call(method, where, body, query=query, repeatable=repeatable)
        return self._transport.ask(call, kind)

    def _delete(self, where: str, **query: Any) -> None:
        self._transport.send(Call("DELETE", where, query=query))

    def _list(self, kind: type[T], where: str, **query: Any) -> Pager[T]:
        return Pager(self._transport, Call("GET", where, query=query), kind)


def group_path(topic: str, group: str, *below: str) -> str:
    """The path of a group, or of something below it."""
    return path("topics", topic, "groups", group, *below)
