"""Operators: they seek, pause, redrive, edit, retry, register and remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.domain.ladder import Retry
from chalicelib.domain.topic import ConsumerKind, Payload
from chalicelib.services.manage.registry import Contact
from tests.simulation.clients import SimClient
from tests.simulation.plan import LADDERS, GroupPlan
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


def _seek_since(world: World, group: GroupPlan) -> None:
    """To a moment: to what was accepted since."""
    if group.mode != "broadcast":
        now_ms = int(world.scheduler.now)
        world.ask(SimClient.seek, group.name, f"@{now_ms - world.random.randint(0, 60_000)}")


def _grow(world: World, group: GroupPlan) -> None:
    """Add shards, only where no consumer joins: for seconds a process may know fewer shards, and a consumer that joins
    there gets the new ones whole."""
    if "join" not in world.plan.deeds:
        world.ask(SimClient.grow)


def _pause(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.pause, group.name, True)
    world.pause(world.random.uniform(1, 10))
    world.ask(SimClient.pause, group.name, False)


def _change_topic(world: World, group: GroupPlan) -> None:
    """Change one of its settings; those that decide what is owed, or the place of keys, have actions of their own."""
    rng, retry = world.random, world.plan.topic["retry"]
    settings: dict[str, Any] = {
        "lease_seconds": rng.choice((5, 10, 30)),
        "retry": Retry(retry.max_attempts, rng.choice(LADDERS), jitter=retry.jitter),
        "wake": rng.choice(("stream", "direct")),
        "retention_days": rng.choice((1, 7, 30)),
        "alarm_backlog": rng.choice((None, 1, 100)),
        "dedup_window_seconds": rng.choice((3_600, 86_400)),
    }
    name = rng.choice(sorted(settings))
    world.ask(SimClient.change_topic, {name: settings[name]})


def _change_group(world: World, group: GroupPlan) -> None:
    """Likewise; its attempts stay as many."""
    rng = world.random
    retry = group.settings.get("retry", world.plan.topic["retry"])
    settings: dict[str, Any] = {
        "lease_seconds": rng.choice((None, 5, 10, 30)),
        "retry": Retry(retry.max_attempts, rng.choice(LADDERS), jitter=retry.jitter),
        "max_in_flight": rng.choice((1, 2, 8, 64)),
        "batch_size": rng.choice((1, 2, 4)),
        "payload": rng.choice(tuple(Payload)),
        "assignment": rng.choice(("mod", "average", "rendezvous")),
    }
    name = rng.choice(sorted(settings))
    world.ask(SimClient.change_group, group.name, {name: settings[name]})


def _redrive_pages(world: World, group: GroupPlan) -> None:
    """All of them, two to a page, while others are at them."""
    after: str | None = None
    while page := world.ask(SimClient.redrive_page, group.name, after):
        _, after = page
        if after is None:
            return
        world.pause(world.random.uniform(0, 1))


def _redrive(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.redrive, group.name)


def _mend(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.mend, group.name)


def _discard(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.discard, group.name)


def _retry_now(world: World, group: GroupPlan) -> None:
    ids = [e.message_id for e in world.events if e.op is Op.SETTLE and e.fate != "SUCCESS" and e.maybe]
    if ids:
        world.ask(SimClient.retry_now, group.name, world.random.choice(ids))


def _rotate(world: World, group: GroupPlan) -> None:
    world.ask(SimClient.rotate, group.name, "call0")


def _join(world: World, group: GroupPlan) -> None:
    """A consumer joins, and leaves after a while. A name is not used again."""
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
    "seek since": _seek_since,
    "change topic": _change_topic,
    "change group": _change_group,
    "redrive pages": _redrive_pages,
    "grow": _grow,
    "pause": _pause,
    "redrive": _redrive,
    "mend": _mend,
    "discard": _discard,
    "retry now": _retry_now,
    "rotate": _rotate,
    "join": _join,
}
