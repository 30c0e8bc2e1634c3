"""Damages of rows, and desks that read what was damaged."""

from __future__ import annotations

from chalicelib.domain.record import DeadLetter
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.filters import Filters
from chalicelib.services.inspect.letter_lookup import DeadLetterFilter
from tests.support import factories as make
from tests.support.damage import Change, having, without
from tests.support.desk import Desk
from tests.support.stages import Stage

LONG = "x" * 300  # compressed

DEAD_LETTER = Nack(dead_letter=True)

DAMAGES: dict[str, Change] = {
    "not compressed": having("m", {"B": b"\x00\xff damaged"}),
    "not JSON": having("m", {"S": '[{"b":1},{"b":'}),
    "no list": having("m", {"S": '{"b":1}'}),
    "no text": having("m", {"N": "7"}),
    "empty": having("m", {"S": ""}),
    "no messages": without("m"),
    "no count": without("n"),
    "a count of none": having("n", {"N": "0"}),
    "a count of too many": having("n", {"N": "7"}),
    "a count beyond reason": having("n", {"N": "99999999999"}),
    "no request id": without("r"),
    "no time": without("a"),
    "a time of words": having("a", {"S": "yesterday"}),
    "no expiry": without("x"),
    "no known way": having("w", {"S": "?"}),
    "no body": having("m", {"S": '[{"p":1},{"p":2}]'}),
    "no base64": having("m", {"S": '[{"x":"?","j":false},{"x":"?","j":false}]'}),
    "no origin": having("m", {"S": '[{"b":1,"i":[1,2]},{"b":1,"i":[{}]}]'}),
}


def stored(stage: Stage, *bodies: str, **about: object) -> Desk:
    """A topic with three rows of two messages each."""
    desk = Desk.at(stage, **about)
    for number in range(3):
        desk.produce(*(make.draft(f"{body} {number}") for body in bodies or ("first", LONG)))
    return desk


def anew(desk: Desk) -> Desk:
    """Another process, which has read nothing yet."""
    return Desk(desk.stage, desk.stage.process(), desk.topic)


def letters(desk: Desk, group: Group) -> list[DeadLetter]:
    return desk.deps.letter_lookup.page(desk.topic, group, DeadLetterFilter(), None, 100)[0]


def look_everywhere(desk: Desk, group: Group) -> None:
    """Whatever reads, reads."""
    deps, topic = desk.deps, desk.topic
    for filters in (Filters(), Filters(group=group, status="DEAD"), Filters(from_ms=1)):
        for message in deps.lookup.newest_first(topic, filters, 100, None)[0]:
            deps.lookup.statuses.deliveries(topic, message)
            deps.tracer.path(topic, message)
    deps.counts.stats([topic])
    deps.dead_letters.redrive_matching(topic, group, DeadLetterFilter(), 100)
    for where in ("earliest", "latest", 1, f"@{desk.stage.clock.now_ms()}"):
        deps.positions.find(topic, cursor_key(topic, group, 0), where)
    for job in (deps.sweeper, deps.expirer, deps.checkpointer, deps.watch):
        job.run_once(lambda: True)
