"""What one seed's world is like. Each draws its own few troubles and settings: many small worlds that differ find more
than one that has everything."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain.ladder import Retry
from tests.simulation.processes import Faults
from tests.simulation.weather import SKIES


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group, and who serves it: so many consumers that pull, so many that are called."""

    name: str
    settings: Mapping[str, Any]
    pullers: int = 0
    called: int = 0
    moods: Mapping[str, float] | None = None  # of those who are called; None: the world's

    @property
    def mode(self) -> str:
        return str(self.settings["mode"])


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides beforehand."""

    seed: int
    seconds: int
    skew_ms: int
    faults: Faults
    crash_every_s: float
    stream_loss: float
    topic: Mapping[str, Any]
    groups: tuple[GroupPlan, ...]
    producers: int
    messages: int
    pool: int
    function_seconds: int
    moods: Mapping[str, float] = field(default_factory=lambda: {"good": 1.0})
    deeds: tuple[str, ...] = ()
    delayed: int = 0
    deals: int = 0
    alone: bool = False  # a process does one thing at a time
    together: bool = False  # one process does everything, in threads
    cold: float = 0.0  # share of functions that begin in a new process although an old one is free
    jitter_ms: float = 500
    irregular: float = 0.0  # share of ticks that are missing, and of those that come twice
    schedule_seconds: int = 60
    skies: tuple[str, ...] = ()
    sky_every_s: float = 10.0
    steps_every_s: float = 0.0
    lines: int = 0  # producers of delayed messages that share a key and a time
    named: int = 0  # producers that send named requests again
    cold_start_s: tuple[float, float] = (0.2, 2.0)
    refusal_ms: int = 0  # what a throttled call takes, with the SDK's own repetitions
    most_calls: int = 15_000  # what has not come to its end by then has none
    answer_ms: tuple[int, int] = (5, 500)  # how long subscribers take
    sweeps: bool = True  # the sweep runs each minute
    looks: int = 0  # how often a reader asks for all numbers, while it goes on
    large: float = 0.0  # share of messages whose bodies lie in the blob store
    newcomers_s: float = 0.0  # subscribers register themselves, within so many seconds
    tenants: bool = False  # messages without a key have some
    rivals: int = 0  # how many others change a delayed message at the same time

    @property
    def seeks(self) -> bool:
        """Does an operator seek?"""
        return bool({"seek", "seek since"} & set(self.deeds))


DEEDS = ("seek", "grow", "pause", "redrive", "mend", "discard", "retry now", "rotate", "join")
CHANGES = ("change topic", "change group", "seek since", "redrive pages")
LADDERS = ((1,), (2, 5), (1, 3, 20))
_APART_MS = 60_000
MOODS = ("mixed", "failing", "silent", "busy", "gone", "refusing", "held")


def plan_of(seed: int) -> Plan:
    """The seed's world."""
    rng = random.Random(f"plan {seed}")
    mode = rng.choice(("queue", "queue", "serial", "broadcast"))
    shards = rng.choice((1, 1, 2, 3))
    groups = tuple(_group(rng, n, rng.choice((mode, mode, "queue"))) for n in range(rng.choice((1, 1, 2))))
    plan = Plan(
        seed=seed,
        seconds=rng.choice((20, 60, 120)),
        skew_ms=rng.choice((0, 0, 200, 5_000, _APART_MS)),
        faults=_faults(rng),
        crash_every_s=rng.choice((0, 0, 10, 30)),
        stream_loss=rng.choice((0.0, 0.0, 0.3, 1.0)),
        topic={
            "shards": shards,
            "lease_seconds": rng.choice((5, 10, 30)),
            "retry": _retry(rng),
            "wake": rng.choice(("stream", "direct")),
        },
        groups=groups,
        producers=rng.choice((1, 2, 3, 8)),
        messages=rng.choice((4, 8, 16, 32)),
        pool=rng.choice((1, 2, 256, 256)),
        function_seconds=rng.choice((30, 60, 300)),
        deeds=tuple(rng.sample(DEEDS, rng.choice((0, 1, 3)))),
        moods={"good": 2.0, **{m: rng.random() for m in rng.sample(MOODS, rng.choice((0, 1, 2)))}},
        delayed=rng.choice((0, 0, 4, 12)),
        deals=rng.choice((0, 0, 4, 12)),
    )
    plan = replace(plan, **_troubles(seed), **_curiosity(seed))
    # Movers whose clocks are a minute apart take their leases from one another: all of them go on, and they are many.
    return _broadened(replace(plan, most_calls=60_000) if plan.skew_ms == _APART_MS else plan)


def plan_of_flow(seed: int) -> Plan:
    """The seed's world with any of a rate, a bound for each key, tenants, a filter, delays and priorities of messages
    without a key. Clocks agree and no process stands still: the laws of flow are about moments."""
    rng, plan = random.Random(f"flow {seed}"), plan_of(seed)
    return replace(
        plan,
        skew_ms=0,
        steps_every_s=0.0,
        faults=replace(plan.faults, pause=0.0),
        topic={**plan.topic, "priorities": rng.choice((1, 3))},
        groups=tuple(_controlled(rng, group) for group in plan.groups),
        deeds=("redrive", "redrive", "redrive", "mend", *plan.deeds[:1]),
        delayed=rng.choice((0, 4)),
        deals=0,
        tenants=rng.random() < 0.5,
    )


