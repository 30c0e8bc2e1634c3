"""Flows of operators: dead letters, retries at once, consumers that come, change and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from chalicelib.domain.errors import Conflict
from chalicelib.domain.status import OVER
from chalicelib.domain.topic import Consumer
from chalicelib.services.consume.settle import Nack
from chalicelib.services.manage.registry import Contact
from chalicelib.store.control import Control
from tests.crash.push_table import FAILS, GONE, ONCE, PUSHED, REFUSES, SERIAL, failed, in_lane, push
from tests.crash.scenes import (
    GROUP,
    Act,
    Flow,
    Scene,
    ack_held,
    answering,
    claim,
    leave_hole,
    passing,
    produce,
    steps,
    subscribe,
)
from tests.support.flows import draft
from tests.support.flows_push import LADDER_SECONDS, Runner

_MANY = 50  # dead letters: more than one transaction moves
_WAIT = passing(LADDER_SECONDS)


def read_letters(scene: Scene, client: Runner) -> None:
    scene.letters = client.letters(GROUP)


def buried(*messages: str) -> Act:
    """Dead letters of messages that were refused; the operator has looked at them."""
    refuse = answering(*[REFUSES] * len(messages))
    return steps(subscribe(), refuse, produce(*messages), push(), read_letters)


def _keyed_and_failed(scene: Scene, client: Runner) -> None:
    subscribe("one", FAILS)(scene, client)
    for label in ("a1", "a2"):
        client.produce(draft(label, ordering_key="a"))
    client.push(GROUP)


def redrive(scene: Scene, client: Runner) -> object:
    return client.redrive(GROUP, scene.letters)


def redrive_what_is_left(scene: Scene, client: Runner) -> None:
    """The operator heard nothing, looks again and redrives what is there."""
    if letters := client.letters(GROUP):
        client.redrive(GROUP, letters)


def _redrive_twice(scene: Scene, client: Runner) -> None:
    """Another operator has redriven what this one still sees."""
    scene.client().redrive(GROUP, scene.letters)
    client.redrive(GROUP, scene.letters)


def _redrive_some_twice(scene: Scene, client: Runner) -> None:
    """Another operator was faster with the first one."""
    scene.client().redrive(GROUP, scene.letters[:1])
    client.redrive(GROUP, scene.letters)


def edit(scene: Scene, client: Runner) -> None:
    letter = scene.letters[0]
    scene.letters = [client.edit(GROUP, letter, "a")]


def _edit_and_redrive_what_is_left(scene: Scene, client: Runner) -> None:
    for letter in client.letters(GROUP):
        edited_letter = letter if letter.edited else client.edit(GROUP, letter, "a")
        client.redrive(GROUP, [edited_letter])


def _was_edited(scene: Scene, client: Runner) -> list[str]:
    """What was sent in the end is the edited body."""
    body = scene.subscribers.bodies[-1]
    return [] if body == b'"a|edited"' else [f"sent in the end: {body!r}"]


def discard(scene: Scene, client: Runner) -> None:
    client.discard(GROUP, scene.letters[0])


def _discard_what_is_left(scene: Scene, client: Runner) -> None:
    for letter in client.letters(GROUP):
        client.discard(GROUP, letter)


def _try(label: str, attempts: int | None = None) -> Act:
    """The operator presses the button of a message."""

    def act(scene: Scene, client: Runner) -> None:
        client.retry_now(GROUP, _id_of(scene, label), attempts)

    return act


def _settle(label: str, fate: str) -> Act:
    return lambda scene, client: client.settle_by_hand(GROUP, _id_of(scene, label), fate)


def _settle_if_open(label: str, fate: str) -> Act:
    """The operator heard nothing, looks again and settles what is not over."""

    def act(scene: Scene, client: Runner) -> None:
        message = client.deps.lookup.message(client.topic, _id_of(scene, label))
        status = client.deps.statuses.of_topic(client.topic).delivery(client.group(GROUP), message)
        if status and status.status not in OVER:
            client.settle_by_hand(GROUP, message.id, fate)

    return act


def _edit_retry(label: str) -> Act:
    return lambda scene, client: client.edit_retry(GROUP, _id_of(scene, label), label)


def _edit_what_is_left(scene: Scene, client: Runner) -> None:
    """The operator heard nothing: unless the new body was sent meanwhile, it is given again."""
    with suppress(Conflict):
        client.edit_retry(GROUP, _id_of(scene, "a"), "a")


def _purge(scene: Scene, client: Runner) -> None:
    client.purge(GROUP)


_in_lane = in_lane("a", "b")


def _id_of(scene: Scene, label: str) -> str:
    return next(e.message_id for e in scene.history.events if e.label == label and e.message_id)


def _unsubscribe(scene: Scene, client: Runner) -> None:
    client.unregister(GROUP, "one")


def _unsubscribe_if_there(scene: Scene, client: Runner) -> None:
    topic, group = client.topic, client.group(GROUP)
    if any(c.name == "one" for c in client.deps.catalog.consumers(topic, group)):
        client.unregister(GROUP, "one")


def _consumer(scene: Scene, client: Runner) -> Consumer:
    (one,) = client.deps.adapters.control.consumers(client.topic, client.group(GROUP))
    return one


def rotate(scene: Scene, client: Runner) -> None:
    topic, group = client.topic, client.group(GROUP)
    client.deps.registry.rotate_secret(topic, group, client.deps.catalog.consumer(topic, group, "one"))


def _has_two_secrets(scene: Scene, client: Runner) -> list[str]:
    secrets = _consumer(scene, client).secrets
    ends = [secret.until_ms for secret in secrets]
    good = len(secrets) in (2, 3) and ends[0] is None and None not in ends[1:]  # a repeat makes one more
    return [] if good else [f"secrets: {secrets}"]


def _is_called_at(target: str) -> Callable[[Scene, Runner], list[str]]:
    def wrong(scene: Scene, client: Runner) -> list[str]:
        one = _consumer(scene, client)
        calls = {call.target for call in scene.subscribers.calls[-3:]}
        good = (one.state, one.target, bool(one.secrets)) == ("ACTIVE", target, True) and calls == {target}
        return [] if good else [f"{one} and calls to {calls}"]

    return wrong


class _Late:
    """Control data to which another process writes just before an assignment is put."""

    def __init__(self, control: Control, event: Callable[[], object]) -> None:
        self._control = control
        self._happens = [event]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    def put_assignment(self, *args: Any) -> bool:
        while self._happens:
            self._happens.pop()()
        return self._control.put_assignment(*args)


def _race_to_assign(scene: Scene, client: Runner) -> None:
    """Another process registers a second consumer while the first one's shards are dealt."""
    control = _Late(client.deps.adapters.control, lambda: subscribe("two")(scene, scene.client()))
    deps = client.deps
    deps.adapters = replace(deps.adapters, control=cast(Control, control))
    subscribe("one")(scene, client)


