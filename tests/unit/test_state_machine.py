"""A message's states, one by one and of several readers together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from chalicelib.domain import by_hand
from chalicelib.domain import cursor as algebra
from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain.cursor import Cursor, Disposition, OffsetState, Result, Selection
from chalicelib.domain.spans import Span
from chalicelib.domain.status import Status, combined

TABLE = Path(__file__).parents[2] / "docs" / "state_machine.md"
OFFSET, TOKEN, NOW = 5, "1.abcd", 1_000_000
_CLAIM = Selection(granted=(Span(OFFSET),), next=OFFSET + 1)


def _running(attempt: int = 1) -> Cursor:
    selection = Selection(granted=(Span(OFFSET, 1, attempt),), next=OFFSET + 1)
    return transitions.claim(algebra.start_at(OFFSET), selection, TOKEN, "", NOW + 30_000)


def _retrying() -> Cursor:
    return transitions.settle(_running(), TOKEN, [Result(OFFSET, Disposition.RETRY, due_ms=NOW)])[0]


def _done() -> Cursor:
    return transitions.settle(_running(), TOKEN, [Result(OFFSET, Disposition.SUCCESS)])[0]


STATES: Mapping[str, Callable[[], Cursor]] = {
    "NEW": lambda: algebra.start_at(OFFSET),
    "RUNNING": _running,
    "RETRYING": _retrying,
    "SUCCESS": _done,
    "DEAD": _done,  # to the cursor both are settled; the delivery record distinguishes them
}


def _claim(cursor: Cursor) -> Cursor:
    """Claim the offset if it is waiting or was never claimed, as a policy would."""
    spans = [s for s in transitions.due_spans(cursor, NOW) if s.start <= OFFSET < s.end]
    if spans:
        return transitions.claim(cursor, Selection((spans[0],), next=cursor.next), "2.efgh", "", NOW + 30_000)
    return transitions.claim(cursor, _CLAIM, "2.efgh", "", NOW + 30_000) if cursor.next <= OFFSET else cursor


def _settled_by_claim(cursor: Cursor) -> Cursor:
    claimable = cursor.next <= OFFSET or any(s.holds(OFFSET) for s in cursor.waiting)
    selection = Selection(settled=((OFFSET, OFFSET + 1),), next=OFFSET + 1)
    return transitions.claim(cursor, selection, "2.efgh", "", NOW) if claimable else cursor


def _settle(fate: Disposition) -> Callable[[Cursor], Cursor]:
    return lambda cursor: transitions.settle(cursor, TOKEN, [Result(OFFSET, fate)])[0]


EVENTS: Mapping[str, Callable[[Cursor], Cursor]] = {
    "claim": _claim,
    "filter": _settled_by_claim,
    "limit": _settled_by_claim,
    "expire": _settled_by_claim,
    "exhaust": _settled_by_claim,
    "ack": _settle(Disposition.SUCCESS),
    "nack": _settle(Disposition.RETRY),
    "later": _settle(Disposition.RETRY_LATER),
    "back": _settle(Disposition.RELEASED),
    "bury": _settle(Disposition.DEAD),
    "lapse": lambda cursor: transitions.lapse(cursor, NOW + 30_000),
    "extend": lambda cursor: transitions.extend(cursor, TOKEN, NOW + 60_000) or cursor,
    "retry now": lambda cursor: transitions.retry_now(cursor, OFFSET) or cursor,
    "edit": lambda cursor: transitions.amend(cursor, OFFSET) or cursor,
    "cancel": lambda cursor: transitions.amend(cursor, OFFSET) or cursor,
    "seek": lambda cursor: transitions.seek(cursor, OFFSET),
    "settle": lambda cursor: (
        by_hand.end(cursor, OFFSET, Selection(next=OFFSET + 1)) if _is_owed(cursor) else cursor
    ),
    "change": lambda cursor: by_hand.postpone(cursor, OFFSET, NOW + 9) if cursor.waiting else cursor,
    "purge": lambda cursor: by_hand.purge(cursor, OFFSET + 1, OFFSET + 1) if _is_owed(cursor) else cursor,
}


def _is_owed(cursor: Cursor) -> bool:
    return by_hand.owed(cursor, OFFSET + 1) != ()


def _status(cursor: Cursor) -> str:
    state, _ = algebra.offset_state(cursor, OFFSET)
    return "SETTLED" if state is OffsetState.SETTLED else state.value


def _table() -> dict[tuple[str, str], str]:
    rows = re.findall(r"^\| (\w+) \| ([\w ]+) \| (\w+) \|", TABLE.read_text(), re.MULTILINE)
    state_after = {(status, event): after for status, event, after in rows if status != "status"}
    anywhere = {event: after for (status, event), after in state_after.items() if status == "any"}
    return {
        **{(s, e): after for (s, e), after in state_after.items() if s != "any"},
        **{(status, event): after for status in STATES for event, after in anywhere.items()},
    }


def _seen(status: str) -> str:
    return "SETTLED" if status in ("SUCCESS", "DEAD", "SKIPPED") else status


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("status", STATES)
def test_every_pair_does_what_the_table_says_or_nothing(status: str, event: str) -> None:
    before = STATES[status]()
    assert _status(before) == _seen(status)
    after = EVENTS[event](before)
    expected = _table().get((status, event))
    if expected is None and (status, event) not in _SAME_MECHANISM:
        assert after == before, f"{event} must not touch a {status} delivery"
    else:
        assert after != before
        assert _status(after) == _seen(_TO_THE_CURSOR.get(event, expected or "SUCCESS"))


# What settles without a delivery is one mechanism; which statuses it is used for is the policy's business.
_SAME_MECHANISM = {("NEW", "exhaust"), ("RETRYING", "filter"), ("RETRYING", "limit")}


# To the cursor it is settled: the delivery record says that it goes on elsewhere. And what the log calls cancelled is
# new until a claim skips it.
_TO_THE_CURSOR = {"later": "SUCCESS", "cancel": "NEW"}


def test_what_is_given_back_untried_keeps_its_attempts_and_what_failed_does_not() -> None:
    for attempt, fate, expected in (
        (1, Disposition.RELEASED, 1),
        (3, Disposition.RELEASED, 3),
        (3, Disposition.RETRY, 4),
    ):
        after, _ = transitions.settle(_running(attempt), TOKEN, [Result(OFFSET, fate)])
        _, span = algebra.offset_state(after, OFFSET)
        assert span is not None
        assert span.attempt == expected
    tried = transitions.settle(_running(3), TOKEN, [Result(OFFSET, Disposition.RELEASED)])[0]
    assert _status(tried) == "RETRYING"


STATUSES = (Status.NEW, Status.RUNNING, Status.RETRYING, Status.SUCCESS, Status.DEAD)


def _combined_table() -> dict[tuple[str, str], str]:
    """The rows between the table's marks: a status, and what it makes with each of the others."""
    text = TABLE.read_text().partition("<!-- combined -->")[2].partition("<!-- end -->")[0]
    rows = [re.findall(r"\w+", line) for line in text.splitlines() if line.startswith("| **")]
    return {(row[0], other): word for row in rows for other, word in zip(STATUSES, row[1:], strict=True)}


@pytest.mark.parametrize(("one", "other"), list(itertools.product(STATUSES, STATUSES)))
def test_two_statuses_make_what_the_table_says(one: Status, other: Status) -> None:
    assert combined([one, other]) == _combined_table()[one, other]


@pytest.mark.parametrize("statuses", list(itertools.combinations_with_replacement(STATUSES, 3)))
def test_more_than_two_make_what_they_make_in_any_order_and_however_often(
    statuses: tuple[Status, ...],
) -> None:
    whole = combined(statuses)
    for order in itertools.permutations(statuses):
        assert combined(order) == whole
        assert combined((*order, order[0])) == whole
    over = {"SUCCESS", "DEAD"}
    assert (whole in over) == (set(statuses) <= over), "over when all are, and not before"
