"""Shares in a queue: consumers who have equal chances get equal parts.

A world gives chances that are equal: its consumers are served alike, take as many at a time, as often, and keep them as
long. First there is trouble, of which some consumers may have more than others. It ends; a while later, when leases and
circuits of that time are over, the stretch begins in which all are healthy. The first attempts of messages produced in
that stretch are judged: each consumer's part is within a fifth of the mean.

Chance has a part, too: a puller that comes when there was no claim for a second may take a burst whole. So parts that
look unequal are judged again in a stretch three times as long. Of 250 fair runs of the worst case five were beyond a
fifth in the short stretch, and none beyond 15 % in the long one, where a fifth is more than four standard deviations.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from chalicelib.domain.ladder import Retry
from chalicelib.services.produce.appender import ProduceResult
from tests.simulation.actors import crashes
from tests.simulation.clients import TOPIC, SimClient
from tests.simulation.operators import contact
from tests.simulation.plan import GroupPlan, Plan
from tests.simulation.processes import Faults
from tests.simulation.world import World
from tests.support.flows import draft

_GROUP = "g0"
_TROUBLE_S = 20
_HEALTHY_S = 60  # from here on all have equal chances
_ENDS_S = (220, 520)
_LEAST = 80  # messages for each, to judge by
_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Case:
    """Who produces and who consumes. Each request asks for up to `most`."""

    kind: str  # pull or call
    consumers: int
    keys: int  # 0: messages have none
    shards: int
    most: int
    trouble: str


def case_of(seed: int) -> Case:
    rng = random.Random(f"shares {seed}")
    return Case(
        ("pull", "call")[seed % 2],
        (3, 4)[seed // 2 % 2],
        (0, 100)[seed // 4 % 2],
        rng.choice((1, 2, 4)),
        rng.choice((1, 10, 100)),
        rng.choice(tuple(_TROUBLES)),
    )


def play(seed: int) -> tuple[World, list[str]]:
    """One seed's world, and whose part is not equal."""
    case = case_of(seed)
    for end_s in _ENDS_S:
        world, names, counts = _run(seed, case, end_s)
        unequal = [*_unequal(case, names, counts)]
        if world.complaints or not unequal:
            break
    return world, [*world.complaints, *unequal]


def _run(seed: int, case: Case, end_s: int) -> tuple[World, list[str], Counter[str]]:
    """A world of so many seconds, its consumers, and how many of the messages that are judged each has got."""
    world = World(_plan(seed, case, end_s))
    founder = world.begin("founder", world.calm, 0)
    founder.deps.admin.put_topic(TOPIC, dict(world.plan.topic))
    client = SimClient(founder)
    client.put_group(_GROUP, **{**world.groups[_GROUP].settings, "retry": world.plan.topic["retry"]})
    names = [f"{case.kind}{n}" for n in range(case.consumers)]
    for name in names:
        client.register(_GROUP, name, contact(name))
    fresh: set[str] = set()
    counts: Counter[str] = Counter()
    world.scheduler.spawn(partial(_produces, world, case, fresh), world)
    if case.kind == "pull":
        for n, name in enumerate(names):
            world.scheduler.spawn(partial(_pulls, world, case, name, fresh, counts), world, 100 * n)
    world.scheduler.spawn(partial(_TROUBLES[case.trouble], world), world, 1_000)
    world.scheduler.spawn(partial(_recovers, world), world, _TROUBLE_S * 1000)
    world.schedule()
    world.run()
    if case.kind == "call":
        counts.update(_called(world, fresh))
    return world, names, counts


def _plan(seed: int, case: Case, end_s: int) -> Plan:
    settings = {"mode": "queue", "begin": "earliest", "max_in_flight": 64}
    pullers, callers = (case.consumers, 0) if case.kind == "pull" else (0, case.consumers)
    return Plan(
        seed=seed,
        seconds=end_s,
        skew_ms=0,
        faults=Faults(),
        crash_every_s=3,
        stream_loss=0.0,
        topic={"shards": case.shards, "retry": Retry(5, (1, 2)), "lease_seconds": 10, "wake": "stream"},
        groups=(GroupPlan(_GROUP, settings, pullers, callers),),
        producers=1,
        messages=0,
        pool=256,
        function_seconds=60,
        skies=("throttled",),
        sky_every_s=2.0,
        most_calls=300 * end_s,
    )


def _produces(world: World, case: Case, fresh: set[str]) -> None:
    """A burst now and then, and one by one between."""
    rng = random.Random(f"produces {world.seed}")
    while world.seconds < world.plan.seconds - 15:
        healthy = world.seconds > _HEALTHY_S
        drafts = [
            draft(f"m{world.stamp()}", ordering_key=f"k{rng.randrange(case.keys)}" if case.keys else None)
            for _ in range(rng.choice((1, 1, 1, 4, 24)))
        ]
        results = world.ask(SimClient.produce, *drafts) or ()
        fresh.update(each.id for each in results if isinstance(each, ProduceResult) and healthy)
        world.pause(rng.uniform(0.1, 2))


def _pulls(world: World, case: Case, name: str, fresh: set[str], counts: Counter[str]) -> None:
    """Each is as quick as the others, and no two keep step."""
    rng = random.Random(f"{name} {world.seed}")
    while True:
        messages = world.ask(SimClient.receive, _GROUP, case.most, name, 30) or []
        counts[name] += sum(d.attempt == 1 and d.message.id in fresh for d in messages)
        if messages:
            world.ask(SimClient.ack, _GROUP, messages, name)
        world.pause(rng.uniform(0.2, 0.6))


def _called(world: World, fresh: set[str]) -> Iterator[str]:
    for _, _, method, args, _ in world.path:
        if method == "send":
            yield from (args[0] for message_id, number in args[1] if number == 1 and message_id in fresh)


def _unequal(case: Case, names: list[str], counts: Counter[str]) -> Iterator[str]:
    mean = counts.total() / case.consumers
    if mean < _LEAST:
        yield f"{counts.total()} messages are too few to judge by"
    elif any(abs(counts[name] - mean) > _SHARE * mean for name in names):
        yield f"{case}: {dict(counts)}"


# Trouble, and its end


def _nothing(world: World) -> None:
    """All is well from the beginning."""


def _one_leaves(world: World) -> None:
    """The first goes, and comes back."""
    name = "pull0" if world.groups[_GROUP].pullers else "call0"
    world.ask(SimClient.unregister, _GROUP, name)
    world.pause(_TROUBLE_S)
    world.ask(SimClient.register, _GROUP, name, contact(name))


_TROUBLES: dict[str, Callable[[World], object]] = {
    "none": _nothing,
    "crashes": crashes,
    "weather": lambda world: world.weather.changes(),
    "one leaves": _one_leaves,
}


def _recovers(world: World) -> None:
    world.weather.clears()
    world.plan = replace(world.plan, crash_every_s=1_000_000)
