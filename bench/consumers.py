"""Eight consuming processes of one group, all at once on a backlog: what contention costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from chalicelib.domain.message import Draft
from chalicelib.domain.settings import Destination
from chalicelib.domain.topic import Group, Topic, cursor_keys
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.wiring import Deps

from .figures import Figure, at_least, at_most, without_target
from .meter import Cost, Meter
from .stage import Stage, receipts, run_together, say, stage

_CONSUMERS = 8
_MESSAGES = 4000
_PRODUCED_AT_ONCE = 25
_RECEIVED_AT_ONCE = 10
_BODY_CHARS = 240
_LIMIT_WU = 1.35
_LIMIT_RU = 0.15
_LEASE_SECONDS = 600
_MOST_SECONDS = 90
_SHARED = 300
_RATE = 100
_BEHIND = 100_000
_GRANTS = 80


class _Run(NamedTuple):
    """What one consumer did."""

    cost: Cost
    places: list[tuple[int, int]]
    start: float
    end: float


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """Units per message, with nothing and with 1,000 messages in flight; RuntimeError unless each came once."""
    with stage(endpoint) as target:
        for in_flight, shards in ((0, 4), (1000, 4), (0, 1)):
            say(
                f"consumers: {_CONSUMERS} processes, {_MESSAGES} messages, {shards} shards, {in_flight} in flight"
            )
            yield from _measure_contention(target, in_flight, shards)
        say(f"consumers: {_CONSUMERS} processes, {_MESSAGES} messages, with a destination of successes")
        yield from _measure_contention(target, 0, 4, is_told=True)
        yield _rate_reached(target)
        for consumers in (3, 4):
            yield _shares(target, consumers)
        say(f"consumers: priorities, {_BEHIND:,} messages waiting")
        yield from _measure_priorities(target)


def _measure_contention(
    target: Stage, in_flight: int, shards: int, *, is_told: bool = False
) -> Iterator[Figure]:
    meter = Meter()
    deps = target.deps(meter)
    topic, _ = deps.admin.put_topic(f"c{in_flight}-{shards}{'-told' * is_told}", {"shards": shards})
    settings: dict[str, Any] = {"begin": "earliest"}
    if is_told:
        to, _ = deps.admin.put_topic("told", {})
        settings["on_success"] = Destination(to.name, to.uid)
    group, _ = deps.admin.put_group(topic, "g", settings)
    places, produce_cost = _produce(deps, meter, topic, _MESSAGES + in_flight)
    leased_places = _hold(target.deps(), topic, group, in_flight)
    runs: list[_Run] = run_together(_CONSUMERS, partial(_consume, target, topic, group, _ends(places), 0))
    _check(places, leased_places, [place for run in runs for place in run.places])
    cost = sum((run.cost for run in runs), Cost()).per(_MESSAGES)
    work = f"{_CONSUMERS} consumers, receive {_RECEIVED_AT_ONCE}, {in_flight:,} in flight"
    work += "" if shards > 1 else ", one shard"
    if is_told:
        work += ", on_success"
        with meter.measure() as moving:
            while deps.mover.run_once().moved:
                pass
        yield without_target(
            f"{work}: write units per message to move it", f"{moving.per(_MESSAGES).writes:.3g}"
        )
    writes = produce_cost.per(len(places)).writes + cost.writes
    losses = sum(run.cost.failed for run in runs) / _MESSAGES
    yield at_most(
        f"{work}: write units per message in all",
        writes,
        2 * _LIMIT_WU if is_told else _LIMIT_WU,
        "WU",
        f"{losses:.3f} races lost a message",
    )
    if shards > 1 and not is_told:
        yield at_most(f"{work}: read units per message", cost.reads, _LIMIT_RU, "RU")
    else:  # the design's figure is for a topic as it comes, with 4
        yield without_target(f"{work}: read units per message", f"{cost.reads:.3g} RU")
    seconds = max(run.end for run in runs) - min(run.start for run in runs)
    yield without_target(f"{work}: messages a second", f"{_MESSAGES / seconds:,.0f}")


def _rate_reached(target: Stage) -> Figure:
    """The consumers on a backlog of a group with a rate limit."""
    deps = target.deps()
    topic, _ = deps.admin.put_topic("rated", {})
    group, _ = deps.admin.put_group(topic, "g", {"begin": "earliest", "rate_limit": _RATE})
    places, _ = _produce(deps, Meter(), topic, _RATE * 10)
    runs: list[_Run] = run_together(_CONSUMERS, partial(_consume, target, topic, group, _ends(places), 1))
    _check(places, [], [place for run in runs for place in run.places])
    rate = _RATE * 10 / (max(run.end for run in runs) - min(run.start for run in runs))
    cost = sum((run.cost for run in runs), Cost()).per(_RATE * 10)
    work = f"{_CONSUMERS} consumers under a rate limit of {_RATE}: messages a second"
    return without_target(work, f"{rate:.0f}; {cost.writes:.2f} WU, {cost.reads:.2f} RU a message")


def _shares(target: Stage, consumers: int) -> Figure:
    """Registered consumers, each a process, that poll in turn what one keyless producer has stored."""
    deps = target.deps()
    topic, _ = deps.admin.put_topic(f"shares-{consumers}", {})
    group, _ = deps.admin.put_group(topic, "g", {"begin": "earliest"})
    members = [deps.registry.register(topic, group, f"c{n}").member.consumer for n in range(consumers)]
    processes = [target.deps() for _ in members]
    _ = [
        deps.producer.produce(topic, [Draft(b"1")] * _PRODUCED_AT_ONCE)
        for _ in range(_SHARED // _PRODUCED_AT_ONCE)
    ]
    counts: Counter[int] = Counter()
    while counts.total() < _SHARED:
        for n, (process, member) in enumerate(zip(processes, members, strict=True)):
            deliveries = process.receiver.receive(topic, group, member, _RECEIVED_AT_ONCE, 0, _LEASE_SECONDS)
            process.settler.ack(topic, group, receipts(process, deliveries))
            counts[n] += len(deliveries)
    mean = _SHARED / consumers
    worst = max(abs(counts[n] - mean) / mean for n in range(consumers))
    shares = "/".join(str(counts[n]) for n in range(consumers))
    work = f"{_SHARED} messages of one keyless producer over {consumers} that pull: furthest from the mean"
    return at_most(work, 100 * worst, 20, "%", shares)


def _measure_priorities(target: Stage) -> Iterator[Figure]:
    """How soon an urgent message comes behind others, what the last priority gets beside many urgent ones, and what it
    costs to look for nothing."""
    deps = target.deps()
    topic, _ = deps.admin.put_topic("urgent", {"priorities": 3})
    group, _ = deps.admin.put_group(topic, "g", {"begin": "earliest"})
    last, first = ([Draft(b"1", priority=priority)] * 1_000 for priority in (None, 0))
    for _ in range(_BEHIND // len(last)):
        deps.producer.produce(topic, last)
    consumer = target.deps()

    def receive(most: int) -> list[int]:
        deliveries = consumer.receiver.receive(topic, group, None, most, 0, _LEASE_SECONDS)
        consumer.settler.ack(topic, group, receipts(consumer, deliveries))
        return [delivery.message.draft.priority is None for delivery in deliveries]

    receive(1)
    deps.producer.produce(topic, first)
    grants = next(n for n in range(1, _GRANTS) if not receive(1)[0])
    yield at_most(f"the most urgent behind {_BEHIND:,} others: grants until it comes", grants, 1, "")
    for most, times in ((1, _GRANTS), (16, 16)):
        share = 100 * sum(sum(receive(most)) for _ in range(times)) / (most * times)
        yield at_least(f"many urgent ones, receive {most}: part of the last priority", share, 12.5, "%")
    reads: list[float] = []
    for priorities in (1, 3):
        meter = Meter()
        idle, _ = deps.admin.put_topic(f"idle-{priorities}", {"priorities": priorities})
        pulling, _ = deps.admin.put_group(idle, "g", {"begin": "earliest"})
        consumer = target.deps(meter)
        for _ in range(2):  # the second is warm
            with meter.measure() as cost:
                consumer.receiver.receive(idle, pulling, None, 10, 0, _LEASE_SECONDS)
        reads.append(cost.reads)
    work = "idle receive with 3 priorities: read units of one with 1"
    yield at_most(work, reads[1] / reads[0], 3, "x", f"{reads[1]:g} and {reads[0]:g} RU")


def _produce(deps: Deps, meter: Meter, topic: Topic, count: int) -> tuple[Counter[tuple[int, int]], Cost]:
    """Where the messages stand, and what it cost; the batches go round the shards."""
    places: Counter[tuple[int, int]] = Counter()
    body = b'"' + b"x" * _BODY_CHARS + b'"'
    with meter.measure() as cost:
        for i in range(count // _PRODUCED_AT_ONCE):
            drafts = [Draft(body, shard=i % topic.shards)] * _PRODUCED_AT_ONCE
            for result in deps.producer.produce(topic, drafts):
                if not isinstance(result, ProduceResult):
                    raise result
                assert result.shard is not None
                assert result.offset is not None
                places[result.shard, result.offset] += 1
    return places, cost


def _hold(deps: Deps, topic: Topic, group: Group, count: int) -> list[tuple[int, int]]:
    """Receive so many, ten at a time, and never settle them."""
    places: list[tuple[int, int]] = []
    while len(places) < count:
        deliveries = deps.receiver.receive(topic, group, None, _RECEIVED_AT_ONCE, 0, _LEASE_SECONDS)
        places += [(d.message.shard, d.message.offset) for d in deliveries]
    return places


def _consume(
    target: Stage,
    topic: Topic,
    group: Group,
    end_offsets: dict[int, int],
    wait_seconds: float,
    number: int,
    ready: Callable[[], None],
) -> _Run:
    """Receive and ack until all is claimed: who only loses races tries again."""
    meter = Meter()
    deps = target.deps(meter)
    _ = deps.signing_key
    places: list[tuple[int, int]] = []
    ready()
    start = end = time.monotonic()
    while time.monotonic() < start + _MOST_SECONDS:
        deliveries = deps.receiver.receive(
            topic, group, None, _RECEIVED_AT_ONCE, wait_seconds, _LEASE_SECONDS
        )
        if not deliveries:
            if _are_all_claimed(deps, topic, group, end_offsets):
                break
            continue
        refusals = deps.settler.ack(topic, group, receipts(deps, deliveries))
        if any(answer is not None for answer in refusals):
            raise AssertionError(refusals)
        places += [(d.message.shard, d.message.offset) for d in deliveries]
        end = time.monotonic()
    return _Run(meter.cost, places, start, end)


def _ends(places: Counter[tuple[int, int]]) -> dict[int, int]:
    """By shard the offset after the last."""
    return {shard: offset + 1 for shard, offset in sorted(places)}


def _are_all_claimed(deps: Deps, topic: Topic, group: Group, end_offsets: dict[int, int]) -> bool:
    """As far as the states tell that the process saw last: that costs no read."""
    cursors = {key.shard.shard: deps.states.last(key).cursor.next for key in cursor_keys(topic, group)}
    return all(cursors[shard] >= end for shard, end in end_offsets.items())


def _check(produced_places: Counter[Any], leased_places: list[Any], consumed_places: list[Any]) -> None:
    if Counter(leased_places) + Counter(consumed_places) != produced_places:
        raise RuntimeError(
            f"{produced_places.total()} produced, {len(leased_places)} held, {len(consumed_places)} consumed: "
            "not each once"
        )
