"""A tenant whose control data, cursors, records or stream cannot be read: damaged, of an unknown kind, or of a later
release; for seconds, and again and again."""

from __future__ import annotations

import random
from collections.abc import Callable

from chalicelib.store.attributes import Item, int_of, number, text
from chalicelib.store.layout import shard_of
from tests.simulation.clients import TOPIC
from tests.simulation.world import World
from tests.support.damage import NEWER, Change, Damage, having, without

_LONGEST_S = 12
CONTROL_DAMAGES: tuple[Change, ...] = (
    having("v", {"N": "3"}),
    having("uid", {"NULL": True}),
    without("uid"),
    having("created_ms", {"S": "yesterday"}),
    lambda item: {},
)


def _rewritten(damage: Change) -> Change:
    """The cursor is damaged by a write: no condition holds of those who know it from before."""

    def change(item: Item) -> Item:
        leases = {token: text(f"{lease['S']}?") for token, lease in item["l"]["M"].items()}
        return damage({**item, "e": number(int_of(item, "e") + 1), "l": {"M": leases}})

    return change


CURSOR_DAMAGES: tuple[Change, ...] = (
    _rewritten(NEWER),
    _rewritten(without("x")),
    _rewritten(having("e", {"S": "?"})),
    _rewritten(without("w")),
    _rewritten(having("l", {"M": {"t": {"S": "?"}}})),
)
RECORD_DAMAGES: tuple[Change, ...] = (
    without("j"),
    having("j", {"S": "HALF DONE"}),
    without("n"),
    having("a", {"S": "?"}),
    having("d", {"S": "?"}),
)


def damages_control(world: World, until_s: float) -> None:
    """Its topic, groups, consumers and assignments, one or two at a time."""
    uid = _uid(world)

    def damage(rng: random.Random) -> None:
        rows = [row for row in control_rows(world.damage) if row["sk"]["S"] == TOPIC or uid in row["pk"]["S"]]
        for row in rng.sample(rows, rng.choice((1, 1, 2))):
            world.damage.change("control", row, rng.choice(CONTROL_DAMAGES))

    _again_and_again(world, until_s, damage)


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


def damages_cursors(world: World, until_s: float) -> None:
    """Its groups' cursors; some are put right by a seek, some were of a later release that is back."""
    world.leaseless.add("bad")  # a cursor that is lost takes its leases with it, while attempts go on

    def damage(rng: random.Random) -> None:
        rows = [row for row in world.damage.rows("cursors") if _topic_of(row) == TOPIC]
        for row in rng.sample(rows, min(len(rows), rng.choice((1, 2)))):
            world.damage.change("cursors", row, rng.choice(CURSOR_DAMAGES))

    _again_and_again(world, until_s, damage)


def _topic_of(cursor: Item) -> str:
    """Its own, or that of a lane."""
    return shard_of(cursor["s"]["S"]).topic.partition("~")[0]


def damages_records(world: World, until_s: float) -> None:
    """What is noted of its failures. Nobody restores it."""
    uid = _uid(world)

    def damage(rng: random.Random) -> None:
        records = [row for row in world.damage.rows("records") if not row["g"]["S"].endswith("#dead")]
        rows = [row for row in records if row["k"]["S"].startswith(uid)]
        for row in rng.sample(rows, min(len(rows), 20)):
            Damage(world).change("records", row, rng.choice(RECORD_DAMAGES))

    _again_and_again(world, until_s, damage)


def _again_and_again(world: World, until_s: float, damage: Callable[[random.Random], None]) -> None:
    rng = random.Random(f"unreadable {world.seed}")
    while world.seconds < until_s:
        world.pause(rng.uniform(0.1, 3))
        damage(rng)
        world.injected["row damaged"] += 1
        world.pause(rng.uniform(1, _LONGEST_S))
        world.damage.heal()
