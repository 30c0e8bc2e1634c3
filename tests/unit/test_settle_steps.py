"""How many deliveries one write settles, and what is written of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.cursor import Disposition, Result
from chalicelib.domain.ladder import Retry
from chalicelib.domain.message import Draft
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.topic import cursor_key
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.consume.settle_steps import Step, StepMaker, that_fit
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import embedded_stage


def steps(
    count: int, disposition: Disposition = Disposition.SUCCESS, due: int = 0, **settings: Any
) -> list[Step]:
    """Neighbours; each is due `due` after the one before."""
    return [
        Step(Result(offset, disposition, 1 + due * offset), None, 0, **settings) for offset in range(count)
    ]


def letters(count: int, size: int = 1) -> list[Step]:
    dead_record = make.dead_record(0, make.draft("x" * size))
    return steps(count, Disposition.DEAD, record=dead_record)


@pytest.mark.parametrize(
    ("all_steps", "fit"),
    [
        pytest.param(steps(1000), 1000, id="successes take nothing"),
        pytest.param(steps(1000, Disposition.RETRY), 1000, id="neighbours of one time are one entry"),
        pytest.param(steps(200, Disposition.RETRY, due=1), 90, id="of other times they are not"),
        pytest.param(steps(200, Disposition.RELEASED)[::2], 90, id="nor those apart"),
        pytest.param(steps(200, record=make.record(0, "SUCCESS")), 90, id="records"),
        pytest.param(
            steps(200, Disposition.RETRY_LATER, record=make.record(0, "RETRYING"), timer=make.timer()),
            45,
            id="records with timers",
        ),
        pytest.param(letters(200), 45, id="dead letters"),
        pytest.param(letters(20, 600_000), 3, id="large dead letters"),
        pytest.param(letters(2, 3_000_000), 1, id="one that is too large for others"),
    ],
)
def test_a_write_takes_the_first_that_it_can_hold(all_steps: list[Step], fit: int) -> None:
    assert that_fit(all_steps) == all_steps[:fit]


def test_returned_neighbours_of_different_kinds_take_an_entry_each() -> None:
    mixed_steps = [
        each
        for pair in zip(steps(200, Disposition.RETRY), steps(200, Disposition.RELEASED), strict=True)
        for each in pair
    ]
    in_turn = [step for at, step in enumerate(mixed_steps) if at % 2 == step.result.offset % 2]
    assert len(that_fit(in_turn)) == 90


def test_what_follows_one_that_does_not_fit_waits_for_the_next_write() -> None:
    large, small = letters(1, 1_500_000), letters(1)
    assert that_fit([*large, *large, *small]) == large


class Scene:
    """The steps of deliveries of one group, 5 s after they were claimed."""

    def __init__(self, *, in_lane: bool = False, **settings: Any) -> None:
        self.stage = embedded_stage()
        self.deps = self.stage.process()
        self.topic = make.topic(**settings)
        self.group = make.group(self.topic)
        self.key = cursor_key(self.topic, self.group, None if in_lane else 0)
        self.now_ms = START_MS + 5_000

    def put(self, shard: ShardKey, draft: Draft) -> None:
        row = make.segment(0, [draft])
        self.stage.adapters.log.put(shard, row, make.packed(row))

    def step(self, decision: SettleDecision, attempt: int = 1, **receipt: Any) -> Step:
        maker = StepMaker(
            reader=self.deps.reader, topic=self.topic, group=self.group, key=self.key, now_ms=self.now_ms
        )
        return maker.step(make.claimed_message(**receipt).receipt, decision, attempt)


def test_what_has_gone_from_the_log_keeps_its_attempts_while_it_waits() -> None:
    later = SettleDecision(Disposition.RETRY_LATER, START_MS + 60_000)
    timer = Scene().step(later, 7, offset=3, attempts_before_redrive=4).timer
    assert timer
    assert timer.draft
    assert timer.draft.origin == replace(make.origin(3, attempts=7, attempts_before_redrive=4), accepted_ms=0)


def test_a_messages_own_jitter_goes_before_its_groups() -> None:
    scene = Scene(retry=Retry(9, (100,), jitter=1.0))
    scene.put(scene.topic.shard_key(0), make.draft(jitter=0.0))
    due_ms = {
        scene.step(SettleDecision(Disposition.RETRY, by_ladder=True), attempt).result.due_ms
        for attempt in range(1, 9)
    }
    assert due_ms == {scene.now_ms + 100_000}


@pytest.mark.parametrize(("duration_ms", "took_ms"), [(None, 5_000), (0, 0), (70, 70)])
def test_an_attempt_took_as_long_as_was_measured_or_since_its_claim(
    duration_ms: int | None, took_ms: int
) -> None:
    entry = Scene().step(SettleDecision(Disposition.SUCCESS, duration_ms=duration_ms)).entry
    assert entry
    assert entry.duration_ms == took_ms
