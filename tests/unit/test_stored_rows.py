"""Rows of DynamoDB without a database: they are read back whole, and damaged ones as far as readable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.append import AlreadyMoved, DedupHit, OffsetTaken, Stored
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.message import Draft
from chalicelib.domain.record import Record
from chalicelib.domain.segment import Allocation, Segment, Tail
from chalicelib.domain.status import Status
from chalicelib.domain.timer import Moved, TimerKind
from chalicelib.domain.transaction import Transaction, TransactionState
from chalicelib.store import codec, log, records, timers, traces, transactions
from chalicelib.store.attributes import kib_of, number, text
from chalicelib.store.dedup import dedup_put
from chalicelib.store.layout import META_OFFSET, Tables, record_key, segment_key
from tests.support import factories as make
from tests.support.clock import START_MS

SHARD = make.shard(2)
KEY = make.cursor_key(SHARD)


def entry(offset: int) -> Draft:
    """An entry of a retry lane: it has no body, only the place of its message."""
    return replace(make.draft(origin=make.origin(offset)), body=b"")


# Cursors.


# Timers.

TIMERS = [
    make.timer(START_MS, id="d1", shard=SHARD, keep_days=7, stored_ms=START_MS - 9, edits=3),
    make.timer(
        START_MS,
        id="r1",
        kind=TimerKind.RETRY,
        shard=SHARD,
        draft=entry(4),
        keep_days=9,
        group_uid="g",
        consumer_uid="c",
    ),
    make.timer(START_MS, id="c1", kind=TimerKind.CHECK, shard=SHARD, every_ms=90_000),
    make.timer(START_MS, id="w1", kind=TimerKind.WAKE, shard=SHARD),
]


def test_a_cancelled_timer_leaves_what_it_was_and_for_how_long() -> None:
    timer = TIMERS[0]
    row = {
        **timers._content(timer),
        **timers._forward(Tables("p"), timer, START_MS // 1000),
        "j": text("CANCELLED"),
    }
    assert row["x"] == number(START_MS // 1000)
    assert timers._moved(row) == Moved(timer.due_ms, timer, timer.edits)


def test_a_look_ends_where_it_is_full_and_says_where_to_go_on() -> None:
    some = [make.timer(START_MS + n, id=f"t{n}") for n in range(3)]
    assert timers.first_of(iter(some), 3).go_on_after is None
    look = timers.first_of(iter(some), 2)
    assert (look.timers, look.go_on_after) == (some[:2], some[1].sort_key)
    large = [make.timer(START_MS + n, id=f"l{n}", draft=make.draft("x" * 200_000)) for n in range(99)]
    look = timers.first_of(iter(large), 99)
    assert 1 < len(look.timers) < 99
    assert look.go_on_after == look.timers[-1].sort_key


# Records and dead letters.


def test_a_record_of_a_lane_is_filed_where_its_message_is() -> None:
    place = make.cursor_key(make.shard(0))
    for record in (make.record(5, Status.SUCCESS, of=place), make.dead_record(5, of=place)):
        puts = records.record_writes("t", KEY, [record])
        assert len(puts) == (2 if record.status == Status.DEAD else 1)
        assert puts[0]["Put"]["Item"].items() >= record_key(place, 5).items()


@pytest.mark.parametrize(
    "record",
    [
        make.record(5, Status.RETRYING),
        make.dead_record(5),
        replace(make.dead_record(5), message=None),  # its row has gone
    ],
    ids=["retrying", "dead", "dead and gone"],
)
def test_a_record_takes_as_many_actions_as_it_says(record: Record) -> None:
    assert len(records.record_writes("t", KEY, [record])) == record.actions


# Transactions.


@pytest.mark.parametrize(
    ("attribute", "field", "value", "size"),
    [("p", "committed_by", "token", len("ptoken")), ("r", "answer_by_ms", START_MS, len("r") + 8)],
)
def test_a_transaction_s_row_goes_without_what_would_cost_another_unit(
    attribute: str, field: str, value: Any, size: int
) -> None:
    values: list[Any] = []
    for length in range(850, 1000):
        one = Transaction("t1", "orders", "u1", START_MS, START_MS, 60_000, 77, check_url=length * "x")
        item = transactions._item(replace(one, state=TransactionState.COMMITTED, **{field: value}))
        without = {name: value for name, value in item.items() if name != attribute}
        assert kib_of(item) == kib_of(without)
        values.append(getattr(transactions._transaction(item), field))
    assert set(values) == {value, getattr(one, field)}
    assert values.count(getattr(one, field)) == size


# The log.


def stored(segment: Segment) -> dict[str, Any]:
    return log._item(SHARD, segment, codec.pack(segment.drafts))


def test_a_tail_is_what_the_highest_row_tells() -> None:
    assert log.tail_of(stored(make.segment(8, 3))).offset == 10
    meta = {**segment_key(SHARD, META_OFFSET), "t": number(7)}
    assert log.tail_of(meta) == Tail(7)
    assert log.tail_of({**meta, "c": number(20), "w": text(Allocation.RESERVED)}).offset == 19
    assert log.tail_of({**meta, "c": number(3)}).offset == 7


def test_who_stands_in_the_way_says_what_became_of_an_append() -> None:
    mine, other = make.segment(8, 2), make.segment(8)
    assert log._stored_or_taken(mine, stored(mine)) == Stored()
    assert log._stored_or_taken(mine, stored(other)) == OffsetTaken(other)
    with pytest.raises(Unavailable):
        log._stored_or_taken(mine, None)
    entry = make.dedup(other, dedup_id="d2")
    known_item = dedup_put("t", entry)["Put"]["Item"]
    both = [make.dedup(mine), make.dedup(mine, 1, "d2")]
    assert log._result_of_refusal(mine, both, (), [None, None, known_item]) == DedupHit((entry,))
    assert log._result_of_refusal(mine, both, (0, 1, 1), [None, None, None, None, {}, None]) == AlreadyMoved(
        (1,)
    )
    assert log._result_of_refusal(mine, both, (), [stored(mine), None, known_item]) == Stored()


# Traces.


def test_a_trace_of_far_places_is_several() -> None:
    row = make.trace(KEY, make.entries([0, 999, 1000, 3000]))
    assert [[each.offset for each in part.entries] for part in traces.parts(row)] == [
        [0, 999],
        [1000],
        [3000],
    ]