def _controlled(rng: random.Random, group: GroupPlan) -> GroupPlan:
    """The group with any of these; with a bound for each key, its messages often become dead letters."""
    drawn: dict[str, Any] = {"rate_limit": rng.choice((0.5, 3, 20)), "tags": ("red", "blue")}
    if group.mode == "queue":
        drawn |= {"key_concurrency": rng.choice((1, 1, 2)), "tenant_share": rng.choice((1, 50))}
    settings = {**group.settings, **{name: value for name, value in drawn.items() if rng.random() < 0.5}}
    if "key_concurrency" not in settings:
        return replace(group, settings=settings)
    return replace(group, settings=settings, pullers=2, called=1, moods={"good": 1, "refusing": 2})


def plan_of_seeks(seed: int) -> Plan:
    """A small world without faults: a subscriber that mostly fails, operators who seek, and a reader who counts all the
    time. What is counted after a seek, before its messages have been settled again, is seen for moments only."""
    group = GroupPlan(
        "g0",
        {"mode": "queue", "begin": "earliest", "max_in_flight": 1},
        called=1,
        moods={"good": 1, "failing": 3},
    )
    return Plan(
        seed=seed,
        seconds=20,
        skew_ms=0,
        faults=Faults(),
        crash_every_s=0,
        stream_loss=0.0,
        topic={"shards": 1, "lease_seconds": 5, "retry": Retry(2, (1,)), "wake": "direct"},
        groups=(group,),
        producers=2,
        messages=8,
        pool=1,
        function_seconds=60,
        deeds=("seek",),
        looks=12,
    )


def _troubles(seed: int) -> dict[str, Any]:
    """Mostly none or two of the troubles that AWS has."""
    rng = random.Random(f"troubles {seed}")
    names = rng.sample(sorted(_TROUBLES), rng.choice((0, 1, 2, 2, 3)))
    settings: dict[str, Any] = {}
    for name in names:
        settings |= _TROUBLES[name](rng)
    return settings


def _broadened(plan: Plan) -> Plan:
    """What one world of four has besides."""
    if plan.seed % 4 != 2:
        return plan
    rng = random.Random(f"breadth {plan.seed}")
    deeds = (*plan.deeds, *rng.sample(CHANGES, rng.choice((0, 1, 2))))
    large = rng.choice((0.0, 0.0, 0.3))
    skies = (*plan.skies, "blobs") if large else plan.skies
    return replace(plan, deeds=deeds, large=large, skies=skies, rivals=rng.choice((0, 1, 2)))


def _curiosity(seed: int) -> dict[str, Any]:
    """What is asked of some worlds only, for it takes time to judge."""
    rng = random.Random(f"curiosity {seed}")
    return {"lines": rng.choice((0, 0, 0, 1, 2)), "looks": rng.choice((0, 0, 0, 4))}


_TROUBLES: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "one thing at a time": lambda rng: {"alone": True, "cold": rng.choice((0.0, 0.2, 1.0))},
    "unreliable schedules": lambda rng: {
        "jitter_ms": rng.choice((500, 10_000)),
        "irregular": rng.choice((0.1, 0.3)),
    },
    "short functions": lambda rng: {"alone": True, "schedule_seconds": 12, "function_seconds": 30},
    "weather": lambda rng: {
        "skies": tuple(rng.sample(SKIES, rng.choice((1, 1, 2)))),
        "sky_every_s": rng.choice((5.0, 20.0)),
    },
    "clocks that are set": lambda rng: {"skew_ms": 10_000, "steps_every_s": rng.choice((3.0, 15.0))},
}


def _retry(rng: random.Random) -> Retry:
    return Retry(rng.choice((2, 3, 5)), rng.choice(LADDERS), jitter=rng.choice((0.0, 0.1)))


def _group(rng: random.Random, number: int, mode: str) -> GroupPlan:
    kind = rng.choice(("pull", "push", "push", "both"))
    settings: dict[str, Any] = {"mode": mode, "begin": rng.choice(("earliest", "latest"))}
    settings["max_in_flight"] = rng.choice((1, 2, 8, 64))
    if rng.random() < 0.3:
        settings |= {"payload": "batch", "batch_size": rng.choice((2, 4))}
    if rng.random() < 0.2:
        settings["tags"] = ("red", "blue")
    if rng.random() < 0.3:
        settings["retry"] = _retry(rng)
    pullers = rng.choice((1, 2)) if kind != "push" else 0
    return GroupPlan(f"g{number}", settings, pullers, rng.choice((1, 2)) if kind != "pull" else 0)


def _faults(rng: random.Random) -> Faults:
    """Mostly one or two kinds of trouble, sometimes none."""
    rate = rng.choice((0.01, 0.03, 0.08))
    kinds = rng.sample(
        ("die_before", "die_after", "fail_before", "fail_after", "stale", "pause"), rng.choice((0, 1, 2, 3))
    )
    rates = {kind: rate * (5 if kind == "stale" else 1) for kind in kinds}
    return Faults(**rates, longest_pause_ms=rng.choice((3_000, 20_000, 60_000)))
