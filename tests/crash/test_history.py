"""The judge is judged: every bad history is accused of its crime, its good twin of nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.events import Event, Final, Kind, Op, Told
from tests.support.history import check

SECOND = 1_000
LEASE = 30 * SECOND
READER = "g"
ID, LATER, ELSEWHERE = "aaaaaaaaaaaa-0-0", "bbbbbbbbbbbb-0-1", "cccccccccccc-1-0"
History = tuple[Sequence[Event], Final]


def event(op: Op, at: int, seconds: float = 0, *, duration: int = 1, **settings: Any) -> Event:
    """An event that begins as the `at`-th thing, `seconds` after the start."""
    ms = round(seconds * SECOND)
    settings = {"told": Told.OK, "reader": READER, **settings}
    return Event(op=op, began=at * 10, ended=at * 10 + duration, began_ms=ms, ended_ms=ms, **settings)


def join(**settings: Any) -> Event:
    return event(Op.JOIN, 0, **settings)


def produce(label: str = "m", message_id: str = ID, at: int = 1, **settings: Any) -> Event:
    return event(Op.PRODUCE, at, label=label, message_id=message_id, **{"unit": "-", **settings})


def claim(at: int = 2, seconds: float = 0, **settings: Any) -> Event:
    base = {"label": "m", "message_id": ID, "token": f"{at}.abcd", "attempt": 1, "lease_ms": LEASE}
    return event(Op.CLAIM, at, seconds, **{**base, **settings})


def settle(
    at: int = 3, seconds: float = 0, fate: str = "SUCCESS", token: str = "2.abcd", **settings: Any
) -> Event:
    return event(
        Op.SETTLE, at, seconds, **{"message_id": ID, "fate": fate, "token": token, "attempt": 1, **settings}
    )


def end(status: str | None = "SUCCESS", **places: tuple[str, ...]) -> Final:
    places = places or {"m": (ID,)}
    statuses = {(READER, i): status for ids in places.values() for i in ids}
    return Final(places, statuses, frozenset(statuses) if status == "DEAD" else frozenset())


BOTH: dict[str, Any] = {"m": (ID,), "n": (LATER,)}
SECOND_MESSAGE: dict[str, Any] = {"label": "n", "message_id": LATER}
DELIVERED = (join(), produce(), claim(), settle())
LOST_ACK = replace(settle(), told=Told.UNKNOWN)
UNHEARD = event(Op.CLAIM, 2, told=Told.UNKNOWN, lease_ms=LEASE)


def _serial(*events: Event) -> Sequence[Event]:
    return (join(serial=True), produce(), produce("n", LATER, at=1), *events)


def _extended(answer: Told) -> Sequence[Event]:
    extend = event(Op.EXTEND, 3, 10, message_id=ID, token="2.abcd", lease_ms=LEASE, told=answer)
    return (*DELIVERED[:3], extend, claim(4, 31, attempt=2), settle(5, 31, token="4.abcd"))


def _delayed(seconds: float) -> Sequence[Event]:
    back = settle(fate="RETRY", delay_ms=10 * SECOND)
    return (*DELIVERED[:3], back, claim(4, seconds, attempt=2), settle(5, seconds, token="4.abcd"))


BURIED = (*DELIVERED[:3], settle(fate="DEAD"))
REDRIVEN = (*BURIED, event(Op.REDRIVE, 4, message_id=ID, attempt=1), claim(5, attempt=2))


def _again(seconds: float, *between: Event, **answer: Any) -> Sequence[Event]:
    """An attempt with this answer, and the next one some seconds later."""
    last = (claim(8, seconds, attempt=2), settle(9, seconds, token="8.abcd"))
    return (*DELIVERED[:3], settle(**answer), *between, *last)


PAIRS: dict[str, tuple[Kind, History, History]] = {
    "a burial without a dead letter": (
        Kind.LETTER,
        (BURIED, replace(end("DEAD"), letters=frozenset())),
        ((*BURIED, event(Op.DISCARD, 4, message_id=ID)), replace(end("DEAD"), letters=frozenset())),
    ),
    "a dead letter of what succeeded": (
        Kind.LETTER,
        (DELIVERED, replace(end(), letters=frozenset([(READER, ID)]))),
        (DELIVERED, end()),
    ),
    "a timer that nobody looked at": (
        Kind.LEFT,
        (DELIVERED, replace(end(), left=("a timer",))),
        (DELIVERED, end()),
    ),
    "an attempt after a burial": (
        Kind.AFTER_ACK,
        ((*BURIED, claim(5, attempt=2), settle(6, token="5.abcd")), end()),
        ((*REDRIVEN, settle(6, token="5.abcd")), end()),
    ),
    "a dead letter redriven and as dead as before": (
        Kind.LOST,
        (REDRIVEN[:-1], end("DEAD")),
        ((*REDRIVEN, settle(6, token="5.abcd", fate="DEAD")), end("DEAD")),
    ),
    "a dead letter sent twice": (
        Kind.SETTLED_TWICE,
        ((*REDRIVEN, settle(6, token="5.abcd"), claim(7, attempt=3), settle(8, token="7.abcd")), end()),
        ((*REDRIVEN, settle(6, token="5.abcd")), end()),
    ),
    "more attempts than a redrive gives": (
        Kind.ATTEMPT,
        (
            (join(max_attempts=1), *REDRIVEN[1:], claim(7, 31, attempt=3), settle(8, 31, token="7.abcd")),
            end(),
        ),
        ((join(max_attempts=1), *REDRIVEN[1:], settle(6, token="5.abcd")), end()),
    ),
    "an attempt before the lease is over, where nobody heard of the settlement": (
        Kind.EARLY,
        (_again(29.9, fate="RETRY", delay_ms=60 * SECOND, told=Told.UNKNOWN), end()),
        (_again(30, fate="RETRY", delay_ms=60 * SECOND, told=Told.UNKNOWN), end()),
    ),
    "an early attempt that nobody asked for": (
        Kind.EARLY,
        (_again(5, fate="RETRY", delay_ms=10 * SECOND), end()),
        (_again(5, event(Op.RETRY_NOW, 5, 5, message_id=ID), fate="RETRY", delay_ms=10 * SECOND), end()),
    ),
    "an attempt number twice, though something was attempted": (
        Kind.ATTEMPT,
        ((*DELIVERED[:3], settle(fate="RETRY"), claim(5), settle(6, token="5.abcd")), end()),
        ((*DELIVERED[:3], settle(fate="RELEASED"), claim(5), settle(6, token="5.abcd")), end()),
    ),
    "an accepted message that is nowhere": (
        Kind.LOST,
        ((join(), produce()), Final()),
        ((join(), produce(told=Told.UNKNOWN, message_id="")), Final()),
    ),
    "an accepted message that nobody got": (Kind.LOST, ((join(), produce()), end("NEW")), (DELIVERED, end())),
    "a message that is settled and was never delivered": (
        Kind.LOST,
        ((join(), produce()), end()),
        ((join(tags=("other",)), produce()), end()),
    ),
    "a message passed over by a group that was there before it": (
        Kind.LOST,
        ((join(begin="latest"), produce()), end(None)),
        ((produce(), replace(join(begin="latest"), began=50, ended=51)), end(None)),
    ),
    "a message buried after one of three attempts": (
        Kind.LOST,
        ((join(max_attempts=3), produce(), claim()), end("DEAD")),
        ((join(max_attempts=1), produce(), claim()), end("DEAD")),
    ),
    "a message that nobody produced": (
        Kind.UNEXPECTED,
        ((join(),), end()),
        (DELIVERED, end()),
    ),
    "a refused message that is delivered": (
        Kind.UNEXPECTED,
        ((join(), produce(told=Told.REFUSED, message_id=""), claim(), settle()), end()),
        ((join(), produce(told=Told.UNKNOWN, message_id=""), claim(), settle()), end()),
    ),
    "a delivery of what is not in the log": (
        Kind.UNEXPECTED,
        ((join(), produce(), claim(message_id=LATER)), end()),
        (DELIVERED, end()),
    ),
    "a message filtered out and delivered": (
        Kind.UNEXPECTED,
        ((join(tags=("x",)), produce(), claim(), settle()), end()),
        ((join(tags=("x",)), produce(tag="x"), claim(), settle()), end()),
    ),
    "a delivery to one who has left": (
        Kind.UNEXPECTED,
        ((join(), produce(), event(Op.LEAVE, 2), claim(3)), Final({"m": (ID,)})),
        ((join(), produce(), claim(), event(Op.LEAVE, 3)), Final({"m": (ID,)})),
    ),
    "one produce in two places": (
        Kind.DUPLICATED,
        ((produce(),), Final({"m": (ID, ELSEWHERE)})),
        ((produce(told=Told.UNKNOWN, message_id=""), produce(at=2)), Final({"m": (ID, ELSEWHERE)})),
    ),
    "a dedup id in two places": (
        Kind.DUPLICATED,
        (
            (produce(told=Told.UNKNOWN, message_id="", dedup_id="d"), produce(at=2, dedup_id="d")),
            Final({"m": (ID, ELSEWHERE)}),
        ),
        (
            (produce(told=Told.UNKNOWN, message_id="", dedup_id="d"), produce(at=2, dedup_id="d")),
            Final({"m": (ID,)}),
        ),
    ),
    "two valid leases": (
        Kind.OVERLAPPING,
        ((join(), produce(), claim(), claim(3, 29, attempt=2), settle(4, 29, token="3.abcd")), end()),
        ((join(), produce(), claim(), claim(3, 30, attempt=2), settle(4, 30, token="3.abcd")), end()),
    ),
    "a lease taken over in spite of its extension": (
        Kind.OVERLAPPING,
        (_extended(Told.OK), end()),
        (_extended(Told.UNKNOWN), end()),
    ),
    "an epoch that falls": (
        Kind.OVERLAPPING,
        ((join(), produce(), claim(token="5.abcd"), claim(3, 31, attempt=2, token="4.abcd")), end()),
        (
            (join(), produce(), claim(token="4.abcd"), claim(3, 31, attempt=2, token="5.abcd"), LOST_ACK),
            end(),
        ),
    ),
    "a serial message before the one it follows": (
        Kind.OUT_OF_ORDER,
        (
            _serial(
                claim(2), claim(3, **SECOND_MESSAGE), settle(4), settle(5, message_id=LATER, token="3.abcd")
            ),
            end(**BOTH),
        ),
        (
            _serial(
                claim(2), settle(3), claim(4, **SECOND_MESSAGE), settle(5, message_id=LATER, token="4.abcd")
            ),
            end(**BOTH),
        ),
    ),
    "two successes": (
        Kind.SETTLED_TWICE,
        ((*DELIVERED, settle(4)), end()),
        ((*DELIVERED[:3], LOST_ACK, settle(4)), end()),
    ),
    "a burial and a success": (
        Kind.SETTLED_TWICE,
        ((*DELIVERED, settle(4, fate="DEAD")), end()),
        ((*DELIVERED, settle(4, fate="DEAD", told=Told.REFUSED)), end()),
    ),
    "an attempt after the ack": (
        Kind.AFTER_ACK,
        ((*DELIVERED, claim(4, 40, attempt=2)), end()),
        ((*DELIVERED[:3], LOST_ACK, claim(4, 40, attempt=2)), end()),
    ),
    "an attempt after the ack, without a seek": (
        Kind.AFTER_ACK,
        ((*DELIVERED, claim(5, 40), settle(6, 40, token="5.abcd")), end()),
        ((*DELIVERED, event(Op.SEEK, 4, 40), claim(5, 40), settle(6, 40, token="5.abcd")), end()),
    ),
    "an attempt number twice": (
        Kind.ATTEMPT,
        ((*DELIVERED[:3], claim(3, 31), settle(4, 31, token="3.abcd")), end()),
        ((*DELIVERED[:3], claim(3, 31, attempt=2), settle(4, 31, token="3.abcd")), end()),
    ),
    "an attempt number left out": (
        Kind.ATTEMPT,
        ((join(), produce(), claim(3, 31, attempt=2), settle(4, 31, token="3.abcd")), end()),
        ((join(), produce(), UNHEARD, claim(3, 31, attempt=2), settle(4, 31, token="3.abcd")), end()),
    ),
    "a retry before its time": (
        Kind.EARLY,
        (_delayed(9.9), end()),
        (_delayed(10), end()),
    ),
    "an old token that still settles": (
        Kind.FENCE,
        ((*DELIVERED[:3], claim(3, 31, attempt=2), settle(4, 31)), end()),
        (
            (
                *DELIVERED[:3],
                claim(3, 31, attempt=2),
                settle(4, 31, told=Told.REFUSED),
                settle(5, 31, token="3.abcd"),
            ),
            end(),
        ),
    ),
    "an ack that is a burial in the end": (
        Kind.DISHONEST,
        (DELIVERED, end("DEAD")),
        ((*DELIVERED[:3], settle(fate="DEAD")), end("DEAD")),
    ),
    "a settlement that was never asked for and is called settled already": (
        Kind.DISHONEST,
        ((*DELIVERED, settle(4, fate="DEAD", told=Told.ALREADY)), end()),
        ((*DELIVERED, settle(4, told=Told.ALREADY)), end()),
    ),
    "a valid lease called stale": (
        Kind.DISHONEST,
        ((*DELIVERED[:3], settle(3, 29, told=Told.REFUSED), settle(4, 29, told=Told.UNKNOWN)), end()),
        (
            (
                *DELIVERED[:3],
                settle(3, 31, told=Told.REFUSED),
                claim(4, 31, attempt=2),
                settle(5, 31, token="4.abcd"),
            ),
            end(),
        ),
    ),
}


@pytest.mark.parametrize("crime", PAIRS)
def test_a_bad_history_is_accused_and_its_good_twin_is_not(crime: str) -> None:
    kind, bad, good = PAIRS[crime]
    assert kind in {violation.kind for violation in check(*bad)}
    assert check(*good) == []


def test_every_kind_of_violation_has_a_bad_history() -> None:
    assert {kind for kind, *_ in PAIRS.values()} == set(Kind)
