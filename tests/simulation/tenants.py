"""Two tenants on one stage: one is in trouble, of one kind after another; the other's due work is timed (I17).

Nothing else goes wrong: clocks agree, no process dies, schedules come each minute. So if work of the good tenant is
late, its neighbour is the cause. The beginning of attempts is judged: a timer's, a retry's and a push's within 5 s of
its time, what only a sweep finds within 5 s of the next sweep.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.message import Draft
from chalicelib.domain.topic import ConsumerKind
from chalicelib.services.consume.settle import Nack
from chalicelib.services.manage.registry import Contact
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.transactions import Checks
from chalicelib.wiring import Deps
from tests.simulation import unreadable
from tests.simulation.clients import TOPIC, SimClient
from tests.simulation.plan import GroupPlan, Plan
from tests.simulation.processes import Clock, Faults
from tests.simulation.promises import Deal
from tests.simulation.streams import Stream
from tests.simulation.world import World
from tests.support.clock import SeededRandom
from tests.support.damage import NEWER, Change, change_row, having, without
from tests.support.flows import draft
from tests.support.push import Inbox

GOOD, QUIET = "payments", "refunds"  # the good tenant's topics
_WAIT_S = 1
_RETRY = Retry(6, (_WAIT_S,), jitter=0.0)
_LATE_MS = 5_000
_SWEEP_MS = 60_500  # with the jitter of schedules
_STREAM_MS = 2_400  # what the stream and an invocation take, also in trouble
_LONGEST_CALL_MS = 500
_SECONDS = 120
_UNTIL_S = 45  # so long producers may send: then the last sweep is due
_MANY = 2_000
"""Timers that are due at once."""
_FEW_TOPICS, _TOPICS, _CONSUMERS = 60, 300, 10  # few with the first seed: they take long to play


@dataclass
class Due:
    """What the good tenant is owed: when at the latest each attempt of its messages was to begin, by message and
    number, and why then."""

    times: dict[tuple[str, int], tuple[float | None, str]] = field(default_factory=dict)
    """None: when the attempt before has failed, and waited."""

    def late(self, world: World) -> Iterator[str]:
        """What came late, or never."""
        start_of = dict(self._attempts(world))
        for attempt, (due_ms, why) in self.times.items():
            at_ms, (message_id, number) = start_of.get(attempt), attempt
            if due_ms is None:
                due_ms = (
                    start_of.get((message_id, number - 1), 0) + _LONGEST_CALL_MS + _WAIT_S * 1000 + _STREAM_MS
                )
            if at_ms is None:
                yield f"attempt {attempt[1]} of {attempt[0]} never came ({why})"
            elif at_ms > due_ms + _LATE_MS:
                yield f"attempt {attempt[1]} of {attempt[0]} came {at_ms - due_ms:.0f} ms late ({why})"

    def _attempts(self, world: World) -> Iterator[tuple[tuple[str, int], float]]:
        for at_ms, _, method, args, _ in world.path:
            if method == "send" and not args[0].startswith("bad"):
                yield from ((each, at_ms) for each in args[1])


def play(trouble: str, seed: int = 0) -> tuple[World, list[str]]:
    """A world with one trouble, and what came late in it."""
    world, due = World(_plan(trouble, seed)), Due()
    stream = world.wakes = Stream(world, is_damaged=trouble == "a damaged stream")
    _set_up(world)
    rng = random.Random(f"good {seed}")
    world.scheduler.spawn(partial(_sends, world, due, rng), world)
    world.scheduler.spawn(partial(_sends_unheard, world, due, rng), world)
    world.scheduler.spawn(partial(TROUBLES[trouble], world), world, 5_000)
    world.schedule()
    world.run()
    return world, [*world.complaints, *due.late(world), *_unused(world), *_unjournaled(stream)]


def _plan(trouble: str, seed: int) -> Plan:
    bad = GroupPlan(
        "bad", {"mode": "queue", "max_in_flight": 64}, called=4, moods=_MOODS.get(trouble, {"good": 1.0})
    )
    good = GroupPlan("good", {"mode": "queue", "max_in_flight": 64}, called=2, moods={"at first": 1.0})
    quiet = GroupPlan("quiet", {"mode": "queue", "max_in_flight": 64}, called=1)
    return Plan(
        seed=seed,
        seconds=_SECONDS,
        skew_ms=0,
        faults=Faults(),
        crash_every_s=0,
        stream_loss=0.0,
        topic={"shards": 2, "retry": _RETRY, "lease_seconds": 30, "wake": "stream"},
        groups=(bad, good, quiet),
        producers=0,
        messages=0,
        pool=256,
        function_seconds=300,
        alone=True,
        cold_start_s=(0.2, 1.0),
        skies=("throttled",),
        refusal_ms=8_000,
        most_calls=200_000,
    )


def _set_up(world: World) -> None:
    deps = world.begin("founder", world.calm, 0).deps
    for name, groups in {TOPIC: ("bad",), GOOD: ("good",), QUIET: ("quiet",)}.items():
        topic = deps.admin.put_topic(name, dict(world.plan.topic))[0]
        for group in groups:
            settings = {"begin": "earliest", **world.groups[group].settings}
            stored_group, _ = deps.admin.put_group(topic, group, settings | {"tags": (group,)})
            for n in range(world.groups[group].called):
                contact = Contact(ConsumerKind.URL, f"https://{group}-{n}.example/")
                deps.registry.register(topic, stored_group, f"{group}-{n}", contact)


# The good tenant


def _sends(world: World, due: Due, rng: random.Random) -> None:
    """At once, for later, and what has to be tried again."""
    while world.seconds < _UNTIL_S:
        world.pause(rng.uniform(0.3, 1))
        now_ms = world.scheduler.now
        due_ms = int(now_ms + rng.choice((1_000, 4_000, 20_000))) if rng.random() < 0.5 else None
        is_failing = rng.random() < 0.3
        label = f"{'failing once' if is_failing else 'good'} {world.stamp()}"
        message = draft(label, due_ms=due_ms, tag="good", ordering_key=rng.choice(("a", "b", None)))
        for result in world.ask(_produce, GOOD, [message]) or ():
            assert isinstance(result, ProduceResult)
            came_ms = (due_ms or world.scheduler.now) + _STREAM_MS
            due.times[result.id, 1] = (came_ms, "a timer" if due_ms else "a push")
            if is_failing:
                due.times[result.id, 2] = (None, "a retry")


def _sends_unheard(world: World, due: Due, rng: random.Random) -> None:
    """Messages without a record in the stream."""
    deps = outside(world)
    topic = deps.catalog.topic(QUIET)
    while world.seconds < _UNTIL_S:
        world.pause(rng.uniform(2, 6))
        for result in deps.producer.produce(topic, [draft(f"quiet {world.stamp()}", tag="quiet")]):
            assert isinstance(result, ProduceResult)
            due.times[result.id, 1] = (world.scheduler.now + _SWEEP_MS, "a sweep")


def _produce(client: SimClient, topic: str, drafts: list[Draft]) -> list[Any]:
    stored_topic = client.deps.catalog.topic(topic)
    results = client.deps.producer.produce(stored_topic, drafts)
    client.deps.waker.wake_after_append(stored_topic, [p for p in results if isinstance(p, ProduceResult)])
    return results


def outside(world: World) -> Deps:
    """Direct access to the store, unseen by the stream; it wakes no group."""
    clock = Clock(world.scheduler, 0)
    chance = SeededRandom(f"outside {world.stamp()}")
    return Deps(replace(world.adapters, clock=clock, random=chance, invoker=Inbox()))


# The other's troubles


def _floods(world: World, each_s: float = 0.5, size: int = 10, **settings: Any) -> None:
    """Sends more than is taken."""
    while world.seconds < _UNTIL_S:
        world.ask(
            _produce, TOPIC, [draft(f"bad {world.stamp()}", tag="bad", **settings) for _ in range(size)]
        )
        world.pause(each_s)


def _damages_rows(world: World) -> None:
    """Rows of the log and of timers are damaged, or of a later release."""
    rng, deps = random.Random(world.seed), outside(world)
    topic = deps.catalog.topic(TOPIC)
    while world.seconds < _UNTIL_S:
        now_ms = int(world.scheduler.now)
        bodies = [
            draft(f"bad {world.stamp()}", tag="bad", due_ms=now_ms + rng.randrange(9_000)) for _ in range(8)
        ]
        later = {p.id for p in deps.producer.produce(topic, bodies) if isinstance(p, ProduceResult)}
        for row in world.damage.rows("timers"):
            if row["t"]["S"].partition("#")[2] in later:
                world.damage.change("timers", row, rng.choice(DAMAGES))
        for p in world.ask(_produce, TOPIC, [draft(f"bad {world.stamp()}", tag="bad")]) or ():
            change_row(world, topic.shard_key(p.shard), p.offset, rng.choice(ROW_DAMAGES))
        world.pause(1)


DAMAGES: tuple[Change, ...] = (
    NEWER,
    having("k", {"S": "sweepstake"}),
    without("s"),
    without("m"),
    having("m", {"B": b"\x00\xff damaged"}),
    having("e", {"S": "first"}),
)
ROW_DAMAGES: tuple[Change, ...] = (NEWER, having("m", {"B": b"\x00\xff damaged"}), without("m"))


def _loses_blobs(world: World) -> None:
    """Bodies are gone."""
    rng, large = random.Random(world.seed), "x" * (BLOB_THRESHOLD_BYTES + 1)
    while world.seconds < _UNTIL_S:
        drafts = [Draft(f'"bad|{large}"'.encode(), tag="bad") for _ in range(3)]
        world.ask(_produce, TOPIC, drafts)
        blobs: Any = world.adapters.blobs
        bodies = blobs._blobs
        for name in [name for name in bodies if not name.startswith("journal/") and rng.random() < 0.8]:
            del bodies[name]
        world.pause(1)


def _is_throttled(world: World) -> None:
    """All rows of its own are throttled, for more than a minute."""
    deps = outside(world)
    topic = deps.catalog.topic(TOPIC)
    group = deps.catalog.group(topic, "bad")
    now_ms = int(world.scheduler.now)
    deps.producer.produce(topic, [draft(f"bad {n}", tag="bad", due_ms=now_ms + 200 * n) for n in range(300)])
    places = [("log", str(topic.shard_key(shard))) for shard in topic.shard_numbers]
    places += [(port, group.uid) for port in ("cursors", "records", "marks")]
    for place in places:
        world.weather.away(place, (_UNTIL_S - 5) * 1000)
    _floods(world)


def _has_many_timers(world: World) -> None:
    """Thousands of its timers are due at once, twice."""
    deps = outside(world)
    topic = deps.catalog.topic(TOPIC)
    for at_s in (15, 30):
        due_ms = int(world.scheduler.now) + at_s * 1000
        for _ in range(_MANY // 500):
            messages = [draft(f"bad {world.stamp()}", tag="nobody", due_ms=due_ms) for _ in range(250)]
            deps.producer.produce(topic, messages)


def _nacks(world: World) -> None:
    """A consumer claims all that it can get, and gives it back at once."""
    world.scheduler.spawn(partial(_floods, world, each_s=2), world)
    while world.seconds < _UNTIL_S:
        world.ask(_take_and_nack)
        world.pause(0.2)


def _take_and_nack(client: SimClient) -> None:
    topic, group, _ = client._find("bad", None)
    messages = client.deps.receiver.receive(topic, group, None, 100, 0, 30)
    client.deps.settler.nack(topic, group, client.receipts(group, messages), Nack(0))


def _leaves_undecided(world: World) -> None:
    """Many transactions are due to be checked at once, and the check URL never answers."""
    for _ in range(100):
        world.ask(_prepare)
    world.pause(_UNTIL_S)


def _prepare(client: SimClient) -> None:
    label = f"bad {client.world.stamp()}"
    client.world.promises.deals[label] = Deal(None, "hanging")
    message = draft(label, tag="nobody")
    client.deps.transactor.prepare(
        client.topic, message, Checks("https://bank.example/", 10), delay_from_commit=False
    )


def _has_many_topics(world: World) -> None:
    """Hundreds of its topics have messages without a wake-up; thousands of consumers are registered there."""
    deps, topics = outside(world), _TOPICS if world.seed else _FEW_TOPICS
    for n in range(topics):
        topic, _ = deps.admin.put_topic(f"orders-{n}", dict(world.plan.topic))
        group, _ = deps.admin.put_group(topic, "bad", {"mode": "queue", "begin": "earliest"})
        for m in range(_CONSUMERS):
            deps.registry.register(
                topic, group, f"bad-{m}", Contact(ConsumerKind.URL, f"https://bad-{m}.example/")
            )
        world.readers[group.uid, ""] = group.name
    while world.seconds < _UNTIL_S:
        for n in range(topics):
            deps.producer.produce(deps.catalog.topic(f"orders-{n}"), [draft(f"bad {world.stamp()}")])
        world.pause(20)


def _damages_control(world: World) -> None:
    """Its control data cannot be read."""
    world.scheduler.spawn(partial(_floods, world), world)
    unreadable.damages_control(world, _UNTIL_S)


_MOODS: dict[str, dict[str, float]] = {
    "hanging subscribers": {"silent": 1.0},
    "a storm of retries": {"failing": 1.0},
    "subscribers that ask for time": {"busy": 1.0},
    "a consumer that gives everything back": {"held": 1.0},
}
TROUBLES: dict[str, Callable[[World], object]] = {
    "hanging subscribers": _floods,
    "a storm of retries": partial(_floods, size=20),
    "subscribers that ask for time": _floods,
    "a consumer that gives everything back": _nacks,
    "damaged rows": _damages_rows,
    "missing bodies": _loses_blobs,
    "throttled partitions": _is_throttled,
    "thousands of timers at once": _has_many_timers,
    "transactions that nobody decides": _leaves_undecided,
    "hundreds of topics": _has_many_topics,
    "unreadable control data": _damages_control,
    "a damaged stream": _floods,
}
"""What the other tenant is up to."""


def _unjournaled(stream: Stream) -> Iterator[str]:
    """What the stream has shown to the journal, and it does not say."""
    lines = stream.journaled()
    for what, count in stream.shown.items():
        if lines[what] < count:
            yield f"of {count} of {what} the journal has {lines[what]}"


def _unused(world: World) -> Iterator[str]:
    """A world without trouble proves nothing."""
    if not any(args[0] == TOPIC or TOPIC in str(args[0]) for *_, args, _ in world.path if args):
        yield "nothing happened to the other tenant"
