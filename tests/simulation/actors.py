"""The users of the world: each actor is a task that acts, thinks a while, and acts again.

To add one: write `def actor(world) -> None`, a loop that sends requests by `world.ask`, and
start it in `begin`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.message import Draft
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Nack
from chalicelib.services.produce.appender import ProduceResult
from tests.simulation.clients import TOPIC, SimClient
from tests.simulation.counting import onlooker
from tests.simulation.deferring import delayer, liner, trader
from tests.simulation.operators import contact, operator
from tests.simulation.plan import GroupPlan
from tests.simulation.resending import resender
from tests.simulation.world import World
from tests.support.flows import draft

_DEFERRING = 2  # producers of delayed messages, and of transactions
_KEYS = ("a", "b", None)
_TAGS = ("red", "blue", "green", None)


def begin(world: World) -> None:
    """Set everything up in peace, then let everybody loose."""
    founder = world.begin("founder", world.calm, 0)
    client = SimClient(founder)
    founder.deps.admin.put_topic(TOPIC, dict(world.plan.topic))
    for group in world.plan.groups:
        client.put_group(group.name, **_with_retry(world, group))
        for name in _names(group):
            if world.plan.newcomers_s and name.startswith("call"):
                world.scheduler.spawn(partial(newcomer, world, group, name), world)
            else:
                client.register(group.name, name, contact(name))
    spawn = partial(_spawn, world)
    for n in range(world.plan.producers):
        spawn(partial(producer, world, f"p{n}"))
    for n in range(_DEFERRING):
        if world.plan.delayed:
            spawn(partial(delayer, world, f"d{n}"))
        if world.plan.deals:
            spawn(partial(trader, world, f"t{n}"))
    for n in range(world.plan.lines):
        spawn(partial(liner, world, f"l{n}"))
    for n in range(world.plan.named):
        spawn(partial(resender, world, f"r{n}"))
    if world.plan.looks:
        world.scheduler.spawn(partial(onlooker, world), world)
    for group in world.plan.groups:
        for n in range(group.pullers):
            spawn(
                partial(puller, world, Puller(group, f"pull{n}" if group.mode == "broadcast" or n else None))
            )
    if world.plan.deeds:
        spawn(partial(operator, world))
    if world.plan.crash_every_s:
        spawn(partial(crashes, world))
    if world.plan.skies:
        spawn(world.weather.changes)
    if world.plan.steps_every_s:
        spawn(world.fleet.steps)
    world.schedule()


def _spawn(world: World, actor: Callable[[], object]) -> None:
    world.scheduler.spawn(actor, world, world.random.uniform(0, 3_000))


def _with_retry(world: World, group: GroupPlan) -> dict[str, object]:
    """The history checker wants to know the attempts of each group."""
    return {"retry": world.plan.topic["retry"], **group.settings}


def _names(group: GroupPlan) -> list[str]:
    numbers = range(group.pullers) if group.mode == "broadcast" else range(1, group.pullers)
    return [*(f"pull{n}" for n in numbers), *(f"call{n}" for n in range(group.called))]


def newcomer(world: World, group: GroupPlan, name: str) -> None:
    """A subscriber that registers while others are at work, and insists until it is answered."""
    world.pause(world.random.uniform(0, world.plan.newcomers_s))
    while not world.ask(SimClient.come, group.name, name, contact(name)):
        world.pause(1)


def crashes(world: World) -> None:
    """Processes die at any moment."""
    while True:
        world.pause(world.random.expovariate(1 / world.plan.crash_every_s))
        world.some(world.random.choice(world.fleet.roles)).die()


def producer(world: World, name: str) -> None:
    """Sends messages, some with a dedup id, which it repeats until it knows."""
    rng = world.random
    serial = 0
    while serial < world.plan.messages // world.plan.producers:
        world.pause(rng.expovariate(world.plan.producers * 2 * world.plan.messages / world.plan.seconds))
        drafts = []
        for _ in range(rng.choice((1, 1, 1, 3))):
            serial += 1
            drafts.append(_draft(world, f"{name}-{serial}"))
        _send(world, drafts)


def _draft(world: World, label: str) -> Draft:
    rng = world.random
    is_large = world.plan.large > 0 and rng.random() < world.plan.large
    padding = BLOB_THRESHOLD_BYTES if is_large else 0
    message = draft(label, padding=padding, ordering_key=rng.choice(_KEYS), tag=rng.choice(_TAGS))
    if world.plan.topic.get("priorities") and message.ordering_key is None:
        message = replace(message, priority=rng.choice((None, 0, 1)))
    if world.plan.tenants and message.ordering_key is None:
        message = replace(message, tenant=rng.choice((None, "large", "large", "small")))
    if rng.random() < 0.4:
        message = replace(message, dedup_id=f"id of {label}")
    if rng.random() < 0.1:
        message = replace(message, expires_ms=int(world.scheduler.now) + rng.randint(1, 60_000))
    return message


def _send(world: World, drafts: Sequence[Draft]) -> None:
    """What has a dedup id is sent again until there is an answer, and sometimes even then."""
    while drafts:
        answers = world.ask(SimClient.produce, *drafts)
        stored_drafts = (
            [d for d, a in zip(drafts, answers, strict=True) if isinstance(a, ProduceResult)]
            if answers
            else []
        )
        again = world.random.random() < 0.1
        drafts = [d for d in drafts if d.dedup_id and (again or d not in stored_drafts)]
        world.pause(world.random.uniform(0, 2))


@dataclass
class Puller:
    """A consumer that pulls; without a name it is not registered."""

    group: GroupPlan
    name: str | None


def puller(world: World, me: Puller) -> None:
    """Receives and does with it what consumers do, the careless ones too."""
    rng = world.random
    while True:
        lease = rng.choice((2, 5, 20))
        is_run = me.group.mode == "serial" and rng.random() < 0.5
        count = rng.choice((1, 3, 10))
        messages = world.ask(SimClient.receive, me.group.name, count, me.name, lease, is_run=is_run)
        if messages:
            rng.choice(_HABITS_WITH_RUNS if is_run else _HABITS)(world, me, messages, lease)
        world.pause(rng.uniform(0.2, 4))


def _ack(world: World, me: Puller, messages: Sequence[ClaimedMessage], lease: int) -> None:
    world.ask(SimClient.ack, me.group.name, messages, me.name)


def _ack_some(world: World, me: Puller, messages: Sequence[ClaimedMessage], lease: int) -> None:
    """One by one, in any order, and not all."""
    for each in world.random.sample(list(messages), max(1, len(messages) - 1)):
        world.pause(world.random.uniform(0, 1))
        _ack(world, me, [each], lease)


def _ack_in_parts(world: World, me: Puller, messages: Sequence[ClaimedMessage], lease: int) -> None:
    count = world.random.randint(1, len(messages))
    _ack(world, me, messages[:count], lease)
    world.pause(lease * 0.9)
    _ack(world, me, messages[count:], lease)


def _ack_twice(world: World, me: Puller, messages: Sequence[ClaimedMessage], lease: int) -> None:
    _ack(world, me, messages, lease)
    _ack(world, me, messages, lease)


def _ack_late(world: World, me: Puller, messages: Sequence[ClaimedMessage], lease: int) -> None:
    """A zombie: it thinks that the message is still its own."""
    world.pause(lease + world.random.uniform(-1, 10))
    _ack(world, me, messages, lease)


def _nack(world: World, me: Puller, messages: Sequence[ClaimedMessage], lease: int) -> None:
    delay_ms = world.random.choice((0, 0, 1_000, 7_000))
    world.ask(SimClient.nack, me.group.name, messages, Nack(delay_ms), me.name)


def _bury(world: World, me: Puller, messages: Sequence[ClaimedMessage], lease: int) -> None:
    world.ask(SimClient.nack, me.group.name, messages[:1], Nack(dead_letter=True), me.name)
    _ack(world, me, messages, lease)


def _extend(world: World, me: Puller, messages: Sequence[ClaimedMessage], lease: int) -> None:
    for _ in range(world.random.choice((1, 2))):
        world.pause(lease * world.random.uniform(0.3, 1.1))
        world.ask(SimClient.extend, me.group.name, messages, lease, me.name)
    _ack(world, me, messages, lease)


def _die(world: World, me: Puller, messages: Sequence[ClaimedMessage], lease: int) -> None:
    """It forgets what it had; another comes in its place."""
    world.pause(world.random.uniform(0, 30))


_HABITS = (_ack, _ack, _ack, _ack_some, _ack_twice, _ack_late, _nack, _bury, _extend, _die)
_HABITS_WITH_RUNS = (_ack, _ack, _ack_in_parts, _ack_twice, _ack_late, _nack, _extend, _die)
