"""The status of a message, in every state and place."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.account import Account
from chalicelib.domain.ladder import Retry
from chalicelib.domain.timer import Timer
from chalicelib.domain.times import HOUR_MS, SECOND_MS
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.fate import Place
from chalicelib.services.inspect.lookup import Filters
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.layout import FRAGMENTS
from chalicelib.store.timers import Timers
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import ManualClock
from tests.support.desk import Desk
from tests.support.stages import Stage
from tests.support.troubled import Counted, with_short_answers

BURY = Nack(dead_letter=True)


def status(desk: Desk, result: ProduceResult) -> str:
    return desk.deps.lookup.state_by_id(desk.topic)(result.id).status


def test_a_broadcast_that_one_of_two_has_acknowledged_is_under_way(stage: Stage) -> None:
    desk = Desk.at(stage, mode="broadcast")
    group = desk.group()
    ann, bob = desk.consumer(group, "ann"), desk.consumer(group, "bob")
    (result,) = desk.produce(make.draft("x"))
    desk.ack(group, desk.receive(group, consumer=ann))
    message = desk.deps.lookup.message(desk.topic, result.id)
    delivery_status = desk.deps.statuses.of_topic(desk.topic).delivery(group, message)
    assert delivery_status
    assert (delivery_status.status, delivery_status.attempts) == ("RUNNING", 1)
    assert {name: each.status for name, each in delivery_status.consumers.items()} == {
        "ann": "SUCCESS",
        "bob": "NEW",
    }
    desk.nack(group, desk.receive(group, consumer=bob), BURY)
    delivery_status = desk.deps.statuses.of_topic(desk.topic).delivery(group, message)
    assert delivery_status
    assert (delivery_status.status, delivery_status.reason) == ("DEAD", "REJECTED")


def test_of_two_deliveries_after_a_seek_the_newer_is_shown_while_it_is_under_way(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    message = desk.deps.lookup.message(desk.topic, result.id)

    def shown() -> tuple[str, int]:
        delivery_status = desk.deps.statuses.of_topic(desk.topic).delivery(group, message)
        assert delivery_status
        return delivery_status.status, delivery_status.attempts

    desk.nack(group, desk.receive(group), BURY)
    assert shown() == ("DEAD", 1)
    desk.seek(group, "earliest")
    assert shown() == ("NEW", 0)
    messages = desk.receive(group)
    assert shown() == ("RUNNING", 1)
    desk.ack(group, messages)
    assert shown() == ("DEAD", 1), "its letter lies there still"
    assert desk.deps.dead_letters.redrive(
        desk.topic, group, desk.deps.letter_lookup.letters(desk.topic, group, result.id)
    )
    assert shown()[0] == "RETRYING"
    stage.clock.advance(5 * SECOND_MS)  # a process remembers for a moment that the lane was empty
    desk.ack(group, desk.receive(group))
    assert shown() == ("SUCCESS", 2)


@pytest.mark.parametrize("mode", ["serial", "queue"])
def test_a_retry_that_waited_in_its_cursor_is_over_with_the_seek(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage, mode=mode)
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    message = desk.deps.lookup.message(desk.topic, result.id)
    desk.nack(group, desk.receive(group), Nack(delay_ms=60_000 if mode == "serial" else 0, reason="busy"))
    desk.seek(group, "earliest")
    desk.ack(group, desk.receive(group))
    delivery_status = desk.deps.statuses.of_topic(desk.topic).delivery(group, message)
    assert delivery_status
    assert (delivery_status.status, delivery_status.attempts) == ("SUCCESS", 1)
    counts = desk.deps.surveyor.exact_group(desk.topic, group)
    assert (counts.retrying, counts.account) == (0, Account(success=1))
    fate = desk.deps.fates.of(desk.topic, message).owed[group.name]
    assert (fate.places, fate.adds_up) == ((Place.SETTLED,), True)


@pytest.mark.parametrize("how", ["delay", "transaction", "both"])
def test_a_message_keeps_when_it_was_accepted_and_due_and_what_was_done_to_it(stage: Stage, how: str) -> None:
    desk = Desk.at(stage)
    deps, topic = desk.deps, desk.topic
    began_ms = stage.clock.now_ms()
    due_ms = began_ms + 60 * SECOND_MS if how != "transaction" else None
    draft = make.draft("x", due_ms=due_ms)
    if how == "delay":
        (result,) = deps.producer.produce(topic, [draft], "ann")
        assert isinstance(result, ProduceResult)
        message_id = result.id
    else:
        transaction, _ = deps.transactor.prepare(topic, draft, Checks(), by="ann")
        message_id = transaction.message_id
        stage.clock.advance(SECOND_MS)
        deps.transactor.decide(transaction, TransactionState.COMMITTED, by="ben")
    acts = []
    if due_ms:
        delayed_message = deps.lookup.find(topic, message_id)
        assert isinstance(delayed_message, DelayedMessage)
        assert delayed_message.message.first_accepted_ms == began_ms
        edited_message = deps.delayed.amend(topic, delayed_message, {"body": b'"y"'}, "cleo")
        deps.delayed.amend(topic, edited_message, {"due_ms": due_ms + 9 * SECOND_MS}, "dan")
        acts = [("EDITED", "cleo", 0), ("POSTPONED", "dan", due_ms + 9 * SECOND_MS)]
        stage.clock.advance(80 * SECOND_MS)
        deps.mover.run_once()
    message = deps.lookup.message(topic, message_id)
    assert (message.first_accepted_ms, message.by) == (began_ms, "ann")
    assert message.draft.due_ms == (due_ms + 9 * SECOND_MS if due_ms else None)
    assert [(act.what, act.by, act.until_ms) for act in message.draft.acts] == acts
    amended_message = deps.amender.amend(topic, message, {"body": b'"z"'}, "eve")
    assert [act.by for act in amended_message.draft.acts][-1] == "eve"
    assert (amended_message.first_accepted_ms, amended_message.by) == (began_ms, "ann")
    (claimed_message,) = desk.receive(group := desk.group())
    desk.nack(group, [claimed_message], BURY)
    (letter,) = deps.letter_lookup.letters(topic, group, message_id)
    assert (letter.message.first_accepted_ms, letter.message.draft.acts) == (
        began_ms,
        amended_message.draft.acts,
    )


def test_who_cancelled_a_waiting_message_is_told(stage: Stage) -> None:
    desk = Desk.at(stage)
    deps, topic = desk.deps, desk.topic
    (result,) = desk.produce(make.draft("x", due_ms=stage.clock.now_ms() + 60 * SECOND_MS))
    delayed_message = deps.lookup.find(topic, result.id)
    assert isinstance(delayed_message, DelayedMessage)
    deps.delayed.cancel(topic, delayed_message, "ann")
    cancelled_message = deps.lookup.find(topic, result.id)
    assert isinstance(cancelled_message, DelayedMessage)
    assert [(act.what, act.by) for act in cancelled_message.message.draft.acts] == [("CANCELLED", "ann")]


def test_what_a_consumer_that_left_had_to_try_again_is_counted_no_more(stage: Stage) -> None:
    desk = Desk.at(stage, mode="broadcast")
    group = desk.group()
    ann, bob = desk.consumer(group, "ann"), desk.consumer(group, "bob")
    desk.produce(make.draft())
    for consumer in (ann, bob):
        desk.nack(group, desk.receive(group, consumer=consumer), Nack(delay_ms=60_000))
    assert desk.deps.surveyor.survey(desk.topic).groups[0].retrying == 2
    desk.deps.registry.unregister(desk.topic, group, bob)
    assert desk.deps.surveyor.exact_group(desk.topic, group).retrying == 1
    assert desk.deps.surveyor.survey(desk.topic).groups[0].retrying == 1


def test_a_fate_is_found_in_a_lane_of_more_rows_than_one_answer_holds(stage: Stage) -> None:
    """An answer ends at a megabyte: at five rows or so, where edited messages are large."""
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(5))
    desk.nack(group, desk.receive(group), BURY)
    for result in results:
        desk.deps.dead_letters.redrive(
            desk.topic, group, desk.deps.letter_lookup.letters(desk.topic, group, result.id)
        )
    message = desk.deps.lookup.message(desk.topic, result.id)
    process = Deps(with_short_answers(stage.another()))
    fate = process.fates.of(desk.topic, message).owed[group.name]
    assert (fate.places, fate.adds_up) == ((Place.LANE,), True)


def test_a_message_that_every_group_was_moved_past_is_complete(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    message = desk.deps.lookup.message(desk.topic, result.id)
    desk.seek(group, "latest")
    fates = desk.deps.fates.of(desk.topic, message)
    assert (fates.owed, fates.skipped, fates.is_complete) == ({}, (group.name,), True)
    desk.seek(group, "earliest")
    fates = desk.deps.fates.of(desk.topic, message)
    assert (list(fates.owed), fates.skipped, fates.is_complete) == ([group.name], (), False)


def test_a_retry_that_is_nowhere_is_found_out(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    message = desk.deps.lookup.message(desk.topic, result.id)
    desk.nack(group, desk.receive(group), Nack(delay_ms=5_000))
    timers = stage.adapters.timers
    for fragment in range(FRAGMENTS):
        timers_lost = [t for t in timers.behind(fragment, "0", 1000) if t.group_uid == group.uid]
        timers.drop(timers_lost)
    (fate,) = desk.deps.fates.of(desk.topic, message).owed.values()
    assert (fate.adds_up, fate.places) == (False, ())


def test_an_attempt_in_the_retry_lane_counts_whatever_becomes_of_it(stage: Stage) -> None:
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0))
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    message = desk.deps.lookup.message(desk.topic, result.id)

    def shown() -> tuple[str, int, int]:
        status = desk.deps.statuses.of_topic(desk.topic).delivery(group, message)
        assert status
        return status.status, status.attempts, status.retries_left

    desk.nack(group, desk.receive(group), Nack(delay_ms=SECOND_MS))
    assert shown() == ("RETRYING", 1, 4)
    stage.clock.advance(SECOND_MS)
    desk.receive(group, lease=30)
    assert shown() == ("RUNNING", 2, 3)
    stage.clock.advance(31 * SECOND_MS)
    assert shown() == ("RETRYING", 2, 3)
    third = desk.receive(group)
    assert shown() == ("RUNNING", 3, 2)
    desk.nack(group, third)
    assert shown() == ("RETRYING", 3, 2)
    desk.nack(group, desk.receive(group), Nack(delay_ms=SECOND_MS))
    assert shown() == ("RETRYING", 4, 1)


@pytest.mark.parametrize("status", [None, "SUCCESS", "NEW"])
def test_a_page_costs_its_groups_and_cursors_once_however_many_messages_it_has(
    stage: Stage, status: str | None
) -> None:
    desk = Desk.at(stage)
    first, _ = desk.group("first"), desk.group("second", mode="serial")
    desk.produce(*(make.draft(n) for n in range(12)))
    desk.ack(first, desk.receive(first, 6))
    control, cursors, records = (
        Counted(each) for each in (stage.adapters.control, stage.adapters.cursors, stage.adapters.records)
    )
    ports = {"control": control, "cursors": cursors, "records": records}
    deps = Deps(replace(stage.adapters, **cast(Any, ports)))
    topic_statuses = deps.statuses.of_topic(desk.topic)
    page, _ = deps.lookup.newest_first(
        desk.topic, Filters(group=first, status=status), 12, None, topic_statuses
    )
    assert len(page) == {None: 12, "SUCCESS": 6, "NEW": 6}[status]
    statuses_shown = [topic_statuses.deliveries(message) for message in page]
    assert {statuses["second"].status for statuses in statuses_shown} == {"NEW"}
    assert cursors.calls["get"] == 2
    assert control.calls["groups"] == 1
    notes = Counter({"purged": 1})  # of purges, where the cursor has skipped something
    assert records.calls - notes == {"get": 1, "between": 1}, "of what a group has begun"


@pytest.mark.parametrize("shards", [1, 2])
def test_a_page_of_what_is_over_shows_each_as_it_is_and_reads_records_together(
    stage: Stage, shards: int
) -> None:
    desk = Desk.at(stage, shards=shards)
    group = desk.group()
    results = desk.produce(*(make.draft(n, shard=n % shards) for n in range(200)))
    for _ in range(2):
        deliveries = desk.receive(group, 100)
        desk.nack(group, [d for d in deliveries if d.message.draft.body.endswith(b"7")], BURY)
        desk.ack(group, [d for d in deliveries if not d.message.draft.body.endswith(b"7")])
    records = Counted(stage.adapters.records)
    deps = Deps(replace(stage.adapters, **cast(Any, {"records": records})))
    topic_statuses = deps.statuses.of_topic(desk.topic)
    page, _ = deps.lookup.newest_first(desk.topic, Filters(group=group), 200, None, topic_statuses)
    status_of = {message.id: topic_statuses.overall(message) for message in page}
    assert [status_of[each.id] for each in results] == [
        "DEAD" if n % 10 == 7 else "SUCCESS" for n in range(200)
    ]
    notes = Counter({"purged": shards})
    assert (records.calls - notes).total() <= shards + 200 // 64 + shards, "and not 200"


class Slow:
    """Timers that take a second to be found."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.finds = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.adapters.timers, name)

    def find(self, due_ms: int, timer_id: str) -> Timer | None:
        self.finds += 1
        self._stage.clock.advance(SECOND_MS)
        return self._stage.adapters.timers.find(due_ms, timer_id)


