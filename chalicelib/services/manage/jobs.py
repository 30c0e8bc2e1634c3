"""Jobs: messages under names that their producers choose.

A name is a dedup id of its own kind. Nothing frees it: the state of its message says whether it is free, and a new
message takes it over under the condition that it is still that message's. So of two calls at once the second finds what
the first has stored, and a name has one message that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...domain.errors import Conflict, HeadraceError, NotFound, changed_meanwhile
from ...domain.message import Draft, Message
from ...domain.status import OVER
from ...domain.timer import ANY, Timer
from ...domain.topic import Topic
from ...ports.world import Clock
from ...store import Log
from ..core.wake import Waker
from ..inspect.lookup import AnyMessage, Lookup
from ..produce.appender import ProduceResult
from ..produce.dedup import as_job, job_id
from ..produce.delayed import Delayed, DelayedMessage
from ..produce.drafts import log_shard_of
from ..produce.producer import Producer
from .amend import Amender

_TRIES = 16  # each lost to another change of the same job
_LATE = ("ALREADY_DUE", "CHANGED_MEANWHILE", "MESSAGE_CANCELLED")
_REPLACED = (
    *("due_ms", "body", "is_json", "content_type", "keys", "tag", "headers", "sent_ms"),
    *("expires_ms", "max_attempts", "ladder", "jitter", "steps_from", "blob", "blob_bytes"),
    "callback_url",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Jobs:
    """Stores, replaces and finds jobs by their names."""

    log: Log
    lookup: Lookup
    delayed: Delayed
    amender: Amender
    producer: Producer
    waker: Waker
    clock: Clock

    def find(self, topic: Topic, name: str) -> AnyMessage:
        """The last message of the name, as long as it is kept. Raises NotFound."""
        if message := self.lookup.find_by_dedup_id(topic, job_id(name)):
            return message
        raise _not_found(topic)

    def open(self, topic: Topic, name: str) -> Message | DelayedMessage:
        """The message of the name, unless every group has ended it. Raises NotFound."""
        if message := self._current(topic, name)[1]:
            return message
        raise _not_found(topic)

    def put(
        self, topic: Topic, name: str, draft: Draft, by: str, is_told_of: Callable[[str], bool]
    ) -> tuple[ProduceResult, bool]:
        """Store the draft as the job of this name, or replace the one that waits; and whether the job is a new one.
        `by` is the producer's text. Raises Conflict (a group has claimed the job and not ended it, or others keep
        changing it), or why the topic does not take the draft."""
        if error := self.producer.refusal(topic, draft):
            raise error
        for _ in range(_TRIES):
            try:
                id, message = self._current(topic, name)
                draft = replace(as_job(draft, name), instead_of=id)
                if message is None:
                    return self._create(topic, draft, by), True
                return self._replace(topic, message, replace(draft, by=by), is_told_of), False
            except Conflict as conflict:
                if conflict.code not in _LATE:
                    raise
        raise changed_meanwhile("job")

    def _current(self, topic: Topic, name: str) -> tuple[str | None, Message | DelayedMessage | None]:
        """The id of the last message of the name; and the message, unless every group has ended it."""
        entry = self.log.dedup_entry(topic.uid, job_id(name))
        if entry is None or entry.ends_ms <= self.clock.now_ms():
            return None, None
        status, message, _ = self.lookup.state_by_id(topic)(entry.message_id)
        if status in OVER or not isinstance(message, Message | DelayedMessage):
            return entry.message_id, None
        return entry.message_id, message

    def _create(self, topic: Topic, draft: Draft, by: str) -> ProduceResult:
        [outcome] = self.producer.produce(topic, [draft], by)
        if isinstance(outcome, HeadraceError):
            raise outcome
        self.waker.wake_after_append(topic, [outcome])
        return outcome

    def _replace(
        self, topic: Topic, old: Message | DelayedMessage, draft: Draft, is_told_of: Callable[[str], bool]
    ) -> ProduceResult:
        """Change the message where it waits. One in its log, or in another place of the order, is cancelled and stored
        anew in one transaction."""
        token_id, _, _ = draft.by.partition(" ")
        draft = replace(draft, due_ms=draft.due_ms or self.clock.now_ms())
        if isinstance(old, DelayedMessage) and _has_same_place(topic, old.timer, draft):
            changes = {name: getattr(draft, name) for name in _REPLACED}
            return _result(self.delayed.amend(topic, old, changes, token_id).timer)
        before = old if isinstance(old, Message) else old.message
        draft = replace(draft, body=self.producer.unmasked(topic, before, draft))
        successor = self.producer.successor(topic, draft)
        if isinstance(old, Message):
            self.amender.cancel(topic, old, token_id, is_told_of, successor)
        else:
            self.delayed.cancel(topic, old, token_id, successor)
        self.waker.wake_movers([successor[0]])
        return _result(successor[0])


def _has_same_place(topic: Topic, timer: Timer, draft: Draft) -> bool:
    """Would the draft come to the same shard, and in the same order, as the message of the timer?"""
    shard, old = log_shard_of(topic, draft), timer.draft
    goes_to = ANY if shard is None else shard
    here = goes_to, draft.ordering_key, draft.tenant, draft.priority
    return old is not None and here == (timer.shard.shard, old.ordering_key, old.tenant, old.priority)


def _result(timer: Timer) -> ProduceResult:
    return ProduceResult(timer.id, None, None, timer.stored_ms, due_ms=timer.due_ms)


def _not_found(topic: Topic) -> NotFound:
    return NotFound("JOB_NOT_FOUND", f"Topic {topic.name!r} has no job of this name.")
