"""The smallest conditional write that turns one cursor into another (`change`). `holds`: would it apply? `was_stored`:
was it applied? `apply`: what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from . import ranges
from .cursor import Cursor, Lease
from .cursor_size import most_waiting
from .ranges import Ranges
from .spans import Span, ranges_of


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a stored cursor: entries set and removed, and the entries it depends on.

    Entries are named: a lease by its token, a waiting span by its first offset. `scalars` is set for claims and seeks
    only, which depend on the epoch; `expected_leases` are the leases whose value must be unchanged. With
    `most_waiting`, the stored cursor may not have more waiting entries than that. `whole` replaces the whole item
    (seek).
    """

    before: Cursor
    after: Cursor
    known_epoch: int
    serialised: bool
    expected_leases: Mapping[str, Lease]
    scalars: Cursor | None
    whole: bool
    set_leases: Mapping[str, Lease]
    removed_leases: tuple[str, ...]
    set_waiting: Mapping[int, Span]
    removed_waiting: tuple[int, ...]
    most_waiting: int | None = None

    @property
    def entries(self) -> int:
        """How many entries the write names; the length of DynamoDB's expressions depends on it."""
        groups = (self.expected_leases, self.set_leases, self.removed_leases, self.set_waiting)
        return sum(map(len, (*groups, self.removed_waiting)))


class RefusalReason(Enum):
    """Why a cursor write was refused."""

    LOST = "lost"  # certainly not written
    UNKNOWN = "unknown"  # an answer was lost on the way: perhaps written


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """The write was refused; `current` is the cursor as it stands (None: there is none)."""

    why: RefusalReason
    current: Cursor | None


def change(old: Cursor, new: Cursor) -> Change:
    """The smallest write that turns `old` into `new`, with the conditions that make it safe.

    A raised epoch makes it a claim: it depends on the epoch and on the leases it takes over. Otherwise it
    depends on the leases it touches alone.
    """
    is_serialised = new.epoch != old.epoch
    leases_set = {t: lease for t, lease in new.leases.items() if old.leases.get(t) != lease}
    leases_gone = tuple(t for t in old.leases if t not in new.leases)
    waiting_old, waiting_new = {s.start: s for s in old.waiting}, {s.start: s for s in new.waiting}
    waiting_set = {k: s for k, s in waiting_new.items() if waiting_old.get(k) != s}
    return Change(
        before=old,
        after=new,
        known_epoch=old.epoch,
        serialised=is_serialised,
        expected_leases={t: old.leases[t] for t in (*leases_set, *leases_gone) if t in old.leases},
        scalars=new if is_serialised else None,
        whole=False,
        set_leases=leases_set,
        removed_leases=leases_gone,
        set_waiting=waiting_set,
        removed_waiting=tuple(k for k in waiting_old if k not in waiting_new),
        most_waiting=most_waiting(old, new) if is_serialised or waiting_set else None,
    )


def replacement(old: Cursor, new: Cursor) -> Change:
    """The write that replaces `old` by `new` as a whole, unless a claim or seek came between."""
    return Change(
        before=old,
        after=new,
        known_epoch=old.epoch,
        serialised=True,
        expected_leases={},
        scalars=new,
        whole=True,
        set_leases={},
        removed_leases=(),
        set_waiting={},
        removed_waiting=(),
    )


def holds(change: Change, current: Cursor) -> bool:
    """Do the change's conditions hold against the current cursor?"""
    if change.serialised and current.epoch != change.known_epoch:
        return False
    if change.most_waiting is not None and len(current.waiting) > change.most_waiting:
        return False
    return all(current.leases.get(t) == lease for t, lease in change.expected_leases.items())


def was_stored(change: Change, current: Cursor) -> bool | None:
    """After a refusal: was our own first try stored, and only its answer lost? None: unknown.

    A claim was stored if its token is there, an extension if its deadline is. A settlement was stored if its offsets
    are no longer in the lease and the offsets it returned are waiting; only a later claim or seek can change that.
    A seek was stored if nothing else is there; behind later claims nobody knows.
    """
    if change.whole and not change.after.leases:
        was_passed = current.epoch > change.after.epoch and not current.is_closed
        return None if was_passed else current == change.after
    our_leases = change.after.leases if change.whole else change.set_leases
    set_there = all(current.leases.get(t) == lease for t, lease in our_leases.items())
    if change.serialised:
        return bool(our_leases) and set_there
    our_ranges = _taken_by(change)
    if not our_ranges:
        return set_there  # an extension: if it was not stored, it may be repeated safely
    leased_spans = [span for token in change.expected_leases for span in _spans(current.leases.get(token))]
    gone_there = ranges.subtract(our_ranges, ranges_of(leased_spans))
    if current.epoch == change.known_epoch:
        waiting_by_offset = {span.start: span for span in current.waiting}
        our_settled_ranges = ranges.subtract(our_ranges, ranges_of(change.set_waiting.values()))
        settled_there = ranges.subtract(our_settled_ranges, ranges_of(current.waiting))
        given_back = change.set_waiting.items() <= waiting_by_offset.items()
        return gone_there == our_ranges and given_back and settled_there == our_settled_ranges
    return None if gone_there else False


def _taken_by(change: Change) -> Ranges:
    """The offsets that a change takes out of leases."""
    return ranges.normalise(
        part
        for token, lease in change.expected_leases.items()
        for part in ranges.subtract(ranges_of(lease.spans), ranges_of(_spans(change.set_leases.get(token))))
    )


def _spans(lease: Lease | None) -> tuple[Span, ...]:
    return lease.spans if lease else ()


def apply(current: Cursor, change: Change) -> Cursor:
    """The current cursor after the change: what a store does, as a pure function."""
    if change.whole:
        assert change.scalars is not None
        return change.scalars
    leases = {t: lease for t, lease in current.leases.items() if t not in change.removed_leases}
    waiting_by_offset = {s.start: s for s in current.waiting if s.start not in change.removed_waiting}
    waiting_by_offset.update(change.set_waiting)
    scalars = change.scalars or current
    return replace(
        scalars,
        leases={**leases, **change.set_leases},
        waiting=tuple(waiting_by_offset[k] for k in sorted(waiting_by_offset)),
    )