def _assigned(*names: str) -> Callable[[Scene, Runner], list[str]]:
    """Every shard belongs to a consumer who is there, and to each of these."""

    def wrong(scene: Scene, client: Runner) -> list[str]:
        topic, group = client.topic, client.group(GROUP)
        uids = {c.name: c.uid for c in client.deps.adapters.control.consumers(topic, group)}
        assignment = client.deps.adapters.control.assignment(topic, group)
        owners = set(assignment.owners) if assignment else set()
        good = assignment is not None and len(assignment.owners) == topic.shards
        return [] if good and owners == {uids[name] for name in names} else [f"{assignment} for {uids}"]

    return wrong


def _was_opened(scene: Scene, client: Runner) -> list[str]:
    """The circuit is closed again."""
    one = _consumer(scene, client)
    return [] if (one.failing_ms, one.open_until_ms, one.times_opened) == (None, None, 0) else [str(one)]


def _remove_expired(scene: Scene, client: Runner) -> None:
    client.remove_expired(GROUP, "one")


def _is_removed(scene: Scene, client: Runner) -> list[str]:
    """Neither its row nor a cursor is left."""
    topic, group = client.topic, client.group(GROUP)
    uid = scene.fan.uid if scene.fan else ""
    cursors = client.deps.adapters.cursors.of_owner(group.uid, uid, consistent=True).values()
    rows = client.deps.adapters.control.consumers(topic, group)
    good = bool(uid) and rows == [] and all(cursor.is_closed for cursor in cursors)
    return [] if good else [f"{rows}, {cursors}"]


