"""A full cursor: a message given back returns by a timer, at the same time."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from chalicelib.domain import cursor_size
from chalicelib.domain.cursor import Cursor, Disposition
from chalicelib.domain.limits import MAX_CURSOR_BYTES
from chalicelib.domain.timer import Timer, retry_id
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.services.consume.claimant import Claimant, ClaimedMessage
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.counters import DELIVERED, FAILED
from chalicelib.store.layout import FRAGMENTS
from tests.support import factories as make
from tests.support.cursor_bytes import bytes_of
from tests.support.dead_letters import redrive_first
from tests.support.desk import Desk
from tests.support.stages import embedded_stage

COUNT = 8
KEPT = 5  # stays leased
RETURNED = {0, 1, 2, 3, 7}


def decisions(now_ms: int) -> list[SettleDecision | None]:
    """What is done with each message: given back, in each of the ways, or not."""
    later_ms = now_ms + 7 * SECOND_MS
    return [
        SettleDecision(Disposition.RETRY, error="busy"),
        SettleDecision(Disposition.RETRY, later_ms, error="busy"),
        SettleDecision(Disposition.RELEASED),
        SettleDecision(Disposition.RELEASED, now_ms + 3 * SECOND_MS),
        SettleDecision(Disposition.DEAD, reason="REJECTED"),
        None,
        SettleDecision(Disposition.SUCCESS),
        SettleDecision(Disposition.RELEASED),
    ]


@dataclass
class Line:
    """Messages of one shard, or of a retry lane in another order, all leased at once."""

    mode: str
    in_lane: bool

    def __post_init__(self) -> None:
        self.desk = Desk.at(embedded_stage(), mode=self.mode)
        self.group: Group = self.desk.group()
        self.desk.produce(*(make.draft(n, ordering_key=f"k{n}") for n in range(COUNT)))
        self.messages = self._leased(0)
        if self.in_lane:
            rejected = SettleDecision(Disposition.DEAD, reason="REJECTED")
            for each in reversed(self.messages):
                self._settle([each], [rejected])
                redrive_first(self.desk.deps, self.desk.topic, self.group, 1)
            self.messages = self._leased(None)
        self.desk.deps.counters.take()

    def _leased(self, shard: int | None) -> list[ClaimedMessage]:
        claimant = Claimant(topic=self.desk.topic, group=self.group, lease_seconds=600)
        messages = self.desk.claim(claimant, shard, COUNT)
        assert len(messages) == COUNT
        return sorted(messages, key=lambda message: message.receipt.offset)

    def _settle(self, messages: Sequence[ClaimedMessage], decided: Sequence[SettleDecision]) -> None:
        decision_for = {message.receipt.id: each for message, each in zip(messages, decided, strict=True)}
        answers = self.desk.deps.settler.settle(
            self.desk.topic,
            self.group,
            [message.receipt for message in messages],
            lambda receipt, _: decision_for[receipt.id],
        )
        assert set(answers) == {None}

    def settle(self, which: Container[int] = range(COUNT)) -> None:
        """Settle those of the messages."""
        pairs = zip(self.messages, decisions(self.desk.stage.clock.now_ms()), strict=True)
        some = [(message, each) for message, each in pairs if each and message.receipt.offset in which]
        self._settle([message for message, _ in some], [each for _, each in some])

    @property
    def cursor(self) -> Cursor:
        key = cursor_key(self.desk.topic, self.group, None if self.in_lane else 0)
        return self.desk.stage.adapters.cursors.get(key, consistent=True) or Cursor()

    def told(self) -> Any:
        """What was counted, and of each message the attempts that are noted, and the record if it has failed."""
        counts = self.desk.deps.counters.take()
        key = cursor_key(self.desk.topic, self.group, 0)
        records = [self.desk.stage.adapters.records.get(key, offset) for offset in range(COUNT)]
        outcomes = [
            sorted(
                (entry.attempt, entry.outcome, entry.detail)
                for row in self.desk.stage.adapters.traces.rows_covering(key, offset, consistent=True)
                for entry in row.entries
                if entry.offset == offset
            )
            for offset in range(COUNT)
        ]
        failed = [(r.status, r.attempts, r.reason) for r in records if r and (r.attempts > 1 or r.reason)]
        return counts.get(DELIVERED, 0), counts.get(FAILED, 0), outcomes, failed

    def deliveries(self) -> list[tuple[int, int, int]]:
        """After how many seconds which message came again, as which attempt; each is acknowledged."""
        deliveries: list[tuple[int, int, int]] = []
        for second in range(10):
            messages = self.desk.receive(self.group, COUNT)
            deliveries += sorted((second, each.receipt.offset, each.attempt) for each in messages)
            self.desk.ack(self.group, messages)
            self.desk.stage.clock.advance(SECOND_MS)
        return deliveries


def roomy(mode: str, in_lane: bool) -> Line:
    line = Line(mode, in_lane)
    line.settle()
    return line


def full(mode: str, in_lane: bool, which: Container[int] = range(COUNT), *, is_over: bool = False) -> Line:
    """Its cursor has just room for what it holds; or, if it `is_over`, not even for that."""
    line = Line(mode, in_lane)
    with pytest.MonkeyPatch.context() as patch:
        room = 0 if is_over else cursor_size.most_bytes(line.cursor)
        patch.setattr(cursor_size, "_BYTES_FOR_RETURNS", room)
        line.settle(which)
    return line


def timers(line: Line) -> list[Timer]:
    port = line.desk.stage.adapters.timers
    return [timer for n in range(FRAGMENTS) for timer in port.behind(n, "", 500)]


@pytest.mark.parametrize(("mode", "in_lane"), [("queue", False), ("queue", True)])
def test_what_a_full_cursor_cannot_take_back_comes_back_as_if_it_had_room(mode: str, in_lane: bool) -> None:
    there, here = roomy(mode, in_lane), full(mode, in_lane)
    assert (here.cursor.waiting, here.cursor.in_flight) == ((), 1)
    assert len(there.cursor.waiting) > 2
    now_ms = here.desk.stage.clock.now_ms()
    waits = [now_ms, now_ms + 7 * SECOND_MS, now_ms, now_ms + 3 * SECOND_MS, now_ms]
    origins = {timer.id: timer.draft.origin for timer in timers(here) if timer.draft and timer.draft.origin}
    assert {(origin.offset, origin.attempts) for origin in origins.values()} == {
        (offset, here.messages[offset].attempt - (offset > 1)) for offset in RETURNED
    }
    assert origins.keys() == {
        retry_id(here.group.uid, "", origin.shard, origin.offset, origin.attempts)
        for origin in origins.values()
    }
    assert sorted(timer.due_ms for timer in timers(here)) == sorted(waits)
    key = cursor_key(here.desk.topic, here.group, 0)
    records = [here.desk.stage.adapters.records.get(key, offset) for offset in sorted(RETURNED)]
    assert [record and (record.status, record.next_ms) for record in records] == [
        ("RETRYING", due_ms) for due_ms in waits
    ]
    assert here.told()[:2] == there.told()[:2] == (1, 3)
    assert here.deliveries() == there.deliveries()
    assert here.told() == there.told()
    unfinished = here.desk.stage.adapters.records.unfinished(here.desk.topic.uid, here.group.uid)
    assert {each.offset for each in unfinished if each.status == "RETRYING"} <= {KEPT}


def test_of_a_message_that_was_given_back_to_its_lane_the_status_says_until_when_it_waits() -> None:
    line = roomy("queue", in_lane=True)
    desk, now_ms = line.desk, line.desk.stage.clock.now_ms()
    message = desk.deps.lookup.message(desk.topic, line.messages[3].message.id)
    status = desk.deps.statuses.of_topic(desk.topic).delivery(line.group, message)
    assert status
    assert status.next_attempt_ms == now_ms + 3 * SECOND_MS


def test_in_order_so_many_keys_may_wait_and_then_the_others_wait_for_these() -> None:
    desk = Desk.at(embedded_stage(), mode="serial")
    group = desk.group()
    for start in range(0, 300, 100):
        desk.produce(*(make.draft(n, ordering_key=f"k{n}") for n in range(start, start + 100)))
    failed: list[ClaimedMessage] = []
    while messages := desk.receive(group, 3):
        failed += messages
        desk.nack(group, messages, Nack(delay_ms=DAY_MS))
    assert 100 < len(failed) < 300
    assert bytes_of(cursor_key(desk.topic, group, 0), desk.cursor(group)) <= MAX_CURSOR_BYTES
    desk.stage.clock.advance(DAY_MS)
    again = desk.receive(group, 300)
    assert [(m.receipt.offset, m.attempt) for m in again] == [(n, 2) for n in range(len(again))]
    while messages := again or desk.receive(group, 300):
        desk.ack(group, messages)
        again = []
    cursor = desk.cursor(group)
    assert (cursor.next, cursor.leases, cursor.waiting) == (300, {}, ())
