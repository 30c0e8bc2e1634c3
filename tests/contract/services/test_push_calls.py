"""The calls of a run: their subscribers, their secrets, and the handling of those that could not be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.errors import unavailable
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import Consumer, Group, cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import DispatchTask
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import records
from tests.support.push import EXACT, PushDesk, Subscribers
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Troubled


@pytest.fixture
def stage() -> Stage:
    """The rules are the service's; that both stores keep rows alike is judged in tests/contract/ports."""
    return embedded_stage()


def deliver(desk: PushDesk, group: Group, **ports: Any) -> None:
    """One run, in a process that may have ports of the test's own."""
    deps = Deps(replace(desk.deps.adapters, **ports))
    deps.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: 600.0)


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


@dataclass
class Seen(Subscribers):
    """Subscribers, and how many secrets their requests are signed with."""

    secrets: list[int] = field(default_factory=list)

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        self.secrets.append(len(consumer.secrets))
        return super().send(consumer, push_batch, seconds)


def test_a_former_secret_signs_until_its_overlap_ends(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    consumer = desk.subscriber(group, "one")
    desk.deps.registry.rotate_secret(desk.topic, group, consumer, 60)
    seen = Seen(stage.clock)
    for _ in range(2):
        desk.produce(make.draft())
        deliver(desk, group, sender=lambda: seen)
        stage.clock.advance(DAY_MS)
    assert seen.secrets == [2, 1]


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


def test_nobody_is_called_for_messages_none_of_which_has_a_body(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft("x" * (BLOB_THRESHOLD_BYTES + 1)))
    deliver(desk, group, blobs=Troubled(desk.deps.adapters.blobs, lambda *_: True))
    assert desk.subscribers.calls == []


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
    assert sorted((call.target, call.offsets[0]) for call in desk.subscribers.calls) == sorted(
        (name, offset) for name in (one, two) for offset in range(9)
    ), "all of them, in one run"
    assert min(leases.values()) - stage.clock.now_ms() > 100_000, "as long as the slowest may take"


def test_i7_what_is_retried_in_a_lane_is_sent_as_its_own_subscriber_wants_it(stage: Stage) -> None:
    """As many together, and for as long, whichever run claimed it."""
    desk = PushDesk.at(stage, shards=2, mode="serial")
    group = desk.group(max_in_flight=64, batch_size=3)
    desk.produce(*(make.draft(shard=shard) for shard in (0, 1) for _ in range(6)))
    while messages := desk.receive(group, 12):
        desk.nack(group, messages, Nack(dead_letter=True))
    desk.subscriber(group, "calls")
    desk.function(group, "together", 100)
    letters = [each for _, each in desk.deps.adapters.records.dead(desk.topic, group, None, 100)]
    desk.deps.dead_letters.redrive(desk.topic, group, letters)
    sent: dict[str, set[tuple[int, float]]] = {"calls": set(), "together": set()}

    class Watching:
        def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
            sent[consumer.name].add((len(push_batch.attempts), seconds))
            return desk.subscribers.send(consumer, push_batch, seconds)

    deliver(desk, group, sender=Watching)
    (alone,), (together,) = sent["calls"], sent["together"]
    assert (alone[0], together[0]) == (1, 3)
    assert alone[1] < 100 <= together[1]
