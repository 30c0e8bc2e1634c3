"""What is done to many at once: dead letters redriven or deleted, waiting retries, undecided transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ..calls import given, path
from ..models import OfMany
from .caller import AsyncCaller, group_path

Act = Literal["redrive", "delete", "retry", "recheck"]
Progress = Callable[[int], object]
"""Gets the number so far, after each page."""


class AsyncMany(AsyncCaller):
    """What is done to many at once.

    Each takes `ids` or a `filter` (`reason`, `error`, `tag`, `tenant`, `key`, `since`, `until`; `{}` or none: all),
    does it page by page until `limit` or the end, and returns to how many. Without ids it is not repeated after a lost
    answer: where it stands then is not known, and calling it again does the rest."""

    async def redrive(
        self,
        topic: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, str] | None = None,
        plan: str | None = None,
        rate: int | None = None,
        limit: int | None = None,
        on_progress: Progress | None = None,
    ) -> int:
        """Send dead letters again, at once or `rate` a second. `plan` is a preview's: nothing younger is sent."""
        url_path = group_path(topic, group, "dead-letters", "redrive")
        return await self._on_many(url_path, ids, limit, on_progress, filter=filter, plan=plan, rate=rate)

    async def delete_dead_letters(
        self,
        topic: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, str] | None = None,
        plan: str | None = None,
        confirm: str | None = None,
        limit: int | None = None,
        on_progress: Progress | None = None,
    ) -> int:
        """Delete dead letters for good. All of them: `confirm` repeats the group's name."""
        url_path = group_path(topic, group, "dead-letters", "delete")
        return await self._on_many(
            url_path, ids, limit, on_progress, filter=filter, plan=plan, confirm=confirm
        )

    async def retry_many(
        self,
        topic: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, str] | None = None,
        consumer: str | None = None,
        limit: int | None = None,
        on_progress: Progress | None = None,
    ) -> int:
        """Make the next attempts of waiting deliveries now, in a broadcast of one `consumer` or of all."""
        url_path = group_path(topic, group, "retry")
        return await self._on_many(url_path, ids, limit, on_progress, filter=filter, consumer=consumer)

    async def recheck(
        self,
        topic: str | None = None,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, str] | None = None,
        limit: int | None = None,
        on_progress: Progress | None = None,
    ) -> int:
        """Ask the producers of UNDECIDED transactions again, of a topic or of all. `ids` are the transactions'."""
        url_path = path("transactions", "recheck")
        return await self._on_many(url_path, ids, limit, on_progress, filter=filter, topic=topic)

    async def preview(
        self,
        act: Act,
        topic: str | None = None,
        group: str | None = None,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, str] | None = None,
        consumer: str | None = None,
        limit: int | None = None,
    ) -> OfMany:
        """To how many it would be done: `count`, a `sample`, and for `redrive` and `delete` without ids a `plan`."""
        if act == "recheck":
            url_path, rest = path("transactions", "recheck"), given(topic=topic)
        else:
            below = ("retry",) if act == "retry" else ("dead-letters", act)
            url_path, rest = group_path(topic or "", group or "", *below), given(consumer=consumer)
        pages: list[OfMany] = []

        async def add(body: dict[str, Any]) -> OfMany:
            pages.append(await self._ask(OfMany, "POST", url_path, {**body, "dry_run": True}))
            return pages[-1]

        count = await _each_page(add, ids, limit, None, filter=filter, **rest)
        return OfMany(count=count, sample=pages[0].sample, plan=pages[0].plan)

    async def _on_many(
        self,
        url_path: str,
        ids: Sequence[str] | None,
        limit: int | None,
        on_progress: Progress | None,
        **fields: Any,
    ) -> int:
        async def ask(body: dict[str, Any]) -> OfMany:
            return await self._ask(OfMany, "POST", url_path, body, repeatable=ids is not None)

        return await _each_page(ask, ids, limit, on_progress, **fields)


async def _each_page(
    ask: Callable[[dict[str, Any]], Any],
    ids: Sequence[str] | None,
    limit: int | None,
    on_progress: Progress | None,
    **fields: Any,
) -> int:
    """Ask page by page; the sum of the counts."""
    body = given(ids=list(ids) if ids is not None else None, **fields)
    count, token = 0, None
    while True:
        left = None if limit is None else min(limit - count, OfMany.MOST)
        answer: OfMany = await ask({**body, **given(limit=left, page_token=token)})
        count += answer.number
        if on_progress:
            on_progress(count)
        token = answer.next_page_token
        if token is None or (limit is not None and count >= limit):
            return count
