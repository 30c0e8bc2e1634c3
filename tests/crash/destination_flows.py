"""Flows whose writes end messages of a group with destinations: each must be told once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from chalicelib.domain.ladder import Retry
from chalicelib.domain.settings import Destination
from chalicelib.domain.status import Status
from chalicelib.services.consume.settle import Nack
from tests.crash.operator_table import _settle as settle
from tests.crash.operator_table import _settle_if_open as settle_if_open
from tests.crash.scenes import GROUP, Act, Flow, Scene, ack_held, claim, passing, produce, steps
from tests.support.flows import LEASE_SECONDS
from tests.support.flows_push import Runner
from tests.support.rest import final


def _told(scene: Scene) -> str:
    return scene.topic.removesuffix("z") + "told"


def _with_destinations(scene: Scene, client: Runner) -> None:
    topic, _ = client.deps.admin.put_topic(_told(scene), {"shards": 2})
    to = Destination(topic.name, topic.uid)
    client.deps.admin.put_group(client.topic, GROUP, {"on_dead": to, "on_success": to})


def _wrong(scene: Scene, client: Runner) -> list[str]:
    """What was told that did not end, or not just once."""
    topic, over = client.deps.catalog.topic(_told(scene)), (Status.SUCCESS, Status.DEAD)
    ended = Counter((id, str(status)) for (_, id), status in final(client).statuses.items() if status in over)
    told: Counter[tuple[str, str]] = Counter()
    for shard in topic.shard_numbers:
        for row in client.deps.adapters.log.read(topic.shard_key(shard), 0, 100):
            bodies = [json.loads(draft.body) for draft in row.drafts]
            told.update((body["message_id"], body["outcome"]) for body in bodies)
    return [f"told {told}, ended {ended}"] if told != ended else []


_nothing = steps()


def _flow(act: Act, *arrange: Act, after: Act = _nothing, **settings: object) -> Flow:
    return Flow(act, steps(_with_destinations, *arrange), after, group=settings, also=_wrong)


_two = steps(produce("a", ordering_key="k"), produce("b", ordering_key="l"))
_reject = Nack(dead_letter=True)

DESTINATION_FLOWS: Mapping[str, Flow] = {
    "tell of successes": _flow(ack_held(), _two, claim()),
    "tell of successes in a receive": _flow(
        lambda scene, client: client.ack_and_receive(GROUP, scene.held), _two, claim()
    ),
    "tell of rejections": _flow(lambda scene, client: client.nack(GROUP, scene.held, _reject), _two, claim()),
    "tell of what has no attempts left": _flow(
        claim(), _two, claim(), passing(LEASE_SECONDS + 1), retry=Retry(1, (1,))
    ),
    "tell of what is settled by hand": _flow(
        settle("a", "SUCCESS"), _two, claim(), after=settle_if_open("a", "SUCCESS")
    ),
    "tell of what is settled by hand in a timer": _flow(
        settle("a", "DEAD"),
        _two,
        claim(),
        lambda scene, client: client.nack(GROUP, scene.held, Nack(delay_ms=60_000)),
        after=settle_if_open("a", "DEAD"),
    ),
    "move what is told to two shards": _flow(lambda _, client: client.run_mover(), _two, claim(), ack_held()),
}
STEPS: Mapping[str, Act] = {
    "produce": _two,
    "receive and ack": steps(claim(), ack_held()),
    "receive and reject": steps(claim(1), lambda scene, client: client.nack(GROUP, scene.held, _reject)),
    "receive and die": steps(claim(1), passing(LEASE_SECONDS + 1)),
    "one mover": lambda scene, client: client.run_mover(),
    "another mover": lambda scene, client: client.move(),
}
"""What clients and movers do in any order, each in a process that may die."""
MANY_STEPS = Flow(passing(0), _with_destinations, group={"retry": Retry(2, (1,))}, also=_wrong)

DESTINATION_CALLS: Mapping[str, int] = {
    "tell of successes": 9,
    "tell of successes in a receive": 12,
    "tell of rejections": 10,
    "tell of what has no attempts left": 13,
    "tell of what is settled by hand": 9,
    "tell of what is settled by hand in a timer": 11,
    "move what is told to two shards": 13,
}
