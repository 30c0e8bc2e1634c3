"""The calls of a run: their subscribers, how many messages together, for how long, and the handling of failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.errors import unavailable
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Consumer, Group, cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import DispatchTask, task_of
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.desk import records
from tests.support.push import EXACT, PushDesk, Subscribers, always
from tests.support.stages import Stage, embedded_stage


def task_of_group(deps: Deps, desk: PushDesk, group: Group) -> DispatchTask:
    is_slow = any(consumer.is_slow for consumer in deps.catalog.consumers(desk.topic, group))
    return DispatchTask(desk.topic.name, group.name, is_slow=is_slow)


def deliver(desk: PushDesk, group: Group, **ports: Any) -> None:
    """One run, in a process that may have ports of the test's own."""
    deps = Deps(replace(desk.deps.adapters, **ports))
    deps.dispatcher.deliver(task_of_group(deps, desk, group), lambda: 600.0)


@dataclass
class Secretive:
    """ports.Cipher that may be away."""

    is_away: bool = False

    def encrypt(self, plaintext: bytes, context: Mapping[str, str]) -> bytes:
        return plaintext

    def decrypt(self, ciphertext: bytes, context: Mapping[str, str]) -> bytes:
        if self.is_away:
            raise unavailable("no key")
        return ciphertext


def test_i14_what_cannot_be_signed_now_waits_without_an_attempt(stage: Stage) -> None:
    cipher = Secretive()
    stage.adapters = replace(stage.adapters, cipher=cipher)
    another = stage.another
    stage.another = lambda: replace(another(), cipher=cipher)
    desk = PushDesk.at(stage)
    group = desk.group(payload="batch", batch_size=2)
    desk.subscriber(group, "one")
    cipher.is_away = True
    results = desk.produce(*make.drafts(2))
    deliver(desk, group)
    assert desk.subscribers.calls == []
    assert {span.due_ms for span in desk.cursor(group).waiting} == {stage.clock.now_ms() + 10_000}
    cipher.is_away = False
    stage.clock.advance(10_000)
    deliver(desk, group)
    assert desk.subscribers.numbers() == {each.id: [1] for each in results}


def breaks(_: PushBatch) -> CallResult:
    raise ZeroDivisionError


