"""Choosing among the candidates of one claim: what the mode's policy selects, within what one answer and one write
hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from ...domain import cursor_size, ranges
from ...domain import cursor_transitions as transitions
from ...domain.cursor import Cursor, Selection
from ...domain.limits import MAX_ANSWER_BYTES, MAX_PASSED_OVER
from ...domain.message import Message
from ...domain.record import Record
from ...domain.spans import HEAVY, Span, in_order, without
from ...domain.status import Because
from ...modes import Candidate, ClaimVerdict, Policy
from ..core.log_reader import Slot

# A transaction takes 100 actions: the cursor, two for each dead letter, and a destination's rows.
DEAD_PER_WRITE = 40
_DEAD_BYTES_PER_WRITE = 1_500_000  # a transaction takes 4 MB: each may be there twice


@dataclass(frozen=True, slots=True)
class Choice:
    """What a policy chose, and the candidates that it chose from, as many as one answer and one write hold."""

    selection: Selection
    back: Sequence[Candidate]
    new_candidates: Sequence[Candidate]
    dead_candidates: Sequence[Candidate]
    passed_over: Set[int]
    is_full: bool  # further candidates would change nothing

    @property
    def granted_count(self) -> int:
        """How many messages it grants."""
        return sum(span.count for span in self.selection.granted)


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """The effects of one claim."""

    selection: Selection
    cursor: Cursor  # with overdue leases returned
    messages: dict[int, Message]
    dead: tuple[Record, ...]
    available: int = 0  # how many of the messages read could have been granted
    is_alone: bool = False  # it grants one message, whose last lease ended
    because: Because = Because.EMPTY  # why none is granted, if none is
    has_tenants: bool = False

    @property
    def granted_count(self) -> int:
        """How many messages it grants."""
        return sum(span.count for span in self.selection.granted)


def dues(policy: Policy, current: Cursor, now_ms: int) -> list[Iterator[tuple[int, Span]]]:
    """The waiting offsets that are due, in their order; in order by unit, those of each that may go on. Else those
    whose leases ended come last, and of them those that had the most: the others do not wait for them; and behind
    these, what was skipped of heavy tenants."""
    spans = transitions.due_spans(current, now_ms)
    if policy.holds_back:
        units = transitions.free_units(current, now_ms)
        free_spans = (s for s in spans if s.unit in units)
        return [in_order(unit) for unit in _grouped(free_spans, attrgetter("unit"))]
    queue = chain.from_iterable(map(in_order, _grouped(spans, lambda s: (is_skipped(s), _lapses(s)))))
    return [_within(policy.of_key, current, queue) if policy.of_key else queue]


def _within(most: int, current: Cursor, queue: Iterable[tuple[int, Span]]) -> Iterator[tuple[int, Span]]:
    """Of each key so many that `most` of it are leased then."""
    counts = transitions.leased_counts(current)
    for offset, span in queue:
        if span.unit in ("", HEAVY) or counts[span.unit] < most:
            counts[span.unit] += 1
            yield offset, span


def _grouped(spans: Iterable[Span], key: Callable[[Span], Any]) -> Iterator[list[Span]]:
    """The spans by key, the lowest first."""
    return (list(group) for _, group in groupby(sorted(spans, key=key), key))


def is_skipped(span: Span) -> bool:
    """Was it left behind for messages of other tenants?"""
    return span.unit == HEAVY and not span.has_lapsed


def _lapses(span: Span) -> int:
    """At most so many leases of it have ended; 0 if it was given back since."""
    return span.attempt if span.has_lapsed else 0


def choose(
    policy: Policy,
    current: Cursor,
    back: Sequence[Candidate],
    new_candidates: Sequence[Candidate],
    most: int,
    most_bytes: int,
) -> Choice:
    """Let the policy choose. Skipped messages take no space in the answer."""
    selection = policy.select(current, back, new_candidates, most)
    granted = {offset for span in selection.granted for offset in span.offsets()}
    rest = (c for c in chain(back, new_candidates) if c.offset >= current.next or c.turn)
    passed_over = {c.offset for c in rest if not is_settled(c) and c.offset not in granted}
    back_within, new_within, dead_candidates = within_bounds(back, new_candidates, most_bytes, passed_over)
    is_cut = len(back_within) + len(new_within) < len(back) + len(new_candidates)
    if is_cut:
        selection = policy.select(current, back_within, new_within, most)
    is_full = is_cut or len(passed_over) > MAX_PASSED_OVER
    return Choice(selection, back_within, new_within, dead_candidates, passed_over, is_full)


def because_of(policy: Policy, current: Cursor, choice: Choice, now_ms: int, *, has_room: bool) -> Because:
    """Why nothing is granted, if nothing is, as far as the claim has read. `has_room`: it could grant something."""
    if choice.granted_count:
        return Because.NOT_OWNER
    if not has_room or (policy.waits_in_cursor and not cursor_size.has_room_for_new(current)):
        return Because.CURSOR_FULL
    # Of those that are due, a policy that counts keys would have granted some.
    due_spans = transitions.due_spans(current, now_ms)
    is_kept = policy.of_key and any(span.unit not in ("", HEAVY) for span in due_spans)
    if policy.reads_units and (choice.passed_over or is_kept or (policy.holds_back and current.waiting)):
        return Because.KEYS_WAIT
    is_waited_for = current.leases or current.waiting or choice.passed_over
    return Because.IN_FLIGHT if is_waited_for else Because.EMPTY


def within_bounds(
    back: Sequence[Candidate],
    new_candidates: Sequence[Candidate],
    most_bytes: int,
    passed_over: Set[int] = frozenset(),
) -> tuple[list[Candidate], list[Candidate], list[Candidate]]:
    """Cut the candidates so that one answer holds their bodies, except of skipped messages, and one
    transaction their dead letters."""
    candidates: list[Candidate] = []
    dead: list[Candidate] = []
    size = dead_size = 0
    for candidate in (*back, *new_candidates):
        if candidate.offset in passed_over:
            candidates.append(candidate)
            continue
        is_first = not size
        size += candidate.size
        if size > most_bytes and not (is_first and most_bytes >= MAX_ANSWER_BYTES):
            break
        if candidate.dead:
            dead_size += candidate.size
            if len(dead) == DEAD_PER_WRITE or (dead and dead_size > _DEAD_BYTES_PER_WRITE):
                break
            dead.append(candidate)
        candidates.append(candidate)
    return candidates[: len(back)], candidates[len(back) :], dead


def is_settled(candidate: Candidate) -> bool:
    """Is it settled without a delivery?"""
    return candidate.verdict is ClaimVerdict.SETTLE


def is_unwanted(candidate: Candidate) -> bool:
    """Is it settled without a delivery and without a dead letter?"""
    return is_settled(candidate) and not candidate.dead


def leave_out(selection: Selection, left: Set[int], current: Cursor) -> Selection:
    """The selection without the offsets that are left to others: they wait in the cursor."""
    spans = [Span(n, 1, s.attempt, s.unit) for s in selection.granted for n in s.offsets() if n in left]
    passed_over = (*selection.passed_over, *(span for span in spans if span.start >= current.next))
    return replace(selection, granted=without(selection.granted, ranges.of(left)), passed_over=passed_over)


def cursor_behind(slots: Sequence[Slot], cursor: Cursor) -> Cursor:
    """The cursor as it would stand behind these unclaimed slots."""
    return replace(cursor, next=slots[-1].end, segment_at=slots[-1].end) if slots else cursor


def fills_an_answer(slots: Sequence[Slot]) -> bool:
    """Are their bodies so large that the reading ended at them?"""
    return sum(slot.message.draft.size for slot in slots if slot.message) > MAX_ANSWER_BYTES
