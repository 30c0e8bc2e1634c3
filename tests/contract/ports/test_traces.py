"""store.Traces: every attempt at an offset is found from it."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain.limits import MAX_RECEIVE
from chalicelib.domain.topic import CursorKey
from chalicelib.domain.trace import TraceEntry, TraceRow
from chalicelib.store.traces import Traces
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS, ManualClock
from tests.support.desk import Desk
from tests.support.stages import Stage


@pytest.fixture
def traces(stage: Stage) -> Traces:
    return stage.adapters.traces


@pytest.fixture
def key() -> CursorKey:
    return make.cursor_key()


ends = st.builds(
    TraceEntry,
    st.just(0),
    st.integers(1, 3),
    st.sampled_from(("SUCCESS", "RETRY", "DEAD")),
    st.sampled_from((0, 12, 4_000)),
    st.sampled_from(("", "503", 'é"\\')),
)
batches = st.lists(st.tuples(st.integers(1, 3), ends), min_size=1, max_size=40)


@settings(max_examples=60)
@given(
    batch=batches,
    first=st.integers(0, 2**50),
    consumer_uid=st.sampled_from(("", "c1")),
    rank=st.none() | st.integers(0, 99),
)
def test_a_row_is_read_as_it_was_written(
    traces: Traces, batch: list[tuple[int, TraceEntry]], first: int, consumer_uid: str, rank: int | None
) -> None:
    key, entries = make.cursor_key(consumer_uid=consumer_uid), []
    for step, end in batch:
        first += step
        entries.append(replace(end, offset=first))
    row = make.trace(key, entries, rank=rank, total=7, consumer="wörker")
    traces.write([row])
    for each in (entries[0], entries[-1]):
        assert traces.rows_covering(key, each.offset) == [row]


def test_only_rows_with_an_attempt_at_the_offset_are_found(traces: Traces, key: CursorKey) -> None:
    row = make.trace(key, make.entries([5, 6, 9]))
    traces.write([row, make.trace(key, make.entries([7])), make.trace(key, make.entries([1]))])
    assert [traces.rows_covering(key, offset) for offset in (5, 6, 9)] == [[row]] * 3
    assert traces.rows_covering(key, 8) == []
    assert traces.rows_covering(key, 10) == []
    traces.write([])


def test_attempts_come_in_order_of_time(traces: Traces, key: CursorKey) -> None:
    later = make.trace(key, make.entries([3, 9], 2), started_ms=START_MS + 9)
    first = make.trace(key, make.entries([9], 1, "RETRY"), started_ms=START_MS)
    last = make.trace(key, make.entries([0, 9], 3), started_ms=START_MS + 10)
    traces.write([later, last, first])
    assert traces.rows_covering(key, 9) == [first, later, last]


def test_rows_that_begin_alike_are_told_apart(traces: Traces, key: CursorKey) -> None:
    rows = [make.trace(key, make.entries([3], n), started_ms=START_MS + n) for n in range(1, 30)]
    traces.write(rows)
    traces.write(rows[:1])
    assert traces.rows_covering(key, 3) == rows


def test_all_consumers_of_the_group_are_seen_and_nobody_else(traces: Traces, key: CursorKey) -> None:
    mine = make.trace(replace(key, consumer_uid="c1"), make.entries([3]), consumer="one")
    yours = make.trace(
        replace(key, consumer_uid="c2"), make.entries([3]), consumer="two", started_ms=START_MS + 1
    )
    others = [
        replace(key, group_uid=key.group_uid + "x"),
        replace(key, shard=replace(key.shard, topic_uid=key.shard.topic_uid + "x")),
        replace(key, shard=replace(key.shard, shard=1)),
    ]
    traces.write([mine, yours, *(make.trace(other, make.entries([3])) for other in others)])
    assert traces.rows_covering(key, 3) == traces.rows_covering(mine.key, 3) == [mine, yours]


def test_a_row_as_wide_as_allowed_is_found_from_both_ends(traces: Traces, key: CursorKey) -> None:
    row = make.trace(key, make.entries([10, 10 + MAX_RECEIVE - 1]))
    traces.write([row])
    assert traces.rows_covering(key, 10) == traces.rows_covering(key, 10 + MAX_RECEIVE - 1) == [row]


def test_a_wider_row_is_split_and_found_from_everywhere(traces: Traces, key: CursorKey) -> None:
    entries = make.entries([10, 10 + MAX_RECEIVE, 10 + MAX_RECEIVE + 1, 10 + 5 * MAX_RECEIVE])
    row = make.trace(key, entries)
    traces.write([row])
    expected = [replace(row, entries=part) for part in (entries[:1], entries[1:3], entries[1:3], entries[3:])]
    assert [traces.rows_covering(key, each.offset) for each in entries] == [[part] for part in expected]


def test_a_crowd_of_rows_around_an_offset_hides_none(traces: Traces, key: CursorKey) -> None:
    """A page of a query holds 1 MB."""
    wide = [
        TraceEntry(offset, 1, "RETRY", offset * 7919 % 9973, f"{offset * 104729 % 99991}" * 9)
        for offset in range(990)
    ]
    in_flight_of = [make.trace(key, wide, started_ms=START_MS + n) for n in range(60)]
    behind = make.trace(key, make.entries([900]), started_ms=START_MS + 999)
    traces.write([*in_flight_of, behind])
    trace_rows = traces.rows_covering(key, 900)
    assert [row.id for row in trace_rows] == [row.id for row in [*in_flight_of, behind]]


def test_an_attempt_never_comes_before_its_message_whatever_the_clocks_say(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft())
    behind = ManualClock(stage.clock.now_ms() - 1_500)
    slow = replace(desk, deps=Deps(replace(stage.another(), clock=behind)))
    slow.ack(group, slow.receive(group))
    events = desk.trace(result.id)
    assert [(e.event, e.at_ms) for e in events] == [
        ("accepted", result.accepted_ms),
        ("delivered", result.accepted_ms),
    ]


def test_the_newest_are_those_of_the_highest_offsets_whoever_tried(traces: Traces, key: CursorKey) -> None:
    rows = [make.trace(key, make.entries([n]), started_ms=START_MS - n) for n in range(9)]
    mine = make.trace(replace(key, consumer_uid="c1"), make.entries([9]))
    other = replace(key, shard=replace(key.shard, shard=1))
    traces.write([*rows, mine, make.trace(other, make.entries([99]))])
    assert list(traces.newest(key, 3)) == [mine, *reversed(rows)]
    assert list(traces.newest(replace(key, group_uid="nobody"), 3)) == []


def test_rows_go_at_their_time(stage: Stage, key: CursorKey) -> None:
    now_s = START_MS // 1000
    rows: list[TraceRow] = [make.trace(key, make.entries([n]), expires_s=now_s + n) for n in (1, 2)]
    stage.adapters.traces.write(rows)
    stage.clock.advance(1_000)
    stage.drop_expired()
    assert [stage.adapters.traces.rows_covering(key, n) for n in (1, 2)] == [[], [rows[1]]]
