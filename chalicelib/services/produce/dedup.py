"""Deduplication: the entry of a dedup id, the ids of what waits in a named request, and what a draft comes to whose
dedup id was used before."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import TypeVar

from ...domain import ids
from ...domain.append import DedupEntry, Outcomes, ProduceResult
from ...domain.errors import Conflict, HeadraceError, changed_meanwhile
from ...domain.limits import MAX_RESEND_SECONDS
from ...domain.message import TRACEPARENT, Draft
from ...domain.request import Request
from ...domain.timer import Timer
from ...domain.times import DAY_MS
from ...domain.topic import Topic

DONE = "done"  # a `dedup_until`

_MADE, _JOB = "\x1f", "\x1e"  # begin the dedup ids made here: a producer's has no control characters
_SLACK_MS = 30 * DAY_MS  # for which a job may be postponed without a write of its name


def content_hash(draft: Draft) -> str:
    """What must be equal for two uses of a dedup id to be the same message: not its delay, expiry and retry."""
    # Each try has a traceparent of its own.
    headers = sorted(item for item in draft.headers.items() if item[0].lower() != TRACEPARENT)
    others = draft.body, draft.content_type, draft.keys, draft.tag, draft.ordering_key, draft.shard
    tenant = () if draft.tenant is None else (draft.tenant,)
    return hashlib.blake2b(
        repr((*others, draft.callback_url, *tenant, headers)).encode(), digest_size=16
    ).hexdigest()


def entry_of(topic: Topic, draft: Draft, message_id: str, accepted_ms: int) -> DedupEntry:
    """What is kept of the first use, until its window ends."""
    id, content, ends_ms = draft.dedup_id or "", content_hash(draft), window_end_ms(topic, draft, accepted_ms)
    return DedupEntry(topic.uid, id, content, message_id, accepted_ms, ends_ms, draft.instead_of)


def is_made(draft: Draft) -> bool:
    """Was its dedup id made here, of its request's name?"""
    return (draft.dedup_id or "").startswith(_MADE)


def window_end_ms(topic: Topic, draft: Draft, accepted_ms: int) -> int:
    """Until when a dedup id is remembered: of a delayed message the window begins when it is due. An id made here is
    remembered as long as its request may be sent again, one until its message is done as long as messages are kept."""
    window_ms = topic.retention_ms if draft.dedup_until == DONE else topic.dedup_window_seconds * 1000
    if is_made(draft):
        window_ms = max(window_ms, MAX_RESEND_SECONDS * 1000)
    if draft.job:
        window_ms += _SLACK_MS
    return max(accepted_ms, draft.due_ms or 0) + window_ms


def job_id(name: str) -> str:
    """The dedup id of a job: its name, apart from producers' dedup ids."""
    return _JOB + name


def as_job(draft: Draft, name: str) -> Draft:
    """The draft as the job of this name."""
    return replace(draft, job=name, dedup_id=job_id(name), dedup_until=DONE)


def entry_of_postponed(topic: Topic, timer: Timer) -> DedupEntry | None:
    """The entry of a job's name, to be stored again with its new time, where the one that was stored with its first
    time might end too early."""
    draft, first = timer.draft, ids.parse_timed_id(timer.id)
    if not draft or not draft.job or not first or timer.due_ms <= first.due_ms + _SLACK_MS:
        return None
    own = replace(as_job(draft, draft.job), due_ms=timer.due_ms, instead_of=timer.id)
    return entry_of(topic, own, timer.id, timer.stored_ms)


def named(drafts: Iterable[Draft], request: Request) -> list[Draft]:
    """The drafts of a named request; each that waits has a dedup id: its own, or one made of the request's name, its
    content and its number among equal ones. In a repeat also those have one whose time may have come since."""
    numbers: Counter[str] = Counter()
    with_ids: list[Draft] = []
    for draft in drafts:
        if draft.dedup_id is None and (has_time(draft) if request.since_ms else draft.due_ms is not None):
            content = content_hash(draft)
            numbers[content] += 1
            made_id = f"{_MADE}{request.name}{_MADE}{content}{_MADE}{numbers[content]}"
            draft = replace(draft, dedup_id=made_id)
        with_ids.append(draft)
    return with_ids