def test_a_fault_of_our_own_is_a_failed_attempt_of_each_message(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group(payload="batch", batch_size=2)
    desk.subscriber(group, "one", behaviour=breaks)
    desk.produce(*make.drafts(2))
    deliver(desk, group)
    assert {
        offset: (each.status, each.attempts, each.last_error) for offset, each in records(desk, group).items()
    } == dict.fromkeys(range(2), ("RETRYING", 1, "fault of the sender: ZeroDivisionError"))


def owners(desk: PushDesk, group: Group) -> list[str]:
    """Whose each shard is."""
    team = desk.deps.dispatcher.context.teams(desk.topic, group)
    return [owner.name if owner else "" for owner in team.owners]


def test_i7_what_a_serial_group_retries_in_its_lane_goes_to_the_owner_of_its_shard(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=2, mode="serial")
    group = desk.group(max_in_flight=4)
    leases: dict[str, int] = {}

    def notes(push_batch: PushBatch) -> CallResult:
        lane = replace(cursor_key(desk.topic, group, None))
        cursor = stage.adapters.cursors.get(lane, consistent=True)
        leases.update({t: each.deadline_ms for t, each in (cursor.leases if cursor else {}).items()})
        return CallResult(Verdict.DONE)

    desk.produce(*(make.draft(shard=shard) for shard in (0, 1) for _ in range(9)))
    while messages := desk.receive(group, 18):
        desk.nack(group, messages, Nack(dead_letter=True))
    for name, seconds in (("one", 10), ("two", 100)):
        desk.function(group, name, seconds, behaviour=notes)
    letters = [each for _, each in desk.deps.adapters.records.dead(desk.topic, group, None, 100)]
    desk.deps.dead_letters.redrive(desk.topic, group, letters)
    deliver(desk, group)
    (one, two) = owners(desk, group)
    assert {one, two} == {"one", "two"}
    for name in (one, two):
        came = [call.offsets for call in desk.subscribers.calls if call.target == name]
        assert came == [(offset,) for offset in range(9)], "all of them, in one run and in order"
    assert min(leases.values()) - stage.clock.now_ms() > 100_000, "as long as the slowest may take"


@pytest.mark.parametrize(("size", "calls"), [(8, 9), (64, 17), (100, 21)])
def test_a_batch_with_one_bad_message_is_cut_at_once(stage: Stage, size: int, calls: int) -> None:
    desk = PushDesk.at(stage, retry=Retry(16, (60,), jitter=0.0))
    group = desk.group(batch_size=size, max_in_flight=2 * size, payload="batch")
    results = desk.produce(*make.drafts(size))
    poison = results[size // 2].id
    desk.subscriber(
        group,
        "one",
        behaviour=lambda p: (
            CallResult(Verdict.FAILED, "HTTP 500", 500, is_own_answer=True)
            if poison in [a.message.id for a in p.attempts]
            else CallResult(Verdict.DONE)
        ),
    )
    desk.push()
    assert len(desk.subscribers.calls) == calls
    assert desk.deps.surveyor.exact_group(desk.topic, group).backlog == 0
    for message_id, numbers in desk.subscribers.numbers().items():
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) <= 3
        assert (message_id == poison) <= (len(numbers) == (2 if size == 8 else 3))


def test_a_batch_that_nobody_answered_is_not_cut_at_once_nor_does_a_last_attempt_come_at_once(
    empty_stage: Stage,
) -> None:
    stage = empty_stage
    for attempts, is_own_answer, calls in ((5, False, 1), (2, True, 1), (5, True, 9)):
        desk = PushDesk.at(stage, retry=Retry(attempts, (60,), jitter=0.0))
        group = desk.group(batch_size=8, payload="batch")
        failure = CallResult(Verdict.FAILED, "no", is_own_answer=is_own_answer)
        desk.subscriber(group, "one", behaviour=partial(always, failure))
        desk.produce(*make.drafts(8))
        desk.push()
        assert len(desk.subscribers.calls) == calls


class Died(BaseException):
    """The process ends here: nothing handles this."""


@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize(("timeout_seconds", "busy_seconds"), [(None, 910), (120, 130)])
def test_i4_a_function_is_not_called_beside_itself(
    stage: Stage, mode: str, timeout_seconds: int | None, busy_seconds: int
) -> None:
    desk = PushDesk.at(stage, retry=Retry(3, (1,), jitter=0.0), shards=1)
    group = desk.group(mode=mode)

    def is_silent(push_batch: PushBatch) -> CallResult:
        return CallResult(Verdict.FAILED, "no answer within 30 s", busy_ms=busy_seconds * SECOND_MS)

    desk.function(group, "slow", timeout_seconds, is_silent)
    start_ms = stage.clock.now_ms()
    first, second = desk.produce(*make.drafts(2))
    desk.push()
    desk.pass_time(4 * busy_seconds)
    times = {
        p.id: [c.at_ms - start_ms for c in desk.subscribers.calls if p.id in c.attempts[0]]
        for p in (first, second)
    }
    assert desk.subscribers.numbers()[first.id] == [1, 2, 3]
    for earlier, later in zip(times[first.id], times[first.id][1:], strict=False):
        assert later - earlier >= busy_seconds * SECOND_MS
    if mode == "serial":  # what the last attempt may still be at work on holds back its unit
        assert times[second.id][0] - times[first.id][-1] >= busy_seconds * SECOND_MS


@pytest.mark.parametrize(("timeout_seconds", "busy_seconds"), [(None, 910), (120, 130)])
def test_i4_a_function_whose_caller_died_is_left_alone_until_it_has_ended(
    empty_stage: Stage, timeout_seconds: int | None, busy_seconds: int
) -> None:
    desk = PushDesk.at(empty_stage)
    group = desk.group()

    def dies(push_batch: PushBatch) -> CallResult:
        raise Died

    desk.function(group, "slow", timeout_seconds, dies)
    (result,) = desk.produce(make.draft())
    with pytest.raises(Died):
        desk.push()
    desk.subscribers.behaviours.clear()
    desk.restart()
    desk.pass_time(busy_seconds)
    assert desk.subscribers.numbers() == {result.id: [1]}
    desk.pass_time(120)
    assert desk.subscribers.numbers() == {result.id: [1, 2]}


def test_i19_no_function_is_called_that_could_outlive_the_run(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.function(group, "slow", 600)
    desk.produce(make.draft())
    answers = iter([900.0, 614.0])
    desk.inbox.asked.clear()
    task = task_of_group(desk.deps, desk, group)
    report = desk.deps.dispatcher.deliver(task, lambda: next(answers))
    assert not report.finished
    assert desk.subscribers.calls == []
    assert [function for function, _ in desk.inbox.asked] == ["deliver_slow"], "another run goes on"
    desk.deps.dispatcher.deliver(task, lambda: 900.0)
    assert len(desk.subscribers.calls) == 1


def test_deliver_leaves_slow_consumers_to_a_function_of_their_own_with_few_in_flight(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(max_in_flight=200)
    quick = desk.function(group, "slow", 60)
    task = task_of_group(desk.deps, desk, group)
    assert (task.function, quick.is_slow) == ("deliver", False)
    desk.function(group, "slow", 61)
    desk.produce(*(make.draft() for _ in range(30)))
    desk.inbox.asked.clear()
    report = desk.deps.dispatcher.deliver(task, lambda: 900.0)
    assert (report.finished, desk.subscribers.calls) == (False, [])
    ((function, event),) = desk.inbox.asked
    assert (function, task_of(event)) == ("deliver_slow", replace(task, is_slow=True))
    most = [0]

    def counts(push_batch: PushBatch) -> CallResult:
        cursors = desk.deps.adapters.cursors.of_owner(group.uid, "", consistent=True)
        most.append(sum(cursor.in_flight for cursor in cursors.values()))
        return CallResult(Verdict.DONE)

    desk.subscribers.behaviours["slow"] = counts
    desk.deps.dispatcher.deliver(task_of(event), lambda: 900.0)
    assert len(desk.subscribers.calls) == 30
    assert 0 < max(most) <= 25


@dataclass
class Watched(Subscribers):
    """Subscribers, the seconds each request had, and until when its messages were theirs."""

    seen: list[tuple[float, list[int]]] = field(default_factory=list)
    desk: PushDesk | None = None

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        assert self.desk is not None
        group = self.desk.deps.catalog.group(self.desk.topic, "billing")
        leases = self.desk.cursor(group).leases.values()
        self.seen.append((seconds, [lease.deadline_ms - START_MS for lease in leases]))
        return super().send(consumer, push_batch, seconds)


def run(seconds_left: Sequence[float], **settings: Any) -> tuple[Watched, PushDesk]:
    """One run on one message; so many seconds are left at each look, the last of them from then on."""
    desk = PushDesk.at(embedded_stage(), lease_seconds=40)
    desk.subscriber(desk.group(**settings), "one")
    desk.produce(make.draft())
    desk.inbox.asked.clear()
    sender = Watched(desk.stage.clock, desk=desk)
    answers = list(seconds_left)
    deps = Deps(replace(desk.deps.adapters, sender=lambda: sender))
    task = DispatchTask(desk.topic.name, "billing")
    deps.dispatcher.deliver(task, lambda: answers.pop(0) if len(answers) > 1 else answers[0])
    return sender, desk


def test_an_attempt_takes_thirty_seconds_at_most_and_the_message_stays_some_seconds_more() -> None:
    sender, _ = run([600], lease_seconds=12)
    assert sender.seen == [(30, [36_000])]


def test_no_attempt_begins_that_could_not_end_in_time_and_the_next_run_is_started() -> None:
    sender, desk = run([600, 34.9])
    assert sender.seen == []
    assert [event["group"] for function, event in desk.inbox.asked if function == "deliver"] == ["billing"]


@pytest.mark.parametrize(("waited_ms", "calls"), [(5_000, 1), (5_001, 0)])
def test_what_waited_for_its_body_too_long_is_not_sent_and_counts_as_no_attempt(
    waited_ms: int, calls: int
) -> None:
    """Too little of its lease would be left for the attempt."""
    desk = PushDesk.at(embedded_stage(), max_body_bytes=1 << 20)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft("x" * (BLOB_THRESHOLD_BYTES + 1)))

    class Slow:
        """Bodies that come late."""

        def __getattr__(self, name: str) -> Any:
            return getattr(desk.stage.adapters.blobs, name)

        def get(self, name: str) -> bytes | None:
            desk.stage.clock.advance(waited_ms)
            return desk.stage.adapters.blobs.get(name)

    deps = Deps(replace(desk.deps.adapters, blobs=Slow()))
    report = deps.dispatcher.deliver(DispatchTask(desk.topic.name, "billing"), lambda: 12.0)
    assert len(desk.subscribers.calls) == calls
    assert set(report.verdicts) == ({"DONE"} if calls else {"NOT_ATTEMPTED"}), report.verdicts
