"""The judge of histories of delivery: compares what subscribers saw with what the API says in the end.

Nothing of ours was killed, and all clocks are one, so little is to be explained away: a subscriber's answer that went
out whole was accepted, each other attempt has failed. Only a request on a kept connection that ended without a byte of
an answer may come once more: it looks as if the connection had been closed while it waited.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from .events import Kind, Violation


@dataclass(frozen=True, slots=True)
class Reader:
    """A group or, in a broadcast, one of its consumers; `ladder` is in seconds. An answer that took longer than
    `patience_seconds` may have come too late: only then may another attempt follow a success."""

    topic: str
    name: str
    ladder: tuple[int, ...]
    max_attempts: int
    serial: bool = False
    patience_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Sent:
    """An accepted message."""

    id: str
    topic: str
    shard: int
    offset: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class PushAttempt:
    """An attempt as a subscriber saw it: times in seconds since 1970. `fate` is SUCCESS, RETRY or DEAD, as the answer
    asked for; `wait` is the wait in seconds it asked for."""

    reader: str
    message_id: str
    attempt: int
    began: float
    ended: float
    fate: str
    wait: float = 0
    silent: bool = False  # the connection ended without a byte of an answer


@dataclass(frozen=True, slots=True)
class Rest:
    """What the API says in the end. `dead` are the dead letters by reader; `statuses` may be of a part of the messages:
    (reader, message id) → status."""

    dead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    statuses: Mapping[tuple[str, str], str] = field(default_factory=dict)


def check_push(
    readers: Collection[Reader], messages: Collection[Sent], push_attempts: Iterable[PushAttempt], rest: Rest
) -> list[Violation]:
    """Everything in this history that Headrace promises not to do."""
    by_delivery: defaultdict[tuple[str, str], list[PushAttempt]] = defaultdict(list)
    for one in sorted(push_attempts, key=lambda t: t.began):
        attempts = by_delivery[one.reader, one.message_id]
        if attempts and attempts[-1].silent and attempts[-1].attempt == one.attempt:
            one = replace(one, began=attempts.pop().began, silent=False)
        attempts.append(one)
    for reader in readers:
        for message in messages:
            _forgive_late_answers(reader, by_delivery.get((reader.name, message.id), []))
    deliveries = [
        (reader, message) for reader in readers for message in messages if message.topic == reader.topic
    ]
    findings = [_check_expected(by_delivery, deliveries)]
    for reader, message in deliveries:
        attempts = by_delivery.get((reader.name, message.id), [])
        findings += [
            _check_ended(reader, message, attempts, rest),
            _check_attempts(reader, message, attempts),
        ]
    findings += [_check_order(reader, messages, by_delivery) for reader in readers if reader.serial]
    return [violation for some in findings for violation in some]


def _forgive_late_answers(reader: Reader, attempts: list[PushAttempt]) -> None:
    """A success that was followed by another attempt, and took too long, is a failure of the time it was waited for."""
    for place, one in enumerate(attempts[:-1]):
        if one.fate == "SUCCESS" and one.ended - one.began > reader.patience_seconds:
            end = one.began + reader.patience_seconds
            attempts[place] = replace(one, fate="RETRY", ended=end)


def _check_expected(
    by_delivery: Collection[tuple[str, str]], deliveries: Iterable[tuple[Reader, Sent]]
) -> Iterator[Violation]:
    """I2: only produced messages are delivered, and only to readers that are owed them."""
    for reader, message_id in set(by_delivery) - {
        (reader.name, message.id) for reader, message in deliveries
    }:
        yield Violation(Kind.UNEXPECTED, f"{message_id} for {reader}")


def _check_ended(
    reader: Reader, message: Sent, attempts: Sequence[PushAttempt], rest: Rest
) -> Iterator[Violation]:
    """I1, I5, I15: each delivery has ended once, as the subscriber's last answer says."""
    about = f"{message.id} for {reader.name}"
    letters = rest.dead.get(reader.name, []).count(message.id)
    fates = [one.fate for one in attempts]
    is_dead = "DEAD" in fates or (len(attempts) == reader.max_attempts and "SUCCESS" not in fates)
    if "SUCCESS" not in fates and not is_dead:
        yield Violation(Kind.LOST, f"{about}: attempts {fates}")
    if fates.count("SUCCESS") > 1 or letters > 1:
        yield Violation(Kind.SETTLED_TWICE, f"{about}: attempts {fates}, {letters} dead letters")
    if letters != is_dead:
        yield Violation(Kind.DISHONEST, f"{about}: attempts {fates}, {letters} dead letters")
    status = rest.statuses.get((reader.name, message.id), "DEAD" if is_dead else "SUCCESS")
    if status != ("DEAD" if is_dead else "SUCCESS"):
        yield Violation(Kind.DISHONEST, f"{about}: attempts {fates}, and it is {status}")


def _check_attempts(reader: Reader, message: Sent, attempts: Sequence[PushAttempt]) -> Iterator[Violation]:
    """I4, I6, I9, I14: attempts 1 to n, one after the other, none early, none after the end."""
    about = f"{message.id} for {reader.name}"
    numbers = [one.attempt for one in attempts]
    if numbers != list(range(1, len(numbers) + 1)) or len(numbers) > reader.max_attempts:
        yield Violation(Kind.ATTEMPT, f"{about}: attempts {numbers}")
    for one, later in pairwise(attempts):
        wait = max(reader.ladder[min(one.attempt, len(reader.ladder)) - 1], one.wait)
        if one.fate != "RETRY":
            yield Violation(Kind.AFTER_ACK, f"{about}: attempt {later.attempt}")
        elif later.began < one.ended:
            yield Violation(Kind.OVERLAPPING, f"{about}: attempts {one.attempt} and {later.attempt}")
        elif later.began < one.ended + wait:
            early = f"{later.began - one.ended:.3f} s after the one before, not {wait}"
            yield Violation(Kind.EARLY, f"{about}: attempt {later.attempt} {early}")


def _check_order(
    reader: Reader, messages: Iterable[Sent], by_delivery: Mapping[tuple[str, str], Sequence[PushAttempt]]
) -> Iterator[Violation]:
    """I7: in each unit of order, a message's first attempt begins when the last one of that before it has ended."""
    units: defaultdict[tuple[int, str], list[Sent]] = defaultdict(list)
    for message in sorted(messages, key=lambda m: m.offset):
        if message.topic == reader.topic:
            units[message.shard, message.unit].append(message)
    for unit in units.values():
        for one, later in pairwise(unit):
            before = by_delivery.get((reader.name, one.id), ())
            after = by_delivery.get((reader.name, later.id), ())
            if before and after and after[0].began < before[-1].ended:
                yield Violation(Kind.OUT_OF_ORDER, f"{later.id} before {one.id} for {reader.name}")
