"""Worlds without a sweep: all due work begins by itself, within a bound (I10).

A sweep starts all forgotten work. So it hides a delivery that stalls: all is well in the end, and late each time.
Here no sweep runs. Calls are slow and processes many, reads are stale, wake-ups come late and twice, subscribers fail
and hang, operators change things; but nothing is lost, since the sweep's task is to find what is lost. A run that
leaves open work must make sure that another run comes.

The store is judged, once a second: a shard, a lane or a timer that could be served all the time, and was not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from chalicelib.domain.cursor import Cursor
from chalicelib.domain.cursor_transitions import leased_units
from chalicelib.domain.spans import Span
from chalicelib.domain.topic import CursorKey, Group, Topic
from chalicelib.modes import POLICIES
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.positions import all_keys
from chalicelib.store.layout import FRAGMENTS
from tests.simulation.actors import begin
from tests.simulation.clients import TOPIC, SimClient
from tests.simulation.plan import DEEDS, MOODS, GroupPlan, Plan, plan_of
from tests.simulation.processes import Faults
from tests.simulation.virtual import Endless
from tests.simulation.world import World
from tests.support.flows import draft

BOUND_MS = 20_000
"""Longer than what the stream, an invocation, a cold start, the caches and a few slow calls take together."""
_BURST = 6  # requests of fifty messages
_FLOODS = 3
_VISITS = 3
_VISITORS_LEASE_S = 600
_NOTHING_ELSE: dict[str, Any] = {"messages": 0, "delayed": 0, "deals": 0, "lines": 0, "deeds": ()}
_AFTERWARDS_S = 40  # no new requests come; the work that was asked for must go on


def play(seed: int, plan: Plan | None = None, *actors: Callable[[World], None]) -> tuple[World, list[str]]:
    """One seed's world (with another plan than its own, and more actors, if they are given), and what waited in it for
    a sweep."""
    world = World(plan or unswept_plan(seed))
    idle = Idle(world)
    begin(world)
    world.scheduler.spawn(idle.watches, world)
    for actor in actors:
        world.scheduler.spawn(partial(actor, world), world)
    if plan is None and _has_backlog(seed):
        world.scheduler.spawn(partial(_resumes, world), world, 5_000)
    try:
        world.run()
    except Endless as endless:
        return world, [str(endless)]
    return world, [*world.complaints, *idle.complaints]


def _has_backlog(seed: int) -> bool:
    return seed % 3 == 0


def unswept_plan(seed: int) -> Plan:
    """The seed's world, in which nothing is lost and no sweep runs."""
    rng = random.Random(f"unswept {seed}")
    plan = plan_of(seed)
    stale, pause = rng.choice((0.0, 0.0, 0.1, 0.3)), rng.choice((0.0, 0.02))
    shards, most = rng.choice((1, 2, 4)), rng.choice((1, 2, 8, 32, 64))
    plan = replace(
        plan,
        sweeps=False,
        seconds=60 + _AFTERWARDS_S,
        skew_ms=0,
        faults=Faults(stale=stale, pause=pause, longest_pause_ms=3_000),
        crash_every_s=0,
        stream_loss=0.0,
        skies=(),
        steps_every_s=0.0,
        irregular=0.0,
        schedule_seconds=60,
        function_seconds=rng.choice((60, 300)),
        looks=0,
        most_calls=100_000,
        messages=rng.choice((8, 32, 64)),
        producers=rng.choice((1, 3, 8)),
        moods={"good": 3.0, **{m: rng.random() for m in rng.sample(_MOODS, rng.choice((0, 0, 1, 2)))}},
        deeds=tuple(rng.sample(DEEDS, rng.choice((0, 0, 1, 3)))),
        topic={**plan.topic, "shards": shards, "lease_seconds": rng.choice((5, 10))},
        groups=tuple(_called(rng, group, most) for group in plan.groups),
    )
    return _with_backlog(rng, plan) if _has_backlog(seed) else plan


def _with_backlog(rng: random.Random, plan: Plan) -> Plan:
    """Several deliveries at once, each of which is sure of few places; and nothing else happens."""
    shards = rng.choice((2, 3, 4))
    settings = {"mode": "queue", "begin": "earliest", "max_in_flight": rng.choice((4, 8, 16)) * (shards + 1)}
    return replace(
        plan,
        topic={**plan.topic, "shards": shards},
        groups=(GroupPlan("g0", settings, called=rng.choice((1, 2, 3))),),
        **_NOTHING_ELSE,
        answer_ms=rng.choice(((1, 10), (1, 50), (5, 500))),
    )