def _let_one_expire(scene: Scene, client: Runner) -> None:
    client.register(GROUP, "one", Contact(expires_after_seconds=60))
    scene.fan = _consumer(scene, client)
    passing(61)(scene, client)


_again = steps(subscribe(), produce("later"))
_ONE_OF_A_KEY = {**PUSHED, "key_concurrency": 1}


def _redriven_of_a_key(scene: Scene, client: Runner) -> None:
    """It is in the lane, and a new message of its key in the shard."""
    client.produce(draft("a", ordering_key="k"))
    client.nack(GROUP, client.receive(GROUP), Nack(dead_letter=True))
    client.redrive(GROUP, client.letters(GROUP))
    client.produce(draft("b", ordering_key="k"))


OPERATOR_FLOWS: Mapping[str, Flow] = {
    # Dead letters
    "push a redriven message and a new one of its key": Flow(
        steps(subscribe(), push()), _redriven_of_a_key, group=_ONE_OF_A_KEY
    ),
    "claim a redriven message before a new one of its key": Flow(
        claim(), _redriven_of_a_key, ack_held(), group=_ONE_OF_A_KEY
    ),
    "redrive one": Flow(redrive, buried("a"), redrive_what_is_left, group=PUSHED),
    "redrive many": Flow(
        redrive, buried(*(f"m{n}" for n in range(_MANY))), redrive_what_is_left, group=PUSHED
    ),
    "redrive at a rate": Flow(
        lambda scene, client: client.redrive(GROUP, scene.letters, 500),
        buried("a", "b", "c"),
        redrive_what_is_left,
        group=PUSHED,
    ),
    "redrive of two shards": Flow(
        redrive,
        steps(
            subscribe("one", REFUSES, REFUSES),
            produce("a", shard=0),
            produce("b", shard=1),
            push(),
            read_letters,
        ),
        redrive_what_is_left,
        topic={"shards": 2},
        group=PUSHED,
    ),
    "redrive all": Flow(
        lambda scene, client: client.redrive_all(GROUP),
        buried("a", "b"),
        redrive_what_is_left,
        group=PUSHED,
    ),
    "redrive twice": Flow(_redrive_twice, buried("a"), redrive_what_is_left, group=PUSHED, raced=True),
    "redrive some twice": Flow(
        _redrive_some_twice, buried("a", "b"), redrive_what_is_left, group=PUSHED, raced=True
    ),
    "redrive and fail for the last time": Flow(
        steps(redrive, answering(FAILS), push()),
        buried("a"),
        group=ONCE,
    ),
    "edit": Flow(edit, buried("a"), _edit_and_redrive_what_is_left, group=PUSHED, also=_was_edited),
    "redrive what was edited": Flow(
        redrive, steps(buried("a"), edit), redrive_what_is_left, group=PUSHED, also=_was_edited
    ),
    "push what was edited": Flow(
        push(), steps(buried("a"), edit, redrive, answering(FAILS)), group=PUSHED, also=_was_edited
    ),
    "discard": Flow(discard, buried("a", "b"), _discard_what_is_left, group=PUSHED),
    # Retries at once
    "try now what waits for a timer": Flow(_try("a"), failed("a", "b"), group=PUSHED),
    "try now what waits in order": Flow(_try("a1"), _keyed_and_failed, group=SERIAL),
    "try now what is dead": Flow(_try("a", attempts=1), buried("a"), redrive_what_is_left, group=PUSHED),
    # Deliveries by hand
    "settle what is new": Flow(
        _settle("c", "SUCCESS"), produce("a", "b", "c"), _settle_if_open("c", "SUCCESS"), group=SERIAL
    ),
    "settle behind a hole": Flow(
        _settle("behind", "SUCCESS"),
        steps(leave_hole, passing(60)),
        _settle_if_open("behind", "SUCCESS"),
    ),
    "settle what is leased": Flow(
        _settle("a", "DEAD"), steps(produce("a", "b"), claim()), _settle_if_open("a", "DEAD")
    ),
    "settle what waits for a timer": Flow(
        _settle("a", "SUCCESS"), failed("a", "b"), _settle_if_open("a", "SUCCESS"), group=PUSHED
    ),
    "settle what is in the retry lane": Flow(
        _settle("b", "DEAD"), _in_lane, _settle_if_open("b", "DEAD"), group=PUSHED
    ),
    "edit what waits for a timer": Flow(
        _edit_retry("a"), failed("a"), _edit_what_is_left, group=PUSHED, also=_was_edited
    ),
    "edit what is in the retry lane": Flow(_edit_retry("b"), _in_lane, group=PUSHED),
    "purge": Flow(_purge, steps(_in_lane, produce("c", "d"), claim(1)), _purge, group=PUSHED),
    "purge what waits for timers": Flow(_purge, steps(failed("a", "b"), produce("c")), _purge, group=PUSHED),
    # Consumers
    "subscribe": Flow(subscribe(), produce("a"), subscribe(), group=PUSHED, also=_is_called_at("one")),
    "subscribe at another address": Flow(
        subscribe(target="other"),
        steps(subscribe(), produce("a")),
        subscribe(target="other"),
        group=PUSHED,
        also=_is_called_at("other"),
    ),
    "subscribe after it was gone": Flow(
        subscribe(),
        steps(subscribe("one", GONE), produce("a"), push()),
        subscribe(),
        group=PUSHED,
        also=_is_called_at("one"),
    ),
    "subscribe in a race": Flow(
        _race_to_assign,
        produce("a", "b"),
        steps(subscribe("one"), subscribe("two")),
        topic={"shards": 2},
        group=PUSHED,
        also=_assigned("one", "two"),
    ),
    "register one that pulls": Flow(
        lambda scene, client: client.register(GROUP, "one"),
        produce("a"),
        lambda scene, client: client.register(GROUP, "one"),
    ),
    "remove one that expired": Flow(
        _remove_expired, _let_one_expire, _remove_expired, group={"mode": "broadcast"}, also=_is_removed
    ),
    "rotate a secret": Flow(
        rotate, steps(subscribe(), produce("a")), rotate, group=PUSHED, also=_has_two_secrets
    ),
    "unsubscribe": Flow(
        _unsubscribe,
        steps(subscribe("one"), subscribe("two"), produce("a", "b")),
        _unsubscribe_if_there,
        topic={"shards": 2},
        group=PUSHED,
        also=_assigned("two"),
    ),
    "unsubscribe the last one": Flow(
        _unsubscribe,
        steps(subscribe(), produce("a")),
        steps(_unsubscribe_if_there, _again),
        group=PUSHED,
        also=_is_called_at("one"),
    ),
    "open a circuit": Flow(
        push(),
        steps(subscribe("one", *[FAILS] * 10), produce(*(f"m{n}" for n in range(10)))),
        group=PUSHED,
        also=_was_opened,
    ),
}


