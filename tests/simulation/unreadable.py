"""A tenant whose control data, cursors, records or stream cannot be read: damaged, of an unknown kind, or of a later
release; for seconds, and again and again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from chalicelib.domain.cursor import Cursor
from chalicelib.domain.topic import CursorKey
from tests.simulation.clients import TOPIC
from tests.simulation.world import World
from tests.support.damage import NEWER, Change, having, without
from tests.support.scars import ScarredControl, ScarredCursors, ScarredRecords

_LONGEST_S = 12
CONTROL_DAMAGES: tuple[Change, ...] = (
    having("v", {"N": "3"}),
    having("uid", {"NULL": True}),
    without("uid"),
    having("created_ms", {"S": "yesterday"}),
    having("doc", {"S": "{"}),
    lambda item: {},
)
CURSOR_DAMAGES: tuple[Change, ...] = (
    NEWER,
    without("x"),
    having("e", {"S": "?"}),
    without("w"),
    having("l", {"M": {"t": {"S": "?"}}}),
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
    control: Any = world.adapters.control
    assert isinstance(control, ScarredControl)

    def damage(rng: random.Random) -> None:
        rows = [place for place, noun in control._rows() if noun is not None and _is_of(world, place)]
        for place in rng.sample(rows, rng.choice((1, 1, 2))):
            control.damage(*place, rng.choice(CONTROL_DAMAGES))

    _again_and_again(world, until_s, damage, control.scars.heal)


def _is_of(world: World, place: tuple[str, str]) -> bool:
    topic: Any = world.adapters.control.__dict__["_port"].topic(TOPIC)
    return place in (("topics", TOPIC),) or place[0] == f"topic#{topic.uid}"


def damages_cursors(world: World, until_s: float) -> None:
    """Its groups' cursors; some are put right by a seek, some were of a later release that is back."""
    cursors: Any = world.adapters.cursors
    assert isinstance(cursors, ScarredCursors)
    world.leaseless.add("bad")  # a cursor that is lost takes its leases with it, while attempts go on

    def damage(rng: random.Random) -> None:
        keys = _cursors_of(world)
        for key in rng.sample(keys, min(len(keys), rng.choice((1, 2)))):
            cursors.damage(key, rng.choice(CURSOR_DAMAGES))

    _again_and_again(world, until_s, damage, cursors.scars.heal)


def _cursors_of(world: World) -> Sequence[CursorKey]:
    items: dict[CursorKey, Cursor] = world.adapters.cursors.__dict__["_port"]._items
    return [key for key in items if key.shard.topic.partition("~")[0] == TOPIC]


def damages_records(world: World, until_s: float) -> None:
    """What is noted of its failures."""
    records: Any = world.adapters.records
    assert isinstance(records, ScarredRecords)
    topic: Any = world.adapters.control.topic(TOPIC)

    def damage(rng: random.Random) -> None:
        tables = records._port._tables
        rows = [place for place in tables.records if place[1].startswith(topic.uid)]
        for place in rng.sample(rows, min(len(rows), 20)):
            records.scars.add(place, tables.records[place], rng.choice(RECORD_DAMAGES))

    _again_and_again(world, until_s, damage, lambda: None)


def _again_and_again(
    world: World, until_s: float, damage: Callable[[random.Random], None], heal: Callable[[], None]
) -> None:
    rng = random.Random(f"unreadable {world.seed}")
    while world.seconds < until_s:
        world.pause(rng.uniform(0.1, 3))
        damage(rng)
        world.injected["row damaged"] += 1
        world.pause(rng.uniform(1, _LONGEST_S))
        heal()
