"""Messages that wait for their time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.errors import Conflict, NotFound
from chalicelib.domain.message import Draft
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Topic
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk, offsets
from tests.support.push import PushDesk
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import with_short_answers


def later(desk: Desk, seconds: float, value: object = None, **settings: object) -> Draft:
    return make.draft(value, due_ms=desk.stage.clock.now_ms() + round(seconds * 1000), **settings)


def move(desk: Desk) -> int:
    """How many of the topic's messages came into its log. (Other tests' may be due as well.)"""
    before = count(desk)
    desk.deps.mover.run_once()
    return count(desk) - before


def count(desk: Desk) -> int:
    return sum(row.count for shard in desk.topic.shard_numbers for row in desk.rows(shard))


@pytest.mark.parametrize("seconds", [1, 90, 40 * 86_400, 10 * 365 * 86_400])
def test_i9_a_delayed_message_enters_the_log_at_its_time_and_not_before(stage: Stage, seconds: int) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(later(desk, seconds, {"n": 1}))
    assert (result.shard, result.offset) == (0, None) or result.offset is None
    stage.clock.advance(seconds * 1000 - 1)
    assert move(desk) == 0
    assert desk.receive(group) == []
    stage.clock.advance(501)
    assert move(desk) == 1
    (claimed_message,) = desk.receive(group)
    assert (claimed_message.message.id, claimed_message.message.draft.body) == (result.id, b'{"n":1}')
    assert desk.ack(group, [claimed_message]) == [None]


def test_it_is_found_by_its_id_before_and_after(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    free, keyed_result = desk.produce(later(desk, 5, "free"), later(desk, 5, "keyed", ordering_key="k"))
    for result in (free, keyed_result):
        waiting_message = desk.deps.lookup.find(desk.topic, result.id)
        assert isinstance(waiting_message, DelayedMessage)
        assert waiting_message.timer.due_ms == result.due_ms
    desk.produce(*make.drafts(3))
    stage.clock.advance(5 * SECOND_MS)
    move(desk)
    desk.produce(*make.drafts(3))
    for result in (free, keyed_result):
        message = desk.deps.lookup.message(desk.topic, result.id)
        assert message.id == result.id


def test_what_is_postponed_is_found_by_its_id_while_a_group_owes_it(empty_stage: Stage) -> None:
    """Also on the last day of its row, and behind all that came while it waited."""
    desk = Desk.at(empty_stage, retention_days=1)
    desk.group()
    clock, delayed = empty_stage.clock, desk.deps.delayed
    (place,) = desk.produce(make.draft("late", due_ms=clock.now_ms() + HOUR_MS))
    waiting = delayed.find(desk.topic, place.id)
    assert isinstance(waiting, DelayedMessage)
    delayed.amend(desk.topic, waiting, {"due_ms": clock.now_ms() + 30 * HOUR_MS})
    clock.advance(20 * HOUR_MS)
    for n in range(2_100):
        desk.produce(make.draft(n))
    clock.advance(10 * HOUR_MS)
    desk.deps.mover.run_once()
    clock.advance(DAY_MS + HOUR_MS)
    empty_stage.drop_expired()
    message = empty_stage.process().lookup.message(desk.topic, place.id)
    assert message.draft.body == b'"late"'


def test_it_is_found_behind_more_than_one_answer_holds(stage: Stage) -> None:
    """An answer ends at a megabyte: at five rows or so, where bodies are large."""
    desk = Desk.at(stage)
    (result,) = desk.produce(later(desk, 5))
    stage.clock.advance(5 * SECOND_MS)
    for _ in range(5):
        desk.produce(make.draft("before it was moved"))
    move(desk)
    process = Deps(with_short_answers(stage.another()))
    assert process.lookup.message(desk.topic, result.id).id == result.id


@pytest.mark.parametrize("ahead_ms", [1, 10_000])
def test_it_is_found_where_a_movers_clock_ran_before_ours(stage: Stage, ahead_ms: int) -> None:
    desk = Desk.at(stage)
    desk.produce(*make.drafts(3))
    (result,) = desk.produce(later(desk, 60, "x"))
    stage.clock.advance(60 * SECOND_MS - ahead_ms)
    timer = stage.adapters.timers.find(result.due_ms or 0, result.id)
    assert timer
    assert desk.deps.due.append(timer.shard, timer.keep_days, [timer]) == 1
    desk.produce(*make.drafts(3))
    stage.clock.advance(2 * ahead_ms)
    assert desk.deps.lookup.message(desk.topic, result.id).id == result.id


@pytest.mark.parametrize("due_in_seconds", [300, 10])
def test_its_expiry_counts_from_when_it_is_due_whenever_that_is(stage: Stage, due_in_seconds: int) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    draft = later(desk, 60, "soon gone")
    assert draft.due_ms
    (result,) = desk.produce(replace(draft, expires_ms=draft.due_ms + 30 * SECOND_MS))
    message = desk.deps.lookup.find(desk.topic, result.id)
    assert isinstance(message, DelayedMessage)
    due_ms = stage.clock.now_ms() + due_in_seconds * SECOND_MS
    desk.deps.delayed.amend(desk.topic, message, {"due_ms": due_ms})
    stage.clock.advance(due_in_seconds * SECOND_MS)
    assert move(desk) == 1
    (claimed_message,) = desk.receive(group)
    assert claimed_message.message.draft.expires_ms == due_ms + 30 * SECOND_MS


def test_i3_fifty_racing_twins_of_a_job_are_one_job(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    draft = later(desk, 5, "job", dedup_id="job-1")
    others = [desk.stage.process() for _ in range(8)]

    def produce(n: int) -> ProduceResult:
        (result,) = others[n % 8].producer.produce(desk.topic, [draft])
        assert isinstance(result, ProduceResult)
        return result

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(produce, range(50)))
    assert len({p.id for p in results}) == 1
    assert sum(not p.duplicate for p in results) == 1
    stage.clock.advance(5 * SECOND_MS)
    assert offsets(desk.receive(group)) == [0]
    (other,) = desk.deps.producer.produce(desk.topic, [later(desk, 5, "other", dedup_id="job-1")])
    assert isinstance(other, Conflict)


def put_job(deps: Deps, topic: Topic, draft: Draft) -> bool:
    return deps.named_jobs.put(topic, "job", draft, "token", lambda _: True)[1]


def test_racing_puts_leave_one_waiting_job_also_when_it_comes_due(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    group = desk.group()
    others = [desk.stage.process() for _ in range(8)]
    stage.clock.advance(1)

    def put(n: int) -> bool:
        others[n % 8].mover.run_once()
        key = (None, "a", "b")[n % 3]
        return put_job(others[n % 8], desk.topic, later(desk, n % 2, n, ordering_key=key))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(24))) == 1, "one of them created it"
    assert not put_job(desk.deps, desk.topic, later(desk, 5, "last"))
    stage.clock.advance(10 * SECOND_MS)
    move(desk)
    assert [d.message.draft.body for d in desk.receive(group)] == [b'"last"']


def test_a_job_keeps_its_name_however_often_it_is_put_off(stage: Stage) -> None:
    desk = Desk.at(stage, retention_days=1)
    for days in (1, 20, 20, 400, 20):
        assert put_job(desk.deps, desk.topic, later(desk, days * 86_400, days)) is (days == 1)
        stage.clock.advance((days - 1) * DAY_MS)
    assert desk.deps.named_jobs.open(desk.topic, "job")


@settings(deadline=None, max_examples=40)
@given(
    steps=st.lists(st.sampled_from(["put", "put another key", "put now", "delete", "move", "claim", "end"]))
)
def test_a_job_is_what_its_users_think_it_is(steps: list[str]) -> None:
    desk = Desk.at(embedded_stage(), shards=4)
    group, held, state, value = desk.group(), [], "free", 0
    for n, step in enumerate(steps):
        if step.startswith("put"):
            key = "k" if step == "put another key" else None
            draft = make.draft(n) if step == "put now" else later(desk, 9, n, ordering_key=key)
            if state == "claimed":
                with pytest.raises(Conflict, match="claimed"):
                    put_job(desk.deps, desk.topic, draft)
                continue
            assert put_job(desk.deps, desk.topic, draft) is (state == "free")
            state, value = "waits", n
        elif step == "delete":
            if state == "waits":
                message = desk.deps.named_jobs.open(desk.topic, "job")
                if isinstance(message, DelayedMessage):
                    desk.deps.delayed.cancel(desk.topic, message)
                else:
                    desk.deps.amender.cancel(desk.topic, message)
                state = "free"
            elif state == "free":
                with pytest.raises(NotFound):
                    desk.deps.named_jobs.open(desk.topic, "job")
        elif step == "move":
            desk.stage.clock.advance(10 * SECOND_MS)
            desk.deps.mover.run_once()
        elif step == "claim":
            claimed = [d for shard in range(4) for d in desk.receive(group, lease=3_600)]
            assert len(claimed) <= 1
            for each in claimed:
                assert (state, each.message.draft.body) == ("waits", str(value).encode())
                state, held = "claimed", claimed
        elif state == "claimed":
            desk.ack(group, held)
            state = "free"


@pytest.mark.parametrize("movers", [2, 5, 10])
def test_racing_movers_move_each_job_once(stage: Stage, movers: int) -> None:
    desk = Desk.at(stage)
    count = 1_000
    results = desk.produce(*(later(desk, 5, n) for n in range(count)))
    stage.clock.advance(5 * SECOND_MS)
    others = [desk.stage.process() for _ in range(movers)]
    with ThreadPoolExecutor(movers) as pool:
        counts = list(pool.map(lambda deps: deps.mover.run_once().moved, others))
    assert sum(counts) == count
    group = desk.group()
    ids = [d.message.id for d in desk.receive(group, 1000)]
    assert sorted(ids) == sorted(p.id for p in results)


def test_a_mover_moves_what_is_due_and_ends(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    desk.produce(later(desk, 5), later(desk, 30), later(desk, 3_600))
    empty_stage.clock.advance(6 * SECOND_MS)
    now_ms = empty_stage.clock.now_ms()
    report = desk.deps.mover.run_once()
    assert (report.moved, report.finished, report.late_ms) == (1, True, SECOND_MS)
    assert empty_stage.clock.now_ms() == now_ms, "it waits for nothing"


def test_another_topic_does_not_find_it(stage: Stage) -> None:
    desk, other = Desk.at(stage), Desk.at(stage)
    (result,) = desk.produce(later(desk, 60))
    message = desk.deps.delayed.find(desk.topic, result.id)
    assert isinstance(message, DelayedMessage)
    assert desk.deps.delayed.find(other.topic, result.id) is None
    desk.deps.delayed.cancel(desk.topic, message)


def test_whoever_hurries_it_wakes_a_mover(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    (result,) = desk.produce(later(desk, 3_600))
    desk.inbox.asked.clear()
    message = desk.deps.lookup.find(desk.topic, result.id)
    assert isinstance(message, DelayedMessage)
    hurried_message = desk.deps.delayed.amend(
        desk.topic, message, {"due_ms": stage.clock.now_ms() + SECOND_MS}
    )
    assert [function for function, _ in desk.inbox.asked] == ["mover"]
    desk.deps.delayed.cancel(desk.topic, hurried_message)
