"""What is counted adds up: for each reader every message of a log is in one state; and what waits is told."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from chalicelib.domain.account import Account
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.message import Message
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.consume.claimant import Delivery
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.lookup import TopicStats
from chalicelib.services.produce.delayed import Waiting
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.memory.timers import MemoryTimers
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import SECOND_MS, ManualClock
from tests.support.desk import Desk
from tests.support.stages import Stage

_STEPS = 60
BURY = Nack(dead_letter=True)


def stats(desk: Desk) -> TopicStats:
    (found,) = desk.deps.lookup.stats([desk.topic])
    return found


def messages(desk: Desk) -> Iterator[Message]:
    for row in desk.rows():
        for offset in range(row.first, row.end):
            message = row.message(0, offset)
            assert message
            yield message


def places(desk: Desk, message: Message) -> tuple[str, ...]:
    """Where a message is for the group, by its fate."""
    fate = desk.deps.fates.of(desk.topic, message)["billing"]
    return fate.places if fate.adds_up else ("nowhere",)


def account(desk: Desk, group: str = "billing") -> Account:
    return stats(desk).groups[group].account


class Hasty(ManualClock):
    """Each look at it takes a second."""

    def now_ms(self) -> int:
        self.advance(SECOND_MS)
        return super().now_ms()


def test_a_page_of_topics_ends_where_counting_takes_long(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    slow = Deps(replace(empty_stage.adapters, clock=Hasty()))
    assert 1 < len(slow.lookup.stats([desk.topic] * 50)) < 50
    assert len(slow.lookup.stats([desk.topic])) == 1
    assert slow.lookup.stats([]) == []


def test_what_waits_before_the_log_is_counted(empty_stage: Stage) -> None:
    desk, other = Desk.at(empty_stage), Desk.at(empty_stage)
    due_ms = empty_stage.clock.now_ms() + 60 * SECOND_MS
    first, *_ = desk.produce(*(make.draft(n, due_ms=due_ms + n) for n in range(3)))
    other.produce(make.draft("x", due_ms=due_ms))
    prepare = desk.deps.transactor.prepare
    halves = [prepare(desk.topic, make.draft(n), Checks(), delay_from_commit=False)[0] for n in range(3)]
    seen = stats(desk)
    assert (seen.accepted, seen.delayed.number, seen.prepared.number) == (0, 3, 3)
    assert seen.delayed.whole
    assert seen.prepared.whole
    waiting = desk.deps.lookup.find(desk.topic, first.id)
    assert isinstance(waiting, Waiting)
    desk.deps.delayed.cancel(desk.topic, waiting)
    desk.deps.transactor.decide(halves[0], TransactionState.COMMITTED)
    desk.deps.transactor.decide(halves[1], TransactionState.ROLLED_BACK)
    seen = stats(desk)
    assert (seen.accepted, seen.delayed.number, seen.prepared.number) == (1, 2, 1)
    assert [s.delayed.number for s in desk.deps.lookup.stats([other.topic, desk.topic])] == [1, 2]
    empty_stage.clock.advance(61 * SECOND_MS)
    desk.deps.mover.tick(range(FRAGMENTS))
    assert (stats(desk).accepted, stats(desk).delayed.number) == (3, 0)


def test_of_too_many_it_is_said_that_there_are_at_least_so_many(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    desk.produce(*(make.draft(n, due_ms=empty_stage.clock.now_ms() + 60_000) for n in range(60)))
    timers = empty_stage.adapters.timers
    counts = [timers.count_delayed(fragment, 3) for fragment in range(FRAGMENTS)]
    assert all(number.total() <= 3 for number in map(Counter, (by_topic for by_topic, _ in counts)))
    assert not all(whole for _, whole in counts)


def test_each_way_out_of_a_group_is_counted_as_what_it_is(stage: Stage) -> None:
    desk = Desk.at(stage)
    desk.produce(*make.drafts(2))
    group = desk.group(begin="latest", tags=("a",))
    placed = desk.produce(*(make.draft(n, tag="a" if n % 2 else "b") for n in range(10)))
    cancelled = desk.deps.lookup.message(desk.topic, placed[9].id)
    desk.deps.amender.cancel(desk.topic, cancelled)
    assert account(desk) == Account(new=10, skipped=2)
    got = desk.receive(group)
    assert account(desk).running == len(got) == 4
    desk.ack(group, got[:1])
    desk.nack(group, got[1:2], BURY)
    desk.nack(group, got[2:3], Nack(delay_ms=60_000))
    desk.nack(group, got[3:])
    assert account(desk) == Account(retrying=2, success=1, dead=1, skipped=2 + 6)
    (letter,) = desk.deps.redriver.letters(desk.topic, group, got[1].message.id)
    desk.deps.redriver.discard(desk.topic, group, letter)
    assert account(desk).dead == 1, "it was never taken: its delivery stays DEAD"
    stage.clock.advance(61 * SECOND_MS)
    again = desk.receive(group)
    assert account(desk) == Account(running=2, success=1, dead=1, skipped=8)
    desk.ack(group, again)
    assert account(desk) == Account(success=3, dead=1, skipped=8)
    assert stats(desk).groups["billing"].backlog == 0
    desk.seek(group, 2)
    assert account(desk) == Account(new=10, skipped=2)


@pytest.mark.many_calls
@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_i15_whatever_is_done_every_message_is_counted_once(stage: Stage, mode: str) -> None:
    is_quick = isinstance(stage.adapters.timers, MemoryTimers)
    for seed in range(12 if is_quick else 1):
        count_all_along(stage, mode, seed)


def count_all_along(stage: Stage, mode: str, seed: int) -> None:
    """Do this and that, and look after each step."""
    desk = Desk.at(stage, mode=mode, retry=Retry(3, (20,)))
    group = desk.group(tags=("a",))
    names = ("ann", "bob") if mode == "broadcast" else ("ann",)
    consumers = [desk.consumer(group, name) for name in names]
    rng = random.Random(f"{mode} {seed}")
    acked: set[tuple[str, str]] = set()
    held: list[Delivery] = []

    def settle(deliveries: list[Delivery], how: str) -> None:
        if how == "ack":
            codes = desk.ack(group, deliveries)
        else:
            nack = {"bury": BURY, "later": Nack(delay_ms=rng.randrange(1, 30_000)), "back": Nack()}[how]
            codes = desk.nack(group, deliveries, nack)
        if how == "ack":
            good = (d for d, code in zip(deliveries, codes, strict=True) if code is None)
            acked.update((d.receipt.consumer_uid, d.message.id) for d in good)

    def redrive() -> None:
        letters = [letter for _, letter in stage.adapters.records.dead(desk.topic, group, None, 100)]
        chosen = rng.sample(letters, rng.randrange(len(letters) + 1))
        if rng.random() < 0.3:
            for letter in chosen:
                desk.deps.redriver.discard(desk.topic, group, letter)
        else:
            desk.deps.redriver.redrive(desk.topic, group, chosen)

    for _ in range(_STEPS):
        act = rng.randrange(6)
        if act == 0:
            desk.produce(*(make.draft(n, tag=rng.choice("aab")) for n in range(rng.randrange(1, 6))))
        elif act == 1:
            held += desk.receive(group, rng.randrange(1, 8), rng.choice(consumers))
        elif act == 2 and held:
            rng.shuffle(held)
            cut = rng.randrange(1, len(held) + 1)
            settle(held[:cut], rng.choice(["ack", "ack", "bury", "later", "back"]))
            held = held[cut:]
        elif act == 3:
            stage.clock.advance(rng.choice([1_000, 10_000, 40_000]))
        elif act == 4:
            redrive()
        seen = stats(desk)
        assert seen.groups["billing"].account.total == seen.accepted * len(consumers)
        assert seen.groups["billing"].account.success == len(acked), "what was acknowledged and nothing else"
        if isinstance(stage.adapters.timers, MemoryTimers):
            states = Counter(word for message in messages(desk) for word in places(desk, message))
            assert states["nowhere"] == 0, "none is lost, none is in two places"
    stage.clock.advance(60 * SECOND_MS)
    for _ in range(10):
        for consumer in consumers:
            while got := desk.receive(group, 100, consumer):
                settle(got, "ack")
        stage.clock.advance(30 * SECOND_MS)
    seen = stats(desk)
    ended = seen.groups["billing"].account
    unwanted = sum(draft.tag == "b" for row in desk.rows() for draft in row.drafts)
    assert (ended.new, ended.running, ended.retrying) == (0, 0, 0)
    assert (ended.success, ended.skipped) == (len(acked), unwanted * len(consumers))
    assert ended.total == seen.accepted * len(consumers)
    words: Counter[str] = Counter()
    for message in messages(desk):
        status = desk.deps.statuses.delivery(desk.topic, group, message)
        assert status
        words.update([each.status for each in status.consumers.values()] or [status.status])
    assert words["DEAD"] == ended.dead
    assert words["SUCCESS"] == ended.success + ended.skipped, "what was passed over is done with, too"
