"""People at work: they seek, pause, redrive, mend, try again, register and take leave."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.domain.topic import ConsumerKind
from chalicelib.services.manage.registry import Contact
from tests.simulation.clients import SimClient
from tests.simulation.plan import GroupPlan
from tests.simulation.world import World
from tests.support.events import Op

Deed = Callable[[World, GroupPlan], object]


def operator(world: World) -> None:
    """Does one of the planned things now and then."""
    while True:
        world.pause(world.random.expovariate(8 / world.plan.seconds))
        deed = DEEDS[world.random.choice(world.plan.deeds)]
        deed(world, world.random.choice(world.plan.groups))


def contact(name: str) -> Contact:
    """How a consumer of this name is reached."""
    return Contact(ConsumerKind.URL, f"https://{name}.example/") if name.startswith("call") else Contact()


def _seek(world: World, group: GroupPlan) -> None:
    if group.mode != "broadcast":
        world.ask(SimClient.seek, group.name, world.random.choice(("earliest", "latest")))


def _grow(world: World, group: GroupPlan) -> None:
    """Only where nobody joins: a process may believe for seconds that there are fewer shards, and who joins there gets
    the new ones whole."""
    if "join" not in world.plan.deeds:
        world.ask(SimClient.grow)


def _pause(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.pause, group.name, True)
    world.pause(world.random.uniform(1, 10))
    world.ask(SimClient.pause, group.name, False)


def _redrive(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.redrive, group.name)


def _mend(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.mend, group.name)


def _discard(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.discard, group.name)


def _try_now(world: World, group: GroupPlan) -> None:
    ids = [e.message_id for e in world.events if e.op is Op.SETTLE and e.fate != "SUCCESS" and e.maybe]
    if ids:
        world.ask(SimClient.try_now, group.name, world.random.choice(ids))


def _rotate(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.rotate, group.name, "call0")


def _join(world: World, group: GroupPlan) -> None:
    """Somebody comes, and leaves after a while. A name is not used again."""
    name = (
        f"{world.random.choice(('call', 'pull'))}-{world.stamp()}"
        if group.called
        else f"pull-{world.stamp()}"
    )
    world.ask(SimClient.register, group.name, name, contact(name))
    world.pause(world.random.uniform(1, 20))
    if world.random.random() < 0.8:
        world.ask(SimClient.unregister, group.name, name)


DEEDS: dict[str, Deed] = {
    "seek": _seek,
    "grow": _grow,
    "pause": _pause,
    "redrive": _redrive,
    "mend": _mend,
    "discard": _discard,
    "try now": _try_now,
    "rotate": _rotate,
    "join": _join,
}
