"""Lists, page by page or item by item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Generic, TypeVar

from ..calls import Call
from ..models import Page
from .transport import Transport

T = TypeVar("T")


class Pager(Generic[T]):
    """A list of the service. Iterate for its items, which are fetched page by page; `page()` is one page."""

    def __init__(self, transport: Transport, call: Call, kind: type[T]) -> None:
        self._transport = transport
        self._call = call
        self._kind = kind

    def page(self, page_token: str | None = None) -> Page[T]:
        """The first page, or the one that a page's `next_page_token` leads to."""
        query = {**self._call.query, "page_token": page_token or self._call.query.get("page_token")}
        return self._transport.ask(replace(self._call, query=query), Page[self._kind])  # type: ignore[name-defined]

    def __iter__(self) -> Iterator[T]:
        page = self.page()
        while True:
            for item in page.items:
                yield item
            if page.next_page_token is None:
                return
            page = self.page(page.next_page_token)
