"""Which deliveries have lost their entry in a retry lane, and what their dead letters say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.cursor import Cursor
from chalicelib.domain.cursor_write import replacement
from chalicelib.domain.ids import message_id
from chalicelib.domain.message import Draft
from chalicelib.domain.record import Record
from chalicelib.domain.spans import Span
from chalicelib.domain.timer import retry_id
from chalicelib.domain.topic import cursor_key
from chalicelib.services.consume import lost_entries
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.consume.lost_entries import LostEntries
from chalicelib.store.records import Records
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Troubled

SHARDS = 3
LOST = {"lost", "settled entry"}
FATES = st.sampled_from(
    [*LOST, "timer", "open entry", "entry to come", "later", "in cursor", "SUCCESS", "DEAD", "another's"]
)


@dataclass
class Delivery:
    """What became of the delivery of a message that has failed; `is_there`: its row is in the log."""

    fate: str
    is_there: bool
    attempts: int
    attempts_before_redrive: int


DELIVERIES = st.lists(
    st.builds(Delivery, FATES, st.booleans(), st.integers(1, 9), st.integers(0, 3)), max_size=12
)


class Lane:
    """A retry lane of a broadcast's consumer, and these deliveries: of the messages of each shard in turn."""

    def __init__(self, deliveries: Sequence[Delivery], entries: Sequence[int]) -> None:
        """`entries`: the deliveries in the order of their entries, where they have any."""
        self.stage: Stage = embedded_stage()
        self.topic = make.topic(shards=SHARDS)
        self.group = make.group(self.topic, mode="broadcast")
        self.claimant = Claimant(topic=self.topic, group=self.group, lease_seconds=30, consumer_uid="me")
        self._key = self.claimant.key(None)
        self.deliveries = list(deliveries)
        for number, each in enumerate(deliveries):
            self._stands(number, each)
        self.cursor = self._cursor(entries)

    def place(self, number: int) -> tuple[int, int]:
        return number % SHARDS, number // SHARDS

    def _stands(self, number: int, each: Delivery) -> None:
        shard, offset = self.place(number)
        record = self.record(number, each)
        key = cursor_key(self.topic, self.group, shard, record.consumer_uid)
        stored = self.stage.adapters.cursors.get(key)
        change = replacement(stored or Cursor(), Cursor())
        self.stage.adapters.cursors.write(key, change, [record], exists=stored is not None)
        if each.is_there:
            row = make.segment(offset, accepted_ms=START_MS + number)
            self.stage.adapters.log.put(self.topic.shard_key(shard), row, make.packed(row))
        if each.fate == "timer":
            self.fires_later(number, each)

    def record(self, number: int, each: Delivery) -> Record:
        shard, offset = self.place(number)
        return make.record(
            offset,
            each.fate if each.fate in ("SUCCESS", "DEAD") else "RETRYING",
            shard=shard,
            attempts=each.attempts,
            attempts_before_redrive=each.attempts_before_redrive,
            consumer_uid="another" if each.fate == "another's" else "me",
            last_error=f"error {number}",
            next_ms=None if each.fate == "in cursor" else START_MS + (each.fate == "later"),
        )

    def fires_later(self, number: int, each: Delivery) -> None:
        id = retry_id(self._key.group_uid, "me", *self.place(number), each.attempts)
        self.stage.adapters.timers.store([make.timer(START_MS, id=id, shard=self._key.shard)])

    def append(self, first: int, number: int) -> None:
        shard, offset = self.place(number)
        row = make.segment(
            first, [Draft(b"", is_json=False, origin=replace(make.origin(offset), shard=shard))]
        )
        self.stage.adapters.log.put(self._key.shard, row, make.packed(row))

    def _cursor(self, entries: Sequence[int]) -> Cursor:
        fates = [(number, self.deliveries[number].fate) for number in entries]
        ahead = [number for number, fate in fates if fate == "entry to come"]
        claimed = [(number, fate) for number, fate in fates if fate in ("open entry", "settled entry")]
        for at, number in enumerate([*(number for number, _ in claimed), *ahead]):
            self.append(at, number)
        waiting = tuple(Span(at, 1) for at, (_, fate) in enumerate(claimed) if fate == "open entry")
        return Cursor(floor=waiting[0].start if waiting else len(claimed), next=len(claimed), waiting=waiting)

    def instead(self, of: Sequence[Record], most: int = 100, records: Records | None = None) -> list[Record]:
        a = self.stage.adapters
        search = LostEntries(a.log, records or a.records, a.timers)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lost_entries, "_ROWS", 2)
            return search.records_instead(self.claimant, self.cursor, of, most, START_MS)


