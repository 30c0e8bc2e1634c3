"""A tenant whose control data cannot be read for some seconds, again and again."""

from __future__ import annotations

import random

from chalicelib.store.attributes import Item
from tests.simulation.clients import TOPIC
from tests.simulation.world import World
from tests.support.damage import Change, Damage, having, without

_LONGEST_S = 12
CONTROL_DAMAGES: tuple[Change, ...] = (
    having("v", {"N": "3"}),
    having("uid", {"NULL": True}),
    without("uid"),
    having("created_ms", {"S": "yesterday"}),
    lambda item: {},
)


def damages_control(world: World, until_s: float) -> None:
    """Its topic, groups, consumers and assignments, one or two at a time."""
    uid, rng = _uid(world), random.Random(f"unreadable {world.seed}")
    while world.seconds < until_s:
        world.pause(rng.uniform(0.1, 3))
        rows = [row for row in control_rows(world.damage) if row["sk"]["S"] == TOPIC or uid in row["pk"]["S"]]
        for row in rng.sample(rows, rng.choice((1, 1, 2))):
            world.damage.change("control", row, rng.choice(CONTROL_DAMAGES))
        world.injected["row damaged"] += 1
        world.pause(rng.uniform(1, _LONGEST_S))
        world.damage.heal()


def control_rows(damage: Damage) -> list[Item]:
    """The rows of topics, groups, consumers and assignments."""
    rows = damage.rows("control")
    return [
        row
        for row in rows
        if row["pk"]["S"] == "topics" or row["sk"]["S"].startswith(("group#", "consumer#", "assignment#"))
    ]


def _uid(world: World) -> str:
    topic = world.adapters.control.topic(TOPIC)
    assert topic is not None, "the topic of a world stays"
    return topic.uid
