"""store.Timers: due in order of time, to the millisecond, in fragments of which there may become more."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain.limits import MAX_LOOK_BYTES
from chalicelib.domain.message import Draft, Origin
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer, TimerKind, retry_id, sort_key_of
from chalicelib.store.dynamo import Dynamo
from chalicelib.store.layout import FRAGMENTS, Tables, fragment_of
from chalicelib.store.timers import Timers
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.embedded import embedded_dynamo
from tests.support.stages import FOREVER, Stage, drop_all


@pytest.fixture
def timers(stage: Stage) -> Timers:
    """With nothing in it: fragments are the same for everybody."""
    timers: Timers = stage.adapters.timers
    drop_all(timers)
    return timers


def everything(timers: Timers) -> list[Timer]:
    return [
        timer for fragment in range(FRAGMENTS) for timer in timers.first_due(fragment, FOREVER, 1_000).timers
    ]


names = st.text("abcXYZ019._-", min_size=1, max_size=12)
origins = st.builds(
    Origin, names, st.integers(0, 255), st.integers(0, 2**50), st.integers(0, 2**50), st.integers(0, 1000)
)
drafts = st.builds(make.draft, st.text(max_size=300), keys=st.sampled_from(((), ("k",))))
any_timers = st.builds(
    Timer,
    due_ms=st.integers(0, 10**14),
    id=names,
    kind=st.sampled_from((TimerKind.DELIVER, TimerKind.RETRY)),  # the others carry no draft
    shard=st.builds(ShardKey, st.sampled_from(("orders", "a.b-c~billing")), names, st.integers(0, 255)),
    draft=drafts
    | st.builds(make.draft, st.just(None), keys=st.just(("k",)), expires_ms=st.integers(0, 2**50)),
    keep_days=st.integers(1, 3650),
    group_uid=names | st.just(""),
    consumer_uid=names | st.just(""),
)


@settings(max_examples=40)
@given(timer=any_timers)
def test_a_timer_is_read_as_it_was_filed(timers: Timers, timer: Timer) -> None:
    timers.store([timer])
    look = timers.first_due(fragment_of(timer.id), timer.due_ms, 9)
    timers.drop([timer])
    assert look.timers == [timer]
    assert everything(timers) == []


@settings(max_examples=30)
@given(origin=origins)
def test_a_retry_waits_as_a_reference_alone(timers: Timers, origin: Origin) -> None:
    key = retry_id("g1", "", origin.shard, origin.offset, origin.attempts)
    draft = make.draft("the body stays in the log", ordering_key="o-1", origin=origin)
    timers.store([make.timer(START_MS, kind=TimerKind.RETRY, id=key, draft=draft)])
    (timer,) = everything(timers)
    assert timer.draft is not None
    assert (timer.draft.origin, timer.draft.body, timer.draft.ordering_key) == (origin, b"", "o-1")
    timers.drop([timer])


def test_a_timer_is_due_at_its_millisecond_and_not_before(timers: Timers) -> None:
    timer = make.timer(START_MS, fragment=3)
    timers.store([timer])
    assert timers.first_due(3, START_MS - 1, 9).timers == []
    assert timers.first_due(3, START_MS, 9).timers == [timer]
    assert timers.first_due(2, START_MS, 9).timers == [], "each fragment for itself"


def test_behind_what_a_clock_that_was_set_back_has_passed_nothing_is_due(timers: Timers) -> None:
    timer = make.timer(START_MS)
    timers.store([timer])
    assert timers.first_due(fragment_of(timer.id), START_MS - 1_000, 9, timer.sort_key).timers == []


def test_what_is_due_comes_in_order_of_time_up_to_the_limit(timers: Timers) -> None:
    times = [START_MS + 9, 5, START_MS, START_MS + 10, 253_402_300_799_999]
    batch = [make.timer(due_ms, fragment=1) for due_ms in times]
    timers.store(batch)
    in_order = sorted(batch, key=lambda timer: timer.due_ms)
    assert timers.first_due(1, START_MS + 9, 9).timers == in_order[:3]
    assert timers.first_due(1, FOREVER, 4).timers == in_order[:4]
    assert timers.first_due(1, FOREVER, 99).timers == in_order
    assert timers.next_ms(1) == 5


def test_timers_are_read_on_behind_a_mark(timers: Timers) -> None:
    times = [START_MS, START_MS, START_MS + 1, 5, 253_402_300_799_999]
    batch = [make.timer(due_ms, fragment=1) for due_ms in times]
    timers.store(batch)
    assert timers.cancel(*_another(timers))
    in_order = sorted(batch, key=lambda timer: timer.sort_key)
    assert timers.behind(1, sort_key_of(0), 99) == in_order
    for n, timer in enumerate(in_order, 1):
        assert timers.behind(1, timer.sort_key, 2) == in_order[n : n + 2]
    assert timers.behind(1, sort_key_of(START_MS), 1) == in_order[1:2]
    assert timers.behind(2, sort_key_of(0), 9) == []


def _another(timers: Timers) -> tuple[Timer, int]:
    """A timer of fragment 1, and until when it is known when it is cancelled."""
    timer = make.timer(START_MS + 7, fragment=1)
    timers.store([timer])
    return timer, START_MS // 1000 + 60


def test_a_fragment_with_nothing_in_it_is_due_never(timers: Timers) -> None:
    assert timers.next_ms(5) is None
    assert timers.first_due(5, FOREVER, 9).timers == []


def test_many_timers_are_filed_and_dropped_at_once(timers: Timers) -> None:
    batch = [make.timer(START_MS + n, fragment=n % FRAGMENTS) for n in range(60)]
    timers.store(batch)
    assert sorted(everything(timers), key=lambda timer: timer.due_ms) == batch
    timers.drop([*batch[:59], make.timer()])
    assert everything(timers) == batch[59:]
    timers.drop([*batch, *batch])
    assert everything(timers) == []


def test_a_look_is_bounded_in_bytes(timers: Timers) -> None:
    chance = random.Random(5)
    drafts = [Draft(chance.randbytes(150_000), False, "image/png") for _ in range(60)]
    batch = [make.timer(START_MS + n, fragment=4, draft=draft) for n, draft in enumerate(drafts)]
    timers.store(batch)
    timers_read: list[Timer] = []
    look = timers.first_due(4, FOREVER, 99)
    assert look.go_on_after
    while look.go_on_after:
        assert sum(timer.weight for timer in look.timers) <= MAX_LOOK_BYTES + 250_000
        timers_read += look.timers
        look = timers.first_due(4, FOREVER, 99, look.go_on_after)
    assert [*timers_read, *look.timers] == batch


def test_more_fragments_lose_no_timer() -> None:
    """What was stored while there were eight is found, changed and removed in its old place."""
    client = embedded_dynamo().client
    old, both, new = (_timers(client, *counts) for counts in ((8,), (64, 8), (64,)))
    batch = [
        make.timer(START_MS + n, id=f"u{n}", kind=TimerKind.RETRY, draft=make.draft(n)) for n in range(40)
    ]
    old.store(batch[:20])
    both.store(batch[20:])
    read = [timer for fragment in both.fragments() for timer in both.behind(fragment, "0", 99)]
    assert sorted(read, key=lambda timer: timer.due_ms) == batch
    assert len({timer.fragment for timer in read}) > 8
    assert all(both.find(timer.due_ms, timer.id) == timer for timer in batch)
    assert all(
        {t.fragment for t in read if t.id == timer.id} <= {*both.fragments_of(timer.id)} for timer in batch
    )
    first, second, third, *others = sorted(read, key=lambda timer: timer.due_ms)
    later = replace(first, due_ms=START_MS + 900)
    assert both.amend(first, later, START_MS)
    moved = both.find_moved(first.id)
    assert moved
    assert moved.due_ms == later.due_ms
    found = both.find(later.due_ms, first.id)
    assert found
    assert both.cancel(found, START_MS)
    assert both.exchange(second, replace(second, due_ms=START_MS + 800), make.cursor_key(), [], [])
    assert both.take([(START_MS + 800, second.id), (third.due_ms, third.id)], make.cursor_key(), [])
    both.drop(others[:30])
    left = [timer for fragment in new.fragments() for timer in new.behind(fragment, "0", 99)]
    assert sorted(left, key=lambda timer: timer.due_ms) == others[30:]
    assert new.fragment_of("u") == both.fragment_of("u") == fragment_of("u", 64)


def _timers(client: Any, *counts: int) -> Timers:
    return Timers(
        Dynamo(client, Tables("headrace", counts), lambda _: None, lambda: make.uid("t"), lambda _: None)
    )
