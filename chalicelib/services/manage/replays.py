"""Replays: create, start, store messages sent by the job, show progress.

The job (glue_jobs/replaying) reads the archive and sends each message by `send`, under a dedup id made of the
replay's id and the message's. Dedup ids are remembered for longer than a replay may run, so repeated tasks and jobs
store nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from ...domain import ids
from ...domain.errors import Conflict, HeadraceError, NotFound, unavailable
from ...domain.limits import MAX_DEDUP_WINDOW_SECONDS, MAX_SHARDS, REPLAY_LIFE
from ...domain.message import Draft
from ...domain.replay import REPLAY_HEADER, REPLAY_OF_HEADER, Replay, ReplayState, may_become
from ...domain.topic import Mode, Topic
from ...ports.world import Clock, Jobs, Random
from ...store import Control
from ..core.catalog import Catalog
from ..core.wake import Waker
from ..produce.appender import ProduceResult
from ..produce.drafts import takes_all
from ..produce.producer import Producer

_RANDOM_CHARS = 6  # of an id, which has the time as well
_LIFE_MS = REPLAY_LIFE // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Archived:
    """A message as the archive has it: its id, its shard, and what it says."""

    id: str
    shard: int
    draft: Draft


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a replay's job reports."""

    state: ReplayState
    matched: int | None = None
    sent: int = 0
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Replays:
    """Makes and feeds replays."""

    control: Control
    catalog: Catalog
    producer: Producer
    waker: Waker
    jobs: Jobs
    clock: Clock
    random: Random

    def create(self, replay: Replay, *, start: bool) -> tuple[Replay, bool]:
        """Store a replay with a new id, and start its job. Returns it, and whether the job was started.

        Raises NotFound if the topic or group does not exist.
        """
        topic = self.catalog.topic(replay.into)
        uid = self.catalog.group(topic, replay.group).uid if replay.group else None
        now_ms = self.clock.now_ms()
        id = ids.replay_id(replay.source, now_ms, self.random.id(_RANDOM_CHARS))
        new = replace(replay, id=id, created_ms=now_ms, changed_ms=now_ms, into_uid=topic.uid, group_uid=uid)
        self._put(new, None)
        return new, start and self.jobs.start("replay", {"replay": id})

    def find(self, replay_id: str) -> Replay:
        """The replay, or NotFound."""
        replay = self.control.replay(replay_id) if ids.REPLAY_ID.match(replay_id) else None
        if replay is None:
            raise not_found()
        return replay

    def tell(self, replay: Replay, progress: Progress) -> Replay:
        """Store the job's progress. Raises Conflict if the replay is over, unless the same end is reported again."""
        result = replace(replay, state=progress.state, matched=progress.matched, sent=progress.sent)
        result = replace(result, error=progress.error, changed_ms=self.clock.now_ms())
        if not may_become(replay.state, progress.state):
            if replace(result, changed_ms=replay.changed_ms) == replay:
                return replay
            raise _replay_over("It is done.")
        self._put(result, replay)
        return result

    def _put(self, new: Replay, old: Replay | None) -> None:
        """Store it. If an answer was lost, the refusal that follows is of our own success. Raises Unavailable if
        another call changed it."""
        if not self.control.put_replay(new, old):
            replay = self.control.replay(new.id)
            if replay is None or replace(replay, version=new.version) != new:
                raise unavailable("Somebody else changed this replay just now; look again.")

    def send(self, replay: Replay, messages: Sequence[Archived]) -> list[ProduceResult | HeadraceError]:
        """Produce archived messages to the replay's topic. Returns for each where it was stored, or the error; one
        that was sent before is a duplicate, at its old place. Raises Conflict if the replay is over."""
        topic = self.catalog.topic_for(replay.into, takes_all([each.draft for each in messages]))
        self._check_open(replay, topic)
        # A replay has a rate of its own; and ids are known for longer than any run of the job.
        patient = replace(topic, rate_limit=None, dedup_window_seconds=MAX_DEDUP_WINDOW_SECONDS)
        hidden = self._hidden(replay)
        drafts = [_replayed_draft(replay, topic, each, hidden) for each in messages]
        outcomes = self.producer.produce(patient, drafts)
        new_messages = [outcome for outcome in outcomes if isinstance(outcome, ProduceResult)]
        self.waker.wake_after_append(topic, new_messages)
        return outcomes

    def _hidden(self, replay: Replay) -> tuple[str, ...]:
        """What people do not see of these messages in another topic: all that their own has hidden so far."""
        source = None if replay.into == replay.source else self.control.topic(replay.source)
        former = (each.pointer for each in source.redacted_before) if source else ()
        return (*source.redact, *former) if source else ()

    def _check_open(self, replay: Replay, topic: Topic) -> None:
        if replay.state is ReplayState.DONE:
            raise _replay_over("It is done.")
        if replay.dry_run:
            raise _replay_over("It is a dry run, which sends nothing.")
        if self.clock.now_ms() >= replay.created_ms + _LIFE_MS:
            raise _replay_over(f"It was made more than {REPLAY_LIFE.days} days ago; make another.")
        if replay.into_uid != topic.uid:
            raise _replay_over("Its topic was deleted and made again; make another.")
        if replay.group and self.catalog.group(topic, replay.group).uid != replay.group_uid:
            raise _replay_over("Its group was deleted and made again; make another.")


def _replay_over(why: str) -> Conflict:
    return Conflict("REPLAY_OVER", f"This replay takes no more messages. {why}")


def _replayed_draft(replay: Replay, topic: Topic, message: Archived, hidden: tuple[str, ...]) -> Draft:
    """The message as it is sent again. Messages of one shard stay together, in their order, and in their priority as
    far as the topic has it."""
    draft, dedup_id = message.draft, f"{replay.id}-{message.id}"
    headers = {**draft.headers, REPLAY_HEADER: replay.id, REPLAY_OF_HEADER: message.id}
    is_ordered = draft.ordering_key is not None and topic.mode is Mode.SERIAL
    urgency = 0 if is_ordered else message.shard // MAX_SHARDS
    priority = max(0, topic.priorities - 1 - urgency) if urgency else None
    shards = topic.class_of(priority)
    is_free = draft.ordering_key is draft.tenant is None
    shard = shards[message.shard % MAX_SHARDS % len(shards)] if is_free else None
    draft = replace(draft, headers=headers, shard=shard, priority=priority, dedup_id=dedup_id)
    return replace(draft, target_group_uid=replay.group_uid, redact=hidden)


def not_found() -> NotFound:
    """The error for an id that does not exist, or that the caller may not see."""
    return NotFound("REPLAY_NOT_FOUND", "There is no replay with this id.")
