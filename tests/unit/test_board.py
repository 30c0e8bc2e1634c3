"""The board: what was counted of topics lately, and how one look after another comes by all of them."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain.times import HOUR_MS
from chalicelib.domain.topic import Topic
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import embedded_stage


def test_walks_come_by_all_topics_and_begin_anew() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage)
    for n in range(9):
        desk.deps.admin.put_topic(f"t-{n}", {"shards": 1})
    board = desk.deps.board

    def behind(name: str | None) -> Sequence[Topic]:
        return stage.adapters.control.topics(name, 4)

    looked_at: list[int] = []
    for _ in range(4):
        board.walk(behind, lambda: True)
        looked_at.append(len(board.known_surveys()))
    assert looked_at == [4, 8, 10, 10], "the last walk found the end of the list"
    stage.clock.advance(2_000)
    board.walk(behind, lambda: True)
    newest = [survey.topic.name for survey in board.known_surveys() if survey.at_ms == stage.clock.now_ms()]
    assert len(newest) == 4
    board.walk(behind, lambda: False)
    board.walk(behind, lambda: True)
    again = [survey.topic.name for survey in board.known_surveys() if survey.at_ms == stage.clock.now_ms()]
    assert len(again) == 8, "a walk that may not go on leaves out nobody"


def test_what_a_clock_that_was_ahead_saw_is_looked_at_again() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage)
    board = desk.deps.board
    stage.clock.advance(HOUR_MS)
    board.renew([desk.topic], lambda: True)
    board.walk(lambda name: [] if name else [desk.topic], lambda: True)
    stage.clock.advance(-HOUR_MS)
    desk.produce(*make.drafts(3))
    assert board.known_surveys() == [], "nobody can have looked by then"
    surveys = board.renew([desk.topic], lambda: True)
    assert surveys[desk.topic.uid].accepted == 3
    assert [survey.accepted for survey in board.known_surveys()] == [3]
    assert [point.accepted for point in board.points(desk.topic)] == [3]
    assert not board.is_turn_of([desk.topic]), "others had their turn before"


def test_a_look_that_ended_early_does_not_change_a_topics_rates() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage)
    groups = [desk.group(name) for name in ("billing", "mailer", "search")]
    desk.produce(*make.drafts(9))
    for group in groups:
        desk.drain(group)
    board = desk.deps.board
    for may_go_on in (True, False, True):
        stage.clock.advance(2_000)
        looks = iter([True, may_go_on, may_go_on])
        board.renew([desk.topic], lambda looks=looks: next(looks))  # type: ignore[misc]
    assert {(point.accepted, point.settled) for point in board.points(desk.topic)} == {(9, 27)}


def test_the_rates_of_a_topic_of_many_shards_are_those_of_all_its_shards() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage, shards=16)
    board, deps = desk.deps.board, desk.deps
    for _ in range(5):
        stage.clock.advance(60_000)
        desk.produce(*(make.draft(shard=shard) for shard in range(16)))
        deps.meter_reader.run_once({desk.topic.name})
        board.renew([desk.topic], lambda: True)
    counts = [point.accepted for point in board.points(desk.topic)]
    assert counts == [48, 64, 80], "the first two readings are those of the hour and of ten minutes"
