"""The memory store stands for DynamoDB in simulations: random sequences of calls must be answered alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor, Disposition, Result, Selection, start_at
from chalicelib.domain.cursor_write import WriteRefused
from chalicelib.domain.record import Record
from chalicelib.domain.segment import Allocation, Rows, Segment, Tail
from chalicelib.domain.spans import Span
from chalicelib.domain.topic import CursorKey, Topic
from tests.support import factories as make
from tests.support.stages import Stage, dynamo_stage, embedded_stage

pytestmark = pytest.mark.engine


@dataclass
class Pair:
    """The same call on both stores."""

    memory: Stage
    dynamo: Stage

    def ask(self, call: Callable[[Stage], Any]) -> Any:
        answer, expected = call(self.memory), call(self.dynamo)
        assert answer == expected, "memory differs from DynamoDB"
        return expected


@pytest.fixture(scope="module")
def pair(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(embedded_stage(), dynamo_stage(f"hr-{uuid4().hex[:8]}", tmp_path_factory.mktemp("data")))


places = st.integers(0, 8)
log_calls = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3), st.sampled_from(Allocation), st.booleans()),
        st.tuples(st.just("put"), places, st.integers(1, 3), st.sampled_from(Allocation)),
        st.tuples(st.just("again"), places),
        st.tuples(st.just("dedup"), places, st.sampled_from("xyz"), st.integers(0, 120)),
        st.tuples(st.just("reserve"), st.integers(1, 3)),
        st.tuples(st.just("begin"), places),
        st.tuples(st.just("tombstone"), places),
        st.tuples(st.just("amend"), places, st.booleans()),
        st.tuples(st.just("checkpoint"), places),
        st.tuples(st.just("read"), st.integers(-2, 9), st.integers(1, 4)),
        st.tuples(st.just("back"), st.integers(-2, 9), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=25,
)


class LogCalls:
    """Plays calls on a shard of its own; remembers what it put, to put it again."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.topic_uid = make.uid("t")
        self.shard = make.shard(0, make.topic(uid=self.topic_uid))
        self.put_before: list[Segment] = []
        self.reader = make.cursor_key(self.shard)
        self.noted: Cursor | None = None

    def play(self, call: tuple[Any, ...]) -> None:
        getattr(self, call[0])(*call[1:])
        self.pair.ask(lambda s: s.adapters.log.tail(self.shard))

    def put(
        self, first: int, count: int, allocation: Allocation, dedup_id: str | None = None, later_s: int = 0
    ) -> None:
        accepted_ms = self.pair.memory.clock.at_ms + later_s * 1000
        self._put(make.segment(first, count, allocation=allocation, accepted_ms=accepted_ms), dedup_id)

    def _put(self, segment: Segment, dedup_id: str | None = None) -> None:
        entries = [make.dedup(segment, 0, dedup_id, topic_uid=self.topic_uid)] if dedup_id else []
        self.pair.ask(lambda s: s.adapters.log.put(self.shard, segment, make.packed(segment), entries))
        self.put_before.append(segment)

    def append(self, count: int, allocation: Allocation, has_dedup_id: bool) -> None:
        tail = self.pair.ask(lambda s: s.adapters.log.tail(self.shard))
        self.put(tail.offset + 1, count, allocation, "x" if has_dedup_id else None)

    def again(self, which: int) -> None:
        if self.put_before:
            self._put(self.put_before[which % len(self.put_before)])

    def dedup(self, first: int, dedup_id: str, later_s: int) -> None:
        self.put(first, 1, Allocation.OPTIMISTIC, dedup_id, later_s)

    def reserve(self, count: int) -> None:
        self.pair.ask(lambda s: s.adapters.log.reserve(self.shard, count))

    def begin(self, offset: int) -> None:
        self.pair.ask(lambda s: s.adapters.log.begin_reserving(self.shard, offset))

    def tombstone(self, offset: int) -> None:
        self.pair.ask(lambda s: s.adapters.log.put_tombstone(self.shard, offset, 1, 4_000_000_000))

    def amend(self, which: int, is_current: bool) -> None:
        if is_current:
            self.noted = self.pair.ask(lambda s: s.adapters.cursors.get(self.reader, consistent=True))
        if self.put_before:
            old = self.put_before[which % len(self.put_before)]
            pack = make.packed(make.segment(old.first, old.count))
            reader_cursors = {self.reader: self.noted}
            self.pair.ask(lambda s: s.adapters.log.amend(self.shard, old, pack, old.first, reader_cursors))

    def checkpoint(self, offset: int) -> None:
        self.pair.ask(lambda s: s.adapters.log.checkpoint(self.shard, Tail(offset)))

    def read(self, first: int, rows: int) -> None:
        def read(s: Stage) -> tuple[Rows, bool]:
            found = s.adapters.log.read(self.shard, first, rows)
            return found, found.is_end

        self.pair.ask(read)

    def back(self, last: int, rows: int) -> None:
        self.pair.ask(lambda s: s.adapters.log.read_back(self.shard, last, rows))


