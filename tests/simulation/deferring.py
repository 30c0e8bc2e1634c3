"""Producers of messages that come later: some are delayed and change their minds, some have to be decided upon."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from chalicelib.domain.message import Draft
from chalicelib.domain.transaction import DECIDED, Transaction, TransactionState
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.transactions import Checks
from tests.simulation.clients import SimClient
from tests.simulation.promises import Deal, Delay
from tests.simulation.world import World
from tests.support.events import Told
from tests.support.flows import draft

_DELAYS_MS = (500, 2_000, 5_000, 20_000, 70_000, 3_600_000)
_CHECKED_EVERY_S = (1, 3, 10, 60)
_BATCHES = 3  # of messages that wait in line
_MOODS = ("honest", "honest", "honest", "unknown", "hanging", "fickle")


def delayer(world: World, name: str) -> None:
    """Sends messages for later, and does something about some of them."""
    for n in range(world.plan.delayed):
        world.pause(world.random.expovariate(2 * world.plan.delayed / world.plan.seconds))
        due_ms = int(world.scheduler.now) + world.random.choice(_DELAYS_MS)
        message = _draft(world, f"{name}-{n}", due_ms)
        delay = Delay({(due_ms, message.body)})
        world.promises.delays[f"{name}-{n}"] = delay
        _send(world, message, delay)
        for _ in range(world.random.choice((0, 1, 1, 2)) if delay.message_id else 0):
            for _ in range(world.plan.rivals):
                rival = partial(world.random.choice(_MINDS), world, delay)
                world.scheduler.spawn(rival, world, world.random.uniform(0, 3_000))
            world.random.choice(_MINDS)(world, delay)


def liner(world: World, name: str) -> None:
    """Sends several messages of one key at once, for the same few moments."""
    rng = world.random
    for n in range(_BATCHES):
        world.pause(rng.expovariate(2 * _BATCHES / world.plan.seconds))
        now_ms, key = int(world.scheduler.now), rng.choice(("a", "b"))
        dues_ms = [now_ms + rng.choice(_DELAYS_MS[:-1]) for _ in range(2)]
        drafts = [
            draft(f"{name}-{n}-{i}", due_ms=rng.choice(dues_ms), ordering_key=key)
            for i in range(rng.choice((2, 4, 8)))
        ]
        delays = [Delay({(each.due_ms or 0, each.body)}) for each in drafts]
        world.promises.delays |= {f"{name}-{n}-{i}": delay for i, delay in enumerate(delays)}
        for delay, answer in zip(delays, world.ask(SimClient.produce, *drafts) or (), strict=False):
            if isinstance(answer, ProduceResult):
                delay.message_id = answer.id


def _draft(world: World, label: str, due_ms: int | None) -> Draft:
    rng = world.random
    dedup_id = f"id of {label}" if rng.random() < 0.5 else None
    return draft(
        label,
        due_ms=due_ms,
        ordering_key=rng.choice(("a", "b", None)),
        tag=rng.choice(("red", "blue", "green", None)),
        dedup_id=dedup_id,
    )


def _send(world: World, message: Draft, delay: Delay) -> None:
    """What has a dedup id is sent again until there is an answer."""
    while not delay.message_id:
        for answer in world.ask(SimClient.produce, message) or ():
            if isinstance(answer, ProduceResult):
                delay.message_id = answer.id
        if not message.dedup_id:
            return
        world.pause(world.random.uniform(0, 2))


def _edit(world: World, delay: Delay) -> None:
    _think(world, delay)
    body = next(iter(delay.forms))[1].split(b"|")[0].rstrip(b'"') + b'|%d"' % world.stamp()
    _change(world, delay, body=body)


def _hurry(world: World, delay: Delay) -> None:
    _think(world, delay)
    _change(world, delay, due_ms=int(world.scheduler.now))


def _postpone(world: World, delay: Delay) -> None:
    _think(world, delay)
    _change(world, delay, due_ms=int(world.scheduler.now) + world.random.choice(_DELAYS_MS))


def _change(world: World, delay: Delay, **changes: Any) -> None:
    ask = partial(world.ask, cast(Any, SimClient.amend), delay.message_id, **changes)
    answer = delay.change(ask, changes.get("due_ms"), changes.get("body"))
    world.promises.answered(delay, answer)


def _cancel(world: World, delay: Delay) -> None:
    _think(world, delay)
    for _ in range(world.random.choice((1, 2))):
        answer = delay.cancel(partial(world.ask, SimClient.cancel, delay.message_id))
        world.promises.answered(delay, answer)


def _think(world: World, delay: Delay) -> None:
    """For a while; or until just when the message is due, to race it."""
    left_s = _until_moved(world, min(delay.forms)[0])
    racing = world.random.random() < 0.7 and left_s < world.plan.seconds
    world.pause(max(0, left_s) if racing else world.random.uniform(0, 3))


def _until_moved(world: World, due_ms: int) -> float:
    """Seconds until some mover, by its clock, is at work on what is due then."""
    skew_ms = world.some("mover").clock.skew_ms
    return (due_ms - skew_ms - world.scheduler.now) / 1000 + world.random.uniform(-0.02, 0.7)


_MINDS: tuple[Callable[[World, Delay], None], ...] = (_edit, _hurry, _postpone, _cancel, _cancel)


def trader(world: World, name: str) -> None:
    """Prepares, does its own work, and decides; or dies between the two, and is asked."""
    rng = world.random
    for n in range(world.plan.deals):
        world.pause(rng.expovariate(2 * world.plan.deals / world.plan.seconds))
        truth = rng.choice(
            (TransactionState.COMMITTED, TransactionState.COMMITTED, TransactionState.ROLLED_BACK)
        )
        deal = Deal(truth, rng.choice(_MOODS))
        world.promises.deals[f"{name}-{n}"] = deal
        transaction = _prepare(world, f"{name}-{n}")
        if transaction is None or rng.random() < 0.3:
            continue
        checked_s = max(0, _until_moved(world, transaction.check_ms) + rng.uniform(0, 3))
        waits_s = (0.0, rng.uniform(0, 15)) if deal.mood != "fickle" else (checked_s,)
        world.pause(min(rng.choice((*waits_s, checked_s)), world.plan.seconds))
        if rng.random() < 0.3:  # another client decides otherwise
            rival = partial(_decide, world, f"{name}-{n}", transaction.id, rng.choice(DECIDED))
            world.scheduler.spawn(rival, world, rng.uniform(0, 30))
        _decide(world, f"{name}-{n}", transaction.id, truth)


def _prepare(world: World, label: str) -> Transaction | None:
    rng = world.random
    due_ms = int(world.scheduler.now) + rng.choice(_DELAYS_MS) if rng.random() < 0.3 else None
    message = _draft(world, label, due_ms)
    url = "https://bank.example/" if rng.random() < 0.8 else None
    checks = Checks(url, rng.choice(_CHECKED_EVERY_S))
    delay_from_commit = due_ms is not None and rng.random() < 0.5
    while True:
        transaction = world.ask(SimClient.prepare, message, checks, delay_from_commit=delay_from_commit)
        if transaction or not message.dedup_id:
            return transaction
        world.pause(rng.uniform(0, 2))


def _decide(world: World, label: str, transaction_id: str, truth: TransactionState) -> None:
    """Until there is an answer, or not; some ask for the opposite next, to their own loss."""
    for state in (truth, *world.random.sample(DECIDED, world.random.choice((0, 0, 1, 2)))):
        for _ in range(world.random.choice((1, 3))):
            world.promises.deals[label].asked.add(state)
            answer = world.ask(SimClient.decide, transaction_id, state) or Told.UNKNOWN
            world.promises.decided(label, transaction_id, state, answer)
            if answer is not Told.UNKNOWN:
                break
