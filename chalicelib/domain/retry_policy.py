"""The retry policy of a message: how many attempts it has, and how long it waits after a failed one."""

from __future__ import annotations

from . import ladder
from .ladder import Retry
from .message import Draft
from .topic import Group, Topic


def retry_of(topic: Topic, group: Group, draft: Draft | None) -> Retry:
    """A message's own ladder, jitter and `steps_from` where it has them, else its group's, else its topic's; `draft` is
    None if the message has gone from the log."""
    retry = group.retry or topic.retry
    return ladder.overridden(retry, draft.ladder, draft.jitter, draft.steps_from) if draft else retry


def max_attempts(topic: Topic, group: Group, draft: Draft) -> int:
    """How many attempts a message has: in all, or since it was redriven."""
    return draft.max_attempts or (group.retry or topic.retry).max_attempts


def last_attempt(topic: Topic, group: Group, draft: Draft, attempts_before_redrive: int) -> int:
    """The number of a message's last attempt; a redriven message gets the full number again."""
    return attempts_before_redrive + max_attempts(topic, group, draft)


def wait_ms(
    topic: Topic,
    group: Group,
    message_id: str,
    draft: Draft | None,
    failed_attempt: int,
    retry_after_ms: int | None = None,
    took_ms: int = 0,
) -> int:
    """The wait after the n-th failed attempt since the last redrive (from 1), which took so long: its ladder's step or
    the subscriber's Retry-After, whichever is longer. `draft` as in `retry_of`."""
    retry = retry_of(topic, group, draft)
    return ladder.next_wait_ms(retry, failed_attempt, message_id, retry_after_ms, took_ms)
