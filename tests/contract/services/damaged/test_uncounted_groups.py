"""A topic's rates go on as they were while a group of it cannot be counted, and when it can be again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from chalicelib.api.resources.topics import topic_stats_view
from chalicelib.console.pages.overview import overview_of
from chalicelib.domain.topic import cursor_key
from chalicelib.services.inspect.survey_board import Point
from chalicelib.store.attributes import Item
from tests.support import factories as make
from tests.support.damage import NEWER, Change, change_control, change_cursor, having, without
from tests.support.push import PushDesk
from tests.support.stages import Stage


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("unreadable", ["consumer", "group", "cursor"])
def test_the_rates_of_a_topic_go_on_beside_a_group_that_cannot_be_counted(
    stage: Stage, unreadable: str, is_late: bool
) -> None:
    """`is_late`: the row becomes unreadable when the topic was looked at and read before."""
    desk = PushDesk.at(stage)
    mode = "broadcast" if unreadable == "consumer" else "queue"
    bad, good = desk.group("bad", mode=mode), desk.group("good")
    consumer = desk.consumer(bad, "c")
    desk.produce(*make.drafts(50))
    desk.drain(bad, consumer=consumer if mode == "broadcast" else None)
    desk.drain(good)
    rows: list[Item] = []

    def change(change: Change) -> None:
        if unreadable == "cursor":
            return change_cursor(stage, cursor_key(desk.topic, bad, 0), change)
        place = f"consumer#{bad.uid}#c" if unreadable == "consumer" else "group#bad"
        change_control(stage, f"topic#{desk.topic.uid}", place, change)

    def damage(item: Item) -> Item:
        rows.append(item)
        return having("v", {"N": "3"})(item)

    def points(looks: int) -> list[Point]:
        """What is known after some looks, six minutes apart."""
        for _ in range(looks):
            stage.clock.advance(360_000)
            desk.produce(make.draft())
            desk.drain(good)
            desk.deps.meter_reader.run_once({desk.topic.name})
            desk.deps.board.renew([desk.topic], lambda: True)
        return [*desk.deps.board.points(desk.topic)]

    points(3 if is_late else 0)
    change(damage)
    points_beside = points(11)
    assert len(points_beside) > 2, "the last reading of all groups is more than an hour old"
    change(lambda _: rows[0])
    for each in (points_beside, points(2)):
        for before, after in pairwise(each):
            assert after.settled - before.settled == after.accepted - before.accepted


@pytest.mark.parametrize("unreadable", ["consumer", "group"])
def test_how_many_groups_are_missing_from_the_sums_is_told(stage: Stage, unreadable: str) -> None:
    desk = PushDesk.at(stage)
    bad, good = desk.group("bad", mode="broadcast"), desk.group("good")
    desk.consumer(bad, "c")
    desk.produce(*make.drafts(3))
    [stats] = desk.deps.counts.stats([desk.topic])
    assert "uncounted_groups" not in topic_stats_view(stats, lambda _: True)
    place = f"consumer#{bad.uid}#c" if unreadable == "consumer" else "group#bad"
    change_control(stage, f"topic#{desk.topic.uid}", place, having("v", {"N": "3"}))
    deps = stage.process()
    [stats] = deps.counts.stats([desk.topic])
    assert list(stats.groups) == [good.name]
    assert topic_stats_view(stats, lambda _: True).get("uncounted_groups") == 1
    survey = deps.surveyor.survey(desk.topic)
    page = overview_of([desk.topic], {desk.topic.uid: survey}, {}, stage.clock.now_ms())
    assert (page.groups_left, page.is_whole, page.backlog) == (1, False, 3)


@pytest.mark.parametrize("damage", [NEWER, without("x")], ids=["newer", "damaged"])
def test_a_cursor_that_cannot_be_read_keeps_no_other_group_or_topic_from_being_counted(
    stage: Stage, damage: Change
) -> None:
    desk, other = PushDesk.at(stage), PushDesk.at(stage)
    bad, good = desk.group("bad"), desk.group("good")
    desk.produce(*make.drafts(3))
    desk.drain(bad)
    change_cursor(stage, cursor_key(desk.topic, bad, 0), damage)
    stats, others = stage.process().counts.stats([desk.topic, other.topic])
    assert (stats.accepted, list(stats.groups), stats.uncounted_groups) == (3, [good.name], 1)
    assert others.uncounted_groups == 0
