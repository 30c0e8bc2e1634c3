"""Messages before their time: each rule of changing them, by itself."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.errors import Conflict, HeadraceError, NotFound, TooLarge
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES, FRAGMENTS
from chalicelib.domain.message import Message
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.services.produce.delayed import DelayedMessage
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.desk import Desk
from tests.support.stages import Stage

DUE_MS = START_MS + 10 * DAY_MS
RETENTION_DAYS = 2


class Table:
    """A topic, and one message that waits for its time in it."""

    def __init__(self, stage: Stage, **settings: Any) -> None:
        self.stage = stage
        self.desk = Desk.at(stage, retention_days=RETENTION_DAYS)
        self.deps, self.topic = self.desk.deps, self.desk.topic
        (result,) = self.desk.produce(make.draft("x", due_ms=DUE_MS, **settings))
        self.id = result.id

    def find(self) -> DelayedMessage | Message | None:
        try:
            message = self.stage.process().lookup.find(self.topic, self.id)
        except NotFound:
            return None
        assert isinstance(message, DelayedMessage | Message)
        return message

    def waiting(self) -> DelayedMessage:
        message = self.find()
        assert isinstance(message, DelayedMessage)
        return message

    def amend(self, **changes: Any) -> DelayedMessage:
        return self.deps.delayed.amend(self.topic, self.waiting(), changes)

    def at(self, at_ms: int) -> DelayedMessage | Message | None:
        """What is found at this moment, when all has gone that may go."""
        self.stage.clock.at_ms = at_ms
        self.deps.mover.tick(range(FRAGMENTS))
        self.stage.drop_expired()
        return self.find()


def test_a_cancelled_message_is_shown_as_long_as_it_would_have_been_kept(stage: Stage) -> None:
    table = Table(stage)
    table.deps.delayed.cancel(table.topic, table.waiting())
    ends_ms = DUE_MS + RETENTION_DAYS * DAY_MS
    cancelled_message = table.at(ends_ms - SECOND_MS)
    assert isinstance(cancelled_message, DelayedMessage)
    assert cancelled_message.cancelled
    assert table.at(ends_ms) is None


def test_a_postponed_message_is_found_by_its_id_until_it_goes(stage: Stage) -> None:
    table = Table(stage)
    table.amend(due_ms=DUE_MS + DAY_MS)
    last_ms = DUE_MS + DAY_MS + RETENTION_DAYS * DAY_MS - SECOND_MS
    assert isinstance(table.at(DUE_MS + DAY_MS), Message)
    assert isinstance(table.at(last_ms), Message)


def test_a_hurried_message_is_found_by_its_id_until_it_goes(stage: Stage) -> None:
    """Its new time may be past; then the time of the hurrying counts."""
    table = Table(stage)
    stage.clock.advance(5 * DAY_MS)
    table.amend(due_ms=stage.clock.now_ms() - DAY_MS)
    assert isinstance(table.at(stage.clock.now_ms()), Message)
    assert isinstance(table.at(stage.clock.now_ms() + RETENTION_DAYS * DAY_MS - SECOND_MS), Message)


def text(size: int) -> bytes:
    return b'"%s"' % (b"x" * (size - 2))


def test_another_body_is_checked_and_kept_as_the_first_one_was(stage: Stage) -> None:
    table = Table(stage)
    most = table.topic.max_body_bytes
    with pytest.raises(TooLarge):
        table.amend(body=text(most + 1))
    table.amend(body=text(most))
    draft = table.waiting().message.draft
    assert (draft.blob is not None, draft.blob_bytes, draft.body) == (True, most, b"")
    table.amend(body=text(BLOB_THRESHOLD_BYTES), blob=None, blob_bytes=0)
    draft = table.waiting().message.draft
    assert (draft.blob, len(draft.body)) == (None, BLOB_THRESHOLD_BYTES)


def test_what_was_cancelled_is_changed_no_more(stage: Stage) -> None:
    table = Table(stage)
    before = table.waiting()
    table.deps.delayed.cancel(table.topic, before)
    for message in (before, table.waiting()):
        with pytest.raises(Conflict) as refusal:
            table.deps.delayed.amend(table.topic, message, {"body": b"1"})
        assert refusal.value.code == "MESSAGE_CANCELLED"
    table.deps.delayed.cancel(table.topic, before)


def test_what_has_come_due_is_changed_and_cancelled_no_more(stage: Stage) -> None:
    table = Table(stage)
    before = table.waiting()
    table.at(DUE_MS)
    for attempt in (
        lambda: table.deps.delayed.amend(table.topic, before, {"body": b"1"}),
        lambda: table.deps.delayed.cancel(table.topic, before),
    ):
        with pytest.raises(HeadraceError) as refusal:
            attempt()
        assert refusal.value.code == "ALREADY_DUE"


def test_what_was_read_before_somebody_elses_change_does_not_undo_it(stage: Stage) -> None:
    table = Table(stage)
    before = table.waiting()
    table.amend(tag="theirs")
    table.deps.delayed.amend(table.topic, before, {"headers": {"a": "ours"}})
    draft = table.waiting().message.draft
    assert (draft.tag, draft.headers) == ("theirs", {"a": "ours"})
