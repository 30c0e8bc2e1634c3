"""How large a cursor's item may become: a claim leaves room for the worst that may become of all leases."""

from __future__ import annotations

from .cursor import Cursor
from .limits import MAX_CURSOR_BYTES
from .spans import _BITS, _RUN_BYTES, _RUNS, Span

# The worst that may become of all leases may take so much after a claim, and a little more after messages were given
# back. The rest of MAX_CURSOR_BYTES is for what other processes give back meanwhile.
_BYTES_FOR_CLAIMS = MAX_CURSOR_BYTES * 25 // 32
_BYTES_FOR_RETURNS = MAX_CURSOR_BYTES * 26 // 32
_CURSOR_BYTES = 350  # keys, numbers and names of attributes; a topic's name has 128 characters
_PART_BYTES = 30  # of a round: of its own, and for each consumer that takes part
_LEASE_BYTES = 22  # the deadline, and what an entry takes anyway
_ENTRY_BYTES = 4
_WAIT_BYTES = 20  # by what an entry that waits for a time is longer than its part of a lease
_LARGEST_ENTRY_BYTES = 220  # of waiting messages: a mask over MAX_RECEIVE offsets
_UNSEEN_ENTRIES = 4  # that others may always have given back since a cursor was read


def most_bytes(cursor: Cursor) -> int:
    """About the bytes its stored item takes at most, whatever becomes of what is under way: settled or given back in
    any order, or due at different times where each keeps its place."""
    leases = (
        len(lease.token) + len(lease.owner) + _LEASE_BYTES + sum(_bytes(s) + _growth(s) for s in lease.spans)
        for lease in cursor.leases.values()
    )
    amended = sum(len(f"{low}+{high - low}") + 1 for low, high in cursor.amended)
    shared = _PART_BYTES * (len(cursor.round.parts) + 1) if cursor.round else 0
    return (
        _CURSOR_BYTES + shared + amended + sum(leases) + sum(_bytes(s) + _ENTRY_BYTES for s in cursor.waiting)
    )


def _bytes(span: Span) -> int:
    mask = span.mask.bit_length() // _BITS + 2 if span.mask else len(str(span.count)) + 1
    due = len(str(span.due_ms)) + 1 if span.due_ms else 0
    return len(str(span.start)) + mask + len(str(span.attempt)) + len(span.unit) + due + 3


def _growth(span: Span) -> int:
    """By how much a leased span may grow: by a mask or, where it is one of a unit, by a time to wait for."""
    if span.unit:  # a claim takes one message of each
        return _WAIT_BYTES
    return 0 if span.mask or span.count <= _RUNS else (span.end - span.start) // _BITS + _RUN_BYTES


def is_full(cursor: Cursor) -> bool:
    """Must something be settled before more can be claimed? False without open leases, so that a full cursor can
    drain."""
    return bool(cursor.leases) and most_bytes(cursor) > _BYTES_FOR_CLAIMS


def has_room(before: Cursor, after: Cursor, granted: int) -> bool:
    """May an expired cursor become this by a claim of so many? By one in any case, where nothing is under way."""
    return most_bytes(after) <= _BYTES_FOR_CLAIMS or (granted == 1 and not before.leases)


def has_room_to_wait(cursor: Cursor) -> bool:
    """Is a cursor small enough after messages were given back to it? Claims of SERIAL groups reserve that space."""
    return most_bytes(cursor) <= _BYTES_FOR_RETURNS


def most_waiting(old: Cursor, new: Cursor) -> int:
    """How many entries may wait at most when the change is written: what others have given back since `old` was seen
    must fit as well."""
    room = (_BYTES_FOR_RETURNS - most_bytes(new)) // _LARGEST_ENTRY_BYTES
    return len(old.waiting) + max(_UNSEEN_ENTRIES, room)
