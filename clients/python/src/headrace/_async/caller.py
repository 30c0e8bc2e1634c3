"""What all operations share: the transport."""

from __future__ import annotations

from typing import Any, TypeVar

from ..calls import Call, path
from .pager import AsyncPager
from .transport import AsyncTransport

T = TypeVar("T")


class AsyncCaller:
    """Asks the service."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def _ask(
        self,
        kind: type[T],
        method: str,
        url_path: str,
        body: Any = None,
        *,
        repeatable: bool = True,
        is_send: bool = False,
        **query: Any,
    ) -> T:
        __tracebackhide__ = True
        call = Call(method, url_path, body, query=query, repeatable=repeatable, is_send=is_send)
        return await self._transport.ask(call, kind)

    async def _delete(self, url_path: str, **query: Any) -> None:
        await self._transport.send(Call("DELETE", url_path, query=query))

    def _list(self, kind: type[T], url_path: str, **query: Any) -> AsyncPager[T]:
        return AsyncPager(self._transport, Call("GET", url_path, query=query), kind)


def group_path(topic: str, group: str, *below: str) -> str:
    """The path of a group, or of something below it."""
    return path("topics", topic, "groups", group, *below)


def of_each(results: list[T], count: int) -> list[T]:
    """The results of so many messages or receipts. ValueError where there are more or fewer: an answer of another."""
    if len(results) != count:
        raise ValueError(f"{len(results)} results of {count}")
    return results
