"""How subscribers behave. Each is asked with its own name, the message, and which attempt this is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.receiver import How, Reply

Behaviour = Callable[[str, Mapping[str, Any], int], Reply]

OK, BROKEN = Reply(), Reply(500)
NEVER_AGAIN = Reply(489)


def chance(*of: object) -> float:
    """A number from 0 to 1, the same for the same things: who replays a history meets the same answers."""
    return random.Random(repr(of)).random()


def is_poison(body: Mapping[str, Any]) -> bool:
    """Some messages fail wherever failing is the custom."""
    return bool(body["n"] % 50 == 5)


def _lot(subscriber: str, body: Mapping[str, Any], attempt: int) -> float:
    return chance(subscriber, body["n"], attempt)


def good(subscriber: str, body: Mapping[str, Any], attempt: int) -> Reply:
    return OK


def slow(subscriber: str, body: Mapping[str, Any], attempt: int) -> Reply:
    return Reply(after=0.2)


_attempts: Counter[str] = Counter()


def failing(subscriber: str, body: Mapping[str, Any], attempt: int) -> Reply:
    """Every third attempt it gets."""
    _attempts[subscriber] += 1
    return BROKEN if is_poison(body) or _attempts[subscriber] % 3 == 0 else OK


def hanging(subscriber: str, body: Mapping[str, Any], attempt: int) -> Reply:
    return Reply(how=How.NEVER) if is_poison(body) or _lot(subscriber, body, attempt) < 0.1 else OK


def dying(subscriber: str, body: Mapping[str, Any], attempt: int) -> Reply:
    """Before it has done anything, or when it has done all: the caller cannot know."""
    lot = _lot(subscriber, body, attempt)
    if is_poison(body) or lot < 0.1:
        return Reply(how=How.NONE, after=0.05)
    return Reply(body=b"done" * 10, how=How.CUT) if lot < 0.25 else OK


def lying(subscriber: str, body: Mapping[str, Any], attempt: int) -> Reply:
    """A 2xx is a yes, with any body."""
    if is_poison(body):
        return Reply(500, {"Content-Type": "text/plain"}, b'{"status": 200}')
    return Reply(202, {"Content-Type": "text/html; charset=nonsense", "Retry-After": "9"}, b"\xff\x00{[<")


def redirecting(subscriber: str, body: Mapping[str, Any], attempt: int) -> Reply:
    """To a host that would say yes: Headrace does not follow."""
    status = 302 if attempt % 2 else 308
    away = Reply(status, {"Location": "/q/good/c"})
    return away if is_poison(body) or _lot(subscriber, body, attempt) < 0.2 else OK


def throttling(subscriber: str, body: Mapping[str, Any], attempt: int) -> Reply:
    lot = _lot(subscriber, body, attempt)
    if is_poison(body):
        return Reply(503, {"Retry-After": "soon"})
    return Reply(429 if lot < 0.1 else 503, {"Retry-After": "2"}) if lot < 0.2 else OK


def refusing(subscriber: str, body: Mapping[str, Any], attempt: int) -> Reply:
    return NEVER_AGAIN if is_poison(body) else OK