def test_a_page_whose_messages_take_long_to_judge_ends_in_time_and_the_next_goes_on(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(20))
    desk.nack(group, desk.receive(group, 20), Nack(delay_ms=HOUR_MS))
    timers = Slow(stage)
    lookup = Deps(replace(stage.adapters, timers=cast(Timers, timers))).lookup
    filters, starts = Filters(group=group, status="RUNNING"), None
    pages: list[int] = []
    while not pages or starts:
        finds_before = timers.finds
        messages, starts = lookup.newest_first(desk.topic, filters, 32, starts)
        pages.append(timers.finds - finds_before)
        assert messages == []
    assert pages == [8, 8, 4]


def test_a_list_of_a_time_misses_nothing_behind_the_row_of_a_writer_whose_clock_is_slow(stage: Stage) -> None:
    desk = Desk.at(stage)
    from_ms = stage.clock.now_ms()
    desk.produce(make.draft("in time"))
    slow = ManualClock(from_ms - 10 * SECOND_MS)
    Deps(replace(stage.another(), clock=slow)).producer.produce(desk.topic, make.drafts(1))
    found, rest = desk.deps.lookup.newest_first(desk.topic, Filters(from_ms=from_ms), 32, None)
    assert ([message.offset for message in found], rest) == ([0], None)