def play_with_few_slots(seed: int) -> tuple[World, list[str]]:
    """A seed's world in which one run serves all shards, and what waited in it for a sweep: a few messages come at
    once, to several shards, and then none for longer than the bound."""
    rng = random.Random(f"few slots {seed}")
    shards = rng.choice((2, 4, 8))
    settings = {
        "mode": "queue",
        "begin": "earliest",
        "max_in_flight": rng.choice((1, 2, 3, shards, 2 * shards)),
    }
    plan = unswept_plan(seed)
    plan = replace(
        plan,
        topic={**plan.topic, "shards": shards},
        groups=(GroupPlan("g0", settings, called=rng.choice((1, 2, 3))),),
        **_NOTHING_ELSE,
        moods={"good": 1.0},
        answer_ms=rng.choice(((5, 500), (50, 1_500), (500, 4_000))),
    )

    def floods(world: World) -> None:
        for _ in range(_FLOODS):
            world.pause(rng.uniform(1, 3))
            for _ in range(rng.choice((2, 4, 8, 12))):
                label = f"flood {world.stamp()}"
                world.ask(SimClient.produce, draft(label, ordering_key=label))
            world.pause(BOUND_MS / 1000 + 2)

    return play(seed, plan, floods)


def play_beside_visitors(seed: int) -> tuple[World, list[str]]:
    """A seed's world in which consumers come that pull, hold what they get for a while and leave, and what waited in
    it for a sweep: what they give back or let go, and what lies beside it, is for those that are called."""
    rng = random.Random(f"visitors {seed}")
    settings = {
        "mode": rng.choice(("queue", "serial")),
        "begin": "earliest",
        "max_in_flight": rng.choice((1, 2, 8, 32)),
    }
    plan = unswept_plan(seed)
    plan = replace(
        plan,
        topic={**plan.topic, "shards": rng.choice((1, 2, 4))},
        groups=(GroupPlan("g0", settings, called=rng.choice((1, 2))),),
        **_NOTHING_ELSE,
        moods={"good": 1.0},
        answer_ms=rng.choice(((1, 50), (5, 500), (500, 2_000))),
    )

    def visits(world: World) -> None:
        for n in range(_VISITS):
            world.pause(rng.uniform(0, 3))
            _visit(world, rng, f"visitor{n}")
            world.pause(BOUND_MS / 1000 + 2)

    return play(seed, plan, visits)


def _visit(world: World, rng: random.Random, name: str) -> None:
    """Come, pull, and leave before or after what was pulled is settled, or left to a lease that ends sooner."""
    world.ask(SimClient.register, "g0", name)
    messages = []
    for _ in range(rng.choice((1, 2, 4))):
        labels = [f"visit {world.stamp()}" for _ in range(rng.choice((2, 8)))]
        drafts = [draft(label, ordering_key=rng.choice(("a", "b", label))) for label in labels]
        world.ask(SimClient.produce, *drafts)
        world.pause(rng.uniform(0, 1))
        messages += world.ask(SimClient.receive, "g0", rng.choice((1, 3, 10)), name, _VISITORS_LEASE_S) or []
    leaves_first = rng.random() < 0.5
    if leaves_first:
        world.ask(SimClient.unregister, "g0", name)
    world.pause(rng.choice((0, 6)))
    if rng.random() < 0.25:
        world.ask(SimClient.extend, "g0", messages, 1, name)
        messages = []
    for message in messages:
        world.pause(rng.uniform(0, 1))
        how = rng.choice((None, None, Nack(0), Nack(None), Nack(4_000)))
        if how is None:
            world.ask(SimClient.ack, "g0", [message], name)
        else:
            world.ask(SimClient.nack, "g0", [message], how, name)
    if not leaves_first:
        world.ask(SimClient.unregister, "g0", name)


_MOODS = tuple(mood for mood in MOODS if mood not in ("held", "gone"))


def _called(rng: random.Random, group: GroupPlan, most: int) -> GroupPlan:
    """Who pulls may come when it likes: only who is called is owed anything."""
    settings = {**group.settings, "max_in_flight": most}
    return replace(group, settings=settings, pullers=0, called=rng.choice((1, 2, 3)))


