"""In a queue messages are shared out, not shards: equal consumers get equal parts, and an idle consumer never waits for
another. Urgent messages come first, and an eighth is of the last priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.cursor import Disposition
from chalicelib.domain.ids import parse_message_id
from chalicelib.domain.ladder import Retry
from chalicelib.domain.topic import Consumer, ConsumerKind
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.manage.registry import Contact
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.push import PushDesk, capacity_of, claims_of, sources_of
from tests.support.stages import Stage, embedded_stage


def shares(desk: PushDesk) -> Counter[str]:
    return Counter(call.target for call in desk.subscribers.calls for _ in call.offsets)


def are_even(counts: Counter[str], consumers: int) -> bool:
    """Is each consumer within a fifth of the mean?"""
    mean = counts.total() / consumers
    return len(counts) == consumers and all(abs(n - mean) <= mean / 5 for n in counts.values())


@pytest.mark.parametrize("consumers", [2, 6])
@pytest.mark.parametrize(("messages", "together"), [(60, 1), (60, 7), (300, 300)])
def test_subscribers_get_equal_parts_of_what_one_shard_holds(
    stage: Stage, consumers: int, messages: int, together: int
) -> None:
    desk = PushDesk.at(stage, shards=4)
    group = desk.group()
    names = [f"c{n}" for n in range(consumers)]
    for name in names:
        desk.subscriber(group, name)
    for _ in range(0, messages - messages % together, together):
        desk.produce(*(make.draft(shard=2) for _ in range(together)))
        desk.push()
    assert are_even(shares(desk), consumers)
    assert {tuple(n) for n in desk.subscribers.numbers().values()} == {(1,)}


@pytest.mark.parametrize("kind", ["url", "pull"])
@pytest.mark.parametrize("is_cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize(("consumers", "messages"), [(4, 12), (3, 24)])
def test_single_messages_without_keys_go_round_whichever_process_stores_them(
    stage: Stage, consumers: int, kind: str, is_cold: bool, messages: int
) -> None:
    desk = PushDesk.at(stage, shards=4)
    group = desk.group()
    names = [f"c{n}" for n in range(consumers)]
    counts: Counter[str] = Counter()
    for name in names:
        desk.deps.registry.register(
            desk.topic, group, name, Contact(ConsumerKind(kind), name if kind == ConsumerKind.URL else "")
        )
    for _ in range(messages):
        producer = desk.stage.process().producer if is_cold else desk.deps.producer
        producer.produce(desk.topic, [make.draft()])
        desk.push()
        for name in names if kind == "pull" else []:
            member = desk.deps.catalog.consumer(desk.topic, group, name)
            claimed_messages = desk.deps.receiver.receive(desk.topic, group, member, 10, 0, 30)
            desk.deps.settler.settle(
                desk.topic,
                group,
                [d.receipt for d in claimed_messages],
                lambda *_: SettleDecision(Disposition.SUCCESS),
            )
            counts[name] += len(claimed_messages)
    assert (counts if kind == "pull" else shares(desk)) == dict.fromkeys(names, messages // consumers)


def test_the_trace_tells_of_each_attempt_who_made_it(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=4, retry=Retry(3, (1,), jitter=0.0))
    group = desk.group()
    for name in ("a", "b", "c"):
        desk.subscriber(group, name)
    results = desk.produce(*(make.draft(shard=1) for _ in range(9)))
    desk.push()
    targets = {message_id: c.target for c in desk.subscribers.calls for message_id, _ in c.attempts}
    for each in results:
        (attempt,) = [e for e in desk.trace(each.id) if e.event == "delivered"]
        assert attempt.consumer == targets[each.id]
        assert (attempt.rank, attempt.total) == ("abc".index(targets[each.id]), 3)


def test_what_failed_at_one_subscriber_may_go_to_another(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=Retry(6, (1,), jitter=0.0))
    group = desk.group()
    desk.subscriber(group, "bad", behaviour=lambda _: CallResult(Verdict.FAILED, "HTTP 500"))
    desk.subscriber(group, "good")
    desk.produce(*(make.draft(shard=0) for _ in range(6)))
    desk.push()
    desk.pass_time(600)
    assert desk.deps.surveyor.exact_group(desk.topic, group).dead == 0
    assert shares(desk)["good"] == 6


def test_in_a_serial_group_a_shard_has_one_holder(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(mode="serial")
    for name in ("a", "b"):
        desk.subscriber(group, name)
    desk.produce(*(make.draft(shard=n % 2) for n in range(20)))
    desk.push()
    assert shares(desk) == {"a": 10, "b": 10}
    target_of = {call.attempts[0][0]: call.target for call in desk.subscribers.calls}
    for shard in range(2):
        holders = {
            target for id, target in target_of.items() if (at := parse_message_id(id)) and at[1] == shard
        }
        assert len(holders) == 1


@pytest.mark.parametrize("consumers", [3, 6])
@pytest.mark.parametrize("most", [1, 1000])
@pytest.mark.parametrize("processes", [1, 2])
def test_those_that_pull_get_equal_parts_of_what_one_producer_puts_into_one_shard(
    stage: Stage, consumers: int, most: int, processes: int
) -> None:
    desk = PushDesk.at(stage, shards=4)
    group = desk.group()
    names = [f"c{n}" for n in range(consumers)]
    for name in names:
        desk.deps.registry.register(desk.topic, group, name)
    others = [Deps(stage.another()) for _ in range(processes)]
    desk.produce(*make.drafts(60))
    counts: Counter[str] = Counter()
    for turn in range(60):
        for n, name in enumerate(names):
            deps = others[(turn + n) % processes]
            member = deps.catalog.consumer(desk.topic, group, name)
            messages = deps.receiver.receive(desk.topic, group, member, most, 0, 30)
            deps.settler.settle(
                desk.topic,
                group,
                [d.receipt for d in messages],
                lambda *_: SettleDecision(Disposition.SUCCESS),
            )
            counts[name] += len(messages)
    assert counts.total() == 60
    assert are_even(counts, consumers)


def test_in_a_serial_group_nobody_pulls_from_the_shards_of_others(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(mode="serial")
    first, second = (desk.deps.registry.register(desk.topic, group, name).member.consumer for name in "ab")
    desk.produce(*(make.draft(shard=0, ordering_key=str(n)) for n in range(4)))
    assert desk.deps.receiver.receive(desk.topic, group, second, 10, 0, 30) == []
    assert len(desk.deps.receiver.receive(desk.topic, group, first, 10, 0, 30)) == 4


@settings(max_examples=12)
@given(
    shards=st.sampled_from([1, 4, 8]),
    plan=st.lists(
        st.lists(st.integers(0, 2), max_size=20) | st.sampled_from([1, 1, 2, 7, 8, 16, 100]), max_size=12
    ),
    is_registered=st.booleans(),
)
def test_each_grant_takes_the_most_urgent_messages_and_an_eighth_of_the_last_ones(
    shards: int, plan: list[list[int] | int], is_registered: bool
) -> None:
    desk = PushDesk.at(embedded_stage(), shards=shards, priorities=3)
    group = desk.group()
    consumer = desk.consumer(group, "one") if is_registered else None
    waiting: Counter[int] = Counter()
    turn = 0
    for step in [*plan, *[1] * 9, *[100] * len(plan)]:
        if isinstance(step, list):
            desk.produce(*(make.draft(priority=priority if priority < 2 else None) for priority in step))
            waiting.update(step)
            continue
        turn += step < 8
        order = [2, 1, 0] if step < 8 and not turn % 8 else [0, 1, 2]
        expected = Counter({2: min(waiting[2], step // 8)})
        for priority in order:
            expected[priority] += min(waiting[priority] - expected[priority], step - expected.total())
        messages = desk.receive(group, step, consumer)
        assert Counter(2 - each.message.shard // 256 for each in messages) == +expected
        waiting -= expected
        assert set(desk.ack(group, messages)) <= {None}
    assert not +waiting, "each came once"


def test_a_run_keeps_an_eighth_of_its_slots_from_the_last_priority(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=8, priorities=2)
    group = desk.group(max_in_flight=16)
    desk.subscriber(group, "one")
    desk.produce(*make.drafts(100))
    capacity = capacity_of(desk.deps)
    claims, sources = claims_of(desk.deps, capacity), sources_of(desk.deps, desk.topic, group)
    flying: list[tuple[Consumer, Sequence[ClaimedMessage]]] = []

    def look() -> Counter[int]:
        before = len(flying)
        for consumer, messages in claims.grants(sources):
            capacity.count(consumer, messages, +1)
            flying.append((consumer, messages))
        return Counter(each.message.shard // 256 for _, messages in flying[before:] for each in messages)

    assert look() == {0: 14}
    desk.produce(*make.drafts(40, priority=0))
    assert look() == {1: 2}
    looks: Counter[int] = Counter()
    for _ in range(16):
        consumer, messages = flying.pop(0)
        capacity.count(consumer, messages, -1)
        desk.ack(group, messages)
        looks += look()
    assert looks[1] == 38
    assert looks[0] >= 8
