"""Choosing among the candidates of one claim: what the mode's policy selects, within what one answer and one write
hold."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from ...domain import cursor_size
from ...domain.cursor import Cursor, Selection
from ...domain.limits import MAX_ANSWER_BYTES, MAX_PASSED_OVER
from ...domain.status import Because
from ...modes import Candidate, ClaimVerdict, Policy

DEAD_PER_WRITE = 45  # a transaction takes 100 actions: the cursor, and two for each dead letter
_DEAD_BYTES_PER_WRITE = 2_000_000  # a transaction takes 4 MB


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
    passed_over = {c.offset for c in new_candidates if not is_settled(c) and c.offset not in granted}
    back_within, new_within, dead_candidates = within_bounds(back, new_candidates, most_bytes, passed_over)
    is_cut = len(back_within) + len(new_within) < len(back) + len(new_candidates)
    if is_cut:
        selection = policy.select(current, back_within, new_within, most)
    waiting_count = sum(span.count for span in current.waiting)
    is_full = is_cut or len(passed_over) + waiting_count > MAX_PASSED_OVER
    return Choice(selection, back_within, new_within, dead_candidates, passed_over, is_full)


def because_of(policy: Policy, current: Cursor, choice: Choice, *, has_room: bool) -> Because:
    """Why nothing is granted, if nothing is, as far as the claim has read. `has_room`: it could grant something."""
    if choice.granted_count:
        return Because.NOT_OWNER
    if not has_room or (policy.holds_back and not cursor_size.has_room_for_new(current)):
        return Because.CURSOR_FULL
    if policy.reads_units and (current.waiting or choice.passed_over):
        return Because.KEYS_WAIT
    return Because.IN_FLIGHT if current.leases or current.waiting else Because.EMPTY


def within_bounds(
    back: Sequence[Candidate],
    new_candidates: Sequence[Candidate],
    most_bytes: int,
    passed_over: Set[int] = frozenset(),
) -> tuple[list[Candidate], list[Candidate], list[Candidate]]:
    """Cut the candidates so that one answer holds their bodies, except of skipped messages, and one
    transaction their dead letters."""
    candidates: list[Candidate] = []
    dead_candidates: list[Candidate] = []
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
            if len(dead_candidates) == DEAD_PER_WRITE or (
                dead_candidates and dead_size > _DEAD_BYTES_PER_WRITE
            ):
                break
            dead_candidates.append(candidate)
        candidates.append(candidate)
    return candidates[: len(back)], candidates[len(back) :], dead_candidates


def is_settled(candidate: Candidate) -> bool:
    """Is it settled without a delivery?"""
    return candidate.verdict is ClaimVerdict.SETTLE


def is_unwanted(candidate: Candidate) -> bool:
    """Is it settled without a delivery and without a dead letter?"""
    return is_settled(candidate) and not candidate.dead
