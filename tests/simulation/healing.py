"""The end of each run: no more trouble, everybody is good, and only schedules are left to bring everything to rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from chalicelib.domain.cursor import Cursor
from chalicelib.domain.times import HOUR_MS, MINUTE_MS
from chalicelib.domain.topic import CursorKey
from chalicelib.services.core.positions import all_keys
from chalicelib.services.core.wake import task_of
from chalicelib.services.produce.check_back import Check
from chalicelib.store.layout import FRAGMENTS
from tests.simulation.clients import SimClient
from tests.simulation.operators import contact
from tests.simulation.processes import Process
from tests.simulation.world import World
from tests.support.clock import Inline
from tests.support.push import Inbox
from tests.support.rest import readers_of

_HOURS = 13  # the jobs that come by all topics come by twice
_SLOT_MS = 6 * HOUR_MS


def heal(world: World) -> SimClient:
    """Let the world become idle by schedules alone, the stream stays silent; returns a client to look at it with. What
    does not become idle is reported."""
    world.subscribers.healed, world.streams = True, False
    world.weather.clears()
    inbox = Inbox()
    process = world.begin("healer", world.calm, 0)
    process.replace(invoker=inbox, threads=lambda: Inline())
    client = SimClient(process)
    _repair(client)
    end = world.scheduler.now + _HOURS * HOUR_MS
    slot = world.scheduler.now // _SLOT_MS
    for rounds in itertools.count():
        _minute(world, process, inbox)
        if world.scheduler.now // _SLOT_MS > slot:
            slot = world.scheduler.now // _SLOT_MS
            process.deps.expirer.run_once()
            process.deps.checkpointer.run_once()
        _pull(client)
        tasks = list(_pending(world, client))
        if not tasks:
            return client
        if world.scheduler.now > end:
            break
        nearest = min([at for at, _ in tasks if at > world.scheduler.now], default=0)
        patience = 1 + rounds // 20  # minutes: what did not come at once may never come
        world.scheduler.now = max(world.scheduler.now + patience * MINUTE_MS, nearest)
    world.accuse(f"forgotten: {sorted({what for _, what in tasks})}")
    return client


def _repair(client: SimClient) -> None:
    """What people do afterwards: groups go on, who was switched off is registered again."""
    control, topic = client.deps.adapters.control, client.topic
    for group in control.groups(topic):
        if group.paused_until_ms:
            client.deps.admin.pause(topic, group.name, False)
        for consumer in control.consumers(topic, group):
            if consumer.is_called and consumer.state != "ACTIVE":
                client.deps.registry.register(topic, group, consumer.name, contact(consumer.name))


def _minute(world: World, process: Process, inbox: Inbox) -> None:
    """What schedules start, and what that starts."""
    deps, began_ms = process.deps, process.clock.now_ms()
    deps.mover.run_once()
    for fragment in range(FRAGMENTS):
        next_ms = deps.adapters.timers.next_ms(fragment, consistent=True)
        if next_ms is not None and next_ms <= began_ms:
            world.accuse(f"a timer of fragment {fragment} is {began_ms - next_ms} ms late")
    deps.sweeper.run_once()
    deps.assigner.run_once()
    while inbox.asked:
        function, event = inbox.asked.popleft()
        if function == "deliver":
            deps.dispatcher.deliver(task_of(event), lambda: 600.0)
        elif function == "check":
            deps.checker.check([Check(*each) for each in event["checks"]], lambda: 600.0)


def _pull(client: SimClient) -> None:
    """Healthy consumers take what is not pushed."""
    for reader in readers_of(client.deps, client.topic):
        if reader.is_called:
            continue
        while messages := client.receive(reader.group.name, 100, reader.consumer):
            client.ack(reader.group.name, messages, reader.consumer)


def _pending(world: World, client: SimClient) -> Iterator[tuple[float, str]]:
    """What waits, and until when (0: for a consumer)."""
    a = world.adapters
    for fragment in range(FRAGMENTS):
        if (next_ms := a.timers.next_ms(fragment)) is not None:
            yield next_ms, f"a timer of fragment {fragment}"
    for reader in readers_of(client.deps, client.topic):
        for key in all_keys(client.topic, reader.group, reader.uid):
            yield from _waiting(world, key)


def _waiting(world: World, key: CursorKey) -> Iterator[tuple[float, str]]:
    cursor = world.adapters.cursors.get(key) or Cursor()
    for lease in cursor.leases.values():
        yield lease.deadline_ms, f"a lease on {key.shard}"
    for span in cursor.waiting:
        yield span.due_ms, f"offset {span.start} of {key.shard}"
    if world.adapters.log.tail(key.shard).offset >= cursor.next:
        yield 0, f"messages of {key.shard}"
