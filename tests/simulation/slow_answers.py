"""Worlds in which answers are slow: what was read is changed before its reader goes on, by another thread of the same
process.

Locally one process does everything, in threads that share its caches. On Lambda a process has one request or run at a
time, but that has threads of its own. What one thread read before another's change, and keeps after it, is believed by
all of them. In the other worlds a store's answer comes in the moment of its call, so nothing can come between.
`overtaking.py` plays two threads at every pair of their calls; here all are at work.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

from chalicelib.domain.ladder import Retry
from tests.simulation import judge, unswept
from tests.simulation.clients import SimClient
from tests.simulation.plan import DEEDS, GroupPlan, Plan, plan_of
from tests.simulation.processes import Faults
from tests.simulation.world import World

_GROUPS = 8
_SETTLED_S = 5.0  # by then everybody has come, and said what they had to say
_STAYS_S = 35  # a little longer than what an unswept world may wait


def play(seed: int) -> tuple[World, list[str]]:
    """One seed's world, and what is wrong with it."""
    rng = random.Random(f"beside {seed}")
    return KINDS[seed % len(KINDS)](seed, rng)


def _begun(seed: int, rng: random.Random) -> tuple[World, list[str]]:
    """Groups get their first subscribers while messages come, and then no more come."""
    return unswept.play(seed, _small(seed, rng, newcomers_s=_SETTLED_S))


def _changed(seed: int, rng: random.Random) -> tuple[World, list[str]]:
    """Groups are paused, resumed and sought, each by an operator of its own, and then left to themselves."""
    plan = _small(seed, rng)
    return unswept.play(seed, plan, *(partial(_changer, group=group) for group in plan.groups))


def _unswept(seed: int, rng: random.Random) -> tuple[World, list[str]]:
    """What an unswept world has, on one machine."""
    deeds = tuple(rng.sample(DEEDS, rng.choice((1, 3))))
    plan = replace(unswept.unswept_plan(seed), alone=False, together=True, deeds=deeds)
    return unswept.play(seed, replace(plan, faults=_slow(rng)))


def _on_one_machine(seed: int, rng: random.Random) -> tuple[World, list[str]]:
    plan = replace(plan_of(seed), skew_ms=0, steps_every_s=0.0, alone=False, together=True)
    return judge.play(seed, replace(plan, faults=_slow(rng, plan.faults)))


def _on_lambda(seed: int, rng: random.Random) -> tuple[World, list[str]]:
    plan = replace(plan_of(seed), skew_ms=0, steps_every_s=0.0, alone=True)
    return judge.play(seed, replace(plan, faults=_slow(rng, plan.faults)))


KINDS = (_begun, _changed, _unswept, _on_one_machine, _on_lambda)


def _changer(world: World, group: GroupPlan) -> None:
    for _ in range(3):
        world.pause(world.random.uniform(0, _SETTLED_S / 3))
        if group.mode != "broadcast" and world.random.random() < 0.5:
            world.ask(SimClient.seek, group.name, world.random.choice(("earliest", "latest")))
        else:
            world.ask(SimClient.pause, group.name, True)
            world.ask(SimClient.pause, group.name, False)


def _slow(rng: random.Random, faults: Faults | None = None) -> Faults:
    slow, longest_ms = rng.choice(((0.1, 1_000), (0.3, 500), (0.5, 1_000)))
    return replace(faults or Faults(), slow=slow, longest_answer_ms=longest_ms)


def _small(seed: int, rng: random.Random, newcomers_s: float = 0.0) -> Plan:
    """Some groups and few messages on one machine, where nothing is lost and no sweep runs."""
    return Plan(
        seed=seed,
        seconds=_STAYS_S,
        skew_ms=0,
        faults=_slow(rng),
        crash_every_s=0,
        stream_loss=0.0,
        topic={
            "shards": rng.choice((1, 2)),
            "lease_seconds": 10,
            "retry": Retry(3, (1, 3)),
            "wake": rng.choice(("stream", "direct")),
        },
        groups=tuple(_group(rng, number) for number in range(_GROUPS)),
        producers=4,
        messages=rng.choice((4, 8, 16)),
        pool=256,
        function_seconds=300,
        most_calls=100_000,
        together=True,
        sweeps=False,
        newcomers_s=newcomers_s,
    )


def _group(rng: random.Random, number: int) -> GroupPlan:
    mode = rng.choice(("queue", "serial", "broadcast"))
    settings: dict[str, Any] = {"mode": mode, "begin": "earliest", "max_in_flight": rng.choice((1, 8))}
    return GroupPlan(f"g{number}", settings, called=rng.choice((1, 1, 2)))
