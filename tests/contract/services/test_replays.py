"""Replays on both stores: each message once, also with concurrent runs, and to one group where that was requested."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from chalicelib.domain.errors import Conflict
from chalicelib.domain.limits import REPLAY_LIFE
from chalicelib.domain.message import Draft
from chalicelib.domain.replay import REPLAY_HEADER, REPLAY_OF_HEADER, Replay
from chalicelib.domain.times import DAY_MS, MINUTE_MS
from chalicelib.services.core.counters import ACCEPTED
from chalicelib.services.manage.replays import Archived
from tests.support import factories as make
from tests.support.desk import Desk, require_stored
from tests.support.stages import Stage


def made(desk: Desk, **fields: object) -> Replay:
    plain = {"id": "", "source": "gone", "into": desk.topic.name, "created_ms": 0, "from_ms": 0, "to_ms": 1}
    request = Replay(**{**plain, "rate": 1, **fields})  # type: ignore[arg-type]
    stored_replay, is_started = desk.deps.replays.create(request, start=True)
    assert is_started is False
    return desk.deps.replays.find(stored_replay.id)


def archived(*numbers: int) -> list[Archived]:
    return [Archived(f"old-{n}", n, make.draft(n)) for n in numbers]


def drafts(desk: Desk) -> Sequence[Draft]:
    segments = desk.stage.adapters.log.read(desk.topic.shard_key(0), 0, 1000, consistent=True)
    return [draft for segment in segments for draft in segment.drafts]


def test_i3_processes_that_send_the_same_at_once_send_it_once(stage: Stage) -> None:
    desk = Desk.at(stage, dedup_window_seconds=1)
    replay = made(desk)
    processes = [stage.process() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        answers = list(
            threads.map(
                lambda deps: require_stored(deps.replays.send(replay, archived(*range(20)))), processes
            )
        )
    assert sorted(draft.headers[REPLAY_OF_HEADER] for draft in drafts(desk)) == sorted(
        f"old-{n}" for n in range(20)
    )
    assert {draft.headers[REPLAY_HEADER] for draft in drafts(desk)} == {replay.id}
    assert len({tuple(place.id for place in answer) for answer in answers}) == 1
    assert sum(not place.duplicate for answer in answers for place in answer) == 20
    assert sum(deps.counters.take().get(ACCEPTED, 0) for deps in processes) == 20
    stage.clock.advance(6 * DAY_MS)
    assert all(
        place.duplicate for place in require_stored(desk.deps.replays.send(replay, archived(*range(20))))
    )


def test_a_replay_takes_messages_up_to_the_end_of_its_life(stage: Stage) -> None:
    desk = Desk.at(stage)
    replay = made(desk)
    stage.clock.advance(REPLAY_LIFE // timedelta(milliseconds=1) - 1)
    assert len(require_stored(desk.deps.replays.send(replay, archived(0)))) == 1
    stage.clock.advance(1)
    with pytest.raises(Conflict, match="days ago"):
        desk.deps.replays.send(replay, archived(1))


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_what_is_for_one_group_others_pass_over(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage)
    mine, other = desk.group("mine", mode=mode), desk.group("other", mode=mode)
    consumers = [desk.consumer(g, "c") if mode == "broadcast" else None for g in (mine, other)]
    require_stored(desk.deps.replays.send(made(desk, group="mine"), archived(0, 1)))
    desk.produce(make.draft("for all"))
    bodies = []
    for _ in range(3):  # a serial group hands out one at a time
        some = desk.receive(mine, consumer=consumers[0])
        desk.ack(mine, some)
        bodies += [delivery.message.draft.body for delivery in some]
    assert bodies == [b"0", b"1", b'"for all"']
    assert [d.message.draft.body for d in desk.receive(other, consumer=consumers[1])] == [b'"for all"']


def test_a_replay_puts_nothing_into_a_namesake_of_its_topic(stage: Stage) -> None:
    """What it sent before is gone with the topic, so it would be done with a part of its messages."""
    desk = Desk.at(stage)
    replay = made(desk)
    require_stored(desk.deps.replays.send(replay, archived(1)))
    stage.clock.advance(MINUTE_MS)
    desk.deps.admin.delete_topic(desk.topic)
    desk.topic, _ = desk.deps.admin.put_topic(desk.topic.name, {"shards": 1})
    with pytest.raises(Conflict, match="made again"):
        stage.process().replays.send(replay, archived(1, 2))
    assert drafts(desk) == []
    assert len(require_stored(desk.deps.replays.send(made(desk), archived(1, 2)))) == 2
