"""The latest attempts at a consumer, read from the traces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.domain.topic import Consumer, Group, cursor_key
from chalicelib.services.inspect.attempts import History, latest
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage


class Broadcast:
    """One with a few consumers, and traces of very many others beside theirs."""

    def __init__(self, stage: Stage) -> None:
        self.traces, self.desk = stage.adapters.traces, Desk.at(stage)
        self.group: Group = self.desk.group(mode="broadcast")

    def attempt(self, *offsets: int, consumer_uid: str) -> None:
        """Attempts at these messages, each with a row of its own."""
        key = cursor_key(self.desk.topic, self.group, 0, consumer_uid)
        self.traces.write([make.trace(key, make.entries([offset])) for offset in offsets])

    def latest(
        self, consumer: Consumer, limit: int = 4, may_go_on: Callable[[], bool] = lambda: True
    ) -> History:
        return latest(self.traces, self.desk.topic, self.group, consumer, (0,), limit, may_go_on)


@pytest.mark.parametrize(("count", "is_whole"), [(1, True), (4, True), (5, False), (12, False)])
def test_a_broadcasts_consumer_has_its_attempts_though_very_many_others_have_theirs(
    stage: Stage, count: int, is_whole: bool
) -> None:
    broadcast = Broadcast(stage)
    consumer = broadcast.desk.consumer(broadcast.group, "one")
    for n in range(90):
        broadcast.attempt(*range(count), consumer_uid=f"other-{n}")
    broadcast.attempt(*range(count), consumer_uid=consumer.uid)
    history = broadcast.latest(consumer)
    assert [each.offset for each in history.attempts] == list(reversed(range(count)))[:4]
    assert history.is_whole == is_whole


@pytest.mark.parametrize("may_go_on", [True, False])
def test_what_lies_too_far_back_is_not_told_and_not_denied(stage: Stage, may_go_on: bool) -> None:
    broadcast = Broadcast(stage)
    consumer = broadcast.desk.consumer(broadcast.group, "one")
    broadcast.attempt(*range(1, 2_100 if may_go_on else 150), consumer_uid="another")
    broadcast.attempt(0, consumer_uid=consumer.uid)
    answers = iter([True, may_go_on])
    history = broadcast.latest(consumer, may_go_on=lambda: next(answers, may_go_on))
    assert (list(history.attempts), history.is_whole) == ([], False)
