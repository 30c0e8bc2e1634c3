"""Extending leases, and answers to many receipts in one call, while other processes write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group
from chalicelib.services.consume.settle import Nack
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import ALREADY, Desk
from tests.support.stages import Stage
from tests.support.troubled import Troubled

DEAD = Nack(dead_letter=True)


def another(desk: Desk, **ports: Any) -> Desk:
    """The same topic at another process, perhaps with ports of the test's own."""
    return Desk(desk.stage, Deps(replace(desk.stage.another(), **ports)), desk.topic)


def watched(desk: Desk, before: Callable[[], object]) -> Any:
    """The cursors, with something that happens before each write."""
    return Troubled(
        desk.stage.adapters.cursors, lambda name, *_: name == "write" and bool(before() and False)
    )


def deadlines(desk: Desk, group: Group) -> list[int]:
    """When the leases end, in seconds from now."""
    now_ms = desk.stage.clock.now_ms()
    return [(lease.deadline_ms - now_ms) // SECOND_MS for lease in desk.cursor(group).leases.values()]


def test_a_lease_that_another_process_granted_is_extended_by_one_that_saw_the_cursor_before(
    stage: Stage,
) -> None:
    desk = Desk.at(stage)
    group, other = desk.group(), another(desk)
    desk.produce(*make.drafts(2))
    other.receive(group, 1)
    messages = desk.receive(group, 1)
    assert other.extend(group, messages, 70) == [None]
    assert deadlines(desk, group) == [30, 70]


@pytest.mark.parametrize("times", [1, 2, 9])
def test_an_extension_that_loses_races_against_settlements_is_tried_again(stage: Stage, times: int) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(12))
    messages = desk.receive(group, 12)
    others = messages[1 : 1 + times]
    busy = another(desk, cursors=watched(desk, lambda: others and desk.ack(group, [others.pop()])))
    assert busy.extend(group, messages[:1], 70) == [None]
    assert deadlines(desk, group) == [70]


def test_of_messages_received_together_one_cannot_shorten_the_lease_of_the_others(stage: Stage) -> None:
    """They have one lease, and perhaps different workers."""
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    messages = desk.receive(group)
    assert desk.extend(group, messages[:1], 10) == [None]
    assert deadlines(desk, group) == [30]
    desk.ack(group, messages[1:2])
    assert desk.extend(group, messages[::2], 10) == [None, None], "all that are left"
    assert deadlines(desk, group) == [10]


def test_an_extension_that_the_store_refused_says_so_and_the_messages_of_a_lease_take_one_write(
    stage: Stage,
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    messages = desk.receive(group)
    away = Troubled(stage.adapters.cursors, lambda name, *_: name == "write")
    assert another(desk, cursors=away).extend(group, messages, 70) == ["UNAVAILABLE"] * 3
    assert deadlines(desk, group) == [30]
    writes: list[None] = []
    counting = another(desk, cursors=watched(desk, lambda: writes.append(None)))
    assert counting.extend(group, messages, 70) == [None] * 3
    assert (len(writes), deadlines(desk, group)) == (1, [70])


def test_what_the_store_took_of_a_lease_is_done_and_only_the_rest_is_an_error(stage: Stage) -> None:
    """Each dead letter takes two actions of a transaction: many take several writes."""
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(60))
    messages = desk.receive(group, 60)
    writes: list[None] = []

    def is_second(name: str, *_: Any) -> bool:
        writes.extend([None] * (name == "write"))
        return name == "write" and len(writes) == 2

    other = another(desk, cursors=Troubled(stage.adapters.cursors, is_second))
    answers = other.nack(group, messages, DEAD)
    assert answers == [None] * 40 + ["UNAVAILABLE"] * 20
    assert other.nack(group, messages, DEAD) == [ALREADY] * 40 + [None] * 20
    assert desk.deps.surveyor.exact_group(desk.topic, group).dead == 60