def nameless(count: int) -> list[Record]:
    """Burials of entries that name no message, as a claim on the lane makes them."""
    return [make.dead_record(70 + n, make.draft(f"remains {n}")) for n in range(count)]


def references(count: int) -> list[Record]:
    return [make.dead_record(90 + n, of=make.cursor_key()) for n in range(count)]


def shuffled(deliveries: list[Delivery]) -> st.SearchStrategy[tuple[list[Delivery], list[int]]]:
    return st.tuples(st.just(deliveries), st.permutations(range(len(deliveries))))


@given(arranged=DELIVERIES.flatmap(shuffled), damaged=st.integers(1, 14))
def test_i15_deliveries_overdue_without_timer_and_entry_are_buried_instead_of_nameless_entries(
    arranged: tuple[list[Delivery], list[int]], damaged: int
) -> None:
    lane = Lane(*arranged)
    lost = {lane.place(n): (n, each) for n, each in enumerate(lane.deliveries) if each.fate in LOST}
    before = nameless(damaged)
    burials = lane.instead(before)
    buried = burials[: len(lost)]
    assert {(record.shard, record.offset) for record in buried} == lost.keys()
    assert burials[len(lost) :] == before[len(lost) :]
    for at, record in enumerate(buried):
        number, each = lost[record.shard, record.offset]
        message = record.message
        assert message
        assert record == replace(
            lane.record(number, each),
            status=cast(Any, "DEAD"),
            reason="UNDECODABLE",
            next_ms=None,
            of=cursor_key(lane.topic, lane.group, record.shard, "me"),
            message=message,
        )
        assert (message.shard, message.offset) == (record.shard, record.offset)
        assert message.accepted_ms == (START_MS + number if each.is_there else 0)
        if not each.is_there:
            assert message.id == message_id("damaged", record.shard, record.offset)
        assert message.draft.body == (f'"remains {at}"'.encode() if at < damaged else b"")


def lost(count: int) -> Lane:
    return Lane([Delivery("lost", True, 1, 0)] * count, [])


@pytest.mark.parametrize(
    ("readable_count", "damaged", "most", "entry_count", "delivery_count", "remains_count"),
    [
        pytest.param(0, 1, 9, 0, 3, 0, id="one row may have held several entries"),
        pytest.param(2, 1, 9, 2, 3, 0, id="what can be read is buried, too"),
        pytest.param(2, 5, 9, 2, 3, 2, id="what has no delivery is put away"),
        pytest.param(2, 5, 4, 2, 2, 0, id="as many as a write holds"),
        pytest.param(2, 5, 6, 2, 3, 1, id="also of those without a delivery"),
        pytest.param(2, 0, 9, 2, 0, 0, id="nothing is searched for without need"),
    ],
)
def test_a_write_buries_what_can_be_read_then_what_is_found_then_the_remains(
    readable_count: int, damaged: int, most: int, entry_count: int, delivery_count: int, remains_count: int
) -> None:
    lane, entries, remains = lost(3), references(readable_count), nameless(damaged)
    burials = lane.instead([*remains, *entries], most)
    assert burials[:entry_count] == entries[:entry_count]
    assert [lane.place(n) for n in range(3)][:delivery_count] == sorted(
        (each.shard, each.offset) for each in burials[entry_count : entry_count + delivery_count]
    )
    assert burials[entry_count + delivery_count :] == remains[delivery_count : delivery_count + remains_count]


def test_i15_what_succeeds_or_comes_into_the_lane_while_it_is_searched_for_is_not_lost() -> None:
    lane = lost(2)
    lane.fires_later(1, lane.deliveries[1])
    records = lane.stage.adapters.records

    def succeeds(name: str, *_: object) -> bool:
        if name == "get":
            lane._stands(0, Delivery("SUCCESS", False, 2, 0))
        return False

    assert lane.instead(nameless(1), records=cast(Records, Troubled(records, succeeds))) == nameless(1)
