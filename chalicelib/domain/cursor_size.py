"""Bounds the size of a cursor's item: a claim leaves space for the largest form that all leases can take."""

from __future__ import annotations

from .cursor import Cursor
from .limits import MAX_CURSOR_BYTES
from .spans import _BITS, _RUN_BYTES, _RUNS, HEAVY, Span

# The largest form of a cursor (see `most_bytes`) may have so many bytes after a claim, and a few more after messages
# were returned. The rest of MAX_CURSOR_BYTES is for messages that other processes return meanwhile.
_BYTES_FOR_CLAIMS = MAX_CURSOR_BYTES * 25 // 32
_BYTES_FOR_RETURNS = MAX_CURSOR_BYTES * 26 // 32
_CURSOR_BYTES = 350  # keys, numbers and names of attributes; a topic's name has 128 characters
_PART_BYTES = 30  # of a round: once, and for each consumer in it
_LEASE_BYTES = 22  # the deadline, and the overhead of an entry
_ENTRY_BYTES = 4
_LAPSE_BYTES = 2  # the due time of what a lease lost by ending
_WAIT_BYTES = 20  # how much longer a waiting entry with a due time is than its part of a lease
_LARGEST_ENTRY_BYTES = 220  # of waiting messages: a mask over MAX_RECEIVE offsets
_UNSEEN_ENTRIES = 4  # that other processes may have returned since a cursor was read


def most_bytes(cursor: Cursor) -> int:
    """An estimate of the most bytes that the stored item can take, however its leased messages are settled or returned:
    in any order, and with different due times where messages wait in the cursor."""
    leases = (
        len(lease.token)
        + len(lease.owner)
        + _LEASE_BYTES
        + sum(_bytes(s) + _growth(s, bool(lease.run_ms)) for s in lease.spans)
        for lease in cursor.leases.values()
    )
    amended_bytes = sum(len(f"{low}+{high - low}") + 1 for low, high in cursor.amended)
    round_bytes = _PART_BYTES * (len(cursor.round.parts) + 1) if cursor.round else 0
    return (
        _CURSOR_BYTES
        + round_bytes
        + amended_bytes
        + sum(leases)
        + sum(_bytes(s) + _ENTRY_BYTES for s in cursor.waiting)
    )


def _bytes(span: Span) -> int:
    mask = span.mask.bit_length() // _BITS + 2 if span.mask else len(str(span.count)) + 1
    due_bytes = len(str(span.due_ms)) + 1 if span.due_ms else 0
    return len(str(span.start)) + mask + len(str(span.attempt)) + len(span.unit) + due_bytes + 3


def _growth(span: Span, in_run: bool) -> int:
    """How many bytes a leased span may grow by: the mark of a lapse, and a mask or, if it has an ordering unit, a due
    time, and an entry for those of a run that wait behind it, or for each other message of its key. In other groups a
    message that finds no room to wait gets a timer (`has_room_for_returns`). An entry that grows in another way must be
    counted here."""
    has_mask = span.mask or span.count <= _RUNS
    mask_bytes = 0 if has_mask else (span.end - span.start) // _BITS + _RUN_BYTES
    if span.unit and span.unit != HEAVY:
        if not in_run:
            return _WAIT_BYTES + (span.count - 1) * (_bytes(span) + _WAIT_BYTES + _ENTRY_BYTES)
        return _WAIT_BYTES + (_bytes(span) + _ENTRY_BYTES + mask_bytes if span.count > 1 else 0)
    return _LAPSE_BYTES + mask_bytes


def is_full(cursor: Cursor) -> bool:
    """Must something be settled before more can be claimed? False without open leases, so that a full cursor can
    drain."""
    return bool(cursor.leases) and most_bytes(cursor) > _BYTES_FOR_CLAIMS


def has_room_for_claim(before: Cursor, after: Cursor, message_count: int) -> bool:
    """May a claim of so many messages turn `before` (after `lapse`) into `after`? A claim of one message is
    always allowed if no lease is open (of a new one: see `has_room_for_new`)."""
    return most_bytes(after) <= _BYTES_FOR_CLAIMS or (message_count == 1 and not before.leases)


def has_room_for_new(cursor: Cursor) -> bool:
    """May messages be claimed that were never claimed before? In a SERIAL group what failed keeps its place, however
    long it waits: where that fills the cursor, further keys would make it grow without end."""
    return not cursor.waiting or most_bytes(cursor) <= _BYTES_FOR_CLAIMS


def has_room_to_skip(cursor: Cursor) -> bool:
    """May messages of a heavy tenant be skipped, to wait in the cursor? Beyond that, it is first come, first served."""
    return most_bytes(cursor) <= _BYTES_FOR_CLAIMS // 2


def has_room_for_returns(cursor: Cursor) -> bool:
    """Is a cursor small enough after messages were given back to it? Claims of SERIAL groups reserve that space."""
    return most_bytes(cursor) <= _BYTES_FOR_RETURNS


def most_waiting(old: Cursor, new: Cursor) -> int:
    """The most waiting entries that the stored cursor may have when the change is written: entries that other processes
    have returned since `old` was read must fit, too."""
    room = (_BYTES_FOR_RETURNS - most_bytes(new)) // _LARGEST_ENTRY_BYTES
    return len(old.waiting) + max(_UNSEEN_ENTRIES, room)
