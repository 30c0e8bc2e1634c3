"""Plays a seed and judges it: by what clients saw and what the store holds in the end (tests/support/history), by the
laws that every write kept, and by what only this world can know.

Clocks differ by up to a minute. Leases, delays and holes are times in the store that each process compares with its own
clock: a process may be early by that at most (the laws), and by true time as early as the clocks lie apart (the
history). Nothing else may depend on clocks: settlements, refusals and rows are judged alike under any skew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chalicelib.store.layout import FRAGMENTS
from chalicelib.wiring import Deps
from tests.simulation.actors import begin
from tests.simulation.clients import SimClient
from tests.simulation.counting import uncounted
from tests.simulation.healing import heal
from tests.simulation.ordering import disordered
from tests.simulation.plan import Plan, plan_of
from tests.simulation.world import World
from tests.support.events import Final, Kind, Op, Violation
from tests.support.history import check
from tests.support.rest import final

_FOREVER = 1 << 50


def play(seed: int, plan: Plan | None = None) -> tuple[World, list[str]]:
    """One seed's world (with another plan than its own, if one is given) at its end, and what is wrong with it."""
    world = World(plan or plan_of(seed))
    try:
        begin(world)
        world.run()
        return world, list(_judged(world, heal(world)))
    except AssertionError as error:  # Endless, or what the code itself takes for impossible
        return world, [*world.complaints, str(error) or "the code met what it takes for impossible"]


def _judged(world: World, client: SimClient) -> Iterator[str]:
    client.deps = Deps(replace(world.adapters, clock=client.deps.adapters.clock))
    end = final(client, timers_of)
    violations = check(world.promises.resolved(world.events), end, 2 * world.plan.skew_ms)
    second_lives = _second_lives(world, end)
    yield from world.complaints
    yield from (f"{name}: {law}" for name, flow in world.flows.items() for law in flow.too_fast())
    yield from (f"a thread failed: {error!r}" for error in world.scheduler.errors)
    yield from (f"{v.kind}: {v.about}" for v in violations if not _excused(world, v, second_lives))
    set_back_ms = 2 * world.plan.skew_ms if world.plan.steps_every_s else 0
    yield from world.promises.broken(client.deps, client.topic, end, set_back_ms)
    yield from disordered(world.events, end, world.promises, 2 * world.plan.skew_ms)
    yield from uncounted(world, client, end)
    yield from _same_ids(world)


def timers_of(deps: Deps) -> list[str]:
    """The timers there are."""
    timers = deps.adapters.timers
    return [timer.id for f in range(FRAGMENTS) for timer in timers.first_due(f, _FOREVER, 1000).timers]


def _second_lives(world: World, end: Final) -> tuple[str, ...]:
    """Deliveries that a seek began again while their first life may go on in the retry lane or among the dead letters:
    there are two of them, then, and two ends. Or it is unknown to which life a claim belongs."""
    failures = (
        e for e in world.events if e.lane or e.fate in ("RETRY", "DEAD") or e.op in (Op.REDRIVE, Op.RETRY_NOW)
    )
    deliveries = {(e.reader, e.message_id) for e in failures}
    deliveries |= {who for who, status in end.statuses.items() if status == "DEAD"}
    seeks = [e for e in world.events if e.op is Op.SEEK and e.maybe]
    for event in seeks:
        deliveries |= {
            (e.reader, e.message_id) for e in world.events if e.began < event.ended and event.began < e.ended
        }
    readers = {event.reader for event in seeks}
    return tuple(f"{message_id} for {reader}" for reader, message_id in deliveries if reader in readers)


def _excused(world: World, violation: Violation, second_lives: tuple[str, ...]) -> bool:
    """Is the violation a known one? Seeks leave records and dead letters of former lives, and consumers that leave a
    broadcast leave waiting messages and dead letters. After a seek without an answer, the order of messages is
    unknown."""
    groups = {reader.partition("/")[0] for reader in _readers(world, Op.LEAVE)}
    if violation.kind is Kind.LETTER and any(f" for {group}," in violation.about for group in groups):
        return True
    if violation.kind in (Kind.LETTER, Kind.OUT_OF_ORDER):
        return any(f" for {reader}" in violation.about for reader in _readers(world, Op.SEEK))
    if violation.kind is Kind.LEFT and " counts " in violation.about:
        return bool(_readers(world, Op.LEAVE))
    return violation.about.startswith(second_lives)


def _readers(world: World, op: Op) -> set[str]:
    return {e.reader for e in world.events if e.op is op and e.maybe}


def _same_ids(world: World) -> Iterator[str]:
    """I3: all producers that used a dedup id got the same message id."""
    ids: dict[str, set[str]] = {}
    for event in world.events:
        if event.dedup_id and event.message_id:
            ids.setdefault(event.dedup_id, set()).add(event.message_id)
    for dedup_id, ids_found in ids.items():
        if len(ids_found) > 1:
            yield f"{dedup_id} names {ids_found}"
