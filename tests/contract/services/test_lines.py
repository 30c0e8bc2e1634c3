"""Waiting messages of one ordering key, or of one shard, enter the log in the order of their due times, and those that
are due together in the order in which they were accepted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain import ids
from chalicelib.domain.errors import unavailable
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.layout import fragment_of
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage, embedded_stage
from tests.unit.test_mover_troubles import Troubled


def bodies(desk: Desk) -> list[bytes]:
    """What has entered the log, shard by shard."""
    return [
        draft.body for shard in desk.topic.shard_numbers for row in desk.rows(shard) for draft in row.drafts
    ]


def numbered(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


def all_due(desk: Desk, seconds: float) -> None:
    desk.stage.clock.advance(round(seconds * 1000))
    desk.deps.mover.run_once()


@pytest.mark.parametrize(("shards", "key"), [(4, "k"), (1, None), (1, "k")])
def test_a_batch_that_is_due_in_one_millisecond_enters_in_its_order(
    stage: Stage, shards: int, key: str | None
) -> None:
    desk = Desk.at(stage, shards=shards)
    due_ms = stage.clock.now_ms() + SECOND_MS
    desk.produce(*(make.draft(n, due_ms=due_ms, ordering_key=key) for n in range(120)))
    all_due(desk, 1)
    assert bodies(desk) == numbered(120)


def test_messages_of_several_processes_enter_in_the_order_of_their_clocks(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    due_ms = stage.clock.now_ms() + 5 * SECOND_MS
    processes = [stage.process() for _ in range(3)]
    for n in range(30):
        processes[n % 3].producer.produce(desk.topic, [make.draft(n, due_ms=due_ms, ordering_key="k")])
        stage.clock.advance(1)
    all_due(desk, 5)
    assert bodies(desk) == numbered(30)


def test_a_line_of_more_than_one_look_and_of_different_times_keeps_its_order(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    first_ms = stage.clock.now_ms() + SECOND_MS
    desk.produce(*(make.draft(n, due_ms=first_ms + 5 * n, ordering_key="k") for n in range(600)))
    all_due(desk, 10)  # a late mover
    assert bodies(desk) == numbered(600)


def test_committed_messages_stand_among_the_others_as_they_were_prepared(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    due_ms = stage.clock.now_ms() + 5 * SECOND_MS
    transactions = []
    for n in range(20):
        draft = make.draft(n, due_ms=due_ms, ordering_key="k")
        if n % 2:
            transactions.append(desk.deps.transactor.prepare(desk.topic, draft, Checks())[0])
        else:
            desk.produce(draft)
    for transaction in reversed(transactions):
        desk.deps.transactor.decide(transaction, TransactionState.COMMITTED)
    all_due(desk, 5)
    assert bodies(desk) == numbered(20)


@given(topic_uid=st.text("abcdefgh0123456789", min_size=8, max_size=8), key=st.text(max_size=20))
def test_any_fragment_has_names_for_any_line(topic_uid: str, key: str) -> None:
    names = Deps(embedded_stage().another()).producer._unit_names
    topic = make.topic(uid=topic_uid)
    for shard in (None, 0, 255):
        timed_id = partial(ids.timed_id, shard=shard, due_ms=4_102_444_800_000)
        name = names.name(topic, key, timed_id)
        assert fragment_of(timed_id(name)) == fragment_of(f"{topic_uid}/{key}")
        assert ids.parse_timed_id(timed_id(name)) == ids.Timed(4_102_444_800_000, shard)
    transaction = names.name(topic, key, ids.half_id)
    assert fragment_of(ids.half_id(transaction)) == fragment_of(f"{topic_uid}/{key}")
    assert ids.parse_half_id(ids.half_id(transaction)) == transaction


@dataclass
class Line:
    """Two keys' messages on a stage whose log and timers refuse what a test wants refused."""

    stage: Stage = field(default_factory=embedded_stage)
    refusals: list[bool] = field(default_factory=list)
    due: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By number, in the order of acceptance: when a message is due, and its key."""
    ids: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.desk = Desk.at(self.stage, shards=2)
        self.count = 0

    def perhaps(self, *_: object) -> None:
        if self.refusals and self.refusals.pop():
            raise unavailable("throttled")

    def process(self) -> Deps:
        a = self.stage.another()
        log, timers = Troubled(a.log, put=self.perhaps), Troubled(a.timers, look=self.perhaps)
        return Deps(replace(a, log=cast(Any, log), timers=cast(Any, timers)))

    def produce(self, times: list[tuple[int, str]]) -> None:
        now_ms = self.stage.clock.now_ms()
        drafts = [
            make.draft(self.count + n, due_ms=now_ms + ms, ordering_key=k) for n, (ms, k) in enumerate(times)
        ]
        for place, (ms, key) in zip(self.desk.produce(*drafts), times, strict=True):
            self.due[self.count], self.ids[self.count] = (now_ms + ms, key), place.id
            self.count += 1

    def change(self, which: int, ms: int | None) -> None:
        """Move the time of a message that still waits; None: cancel it."""
        number = sorted(self.ids)[which % len(self.ids)] if self.ids else -1
        message = self.desk.deps.delayed.find(self.desk.topic, self.ids[number]) if self.ids else None
        if not isinstance(message, DelayedMessage) or message.cancelled:
            return
        if ms is None:
            self.desk.deps.delayed.cancel(self.desk.topic, message)
            del self.due[number], self.ids[number]
        else:
            due_ms = self.stage.clock.now_ms() + ms
            self.desk.deps.delayed.amend(self.desk.topic, message, {"due_ms": due_ms})
            self.due[number] = due_ms, self.due[number][1]

    def move(self, refusals: list[bool]) -> None:
        self.refusals = refusals
        self.process().mover.run_once()
        self.refusals = []

    def entered(self, key: str) -> list[int]:
        drafts = [d for shard in range(2) for row in self.desk.rows(shard) for d in row.drafts]
        return [int(d.body) for d in drafts if d.ordering_key == key]


waits = st.integers(1, 40)
steps = st.one_of(
    st.tuples(st.just("produce"), st.lists(st.tuples(waits, st.sampled_from("ab")), min_size=1, max_size=12)),
    st.tuples(st.just("change"), st.integers(0, 99), st.none() | waits),
    st.tuples(st.just("pass"), waits),
    st.tuples(st.just("move"), st.lists(st.booleans(), max_size=6)),
)


@settings(max_examples=75)
@given(plan=st.lists(steps, max_size=25))
def test_whatever_is_refused_and_changed_lines_keep_their_order(plan: list[tuple[Any, ...]]) -> None:
    line = Line()
    for what, *how in plan:
        if what == "pass":
            line.stage.clock.advance(*how)
        else:
            getattr(line, what)(*how)
    line.stage.clock.advance(100)
    line.move([])
    for key in "ab":
        expected = sorted((due_ms, n) for n, (due_ms, k) in line.due.items() if k == key)
        assert line.entered(key) == [n for _, n in expected]