OPERATOR_CALLS: Mapping[str, int] = {
    "settle what is new": 10,
    "settle behind a hole": 20,
    "settle what is leased": 10,
    "settle what waits for a timer": 15,
    "settle what is in the retry lane": 33,
    "edit what waits for a timer": 16,
    "edit what is in the retry lane": 33,
    "purge": 17,
    "purge what waits for timers": 13,
    "push a redriven message and a new one of its key": 34,
    "claim a redriven message before a new one of its key": 10,
    "redrive one": 17,
    "redrive many": 37,
    "redrive at a rate": 4,
    "redrive of two shards": 19,
    "redrive all": 19,
    "redrive twice": 6,
    "redrive some twice": 19,
    "redrive and fail for the last time": 19,
    "edit": 4,
    "redrive what was edited": 17,
    "push what was edited": 7,
    "discard": 4,
    "try now what waits for a timer": 26,
    "try now what waits in order": 26,
    "try now what is dead": 18,
    "subscribe": 14,
    "subscribe at another address": 7,
    "subscribe after it was gone": 12,
    "subscribe in a race": 18,
    "register one that pulls": 11,
    "remove one that expired": 6,
    "rotate a secret": 5,
    "unsubscribe": 11,
    "unsubscribe the last one": 11,
    "open a circuit": 27,
}
