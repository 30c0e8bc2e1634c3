"""A replay at the service: its messages are stored and its progress is reported, even if the process dies."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.domain.replay import REPLAY_OF_HEADER, Replay, ReplayState
from chalicelib.services.manage.replays import Archived, Progress
from tests.crash.scenes import Flow, Scene
from tests.support.flows import draft
from tests.support.flows_push import Runner

_SHARDS = 2
_IN_TWO_ROWS = 102
_SENT = [
    *(Archived(f"old-{n:03}", 0, draft(f"m{n:03}")) for n in range(_IN_TWO_ROWS)),
    Archived("old-alone", 1, draft("alone")),
]


def _make(scene: Scene, client: Runner) -> None:
    client.deps.replays.create(Replay("", scene.topic, scene.topic, 0, 0, 1, 100), start=False)


def _replay(scene: Scene, client: Runner) -> Replay:
    [replay] = client.deps.adapters.control.replays(scene.topic, None, 2)
    return replay


def _run(scene: Scene, client: Runner) -> None:
    """What the job asks for; it says DONE only when all is stored."""
    replay = _replay(scene, client)
    if replay.state is ReplayState.DONE:
        return
    client.deps.replays.tell(replay, Progress(ReplayState.RUNNING))
    outcomes = client.replay(replay, _SENT)
    if not any(isinstance(outcome, Exception) for outcome in outcomes):
        progress = Progress(ReplayState.DONE, len(_SENT), len(_SENT))
        client.deps.replays.tell(_replay(scene, client), progress)


def _half(scene: Scene, client: Runner) -> None:
    """An earlier run died: the first of a row and all of another shard are there."""
    _make(scene, client)
    client.replay(_replay(scene, client), [_SENT[0], _SENT[-1]])


def _undone(scene: Scene, client: Runner) -> list[str]:
    """Violations that no history shows: a replay that is not over, messages out of their order."""
    complaints = [] if _replay(scene, client).state is ReplayState.DONE else ["the replay is not done"]
    for shard in range(_SHARDS):
        rows = client.deps.adapters.log.read(client.topic.shard_key(shard), 0, 1000, consistent=True)
        ids = [each.headers[REPLAY_OF_HEADER] for row in rows for each in row.drafts]
        complaints += [] if ids == sorted(ids) else [f"shard {shard} has {ids}"]
    return complaints


def _twice(scene: Scene, client: Runner) -> list[str]:
    return (
        ["it was made twice"] if len(client.deps.adapters.control.replays(scene.topic, None, 2)) > 1 else []
    )


REPLAY_FLOWS: Mapping[str, Flow] = {
    "make a replay": Flow(_make, also=_twice),
    "send a replay": Flow(_run, arrange=_make, after=_run, topic={"shards": _SHARDS}, also=_undone),
    "send a replay again": Flow(_run, arrange=_half, after=_run, topic={"shards": _SHARDS}, also=_undone),
}

REPLAY_CALLS: Mapping[str, int] = {"make a replay": 2, "send a replay": 10, "send a replay again": 13}
