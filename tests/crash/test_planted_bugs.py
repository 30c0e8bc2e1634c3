"""Bugs that real queues have had, planted one at a time: the enumeration must see each."""

from __future__ import annotations

import pytest

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.modes.serial import Serial
from chalicelib.services.consume.claim_plan import ClaimPlanner
from chalicelib.services.consume.lease_settlement import LeaseSettlement
from chalicelib.services.consume.settle import Settler
from chalicelib.services.core.log_reader import LogReader
from chalicelib.services.manage.registry import Registry
from chalicelib.store import cursors, dynamo, log
from chalicelib.store.timers import Timers
from tests.crash.delivery_bugs import BUGS as DELIVERY_BUGS
from tests.crash.planting import is_seen
from tests.support.events import Kind
from tests.support.faults import Fault
from tests.support.flows import SharedTables
from tests.support.planting import Bug

_NO_BUSY_UNITS = ("self.run, leased_units(cursor)", "self.run, set()")
_LEASE_VALUE = """{value(text(lease_text(old)))}\""""
_ANY_LEASE = _LEASE_VALUE[:-1] + ' OR attribute_exists(e)"'
_WAIT = """if -_CLOCKS_DIFFER <= age < HOLE_AGE:  # the age of a row written by a wrong clock is unknown
            self._young.put(shard, next_segment.accepted_ms + _HOLE_MS)
            return None"""
_SKIP = "return Segment(at, next_segment.first - at, '', 0, 0)"

BUGS: dict[str, tuple[Bug, str, Fault | None, Kind]] = {
    "a claim without its condition on the epoch": (
        Bug(
            cursors,
            "_expressions",
            'checks.append(f"e = {',
            'checks.append(f"attribute_exists(e) OR e = {',
        ),
        "claim in a race",
        None,
        Kind.OVERLAPPING,
    ),
    "a settlement without its condition on the lease": (
        Bug(
            cursors,
            "_expressions",
            f"{_LEASE_VALUE} for t, old in change.exp",
            f"{_ANY_LEASE} for t, old in change.exp",
        ),
        "ack when the lease has passed on",
        None,
        Kind.FENCE,
    ),
    "our own success read as somebody else's": (
        Bug(
            log,
            "_stored_or_taken",
            "append.Stored() if by.request_id == segment.request_id else append.OffsetTaken(by)",
            "append.OffsetTaken(by)",
        ),
        "append one",
        Fault.LOST_ANSWER,
        Kind.DUPLICATED,
    ),
    "a dedup id that is not remembered": (
        Bug(log.Log, "put", "for entry in dedup]", "for entry in ()]"),
        "append with a dedup id",
        Fault.DIE_AFTER,
        Kind.DUPLICATED,
    ),
    "a lease that is over a little too early": (
        Bug(transitions, "lapse", "overdue = [", "now_ms += 1\n    overdue = ["),
        "claim just before the lease is over",
        None,
        Kind.OVERLAPPING,
    ),
    "the last attempt counted as one too many": (
        Bug(ClaimPlanner, "_candidate", "attempt > self", "attempt >= self"),
        "claim what has no attempts left",
        None,
        Kind.LOST,
    ),
    "no attempt counted as the last": (
        Bug(ClaimPlanner, "_candidate", "attempt > self", "attempt > 1 + self"),
        "claim what has no attempts left",
        None,
        Kind.ATTEMPT,
    ),
    "a lapsed lease that does not count as an attempt": (
        Bug(transitions, "_lapsed", "attempt=s.attempt + 1", "attempt=s.attempt"),
        "claim after the lease",
        None,
        Kind.ATTEMPT,
    ),
    "a delay that nobody waits for": (
        Bug(transitions, "due_spans", "s.due_ms <= now_ms", "True"),
        "nack in order with a delay",
        None,
        Kind.EARLY,
    ),
    "a hole skipped in silence": (
        Bug(LogReader, "_gap", _WAIT, _SKIP),
        "append slowly to a reserved shard",
        None,
        Kind.LOST,
    ),
    "a hole stepped over without closing it": (
        Bug(
            LogReader,
            "_close",
            "self._log.put_tombstone(shard, start, segment.accepted_ms, segment.expires_s)",
            "Segment(start, 1, '', 0, 0)",
        ),
        "append too slowly to a reserved shard",
        None,
        Kind.LOST,
    ),
    "a stale read believed": (
        Bug(LogReader, "fetch", "or self._row_at(shard, offset, sure=True)", "or None"),
        "claim after a nack",
        Fault.STALE_READ,
        Kind.LOST,
    ),
    "a unit that is not busy while it is leased": (
        Bug(Serial, "select", *_NO_BUSY_UNITS),
        "claim in order",
        Fault.DIE_AFTER,
        Kind.OUT_OF_ORDER,
    ),
    "a unit that its dead message never lets go": (
        Bug(Serial, "select", "settled_ranges.append((offset, offset + 1))\n", "grants.stop(unit)\n"),
        "claim in order what has no attempts left",
        None,
        Kind.LOST,
    ),
    "a dead letter put back into line": (
        Bug(Settler, "nack", "SettleDecision(Disposition.DEAD,", "SettleDecision(Disposition.RETRY,"),
        "nack as a dead letter",
        None,
        Kind.AFTER_ACK,
    ),
    "only the first write of several": (
        Bug(
            LeaseSettlement,
            "_settle",
            "open_receipts = [r for r in open_receipts if r.leased_offset not in settled_offsets]",
            "settled_offsets.update(r.leased_offset for r in open_receipts); open_receipts = []",
        ),
        "nack more dead letters than one write holds",
        None,
        Kind.AFTER_ACK,
    ),
    "a consumer seen before its cursors are there": (
        Bug(Registry, "register", "if POLICIES[group.mode].per_consumer:", "if False:"),
        "register in a broadcast",
        None,
        Kind.UNEXPECTED,
    ),
    "an applied settlement called stale": (
        Bug(cursors, "_outcome", "if retried and", "if False and"),
        "ack a lease",
        Fault.LOST_ANSWER,
        Kind.LOST,
    ),
    "an SDK's second sending forgotten over a conflict": (
        Bug(dynamo, "was_resent", "> 0", "> 9"),
        "ack a lease",
        Fault.LOST_THEN_CONFLICT,
        Kind.DISHONEST,
    ),
    "a timer stored again after it was moved": (
        Bug(Timers, "store", "if any(map(_is_near, timers)) else", "if False else"),
        "append for soon",
        Fault.LOST_LATE,
        Kind.DUPLICATED,
    ),
}

PLANTED = [*BUGS.values(), *DELIVERY_BUGS.values()]


@pytest.mark.parametrize(("bug", "flow", "fault", "kind"), PLANTED, ids=[*BUGS, *DELIVERY_BUGS])
def test_a_planted_bug_is_seen(
    tables: SharedTables,
    monkeypatch: pytest.MonkeyPatch,
    bug: Bug,
    flow: str,
    fault: Fault | None,
    kind: Kind,
) -> None:
    bug.plant(monkeypatch)
    assert is_seen(tables, flow, fault, kind)
