"""Flows of deliveries: calling, failing, waiting, moving, and calling again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.ladder import Retry
from chalicelib.services.consume.settle import Nack
from tests.crash.scenes import (
    GROUP,
    Act,
    Flow,
    Scene,
    ack_held,
    answering,
    claim,
    passing,
    produce,
    slowly,
    steps,
    subscribe,
)
from tests.support.clock import START_MS
from tests.support.faults import Death
from tests.support.flows import draft
from tests.support.flows_push import LADDER_SECONDS, Runner

OK = CallResult(Verdict.DONE)
FAILS = CallResult(Verdict.FAILED, "HTTP 500", 500)
REFUSES = CallResult(Verdict.REFUSED, "HTTP 489", 489)
GONE = CallResult(Verdict.GONE, "HTTP 410", 410)
HELD = CallResult(Verdict.NOT_ATTEMPTED)
LATER = replace(FAILS, status=429, retry_after_ms=45_000)

RETRY = Retry(3, (LADDER_SECONDS,), jitter=0.0)
PUSHED: Mapping[str, Any] = {"retry": RETRY}
ONCE = {"retry": replace(RETRY, max_attempts=1)}
SERIAL = {**PUSHED, "mode": "serial"}
_FANS = "fans"
_three = produce("a", "b", "c", each=True)
_batch = produce("a", "b", "c")
_WAIT = passing(LADDER_SECONDS)
_LAPSE = passing(40)
_REST = passing(600)
_THIRD_OF_A_SECOND = 0.3


def push(group: str = GROUP) -> Act:
    return lambda scene, client: client.push(group)


def move(scene: Scene, client: Runner) -> object:
    return client.move()


def sweep(scene: Scene, client: Runner) -> object:
    return client.sweep()


def failed(*messages: str, times: int = 1) -> Act:
    """Messages whose first attempts have failed: they wait for their timers."""
    fail = steps(answering(*[FAILS] * len(messages)), push())
    return steps(subscribe(), produce(*messages), fail, *[steps(_WAIT, move, fail)] * (times - 1))


def in_lane(*messages: str, times: int = 1) -> Act:
    """Messages in the retry lane, to be tried again now."""
    return steps(failed(*messages, times=times), _WAIT, move)


def dies_while_calling(scene: Scene, client: Runner) -> None:
    """The process is gone while the subscriber is at it."""

    def dies(push_batch: PushBatch) -> CallResult:
        raise Death("while calling")

    scene.subscribers.behaviours["one"] = dies
    try:
        scene.client().push(GROUP)
    except Death:
        scene.subscribers.behaviours.clear()


def _poisoned(scene: Scene, client: Runner) -> None:
    """Refuses every push_batch that the message "c" is in."""

    def answer(push_batch: PushBatch) -> CallResult:
        return FAILS if any(a.message.draft.body == b'"c"' for a in push_batch.attempts) else OK

    scene.subscribers.behaviours["one"] = answer


def _partly(scene: Scene, client: Runner) -> None:
    """A function that takes the first, fails at the second and refuses the third of each batch."""
    scene.subscribers.behaviours["one"] = lambda push_batch: [OK, FAILS, REFUSES][: len(push_batch.attempts)]


def _keyed(scene: Scene, client: Runner) -> None:
    for label, key in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("plain1", None)):
        client.produce(draft(label, ordering_key=key))


def _fans(scene: Scene, client: Runner) -> None:
    scene.broadcasts = client.broadcasts = frozenset([_FANS])
    client.put_group(_FANS, mode="broadcast", **PUSHED)
    steps(subscribe("one", FAILS, group=_FANS), subscribe("two", group=_FANS), produce("a"))(scene, client)


def _nacked(scene: Scene, client: Runner) -> None:
    """What a consumer that pulls gave back for a while is in the lane."""
    scene.held = client.receive(GROUP)
    client.nack(GROUP, scene.held, Nack(delay_ms=1000 * LADDER_SECONDS))
    scene.seconds_pass(LADDER_SECONDS)
    client.move()


def _move_and_run(_: Scene, client: Runner) -> None:
    client.move()
    client.run()


def _race_to_move(scene: Scene, client: Runner) -> None:
    """Another mover is faster with what this one has just read."""
    slowly(client, lambda: scene.client().move())
    client.move()


PUSH_FLOWS: Mapping[str, Flow] = {
    # From the shards
    "push": Flow(push(), steps(subscribe(), _three), group=PUSHED),
    "push a batch": Flow(
        push(), steps(subscribe(), _batch), group={**PUSHED, "batch_size": 3, "payload": "batch"}
    ),
    "push nothing": Flow(push(), subscribe(), group=PUSHED),
    "push to two consumers": Flow(
        push(),
        steps(subscribe("one", FAILS), subscribe("two"), produce("a", shard=0), produce("b", shard=1)),
        topic={"shards": 2},
        group=PUSHED,
    ),
    "push in vain": Flow(push(), steps(subscribe("one", FAILS), _batch), group=PUSHED),
    "push in vain to a broadcast's consumer": Flow(push(_FANS), _fans, group=None),
    "push in order": Flow(push(), steps(subscribe(), _keyed), group=SERIAL),
    "push in order in vain": Flow(push(), steps(subscribe("one", FAILS), _keyed), group=SERIAL),
    "push in order for the last time": Flow(
        push(), steps(subscribe("one", FAILS), _keyed), group={**SERIAL, **ONCE}
    ),
    "push to one who asks for more time": Flow(push(), steps(subscribe("one", LATER), _batch), group=PUSHED),
    "push for the last time": Flow(push(), steps(subscribe("one", FAILS), _batch), group=ONCE),
    "push to one who refuses": Flow(push(), steps(subscribe("one", REFUSES), _batch), group=PUSHED),
    "push to one who is gone": Flow(
        push(), steps(subscribe("one", GONE), produce("a")), after=subscribe(), group=PUSHED
    ),
    "push what is held": Flow(push(), steps(subscribe("one", HELD), _batch), group=PUSHED),
    "push to a function that takes a part": Flow(
        push(), steps(subscribe(kind="function"), _partly, _batch), group={**PUSHED, "batch_size": 3}
    ),
    "push a batch with one bad message": Flow(
        push(), steps(subscribe(), _poisoned, _batch), group={**PUSHED, "batch_size": 3, "payload": "batch"}
    ),
    "push a bad message till it is by itself": Flow(
        steps(_WAIT, move, push()),
        steps(subscribe(), _poisoned, _batch, push()),
        group={**PUSHED, "batch_size": 3, "payload": "batch"},
    ),
    "push after a death": Flow(push(), steps(subscribe(), _batch, dies_while_calling, _LAPSE), group=PUSHED),
    "push before the lease is over": Flow(
        push(), steps(subscribe(), _batch, dies_while_calling, passing(35)), group=PUSHED
    ),
    "push what has no attempts left": Flow(
        push(), steps(subscribe(), _batch, dies_while_calling, _LAPSE), group=ONCE
    ),
    # Timers
    "move one": Flow(move, steps(failed("a"), _WAIT), group=PUSHED),
    "move many": Flow(move, steps(failed("a", "b", "c"), _WAIT), group=PUSHED),
    "move just before the time": Flow(
        steps(lambda _, client: client.run_mover(), push()),
        steps(failed("a"), passing(LADDER_SECONDS - 0.001)),
        group=PUSHED,
    ),
    "move in a race": Flow(_race_to_move, steps(failed("a"), _WAIT), group=PUSHED),
    "move of many fragments": Flow(
        lambda scene, client: client.move(1_000),
        steps(failed("a", "b", "c"), passing(LADDER_SECONDS - _THIRD_OF_A_SECOND)),
        group=PUSHED,
    ),
    "wake": Flow(
        _move_and_run,
        steps(subscribe("one", HELD), _batch, push(), passing(1)),
        group=PUSHED,
    ),
    "sweep": Flow(sweep, steps(subscribe(), _batch), group=PUSHED),
    "sweep after a rest": Flow(sweep, steps(subscribe(), _REST, sweep, _batch), group=PUSHED),
    # From the lane
    "push from the lane": Flow(push(), in_lane("a", "b"), group=PUSHED),
    "push from the lane in vain": Flow(
        push(), steps(in_lane("a", "b"), answering(FAILS, FAILS)), group=PUSHED
    ),
    "push from the lane for the last time": Flow(
        push(), steps(in_lane("a", "b", times=2), answering(FAILS, FAILS)), group=PUSHED
    ),
    "push from the lane to one who refuses": Flow(
        push(), steps(in_lane("a"), answering(REFUSES)), group=PUSHED
    ),
    "push from the lane what is held": Flow(push(), steps(in_lane("a"), answering(HELD)), group=PUSHED),
    "push from the lane after a death": Flow(
        push(), steps(in_lane("a"), dies_while_calling, _LAPSE), group=PUSHED
    ),
    "push from the lane what has no attempts left": Flow(
        push(), steps(in_lane("a", times=2), dies_while_calling, _LAPSE), group=PUSHED
    ),
    "push from the lane what nobody wants any more": Flow(
        push(),
        steps(
            subscribe("one", FAILS),
            produce("old", expires_ms=START_MS + 1000),
            push(),
            _WAIT,
            move,
        ),
        group=PUSHED,
    ),
    "claim from the lane": Flow(claim(), steps(_batch, _nacked), after=ack_held()),
    "ack what is from the lane": Flow(ack_held(), steps(_batch, _nacked, claim())),
    "nack what is from the lane": Flow(
        lambda scene, client: client.nack(GROUP, scene.held, Nack(delay_ms=5000)),
        steps(_batch, _nacked, claim()),
    ),
    "bury what is from the lane": Flow(
        lambda scene, client: client.nack(GROUP, scene.held, Nack(dead_letter=True)),
        steps(_batch, _nacked, claim()),
    ),
}

PUSH_CALLS: Mapping[str, int] = {
    "push": 12,
    "push a batch": 12,
    "push nothing": 7,
    "push to two consumers": 24,
    "push in vain": 20,
    "push in vain to a broadcast's consumer": 26,
    "push in order": 12,
    "push in order in vain": 21,
    "push in order for the last time": 26,
    "push to one who asks for more time": 20,
    "push for the last time": 21,
    "push to one who refuses": 14,
    "push to one who is gone": 25,
    "push what is held": 13,
    "push to a function that takes a part": 14,
    "push a batch with one bad message": 18,
    "push a bad message till it is by itself": 30,
    "push after a death": 15,
    "push before the lease is over": 8,
    "push what has no attempts left": 13,
    "move one": 13,
    "move many": 13,
    "move just before the time": 15,
    "move in a race": 14,
    "move of many fragments": 21,
    "wake": 22,
    "sweep after a rest": 20,
    "sweep": 20,
    "push from the lane": 19,
    "push from the lane in vain": 14,
    "push from the lane for the last time": 15,
    "push from the lane to one who refuses": 20,
    "push from the lane what is held": 13,
    "push from the lane after a death": 21,
    "push from the lane what has no attempts left": 14,
    "push from the lane what nobody wants any more": 12,
    "claim from the lane": 9,
    "ack what is from the lane": 10,
    "nack what is from the lane": 12,
    "bury what is from the lane": 13,
}
