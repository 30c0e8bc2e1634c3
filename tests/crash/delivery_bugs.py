"""Bugs of deliveries, timers and dead letters, planted one at a time: the enumeration must see each."""

from __future__ import annotations

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.modes.serial import Serial
from chalicelib.scheduler.mover import MoverRun
from chalicelib.services.consume import claim_plan, decision
from chalicelib.services.core.marker import Marker
from chalicelib.services.manage import dead_letters
from chalicelib.services.push import run
from chalicelib.store import log
from chalicelib.store.cursors import Cursors
from tests.support.events import Kind
from tests.support.faults import Fault
from tests.support.planting import Bug

_FILED = "*(timer_put(tables, each) for each in timers)"
_FILE = "self._dynamo.call('put_item', **timer_put(self._dynamo.tables, timer)['Put'])"
_WRITTEN = """]
    try:
        if beside:
            request.pop("ReturnValues", None)
            action = {"Update" if operation == "update_item" else "Put": request}
            self._dynamo.call("transact_write_items", TransactItems=[action, *beside])
"""
_REMOVAL = "[timer_delete(tables, promotable)]"
_UNCONDITIONALLY = (
    f"[{{'Delete': {{k: v for k, v in {_REMOVAL}[0]['Delete'].items() if k in ('TableName', 'Key')}}}}]"
)

BUGS: dict[str, tuple[Bug, str, Fault | None, Kind]] = {
    "a move that leaves the timer where it was": (
        Bug(log.Log, "_move", _REMOVAL, "[]"),
        "move one",
        None,
        Kind.ATTEMPT,
    ),
    "a move without its condition on the timer": (
        Bug(log.Log, "_move", _REMOVAL, _UNCONDITIONALLY),
        "move in a race",
        None,
        Kind.ATTEMPT,
    ),
    "a timer filed before its settlement": (
        Bug(Cursors, "write", _FILED, f"*([] for timer in timers if {_FILE} is None)"),
        "push in vain",
        Fault.DIE_AFTER,
        Kind.ATTEMPT,
    ),
    "a timer filed after its settlement": (
        Bug(
            Cursors,
            "write",
            f", {_FILED}{_WRITTEN}",
            f"{_WRITTEN}            for timer in timers: {_FILE}\n",
        ),
        "push in vain",
        Fault.DIE_AFTER,
        Kind.LOST,
    ),
    "a wait counted from when the message came": (
        Bug(
            run,
            "decision_after",
            "due_ms = receipt.within_expiry(now_ms +",
            "due_ms = receipt.within_expiry(message.accepted_ms +",
        ),
        "push from the lane in vain",
        None,
        Kind.EARLY,
    ),
    "a subscriber's wish for more time forgotten": (
        Bug(run, "decision_after", "result.retry_after_ms, took_ms", "None, took_ms"),
        "push to one who asks for more time",
        None,
        Kind.EARLY,
    ),
    "attempts counted anew in the lane": (
        Bug(claim_plan, "attempts_before", "draft.origin.attempts if draft.origin else 0", "0"),
        "push from the lane in vain",
        None,
        Kind.ATTEMPT,
    ),
    "a redrive that leaves the dead letter where it was": (
        Bug(
            log.Log,
            "_move",
            "letter_move(tables.records, promotable, segment.accepted_ms)",
            "letter_move(tables.records, promotable, segment.accepted_ms)[1:]",
        ),
        "redrive twice",
        None,
        Kind.ATTEMPT,
    ),
    "a redriven message without attempts": (
        Bug(dead_letters, "_entry_of", "before_redrive=attempts", "before_redrive=0"),
        "redrive and fail for the last time",
        None,
        Kind.LOST,
    ),
    "a unit that waits for ever when no attempt is left": (
        Bug(
            decision,
            "decision_after_failure",
            "SettleDecision(Disposition.DEAD, reason=DeadReason.ATTEMPTS_EXHAUSTED",
            "SettleDecision(Disposition.RETRY, 1 << 52",
        ),
        "push in order for the last time",
        None,
        Kind.LOST,
    ),
    "a unit that does not wait for its failed message": (
        Bug(Serial, "select", "grants.stop(unit)\n", "pass\n"),
        "nack in order with a delay",
        None,
        Kind.OUT_OF_ORDER,
    ),
    "a timer that is due a little too early": (
        Bug(MoverRun, "_move_due", "if timer.due_ms <= now_ms]", "if timer.due_ms <= now_ms + 2]"),
        "move just before the time",
        None,
        Kind.EARLY,
    ),
    "a held message that counts as attempted": (
        Bug(transitions, "settle", "(r.disposition is Disposition.RETRY)", "(r.disposition in RETURNING)"),
        "push what is held",
        None,
        Kind.ATTEMPT,
    ),
    "a message that nobody marks": (
        Bug(Marker, "mark", "if not topic.is_called:", "if topic.is_called:"),
        "sweep after a rest",
        None,
        Kind.LOST,
    ),
    "a message buried with its consumer": (
        Bug(run, "decision_after", "is Verdict.REFUSED", "in (Verdict.REFUSED, Verdict.GONE)"),
        "push to one who is gone",
        None,
        Kind.LOST,
    ),
}
