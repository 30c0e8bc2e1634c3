"""The board: what was counted of topics lately, and how one look after another comes by all of them."""

from __future__ import annotations

from collections.abc import Sequence

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
