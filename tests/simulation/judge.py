"""What must hold when a world is at rest, beside what its clients saw (tests/support/history)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chalicelib.domain.cursor import Cursor, Position, position
from chalicelib.domain.topic import cursor_key
from chalicelib.wiring import Deps
from tests.simulation.actors import begin
from tests.simulation.clients import SimClient
from tests.simulation.healing import heal
from tests.simulation.plan import plan_of
from tests.simulation.world import World
from tests.support.events import Final, Op
from tests.support.history import check
from tests.support.rest import final, readers_of


def complaints(world: World) -> list[str]:
    """Run a world to its end, and say what is wrong with it."""
    world.run()
    client = heal(world)
    client.deps = Deps(replace(world.adapters, clock=client.deps.adapters.clock))
    end = final(client)
    judged = check(world.events, end, 2 * world.plan.skew_ms)
    found = [f"{v.kind}: {v.about}" for v in judged if not v.about.startswith(_second_lives(world, end))]
    return [*world.complaints, *found, *_conserved(world, client), *_same_ids(world)]


def _sought(world: World) -> set[str]:
    return {e.reader for e in world.events if e.op is Op.SEEK and e.maybe}


def _second_lives(world: World, end: Final) -> tuple[str, ...]:
    """Deliveries that a seek begins anew while their first life may go on in the retry lane or among the dead letters:
    there are two of them, then, and two ends."""
    sought = _sought(world)
    failed = (e for e in world.events if e.lane or e.fate in ("RETRY", "DEAD") or e.op is Op.AGAIN)
    lives = {(e.reader, e.message_id) for e in failed} | {who for who, status in end.statuses.items() if status == "DEAD"}
    return tuple(f"{message_id} for {reader}" for reader, message_id in lives if reader in sought)


def _conserved(world: World, client: SimClient) -> Iterator[str]:
    """I15: every accepted message has one end per group, and the counts that people see say so."""
    deps, topic = client.deps, client.topic
    sought = _sought(world)
    for group, _, uid in readers_of(deps, topic):
        reader = world.readers[group.uid, uid]
        for shard in range(topic.shards):
            key = cursor_key(topic, group, shard, uid)
            cursor = deps.adapters.cursors.get(key, consistent=True) or Cursor()
            for offset in range(cursor.begin, deps.adapters.log.tail(key.shard).offset + 1):
                record = deps.adapters.records.get(key, offset)
                letter = deps.adapters.records.dead_letter(key, offset)
                status = record.status if record else "SUCCESS"
                if position(cursor, offset)[0] is not Position.SETTLED or status == "RETRYING":
                    yield f"not at rest: {key} {offset} is {status}"
                gone = (key, offset) in world.discarded or reader in sought  # a seek leaves letters of a first life
                if bool(letter) != (status == "DEAD") and not gone:
                    yield f"not conserved: {key} {offset} is {status} and its dead letter is {letter}"
    for group in {g.name: g for g, _, _ in readers_of(deps, topic)}.values():
        told = deps.lookup.group_status(topic, group)
        left = any(e.op is Op.LEAVE and e.reader.startswith(f"{group.name}/") for e in world.events)
        retrying = 0 if left else told.retrying  # what one who left had waiting is counted until it expires
        if (told.backlog, told.in_flight, retrying) != (0, 0, 0):
            yield f"not at rest: {group.name} says {told}"


def _same_ids(world: World) -> Iterator[str]:
    """I3: all who used a dedup id were told of one message."""
    ids: dict[str, set[str]] = {}
    for event in world.events:
        if event.dedup_id and event.message_id:
            ids.setdefault(event.dedup_id, set()).add(event.message_id)
    for dedup_id, found in ids.items():
        if len(found) > 1:
            yield f"{dedup_id} names {found}"


def play(seed: int) -> tuple[World, list[str]]:
    """One seed's world, and what is wrong with it."""
    world = World(plan_of(seed))
    begin(world)
    return world, complaints(world)