@settings(max_examples=25)
@given(calls=log_calls)
def test_the_log_answers_alike(pair: Pair, calls: list[tuple[Any, ...]]) -> None:
    player = LogCalls(pair)
    for call in calls:
        player.play(call)


cursor_calls = st.lists(
    st.tuples(
        st.sampled_from(("look", "claim", "settle", "extend", "seek", "create", "close", "expire")),
        st.integers(0, 1),
        st.integers(0, 5),
        st.sampled_from(Disposition),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


class CursorCalls:
    """Two actors, each with a copy of its own, write one cursor on both stores."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.key: CursorKey = make.cursor_key()
        self.known: list[Cursor | None] = [None, None]
        self.now_ms = 1_000
        self.written = 0

    def play(self, call: tuple[str, int, int, Disposition, bool]) -> None:
        what, actor, n, fate, has_record = call
        cursor = self.known[actor]
        if what == "look":
            self.known[actor] = self.pair.ask(lambda s: s.adapters.cursors.get(self.key, consistent=True))
        elif what == "create":
            self.known[actor] = self.pair.ask(lambda s: s.adapters.cursors.create(self.key, start_at(n)))
        elif what == "close":
            self.pair.ask(lambda s: s.adapters.cursors.close([self.key], self.now_ms // 1000))
        elif what == "expire":
            self.now_ms += 10_000
        else:
            self._write(
                actor, getattr(self, f"_{what}")(cursor or Cursor(), n, fate), n if has_record else None
            )
        self.pair.ask(lambda s: s.adapters.records.count_dead(self.key.shard.topic_uid, self.key.group_uid))

    def _claim(self, cursor: Cursor, n: int, _: Disposition) -> Cursor:
        self.written += 1
        current = transitions.lapse(cursor, self.now_ms)
        spans = (*transitions.due_spans(current, self.now_ms)[:n], Span(current.next, 3))
        selection = Selection(
            spans, (Span(current.next + 3, 1, 1, "ab"),), (), current.next + 4, current.next
        )
        return transitions.claim(current, selection, f"t{self.written}", "me", self.now_ms + 5_000)

    def _settle(self, cursor: Cursor, n: int, fate: Disposition) -> Cursor:
        for token, lease in list(cursor.leases.items())[:1]:
            offsets = list(lease.attempts())
            chosen_offsets = {offsets[n % len(offsets)], offsets[0]}
            return transitions.settle(
                cursor, token, [Result(o, fate, self.now_ms + n) for o in chosen_offsets]
            )[0]
        return cursor

    def _extend(self, cursor: Cursor, n: int, _: Disposition) -> Cursor:
        for token in cursor.leases:
            return transitions.extend(cursor, token, self.now_ms + 7_000 + n) or cursor
        return cursor

    def _seek(self, cursor: Cursor, n: int, _: Disposition) -> Cursor:
        return transitions.seek(cursor, n)

    def _write(self, actor: int, after: Cursor, record_offset: int | None) -> None:
        cursor = self.known[actor]
        if after == (cursor or Cursor()):
            return
        whole = cursor is None or not after.leases
        change = (cursor_write.replacement if whole else cursor_write.change)(cursor or Cursor(), after)
        status = "DEAD" if (record_offset or 0) % 2 else "SUCCESS"
        records = [make.record(record_offset, status)] if record_offset is not None else []
        answer = self.pair.ask(
            lambda s: s.adapters.cursors.write(self.key, change, records, exists=cursor is not None)
        )
        self.known[actor] = answer.current if isinstance(answer, WriteRefused) else answer
        if record_offset is not None:
            self.pair.ask(lambda s: s.adapters.records.get(self.key, record_offset))


@settings(max_examples=25)
@given(calls=cursor_calls)
def test_cursors_and_records_answer_alike(
    pair: Pair, calls: list[tuple[str, int, int, Disposition, bool]]
) -> None:
    player = CursorCalls(pair)
    for call in calls:
        player.play(call)
    pair.ask(lambda s: s.adapters.cursors.get(player.key, consistent=True))


few = st.integers(0, 2)
move_calls = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("file", "drop", "bury", "lose", "look", "edit", "discard")), few),
        st.tuples(
            st.just("put"), st.integers(0, 3), st.sets(st.tuples(st.booleans(), few)), st.sampled_from("xy ")
        ),
        st.tuples(st.just("acquire_lease"), st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.just("release_lease"), st.sampled_from("ab")),
    ),
    min_size=1,
    max_size=25,
)


class MoveCalls:
    """Timers and dead letters come, change, and are moved by one who knows them as last seen."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.topic = make.topic()
        self.group = make.group(self.topic)
        self.key = CursorKey(self.topic.shard_key(0), self.group.uid)
        self.lane = make.shard()
        self.fragment = int(uuid4().hex[:8], 16)
        self.timers = [make.timer(n) for n in range(3)]
        self.seen = {n: make.letter(self.key, make.dead_record(n)) for n in range(3)}
        self.cursor: Cursor | None = None

    def play(self, call: tuple[Any, ...]) -> None:
        getattr(self, call[0])(*call[1:])
        self.pair.ask(lambda s: s.adapters.timers.first_due(0, 2, 2).timers)
        self.pair.ask(lambda s: s.adapters.timers.next_ms(0))
        self.pair.ask(lambda s: s.adapters.records.dead(self.topic, self.group, None, 2))
        self.pair.ask(lambda s: s.adapters.records.count_dead(self.topic.uid, self.group.uid))
        self.pair.ask(lambda s: [s.adapters.records.get(self.key, n) for n in range(3)])

    def file(self, n: int) -> None:
        self.pair.ask(lambda s: s.adapters.timers.store(self.timers[n:]))

    def drop(self, n: int) -> None:
        self.pair.ask(lambda s: s.adapters.timers.drop(self.timers[n:]))

    def bury(self, n: int) -> None:
        self._write(
            make.dead_record(n, last_error="503", attempts_before_redrive=n, at_ms=n, expires_s=n or None)
        )

    def lose(self, n: int) -> None:
        self._write(make.record(n, attempts=2))

    def _write(self, record: Record) -> None:
        cursor = self.cursor or Cursor()
        change = cursor_write.replacement(cursor, transitions.seek(cursor, 1))
        self.cursor = self.pair.ask(
            lambda s: s.adapters.cursors.write(
                self.key, change, [record], self.timers[:1], exists=self.cursor is not None
            )
        )

    def look(self, n: int) -> None:
        letter = self.pair.ask(lambda s: s.adapters.records.dead_letter(self.key, n))
        self.pair.ask(lambda s: list(s.adapters.records.letters_at(self.key.group_uid, self.key.shard, n, 2)))
        self.pair.ask(lambda s: s.adapters.records.all_letters_at(self.key.group_uid, self.key.shard, n))
        self.seen[n] = letter or self.seen[n]

    def edit(self, n: int) -> None:
        self.pair.ask(lambda s: s.adapters.records.edit(replace(self.seen[n], edited=True)))

    def discard(self, n: int) -> None:
        self.pair.ask(lambda s: s.adapters.records.discard(self.seen[n]))

    def put(self, first: int, what: set[tuple[bool, int]], dedup_id: str) -> None:
        promotables = [self.timers[n] if is_timer else self.seen[n] for is_timer, n in sorted(what)]
        segment = make.segment(first, 1)
        entries = [make.dedup(segment, 0, dedup_id, topic_uid=self.topic.uid)] if dedup_id.strip() else []
        self.pair.ask(
            lambda s: s.adapters.log.put(self.lane, segment, make.packed(segment), entries, promotables)
        )
        self.pair.ask(lambda s: s.adapters.log.tail(self.lane))

    def acquire_lease(self, owner: str, now_ms: int, until_ms: int) -> None:
        self.pair.ask(lambda s: s.adapters.timers.acquire_lease(self.fragment, owner, now_ms, until_ms))

    def release_lease(self, owner: str) -> None:
        self.pair.ask(lambda s: s.adapters.timers.release_lease(self.fragment, owner))


@settings(max_examples=25)
@given(calls=move_calls)
def test_timers_letters_and_moves_answer_alike(pair: Pair, calls: list[tuple[Any, ...]]) -> None:
    player = MoveCalls(pair)
    pair.ask(lambda s: s.adapters.timers.drop(s.adapters.timers.first_due(0, 9, 99).timers))
    for call in calls:
        player.play(call)


control_calls = st.lists(
    st.tuples(
        st.sampled_from(("put", "create", "retire", "delete", "group", "retire group", "ungroup", "join")),
        st.sampled_from("abc"),
    ),
    min_size=1,
    max_size=20,
)


def _control(topics: dict[str, Topic], prefix: str, what: str, name: str, stage: Stage) -> Any:
    control, topic = stage.adapters.control, topics[name]
    group = make.group(topic, "g", uid=f"{prefix}{name}")
    if what in ("put", "create"):
        old = control.topic(topic.name) if what == "put" else None
        return control.put_topic(replace(topic, shards=9), old)
    if what == "retire":
        stored_topic = control.topic(topic.name)
        return control.retire_topic(stored_topic or topic), control.retired_topics(topic.name)
    if what == "retire group":
        there = control.group(topic, "g")
        return control.retire_group(topic, there or group), control.retired_groups(topic)
    if what == "delete":
        control.delete_topic(topic)
        return control.retired_topics(topic.name)
    if what == "group":
        return control.put_group(topic, group, control.group(topic, "g"))
    if what == "join":
        return control.put_consumer(topic, group, make.consumer(group, uid="c"), None)
    return control.delete_group(topic, group)


@settings(max_examples=20)
@given(calls=control_calls)
def test_control_data_answers_alike(pair: Pair, calls: list[tuple[str, str]]) -> None:
    prefix = make.uid("p")
    topics = {name: make.topic(f"{prefix}{name}") for name in "abc"}
    for what, name in calls:
        pair.ask(partial(_control, topics, prefix, what, name))
        pair.ask(partial(_everything, list(topics.values()), prefix))


def _everything(topics: list[Topic], prefix: str, stage: Stage) -> Any:
    control = stage.adapters.control
    groups = [make.group(topic, "g", uid=f"{prefix}{topic.name[-1]}") for topic in topics]
    members = [control.consumers(topic, group) for topic, group in zip(topics, groups, strict=True)]
    return control.topics(None, 200), [control.groups(topic) for topic in topics], members
