"""Replays."""

from typing import Any, NotRequired, TypedDict

from ...domain.replay import Replay, ReplayState
from .common import Count, Time, at

_Span = TypedDict("_Span", {"from": Time, "to": Time})


class ReplayView(_Span):
    """A replay: the archived messages to send, where to, and its progress. `predicate` is `where`, parsed."""

    replay_id: str
    topic: str
    tag: str | None
    key: str | None
    where: str | None
    predicate: list[Any] | None
    into: str
    group: str | None
    rate: Count
    dry_run: bool
    state: ReplayState
    matched: Count | None
    sent: Count
    error: str | None
    created_at: Time
    changed_at: Time


class CreatedReplay(ReplayView):
    """A replay that was just created. If its job was not started, `run_with` is the command that runs it."""

    started: bool
    run_with: NotRequired[str]


def view(replay: Replay) -> ReplayView:
    """A replay: what it chooses, where to, and how far it is."""
    from ...domain import predicate  # late, for few calls need it

    return {
        "replay_id": replay.id,
        "topic": replay.source,
        "from": at(replay.from_ms),
        "to": at(replay.to_ms),
        "tag": replay.tag,
        "key": replay.key,
        "where": replay.where,
        "predicate": predicate.parse(replay.where) if replay.where else None,
        "into": replay.into,
        "group": replay.group,
        "rate": replay.rate,
        "dry_run": replay.dry_run,
        "state": replay.state,
        "matched": replay.matched,
        "sent": replay.sent,
        "error": replay.error,
        "created_at": at(replay.created_ms),
        "changed_at": at(replay.changed_ms),
    }


def created_view(replay: Replay, is_started: bool) -> CreatedReplay:
    """A replay that was just made, and whether its job has begun."""
    body: CreatedReplay = {**view(replay), "started": is_started}
    if not is_started:
        body["run_with"] = f"make replay ARGS='--replay {replay.id}'"
    return body
