"""What one seed's world is like. Each draws its own few troubles and settings: many small worlds that differ find more
than one that has everything."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.ladder import Retry
from tests.simulation.processes import Faults


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group, and who serves it: so many consumers that pull, so many that are called."""

    name: str
    settings: Mapping[str, Any]
    pullers: int = 0
    called: int = 0

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


DEEDS = ("seek", "grow", "pause", "redrive", "mend", "discard", "try now", "rotate", "join")
MOODS = ("mixed", "failing", "silent", "busy", "gone", "refusing", "held")


def plan_of(seed: int) -> Plan:
    """The seed's world."""
    rng = random.Random(f"plan {seed}")
    mode = rng.choice(("queue", "queue", "serial", "broadcast"))
    shards = rng.choice((1, 1, 2, 3))
    groups = tuple(_group(rng, n, rng.choice((mode, mode, "queue"))) for n in range(rng.choice((1, 1, 2))))
    return Plan(
        seed=seed,
        seconds=rng.choice((20, 60, 120)),
        skew_ms=rng.choice((0, 0, 200, 5_000, 60_000)),
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


def _retry(rng: random.Random) -> Retry:
    return Retry(rng.choice((2, 3, 5)), rng.choice(((1,), (2, 5), (1, 3, 20))), jitter=rng.choice((0.0, 0.1)))


def _group(rng: random.Random, number: int, mode: str) -> GroupPlan:
    serves = rng.choice(("pull", "push", "push", "both"))
    settings: dict[str, Any] = {"mode": mode, "begin": rng.choice(("earliest", "latest"))}
    settings["max_in_flight"] = rng.choice((1, 2, 8, 64))
    if rng.random() < 0.3:
        settings |= {"payload": "batch", "batch_size": rng.choice((2, 4))}
    if rng.random() < 0.2:
        settings["tags"] = ("red", "blue")
    if rng.random() < 0.3:
        settings["retry"] = _retry(rng)
    pullers = rng.choice((1, 2)) if serves != "push" else 0
    return GroupPlan(f"g{number}", settings, pullers, rng.choice((1, 2)) if serves != "pull" else 0)


def _faults(rng: random.Random) -> Faults:
    """Mostly one or two kinds of trouble, sometimes none."""
    rate = rng.choice((0.01, 0.03, 0.08))
    kinds = rng.sample(
        ("die_before", "die_after", "fail_before", "fail_after", "stale", "pause"), rng.choice((0, 1, 2, 3))
    )
    rates = {kind: rate * (5 if kind == "stale" else 1) for kind in kinds}
    return Faults(**rates, longest_pause_ms=rng.choice((3_000, 20_000, 60_000)))
