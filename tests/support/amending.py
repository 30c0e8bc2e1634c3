"""Edits and cancels messages in the log, also while another process is at work.

"Process B" is one that has read the messages before they were changed: its copies are old.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from chalicelib.domain.errors import HeadraceError
from chalicelib.domain.message import Message
from chalicelib.domain.segment import Segment, ShardKey
from chalicelib.domain.topic import Group
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.manage.amend import Amender
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.store.cursors import Cursors
from chalicelib.store.log import Log
from tests.support.desk import Desk

NEW = b'"new"'


def message_of(desk: Desk, result: ProduceResult) -> Message:
    return desk.deps.lookup.message(desk.topic, result.id)


def edit(desk: Desk, result: ProduceResult, body: bytes = NEW, **changes: Any) -> Message:
    return desk.deps.amender.amend(desk.topic, message_of(desk, result), {"body": body, **changes})


def cancel(desk: Desk, result: ProduceResult) -> None:
    desk.deps.amender.cancel(desk.topic, message_of(desk, result))


def process_b(desk: Desk) -> Desk:
    return Desk(desk.stage, desk.stage.process(), desk.topic)


def bodies(messages: Sequence[ClaimedMessage]) -> list[bytes]:
    return [d.message.draft.body for d in messages]


def having_read(desk: Desk, group: Group, most: int = 1) -> Desk:
    """Process B: it has claimed and settled the first messages, and read further ahead."""
    other = process_b(desk)
    messages = other.receive(group, most)
    assert other.ack(group, messages) == [None] * most
    return other


# Races.


def _attempt(call: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """ "ok", or the code of the refusal."""
    try:
        call(*args, **kwargs)
    except HeadraceError as error:
        return error.code
    return "ok"


# What stands between a service and its store, in one test.


class Interposed:
    """A port before whose first calls of one method something else happens."""

    def __init__(self, port: Any, method: str, event: Callable[[], object], times: int) -> None:
        self._port = port
        self._method = method
        self._left = [event] * times

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self._left:
            self._left.pop()()
        return getattr(self._port, name)


def before_writing(desk: Desk, event: Callable[[], object]) -> None:
    """Let something happen between what the desk's next claim reads and what it writes."""
    states = desk.deps.states
    states.cursors = cast(Cursors, Interposed(states.cursors, "write", event, 1))


def before_amending(desk: Desk, event: Callable[[], object], times: int = 1) -> None:
    """Let something happen between what the desk's next edit reads and what it writes."""
    a = desk.deps.adapters
    log = cast(Log, Interposed(a.log, "amend", event, times))
    desk.deps.amender = Amender(
        control=a.control,
        log=log,
        cursors=a.cursors,
        records=a.records,
        producer=desk.deps.producer,
        reader=desk.deps.reader,
        clock=a.clock,
    )


@dataclass
class Counting:
    """store.Log that keeps which shards are read."""

    log: Log
    shards: list[ShardKey] = field(default_factory=list)

    def read(self, shard: ShardKey, *args: Any, **kwargs: Any) -> list[Segment]:
        self.shards.append(shard)
        return self.log.read(shard, *args, **kwargs)

    def read_back(self, shard: ShardKey, *args: Any, **kwargs: Any) -> list[Segment]:
        self.shards.append(shard)
        return self.log.read_back(shard, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)
