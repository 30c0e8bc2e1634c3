"""The flows whose every storage call is made to fail, and how many calls each makes when all is well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.domain.errors import NotFound
from chalicelib.domain.ladder import Retry
from chalicelib.services.consume.settle import Nack
from tests.crash.scenes import (
    GROUP,
    Act,
    Flow,
    Scene,
    ack_held,
    claim,
    leave_hole,
    losing_races,
    passing,
    produce,
    reserve_shard,
    slowly,
    steps,
    turn_halfway,
)
from tests.support.clock import START_MS
from tests.support.flows import LEASE_SECONDS, draft
from tests.support.flows_push import Runner

_HOLE_SECONDS = 6
_ONCE = {"retry": Retry(1, (1,))}
_SERIAL = {"mode": "serial"}
_BIG = {"shards": 1, "max_body_bytes": 1_000_000}
_LARGE = 210_000
_THIRD = 180_000  # three of these need two segments
_LAPSE = passing(LEASE_SECONDS + 1)
_three = produce("a", "b", "c", each=True)


def _nack(**how: Any) -> Act:
    return lambda scene, client: client.nack(GROUP, scene.held, Nack(**how))


def _batch(scene: Scene, client: Runner) -> object:
    return client.produce(
        *(draft(f"first{n}", shard=0, padding=_THIRD) for n in range(3)),
        *(draft(f"second{n}", shard=1) for n in range(2)),
        draft("anywhere"),
    )


def _register(scene: Scene, client: Runner) -> None:
    client.register("fans", "one")


def _fans(scene: Scene, client: Runner) -> None:
    client.put_group("fans", mode="broadcast")


def _with_fan(scene: Scene, client: Runner) -> None:
    _fans(scene, client)
    _register(scene, client)
    [scene.fan] = client.deps.catalog.consumers(client.topic, client.group("fans"))


def _left_open(scene: Scene, client: Runner) -> list[str]:
    """Open cursors of consumers that have left."""
    assert scene.fan
    cursors = client.deps.adapters.cursors.of_owner(client.group("fans").uid, scene.fan.uid, consistent=True)
    return [f"the cursor on {shard} is open" for shard, cursor in cursors.items() if not cursor.is_closed]


def _fan_claims(scene: Scene, client: Runner) -> None:
    scene.held = client.receive("fans", 10, "one")


def _create(scene: Scene, client: Runner, begin: str = "latest") -> None:
    client.put_group("new", begin=begin)


def _delete_again(scene: Scene, client: Runner) -> None:
    if any(g.name == GROUP for g in client.deps.catalog.groups(client.topic)):
        client.delete_group(GROUP)


def _unregister_again(scene: Scene, client: Runner) -> None:
    try:
        client.deps.registry.consumer_to_remove(client.topic, client.group("fans"), "one")
    except NotFound:
        return
    client.unregister("fans", "one")


def _turning(scene: Scene, client: Runner) -> None:
    losing_races(scene, client)
    client.produce(draft("turning"))


def _filtered(scene: Scene, client: Runner) -> None:
    for label, tag in (("no", "x"), ("nor", "x"), ("yes", "y")):
        client.produce(draft(label, tag=tag))


def _keyed(scene: Scene, client: Runner) -> None:
    for label, key in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("plain1", None), ("plain2", None)):
        client.produce(draft(label, ordering_key=key))


def _two_shards(scene: Scene, client: Runner) -> None:
    client.produce(draft("left", shard=0), draft("right", shard=1))
    claim()(scene, client)


def _race_to_claim(scene: Scene, client: Runner) -> None:
    """The second claim is decided on a view that the rival has made old."""
    client.receive(GROUP, 4)
    scene.client().receive(GROUP, 4)
    client.receive(GROUP, 4)


def _ack_too_late(scene: Scene, client: Runner) -> None:
    """The ack is decided on a view in which the lease is still there."""
    messages = client.receive(GROUP, 10, lease_seconds=1)
    scene.seconds_pass(1)
    scene.client().receive(GROUP, 10)
    client.ack(GROUP, messages)


def _ack_and_claim(part: slice = slice(None)) -> Act:
    def act(scene: Scene, client: Runner) -> None:
        scene.held = client.ack_and_receive(GROUP, scene.held[part])

    return act


def _race_to_ack_and_claim(scene: Scene, client: Runner) -> None:
    """The receive that acknowledges is decided on a view that the rival has made old."""
    held = client.receive(GROUP, 4)
    scene.client().receive(GROUP, 4)
    client.ack_and_receive(GROUP, held, 4)


def _claim_run(scene: Scene, client: Runner) -> None:
    scene.held = client.receive(GROUP, is_run=True)


def _append_slowly(seconds: float) -> Act:
    def act(scene: Scene, client: Runner) -> None:
        slowly(client, lambda: _meanwhile(scene, seconds))
        client.produce(draft("slow"), draft("slower"))

    return act


def _meanwhile(scene: Scene, seconds: float) -> None:
    rival = scene.client()
    rival.produce(draft("behind"))
    scene.seconds_pass(seconds)
    rival.ack(GROUP, rival.receive(GROUP))


_expired = steps(_three, claim(), _LAPSE)
_retried = steps(_three, claim(), _LAPSE, claim())
_once_more = produce("m", dedup_id="only-once")

FLOWS: Mapping[str, Flow] = {
    # Ways in
    "append one": Flow(produce("m")),
    "append one by one": Flow(produce("m", "n", each=True)),
    "append a batch to several shards and segments": Flow(_batch, topic={"shards": 2}),
    "append with a dedup id": Flow(_once_more, after=_once_more),
    "append a known dedup id": Flow(_once_more, arrange=_once_more),
    "append for later": Flow(produce("m", "n", delay_seconds=90)),
    "append for soon": Flow(produce("m", "n", delay_seconds=5), raced=True),
    "append by key": Flow(produce("m", "n", ordering_key="k"), topic={"shards": 4}),
    "append to a reserved shard": Flow(produce("m", "n"), arrange=reserve_shard, after=produce("later")),
    "append after half a turn": Flow(produce("m"), arrange=turn_halfway, after=produce("later")),
    "turn a shard to reserved": Flow(_turning, after=produce("later")),
    "append slowly to a reserved shard": Flow(_append_slowly(1), arrange=reserve_shard),
    "append too slowly to a reserved shard": Flow(_append_slowly(_HOLE_SECONDS), arrange=reserve_shard),
    "append with keys": Flow(produce("m", "n", keys=("k", "l"))),
    "append a large body": Flow(produce("m", padding=_LARGE), topic=_BIG),
    # Claims
    "claim": Flow(claim(), arrange=_three, after=ack_held()),
    "claim a part of a batch": Flow(claim(4), arrange=produce(*"abcdef"), after=ack_held()),
    "claim after the lease": Flow(claim(), arrange=_expired, after=ack_held()),
    "claim just before the lease is over": Flow(
        claim(), arrange=steps(_three, claim(), passing(LEASE_SECONDS - 0.001))
    ),
    "claim in a race": Flow(_race_to_claim, arrange=produce(*"abcdefghijkl")),
    "claim after a nack": Flow(claim(), arrange=steps(_three, claim(), _nack()), after=ack_held()),
    "claim before a delay is over": Flow(claim(), arrange=steps(_three, claim(), _nack(delay_ms=60_000))),
    "claim what has no attempts left": Flow(
        claim(), arrange=steps(_expired, produce("fresh")), group=_ONCE, after=ack_held()
    ),
    "claim what nobody wants any more": Flow(claim(), arrange=produce("old", "older", expires_ms=START_MS)),
    "claim behind filtered messages": Flow(
        claim(), arrange=_filtered, group={"tags": ("y",)}, after=ack_held()
    ),
    "claim in order": Flow(claim(), arrange=_keyed, group=_SERIAL, after=ack_held()),
    "claim in order after the lease": Flow(
        claim(), arrange=steps(_keyed, claim(), _LAPSE), group=_SERIAL, after=ack_held()
    ),
    "claim in order what has no attempts left": Flow(
        claim(), arrange=steps(_keyed, claim(), _LAPSE), group={**_SERIAL, **_ONCE}, after=ack_held()
    ),
    "claim a run": Flow(_claim_run, arrange=_keyed, group=_SERIAL, after=ack_held()),
    "claim a run after the lease": Flow(
        _claim_run, arrange=steps(_keyed, _claim_run, _LAPSE), group=_SERIAL, after=ack_held()
    ),
    "claim a run behind what has no attempts left": Flow(
        _claim_run, arrange=steps(_keyed, _claim_run, _LAPSE), group={**_SERIAL, **_ONCE}, after=ack_held()
    ),
    "claim at a young hole": Flow(claim(), arrange=leave_hole, after=ack_held()),
    "claim over an old hole": Flow(
        claim(), arrange=steps(leave_hole, passing(_HOLE_SECONDS)), after=ack_held()
    ),
    "claim for a broadcast's consumer": Flow(_fan_claims, arrange=steps(_with_fan, _three)),
    # Settling
    "ack a lease": Flow(ack_held(), arrange=steps(_three, claim())),
    "ack part of a lease": Flow(ack_held(slice(1, 2)), arrange=steps(_three, claim())),
    "ack a lease in two parts": Flow(
        steps(ack_held(slice(0, 1)), ack_held(slice(1, 3))), arrange=steps(_three, claim())
    ),
    "ack a second attempt": Flow(ack_held(), arrange=_retried),
    "ack leases of two shards": Flow(ack_held(), arrange=_two_shards, topic={"shards": 2}),
    "ack when the lease has passed on": Flow(_ack_too_late, arrange=_three, raced=True),
    "ack in order": Flow(ack_held(), arrange=steps(_keyed, claim()), group=_SERIAL),
    "ack a run in two parts": Flow(
        steps(ack_held(slice(0, 1)), ack_held(slice(1, 2))), arrange=steps(_keyed, _claim_run), group=_SERIAL
    ),
    "nack a run": Flow(_nack(delay_ms=0), arrange=steps(_keyed, _claim_run), group=_SERIAL),
    "ack and claim": Flow(_ack_and_claim(), arrange=steps(produce(*"abcde"), claim(3)), after=ack_held()),
    "ack a part and claim": Flow(
        steps(ack_held(slice(0, 1)), _ack_and_claim(slice(1, 3))), arrange=steps(produce(*"abcde"), claim(3))
    ),
    "ack and claim nothing": Flow(_ack_and_claim(), arrange=steps(_three, claim())),
    "ack a second attempt and claim": Flow(_ack_and_claim(), arrange=steps(_retried, produce("d"))),
    "ack and claim in order": Flow(
        _ack_and_claim(), arrange=steps(_keyed, claim()), group=_SERIAL, after=ack_held()
    ),
    "ack and claim on two shards": Flow(
        _ack_and_claim(), arrange=steps(_two_shards, _three), topic={"shards": 2}, after=ack_held()
    ),
    "ack and claim in a race": Flow(_race_to_ack_and_claim, arrange=produce(*"abcdefghijkl")),
    "nack": Flow(_nack(), arrange=steps(_three, claim())),
    "nack with a reason": Flow(_nack(reason="no"), arrange=steps(_three, claim())),
    "nack with a delay": Flow(_nack(delay_ms=60_000), arrange=steps(_three, claim())),
    "nack in order with a delay": Flow(_nack(delay_ms=60_000), arrange=steps(_keyed, claim()), group=_SERIAL),
    "nack for the last time": Flow(_nack(reason="no"), arrange=steps(_three, claim()), group=_ONCE),
    "nack as a dead letter": Flow(_nack(dead_letter=True), arrange=steps(_three, claim())),
    "nack more dead letters than one write holds": Flow(
        _nack(dead_letter=True), arrange=steps(produce(*(f"m{n}" for n in range(46))), claim(100))
    ),
    "nack in order as a dead letter": Flow(
        _nack(dead_letter=True), arrange=steps(_keyed, claim()), group=_SERIAL
    ),
    "extend": Flow(
        lambda scene, client: client.extend(GROUP, scene.held, 300),
        arrange=steps(_three, claim()),
        after=steps(passing(LEASE_SECONDS + 1), claim()),
    ),
    # Groups and consumers
    "seek to the beginning": Flow(
        lambda scene, client: client.seek(GROUP, "earliest"), arrange=steps(_three, claim(), ack_held())
    ),
    "seek to the end": Flow(
        lambda scene, client: client.seek(GROUP, "latest"), arrange=_three, after=produce("later")
    ),
    "create a group at the end": Flow(
        _create, arrange=_three, group=None, after=steps(_create, produce("later"))
    ),
    "create a group at the beginning": Flow(
        lambda scene, client: _create(scene, client, "earliest"),
        arrange=_three,
        group=None,
        after=lambda scene, client: _create(scene, client, "earliest"),
    ),
    "register in a broadcast": Flow(
        _register, arrange=steps(_three, _fans), after=steps(_register, produce("later"))
    ),
    "unregister from a broadcast": Flow(
        lambda scene, client: client.unregister("fans", "one"),
        arrange=steps(_with_fan, _three),
        after=steps(_unregister_again, produce("later")),
        also=_left_open,
    ),
    "delete a group": Flow(
        lambda scene, client: client.delete_group(GROUP),
        arrange=steps(_three, claim()),
        after=steps(_delete_again, produce("later")),
    ),
}

CALLS: Mapping[str, int] = {
    "append one": 3,
    "append one by one": 4,
    "append a batch to several shards and segments": 7,
    "append with a dedup id": 3,
    "append a known dedup id": 4,
    "append for later": 2,
    "append for soon": 2,
    "append by key": 3,
    "append to a reserved shard": 5,
    "append after half a turn": 9,
    "turn a shard to reserved": 16,
    "append slowly to a reserved shard": 5,
    "append too slowly to a reserved shard": 7,
    "append with keys": 4,
    "append a large body": 3,
    "claim": 7,
    "claim a part of a batch": 6,
    "claim after the lease": 6,
    "claim just before the lease is over": 6,
    "claim in a race": 8,
    "claim after a nack": 10,
    "claim before a delay is over": 6,
    "claim what has no attempts left": 13,
    "claim what nobody wants any more": 10,
    "claim behind filtered messages": 7,
    "claim in order": 7,
    "claim in order after the lease": 6,
    "claim in order what has no attempts left": 13,
    "claim a run": 6,
    "claim a run after the lease": 6,
    "claim a run behind what has no attempts left": 10,
    "ack a run in two parts": 8,
    "nack a run": 6,
    "claim at a young hole": 11,
    "claim over an old hole": 18,
    "claim for a broadcast's consumer": 8,
    "ack a lease": 6,
    "ack part of a lease": 6,
    "ack a lease in two parts": 8,
    "ack a second attempt": 7,
    "ack leases of two shards": 9,
    "ack when the lease has passed on": 11,
    "ack in order": 6,
    "ack and claim": 9,
    "ack a part and claim": 12,
    "ack and claim nothing": 9,
    "ack a second attempt and claim": 9,
    "ack and claim in order": 10,
    "ack and claim on two shards": 13,
    "ack and claim in a race": 10,
    "nack": 6,
    "nack with a reason": 7,
    "nack with a delay": 10,
    "nack in order with a delay": 6,
    "nack for the last time": 11,
    "nack as a dead letter": 11,
    "nack more dead letters than one write holds": 12,
    "nack in order as a dead letter": 11,
    "extend": 5,
    "seek to the beginning": 7,
    "seek to the end": 6,
    "create a group at the end": 7,
    "create a group at the beginning": 4,
    "register in a broadcast": 15,
    "unregister from a broadcast": 14,
    "delete a group": 14,
}
"""How many storage calls each flow makes in a cold process: a call that a change adds shows here."""
