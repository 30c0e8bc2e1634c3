"""What a draft comes to whose dedup id was used before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import TypeVar

from ...domain import ids
from ...domain.append import DedupEntry
from ...domain.errors import Conflict, HeadraceError, changed_meanwhile
from ...domain.message import Draft
from ...domain.request import Request
from .appender import Outcomes, ProduceResult
from .dedup import DONE, content_hash, is_made

Judge = Callable[[Draft, DedupEntry], "Draft | ProduceResult | HeadraceError"]
"""What a draft comes to whose dedup id has an entry; a draft: it is to be stored."""

_T = TypeVar("_T")


class FirstUse(Enum):
    """What has become of the message that has a dedup id: every group has ended it, or it is a dead letter of one, or
    it was cancelled (or rolled back). OPEN: none of these, or unknown."""

    OPEN = auto()
    ENDED = auto()
    DEAD = auto()
    CANCELLED = auto()


FirstUseOf = Callable[[str], FirstUse]
"""By the message's id."""


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