def has_time(draft: Draft) -> bool:
    """Was the draft given a time to be delivered at, be it over by now?"""
    return draft.due_ms is not None or draft.accepted_ms is not None


# What a draft comes to whose dedup id has an entry; a draft: it is to be stored.
Judge = Callable[[Draft, DedupEntry], "Draft | ProduceResult | HeadraceError"]

_T = TypeVar("_T")


class FirstUse(Enum):
    """What has become of the message that has a dedup id: every group has ended it, or it is a dead letter of one, or
    it was cancelled (or rolled back). OPEN: none of these, or unknown."""

    OPEN = auto()
    ENDED = auto()
    DEAD = auto()
    CANCELLED = auto()


FirstUseOf = Callable[[str], FirstUse]  # by the message's id


def unknown_use(_: str) -> FirstUse:
    """For producers whose repeats are always the same message."""
    return FirstUse.OPEN


def is_free(draft: Draft, first_use: FirstUse) -> bool:
    """May the draft take over its dedup id, whose message has come to this?"""
    return first_use is FirstUse.CANCELLED or (draft.dedup_until == DONE and first_use is FirstUse.ENDED)


def refusal_of_repeat(content: str, entry: DedupEntry, first_use: FirstUse) -> Conflict | None:
    """Why a draft with this content hash is not answered with the entry's message; None: it is."""
    if entry.content_hash != content:
        return mismatch()
    if first_use is FirstUse.DEAD:
        return Conflict(
            "DEDUP_DEAD",
            f"The message with this dedup_id, {entry.message_id}, is a dead letter: redrive it, or send this one under "
            "another dedup_id.",
        )
    return None


def mismatch() -> Conflict:
    """The error of a dedup id's second use for something else."""
    return Conflict("DEDUP_MISMATCH", "This dedup_id was used for another message within the window.")


def to_store(
    items: Sequence[tuple[int, Draft, _T]],
    used_entries: Iterable[DedupEntry],
    outcomes: Outcomes,
    judge: Judge,
) -> list[tuple[int, Draft, _T]]:
    """What is still to be stored, where some dedup ids were used before; fills in the outcomes of the rest."""
    entries = {entry.dedup_id: entry for entry in used_entries}
    items_left: list[tuple[int, Draft, _T]] = []
    for i, draft, stored_form in items:
        entry = entries.get(draft.dedup_id or "")
        outcome = judge(draft, entry) if entry else draft
        if isinstance(outcome, Draft):
            items_left.append((i, outcome, stored_form))
        else:
            outcomes[i] = outcome
    return items_left


def judged(
    draft: Draft, entry: DedupEntry, first_use: FirstUseOf, request: Request | None
) -> Draft | ProduceResult | HeadraceError:
    """What the draft comes to. A resend gets what its first try stored, also if that has ended since. A job whose name
    was taken since it was read is to be looked at again."""
    if draft.job:
        return changed_meanwhile("job")
    is_resent = is_made(draft) or (request is not None and request.may_have_stored(entry.accepted_ms))
    use = (unknown_use if is_resent else first_use)(entry.message_id)
    if is_free(draft, use):
        return replace(draft, instead_of=entry.message_id)
    if error := refusal_of_repeat(content_hash(draft), entry, use):
        return error
    _, shard, offset = ids.parse_message_id(entry.message_id) or (None, None, None)
    parts = ids.parse_timed_id(entry.message_id)
    due_ms = parts.due_ms if parts else None
    return ProduceResult(entry.message_id, shard, offset, entry.accepted_ms, duplicate=True, due_ms=due_ms)


def outcome_of_same_id(
    first: Draft, again: Draft, outcome: ProduceResult | HeadraceError | None
) -> ProduceResult | HeadraceError | None:
    """The outcome of a dedup id's second use within one batch."""
    if content_hash(first) != content_hash(again):
        return mismatch()
    return replace(outcome, duplicate=True) if isinstance(outcome, ProduceResult) else outcome
