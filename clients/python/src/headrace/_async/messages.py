"""Messages seen and changed; dead letters; replays."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from ..calls import given, path
from ..durations import Duration, rfc3339, seconds
from ..models import (
    DeadLetter,
    Delivery,
    Event,
    Fate,
    Group,
    MergedLetters,
    Replay,
    RescheduledMessages,
    StoredMessage,
    Trace,
)
from .caller import AsyncCaller, group_path
from .pager import AsyncPager


class AsyncMessages(AsyncCaller):
    """Messages seen and changed; dead letters; replays."""

    async def get_message(self, topic: str, id: str) -> StoredMessage:
        """Everything known about a message, with its status per group."""
        return await self._ask(StoredMessage, "GET", path("topics", topic, "messages", id))

    def list_messages(
        self,
        topic: str,
        *,
        group: str | None = None,
        status: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        tenant: str | None = None,
        shard: int | None = None,
        begin: datetime | str | None = None,
        end: datetime | str | None = None,
        dedup_id: str | None = None,
        limit: int | None = None,
    ) -> AsyncPager[StoredMessage]:
        """Messages, newest first (DELAYED soonest first); `begin` and `end` bound their times. `dedup_id`, without the
        others, finds the message that has it."""
        times = {
            "from": rfc3339(begin) if begin is not None else None,
            "to": rfc3339(end) if end is not None else None,
        }
        query = {"group": group, "status": status, "key": key, "tag": tag, "tenant": tenant, "shard": shard}
        query |= {"dedup_id": dedup_id, "limit": limit}
        return self._list(StoredMessage, path("topics", topic, "messages"), **query, **times)

    async def amend_message(
        self, topic: str, id: str, *, group: str | None = None, consumer: str | None = None, **changes: Any
    ) -> StoredMessage:
        """Change `body`, `headers`, `retry` or (while it waits) `deliver_at` of an unclaimed message. With `group`
        (in a broadcast, and `consumer`): `body`, `headers`, `next_attempt_at` or `attempts_left` of a RETRYING
        delivery, for that group alone."""
        return await self._ask(
            StoredMessage,
            "PATCH",
            path("topics", topic, "messages", id),
            _with_time_text(changes),
            group=group,
            consumer=consumer,
        )

    async def settle_message(
        self,
        topic: str,
        id: str,
        group: str,
        outcome: Literal["success", "dead"],
        *,
        reason: str | None = None,
        consumer: str | None = None,
    ) -> Delivery:
        """End a delivery that is NEW, RETRYING or RUNNING: as a "success", or "dead" (a dead letter). In a broadcast,
        that of a `consumer`."""
        body = given(group=group, outcome=outcome, reason=reason, consumer=consumer)
        return await self._ask(Delivery, "POST", path("topics", topic, "messages", id, "settle"), body)

    async def cancel_message(self, topic: str, id: str) -> None:
        """Take a message back that no group has claimed."""
        await self._delete(path("topics", topic, "messages", id))

    async def get_job(self, topic: str, job: str) -> StoredMessage:
        """The last message that was stored under this name (`put_job`), as long as it is kept."""
        return await self._ask(StoredMessage, "GET", path("topics", topic, "jobs", job))

    async def delete_job(self, topic: str, job: str) -> None:
        """Cancel the job of this name, which frees the name. Raises JobNotFound, or AlreadyClaimed where a group works
        on it."""
        await self._delete(path("topics", topic, "jobs", job))

    def list_jobs(
        self, topic: str, *, prefix: str | None = None, limit: int | None = None
    ) -> AsyncPager[StoredMessage]:
        """The jobs that wait for their time, soonest first; of those, the ones whose names begin with `prefix`."""
        return self._list(StoredMessage, path("topics", topic, "jobs"), prefix=prefix, limit=limit)

    async def change_delayed(
        self,
        topic: str,
        *,
        deliver_at: datetime | str | None = None,
        postpone: Duration | None = None,
        cancel: bool = False,
        ids: Sequence[str] | None = None,
        dry_run: bool = False,
        key: str | None = None,
        tag: str | None = None,
        tenant: str | None = None,
        shard: int | None = None,
        begin: datetime | str | None = None,
        end: datetime | str | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> RescheduledMessages:
        """Hurry, postpone or cancel delayed messages, those with the ids or a page of those due between `begin` and
        `end`; or tell what it would change. A `postpone` is not repeated after a lost answer: look at the list."""
        changes = {
            **({"deliver_at": rfc3339(deliver_at)} if deliver_at is not None else {}),
            **({"postpone_seconds": round(seconds(postpone))} if postpone is not None else {}),
            **({"cancel": True} if cancel else {}),
            **({"ids": list(ids)} if ids is not None else {}),
            "dry_run": dry_run,
        }
        query: dict[str, Any] = {
            "from": rfc3339(begin) if begin is not None else None,
            "to": rfc3339(end) if end is not None else None,
        }
        return await self._ask(
            RescheduledMessages,
            "PATCH",
            path("topics", topic, "messages"),
            changes,
            repeatable=postpone is None,
            key=key,
            tag=tag,
            tenant=tenant,
            shard=shard,
            limit=limit,
            page_token=page_token,
            **query,
        )

    async def get_trace(self, topic: str, id: str) -> list[Event]:
        """A message's path, in order of time."""
        return (await self._ask(Trace, "GET", path("topics", topic, "messages", id, "trace"))).events

    async def get_fate(self, topic: str, id: str) -> Fate:
        """Where a message stands everywhere."""
        return await self._ask(Fate, "GET", path("topics", topic, "messages", id, "fate"))

    async def wait_until_complete(
        self, topic: str, id: str, *, group: str | None = None, within: Duration = "25s"
    ) -> Fate:
        """Wait until every group (or this one) is done with a message: success, a dead letter, cancelled, or skipped;
        when `within` is over, its fate as it is then. Looks at growing pauses of up to a second; each look costs
        reads. Raises GroupNotFound for a group that the topic does not have, also where all others skipped it."""
        until, pause = time.monotonic() + seconds(within), 0.05
        while True:
            fate = await self.get_fate(topic, id)
            names = {*fate.groups, *fate.skipped}
            if group is not None and names and group not in names:
                await self._ask(Group, "GET", group_path(topic, group))
            seconds_left = until - time.monotonic()
            if fate.is_complete(group) or seconds_left <= 0:
                return fate
            await self._transport.pause(min(pause, seconds_left))
            pause = min(pause * 2, 1.0)

    async def retry_now(self, topic: str, id: str, group: str) -> Delivery:
        """Make the next attempt of a RETRYING or DEAD delivery now."""
        return await self._ask(
            Delivery, "POST", path("topics", topic, "messages", id, "retry"), {"group": group}
        )

    def list_dead_letters(
        self,
        topic: str,
        group: str,
        *,
        reason: str | None = None,
        tag: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        error: str | None = None,
        limit: int | None = None,
    ) -> AsyncPager[DeadLetter]:
        """A group's dead letters, each whole, with its reason and last error; `since` and `until` bound when they died,
        `error` is a part of the last error."""
        url_path = group_path(topic, group, "dead-letters")
        times = {name: rfc3339(at) for name, at in (("since", since), ("until", until)) if at is not None}
        query = {"reason": reason, "tag": tag, "tenant": tenant, "key": key, "error": error, "limit": limit}
        return self._list(DeadLetter, url_path, **query, **times)

    async def get_dead_letter(self, topic: str, group: str, id: str) -> DeadLetter:
        """One dead letter by its message's id."""
        return await self._ask(DeadLetter, "GET", group_path(topic, group, "dead-letters", id))

    async def edit_dead_letter(self, topic: str, group: str, id: str, body: Any) -> DeadLetter:
        """Give a dead letter another body, before it is redriven."""
        return await self._ask(
            DeadLetter, "PATCH", group_path(topic, group, "dead-letters", id), {"body": body}
        )

    async def merge_dead_letters(
        self,
        topic: str,
        group: str,
        patch: dict[str, Any],
        *,
        reason: str | None = None,
        tag: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        error: str | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> MergedLetters:
        """Change the bodies of a page of dead letters by a JSON merge patch; or tell what it would change."""
        return await self._ask(
            MergedLetters,
            "PATCH",
            group_path(topic, group, "dead-letters"),
            {"patch": patch, "dry_run": dry_run},
            reason=reason,
            tag=tag,
            tenant=tenant,
            key=key,
            error=error,
            since=rfc3339(since) if since is not None else None,
            until=rfc3339(until) if until is not None else None,
            limit=limit,
            page_token=page_token,
        )

    async def delete_dead_letter(self, topic: str, group: str, id: str) -> None:
        """Delete a dead letter for good."""
        await self._delete(group_path(topic, group, "dead-letters", id))

    async def create_replay(
        self, topic: str, begin: datetime | str, end: datetime | str, **settings: Any
    ) -> Replay:
        """Send archived messages again: `tag`, `key`, `where`, `into`, `group`, `rate`, `dry_run`. Not repeated after
        a lost answer: look into the list."""
        body = {"from": rfc3339(begin), "to": rfc3339(end), **settings}
        return await self._ask(Replay, "POST", path("topics", topic, "replays"), body, repeatable=False)

    def list_replays(self, topic: str, *, limit: int | None = None) -> AsyncPager[Replay]:
        """A topic's replays."""
        return self._list(Replay, path("topics", topic, "replays"), limit=limit)

    async def get_replay(self, id: str) -> Replay:
        """A replay: what it chooses, where to, and how far it is."""
        return await self._ask(Replay, "GET", path("replays", id))

    async def tell_progress(self, id: str, state: str, **progress: Any) -> Replay:
        """A replay's job reports its progress: `matched`, `sent`, `error`."""
        return await self._ask(Replay, "PATCH", path("replays", id), {"state": state, **progress})

    async def send_archived(self, id: str, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What a replay's job sends; repeating it is harmless."""
        url_path = path("replays", id, "messages")
        return (await self._ask(dict[str, list[dict[str, Any]]], "POST", url_path, {"messages": messages}))[
            "results"
        ]


def _with_time_text(changes: Mapping[str, Any]) -> dict[str, Any]:
    times = ("deliver_at", "next_attempt_at")
    texts = {name: rfc3339(changes[name]) for name in times if changes.get(name) is not None}
    return {**changes, **texts}
