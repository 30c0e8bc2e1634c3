"""The states in which work waits for a person, in one list: API, CLI, console, mail and metric are made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from . import breaker
from .times import DAY_MS, HOUR_MS, MINUTE_MS
from .topic import Caller, Consumer, ConsumerState, Group


class Kind(StrEnum):
    """What waits."""

    DISABLED = "DISABLED"
    PENDING = "PENDING"
    CIRCUIT_OPEN = "CIRCUIT_OPEN"
    NO_CONSUMERS = "NO_CONSUMERS"
    UNDECIDED = "UNDECIDED"
    BACKLOG = "BACKLOG"
    DESTINATION_GONE = "DESTINATION_GONE"
    REFUSED = "REFUSED"
    NOT_PROVED = "NOT_PROVED"
    SCHEDULE_STOPPED = "SCHEDULE_STOPPED"
    BUDGET = "BUDGET"


class Rule(NamedTuple):
    """Of a kind: a sentence that says what it is, what to do, and how long it must last before it is in the list."""

    what: str
    to_do: str
    after_ms: int = 0


RULES: Mapping[Kind, Rule] = {
    Kind.DISABLED: Rule(
        "The subscriber is disabled: it is not called.", "Fix the subscriber, then register it again."
    ),
    Kind.PENDING: Rule(
        "The subscriber's URL has not agreed to be called for an hour.",
        "Have the URL answer the handshake, or remove the consumer.",
        HOUR_MS,
    ),
    Kind.CIRCUIT_OPEN: Rule(
        "Every call of the subscriber has failed for ten minutes.",
        "Fix the subscriber. It is called again without a registration.",
        10 * MINUTE_MS,
    ),
    Kind.NO_CONSUMERS: Rule(
        "Messages have waited for ten minutes, and the group has no consumer.",
        "Start or register a consumer, or delete the group.",
        10 * MINUTE_MS,
    ),
    Kind.UNDECIDED: Rule(
        "Transactions wait for a decision, and their producer is not asked any more.",
        "Commit them or roll them back.",
    ),
    Kind.BACKLOG: Rule(
        "The backlog is larger than the topic's alarm allows.",
        "Look at the group's consumers: more of them, or faster ones.",
    ),
    Kind.DESTINATION_GONE: Rule(
        "In the last day messages were lost: their destination was deleted.",
        "Set another destination, or none.",
    ),
    Kind.REFUSED: Rule(
        "In the last day a destination refused messages: too large, or over its rate limit.",
        "Raise the destination's max_body_bytes or rate_limit, or set include_body to false.",
    ),
    Kind.NOT_PROVED: Rule(
        "No day of the archive has been proved complete for three days.",
        "Read the log of the archive's job, and run it again for the days.",
        3 * DAY_MS,
    ),
    Kind.SCHEDULE_STOPPED: Rule(
        "The topic of the schedule was deleted: it does not fire.",
        "Put the schedule again with another topic, or delete it.",
    ),
    Kind.BUDGET: Rule(
        "The topic has spent its budget of this month.", "Look at what it is used for, or raise its budget."
    ),
}
OF_DESTINATIONS = (Kind.DESTINATION_GONE, Kind.REFUSED)
# What a look at a topic does not find.
OF_OTHERS = (Kind.BACKLOG, *OF_DESTINATIONS)
_PRESENT_MS = HOUR_MS  # after its last sign of life a pull consumer counts as present for so long
MOST = 100  # states of one topic that are noted


@dataclass(frozen=True, slots=True)
class Attention:
    """One state. What it is not about is empty: a state of the stage has no topic, one of a topic has no group. Of a
    schedule `consumer` is the name.
    `noted_ms`: when it came into the list."""

    kind: Kind
    since_ms: int
    topic: str = ""
    group: str = ""
    consumer: str = ""
    noted_ms: int = 0

    @property
    def key(self) -> str:
        """Identifies it, and sorts the list by topic; names have no `#`."""
        return f"{self.topic}#{self.kind}#{self.group}#{self.consumer}"

    @property
    def place(self) -> str:
        """What it is about, in a word."""
        return "/".join(name for name in (self.topic, self.group, self.consumer) if name) or "the stage"

    def is_seen_by(self, caller: Caller) -> bool:
        """May the caller see it? The stage's own states only with a token for everything."""
        if not self.topic:
            return caller.has_all
        return caller.may_use(self.topic) and (not self.group or caller.may_use_group(self.group))


def of_consumer(consumer: Consumer, now_ms: int) -> Attention | None:
    """The state of a push consumer that gets nothing until a person has acted; None: there is no such state."""
    open_until_ms, failing_ms = consumer.open_until_ms, consumer.failing_ms
    kind, since_ms = Kind.CIRCUIT_OPEN, failing_ms
    if consumer.state != ConsumerState.ACTIVE:
        kind, since_ms = Kind(consumer.state), consumer.state_ms or consumer.created_ms
    elif open_until_ms is None or failing_ms is None:
        return None
    elif not breaker.is_open(open_until_ms, now_ms) and now_ms - open_until_ms >= RULES[kind].after_ms:
        return None  # no message has come since: nothing waits
    if since_ms is None or now_ms - since_ms < RULES[kind].after_ms:
        return None
    return Attention(kind, since_ms, consumer.topic, consumer.group, consumer.name)


def stopped_schedule(name: str, now_ms: int) -> Attention:
    """The state of a schedule whose topic is gone. It is the stage's: another topic may have the name."""
    return Attention(Kind.SCHEDULE_STOPPED, now_ms, consumer=name, noted_ms=now_ms)


def stopped(consumers: Sequence[Consumer], now_ms: int) -> list[tuple[Consumer, Attention]]:
    """The consumers of a group that get nothing until a person has acted."""
    states = ((consumer, of_consumer(consumer, now_ms)) for consumer in consumers)
    return [(consumer, state) for consumer, state in states if state]


def why(consumer: Consumer, state: Attention) -> str:
    """Why a consumer is stopped; never a text of the subscriber's answer."""
    return RULES[state.kind].what if state.kind == Kind.CIRCUIT_OPEN or not consumer.why else consumer.why


def of_group(
    group: Group, consumers: Sequence[Consumer], waiting_ms: int | None, now_ms: int
) -> Iterator[Attention]:
    """The states of a group. `waiting_ms`: when the oldest message came that it owes, if none is being worked on."""
    states = [state for _, state in stopped(consumers, now_ms)]
    yield from states
    # one that is called is PENDING for less than an hour, or ACTIVE
    has_consumer = any(each.is_called or now_ms - each.seen_ms < _PRESENT_MS for each in consumers)
    if states or waiting_ms is None or group.is_paused(now_ms) or has_consumer:
        return
    if now_ms - waiting_ms >= RULES[Kind.NO_CONSUMERS].after_ms:
        yield Attention(Kind.NO_CONSUMERS, waiting_ms, group.topic, group.name)
