"""Producers that give their requests names, and send each again until it is answered."""

from __future__ import annotations

import math
from collections.abc import Sequence

from chalicelib.domain.message import Draft
from chalicelib.domain.request import Request
from chalicelib.services.produce.appender import ProduceResult
from tests.simulation.clients import SimClient
from tests.simulation.world import World
from tests.support.flows import draft

_REQUESTS = 6
_KEYS = ("a", "b", None)
_LONGEST_WAY_S = 4.9  # to the gateway
_LONGEST_START_S = 24  # behind it


def resender(world: World, name: str) -> None:
    """Sends its requests one after the other."""
    rng = world.random
    for n in range(_REQUESTS):
        world.pause(rng.expovariate(2 * _REQUESTS / world.plan.seconds))
        labels = [f"{name}-{n}-{i}" for i in range(rng.choice((1, 1, 3)))]
        _send(world, f"{name}-{n}", [draft(label, ordering_key=rng.choice(_KEYS)) for label in labels])


def _send(world: World, name: str, drafts: Sequence[Draft]) -> None:
    """Again until there is an answer for each draft, and sometimes even then. A repeat says how long ago the first try
    was, is on its way to the gateway, which looks at its clock, and then waits for a process."""
    rng = world.random
    sent_ms = world.scheduler.now
    request = Request(name)
    while drafts:
        answers = world.ask(SimClient.produce, *drafts, name=request)
        stored_drafts = (
            [d for d, a in zip(drafts, answers, strict=True) if isinstance(a, ProduceResult)]
            if answers
            else []
        )
        if rng.random() < 0.7:
            drafts = [d for d in drafts if d not in stored_drafts]
        world.pause(rng.uniform(0, 2))
        way_s = rng.choice((0, rng.uniform(0, _LONGEST_WAY_S)))
        request = Request(name, since_ms=math.floor(sent_ms + way_s * 1000) - 2 * world.plan.skew_ms)
        world.pause(way_s + rng.choice((0, rng.uniform(0, _LONGEST_START_S))))
