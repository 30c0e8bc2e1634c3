"""An entry of a retry lane, and the message that it leads to, in every state of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.ids import message_id
from chalicelib.domain.message import Draft, Message, Origin
from chalicelib.domain.times import DAY_MS
from chalicelib.services.consume import retry_lane
from chalicelib.services.core.log_reader import ANY_COPY
from chalicelib.store.log import Log
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import embedded_stage

TOPIC = make.topic(shards=4)
LANE = make.topic("orders~billing").shard_key(0)
SHARD, OFFSET, ENTRY = 2, 5, 1
ACCEPTED_MS = START_MS - DAY_MS
LOG_DRAFT = make.draft("in the log", tag="red", keys=("k1",), headers={"a": "b"})
EDITED = make.draft("edited", changed_ms=START_MS)


def put(log: Log, shard: Any, segment: Any) -> Message:
    log.put(shard, segment, make.packed(segment))
    message: Message = segment.message(shard.shard, segment.first)
    return message


class Scene:
    """A log that may have a message, and a lane that has an entry, which ends so many days after that."""

    def __init__(self, *, is_there: bool = True, days: int = 1) -> None:
        self.stage = embedded_stage()
        row = make.segment(OFFSET, [LOG_DRAFT], accepted_ms=ACCEPTED_MS, request_id="abcdefghjkmn")
        self.message = put(
            self.stage.adapters.log,
            TOPIC.shard_key(SHARD),
            row if is_there else replace(row, first=OFFSET + 1),
        )
        if not is_there:
            self.message = replace(self.message, id=message_id("abcdefghjkmn", SHARD, OFFSET), offset=OFFSET)
        self._expires_s = row.expires_s + days * DAY_MS // 1000

    def resolved(self, draft: Draft) -> Message:
        row = make.segment(ENTRY, [draft], expires_s=self._expires_s)
        self.entry = put(self.stage.adapters.log, LANE, row)
        return retry_lane.resolve(self.stage.process().reader, TOPIC, self.entry, ANY_COPY)


@pytest.mark.parametrize("days", [-1, 0, 1])
def test_a_reference_leads_to_its_message_until_one_of_both_ends(days: int) -> None:
    scene = Scene(days=days)
    draft = retry_lane.entry_of(scene.message, 3, 2)
    assert draft == Draft(
        b"", is_json=False, origin=Origin(scene.message.id, SHARD, OFFSET, ACCEPTED_MS, 3, 2)
    )
    message = scene.resolved(draft)
    assert message == replace(scene.message, draft=replace(LOG_DRAFT, origin=draft.origin))
    assert message.ends_ms - scene.message.ends_ms == min(0, days * DAY_MS)
    assert retry_lane.content(message) == scene.message
    assert retry_lane.content(scene.message) is scene.message


@pytest.mark.parametrize("is_there", [False, True])
def test_an_entry_with_the_content_is_the_message_also_when_the_logs_has_gone(is_there: bool) -> None:
    scene = Scene(is_there=is_there)
    edited_message = replace(scene.message, draft=replace(EDITED, dead_reason="REJECTED"))
    draft = retry_lane.entry_of(edited_message, 3, 2)
    origin = Origin(scene.message.id, SHARD, OFFSET, ACCEPTED_MS, 3, 2, whole=True)
    assert draft == replace(EDITED, origin=origin), "it is to be delivered again"
    message = scene.resolved(draft)
    assert message == replace(scene.message, draft=draft)
    assert message.ends_ms == scene.entry.ends_ms
    assert retry_lane.content(message).draft == EDITED


@pytest.mark.parametrize(
    ("message", "is_whole"),
    [
        (make.message(), False),
        (make.message(of=EDITED), True),
        (make.message(of=make.draft(1, origin=make.origin(whole=True))), True),
        (make.message(of=make.draft(1, origin=make.origin())), False),
    ],
)
def test_an_entry_holds_the_content_of_what_was_edited_and_else_only_if_it_is_asked_to(
    message: Message, is_whole: bool
) -> None:
    for is_asked in (False, True):
        entry = retry_lane.entry_of(message, 1, 0, whole=is_asked)
        assert entry.origin
        assert entry.origin.whole == bool(entry.body) == (is_whole or is_asked)