def _resumes(world: World) -> None:
    """Many messages wait on all shards when the groups go on, and then no more come: no group is woken twice."""
    for group in world.groups:
        world.ask(SimClient.pause, group, True)
    for _ in range(_BURST):
        labels = [f"burst {world.stamp()}" for _ in range(50)]
        world.ask(SimClient.produce, *(draft(label, ordering_key=label, tag="red") for label in labels))
    world.pause(5)
    for group in world.groups:
        world.ask(SimClient.pause, group, False)


class Idle:
    """What could be served and is not: since when, by what it is and how far it is."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[str, tuple[object, float]] = {}
        self.complaints: list[str] = []

    def watches(self) -> None:
        """An actor that looks at the store once a second."""
        while True:
            self._world.pause(1)
            now_ms = self._world.scheduler.now
            waits = dict(self._waiting(int(now_ms)))
            self._since = {
                what: (progress, self._since_of(what, progress, now_ms)) for what, progress in waits.items()
            }
            overdue = [what for what, (_, since) in self._since.items() if now_ms - since > BOUND_MS]
            if overdue:
                at_s = round(self._world.seconds)
                self.complaints += [f"at {at_s} s {what} waits for a sweep" for what in overdue]
                self._since.clear()

    def _since_of(self, what: str, progress: object, now_ms: float) -> float:
        before, since = self._since.get(what, (None, now_ms))
        return since if before == progress else now_ms

    def _waiting(self, now_ms: int) -> Iterator[tuple[str, object]]:
        adapters = self._world.adapters
        for fragment in range(FRAGMENTS):
            due_ms = adapters.timers.next_ms(fragment)
            if due_ms is not None and due_ms < now_ms:
                yield f"a timer of fragment {fragment}", due_ms
        topic = adapters.control.topic(TOPIC)
        assert topic
        for group in adapters.control.groups(topic):
            for uid in self._served(topic, group, now_ms):
                keys = list(all_keys(topic, group, uid))
                cursors = {key: adapters.cursors.get(key) or Cursor() for key in keys}
                if sum(_at_work(cursor, now_ms) for cursor in cursors.values()) < group.max_in_flight:
                    yield from self._forgotten(group, cursors, now_ms)

    def _served(self, topic: Topic, group: Group, now_ms: int) -> list[str]:
        """The groups whose cursors a run must be at work on: all their consumers are push consumers, and no circuit is
        open."""
        consumers = self._world.adapters.control.consumers(topic, group)
        live = [
            c for c in consumers if c.is_called and c.state == "ACTIVE" and (c.open_until_ms or 0) <= now_ms
        ]
        if group.is_paused(now_ms) or not live:
            return []
        if POLICIES[group.mode].per_consumer:
            return [c.uid for c in live]
        return [""] if len(live) == len(consumers) else []

    def _forgotten(
        self, group: Group, cursors: dict[CursorKey, Cursor], now_ms: int
    ) -> Iterator[tuple[str, object]]:
        holds_back = POLICIES[group.mode].holds_back
        for key, cursor in cursors.items():
            if cursor.is_closed or _at_work(cursor, now_ms):
                continue
            has_due = any(lease.deadline_ms <= now_ms for lease in cursor.leases.values()) or any(
                span.due_ms <= now_ms for span in (_heads(cursor) if holds_back else cursor.waiting)
            )
            has_more = self._world.adapters.log.tail(key.shard).offset >= cursor.next
            if has_due or (has_more and not (holds_back and (cursor.waiting or cursor.leases))):
                yield f"{key.shard} for {group.name} {key.consumer_uid}", cursor.epoch


def _heads(cursor: Cursor) -> Iterable[Span]:
    """The first that waits of each unit of which none is leased: the others are due when it has ended."""
    leased = leased_units(cursor)
    return {span.unit: span for span in reversed(cursor.waiting) if span.unit not in leased}.values()


def _at_work(cursor: Cursor, now_ms: int) -> int:
    """How many messages runs have: pulled messages keep no run from coming."""
    leases = (lease for lease in cursor.leases.values() if lease.deadline_ms > now_ms and not lease.is_pulled)
    return sum(span.count for lease in leases for span in lease.spans)
