"""Expectations about a topic and a group; a failure shows the actual counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .._background import THREAD_NAME
from ..models import DeadLetter, GroupCounts, StoredMessage, TopicStats

if TYPE_CHECKING:
    from .local import LocalHeadrace

__tracebackhide__ = True  # pytest shows the test's own line
T = TypeVar("T")
_LOOK_SECONDS = 0.02
_SHOWN = 5


class _NoGroup(AssertionError):
    """The group is not there; another thread may be about to make it."""


class Expectation:
    """Each method holds, or raises AssertionError with what there is instead. They can be chained."""

    def __init__(self, hr: LocalHeadrace, topic: str, group: str | None, within: float) -> None:
        self._hr = hr
        self._topic = topic
        self._named = group
        self._within = within

    def accepted(self, count: int) -> Expectation:
        """So many messages are in the topic's log."""
        return self._holds("accepted", count, lambda: self._stats().accepted)

    def delayed(self, count: int) -> Expectation:
        """So many messages wait for their time."""
        return self._holds("delayed", count, lambda: self._stats().delayed)

    def delivered(self, count: int) -> Expectation:
        """The group has handled so many messages with success."""
        return self._holds("delivered", count, lambda: self._counts().consumed)

    def retrying(self, count: int) -> Expectation:
        """So many of the group's messages wait for another attempt."""
        return self._holds("retrying", count, lambda: self._counts().retrying)

    def dead(self, count: int, *, reason: str | None = None) -> Expectation:
        """So many of the group's messages are dead letters (for this reason, as "REJECTED")."""
        state = f"dead ({reason})" if reason else "dead"
        return self._holds(state, count, lambda: len(self.dead_letters(reason)))

    def empty(self) -> Expectation:
        """The group has nothing to do: nothing waits, is under way, or will be tried again."""

        def left() -> int:
            counts = self._counts()
            return counts.backlog + counts.in_flight + counts.retrying + self._stats().delayed

        return self._holds("left to do", 0, left)

    def retried(self, count: int) -> Expectation:
        """So many of the group's messages needed more than one attempt."""

        def more_than_once() -> int:
            group = self._group()
            deliveries = (self._hr.get_fate(self._topic, m.id).groups.get(group) for m in self._messages())
            return sum(1 for delivery in deliveries if delivery and delivery.attempts > 1)

        return self._holds("retried", count, more_than_once)

    def in_order(self, *bodies: Any) -> Expectation:
        """The group has handled messages with just these bodies, in this order."""
        return self._holds("delivered, in this order", list(bodies), self.bodies)

    def bodies(self) -> list[Any]:
        """The bodies that the group has handled with success, in the order in which their attempts began."""
        group, attempts = self._group(), []
        for message in self._messages():
            events = self._hr.get_trace(self._topic, message.id)
            successes = [e for e in events if e.group == group and e.outcome == "SUCCESS"]
            if successes:
                attempts.append(((successes[-1].at, message.shard, message.offset), message.body))
        return [body for _, body in sorted(attempts, key=lambda each: each[0])]

    def dead_letters(self, reason: str | None = None) -> list[DeadLetter]:
        """The group's dead letters."""
        return list(self._hr.list_dead_letters(self._topic, self._group(), reason=reason))

    def _holds(self, state: str, expected_value: T, look: Callable[[], T]) -> Expectation:
        self._hr.clock.settle()
        until = time.monotonic() + self._within
        while True:
            is_last = time.monotonic() > until or not self._others_at_work()
            try:
                value = look()
            except _NoGroup:
                if is_last:
                    raise
            else:
                if value == expected_value:
                    return self
                if is_last:
                    raise AssertionError(
                        f"{self._where()}: {value!r} {state}, expected {expected_value!r}\n{self._state_text()}"
                    )
            time.sleep(_LOOK_SECONDS)

    def _others_at_work(self) -> bool:
        """Could it still change? Where this is the only thread, deliveries have ended."""
        return any(
            each is not threading.current_thread() and each.name != THREAD_NAME
            for each in threading.enumerate()
        )

    def _stats(self) -> TopicStats:
        stats = self._hr.get_topic(self._topic).stats
        assert stats is not None
        return stats

    def _group(self) -> str:
        if self._named is not None:
            return self._named
        names = [group.group for group in self._hr.list_groups(self._topic)]
        if len(names) != 1:
            raise (AssertionError if names else _NoGroup)(
                f"{self._topic} has {len(names)} groups ({', '.join(names) or 'none'}): name one, as in "
                f'expect("{self._topic}", "mailer").'
            )
        self._named = names[0]
        return names[0]

    def _counts(self) -> GroupCounts:
        group = self._group()
        counts = self._stats().groups.get(group)
        if counts is None:
            raise _NoGroup(f"{self._topic} has no group {group}.")
        return counts

    def _messages(self) -> list[StoredMessage]:
        return list(self._hr.list_messages(self._topic))

    def _where(self) -> str:
        return self._topic if self._named is None else f"{self._topic}, group {self._named}"

    def _state_text(self) -> str:
        """What there is, for who reads a failure."""
        stats = self._stats()
        lines = [f"  {self._topic}: {stats.accepted} accepted, {stats.delayed} delayed"]
        for name, counts in stats.groups.items():
            lines.append(
                f"  {name}: {counts.consumed} delivered, {counts.backlog} waiting, {counts.in_flight} in flight, "
                f"{counts.retrying} retrying, {counts.dead} dead"
            )
            letters = list(self._hr.list_dead_letters(self._topic, name))[:_SHOWN]
            lines += (f"    {each.id}: {each.reason}, {each.last_error or 'no error'}" for each in letters)
        return "\n".join(lines)
