"""What a timer's draft says in the log, and in which fragment the timer is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import (
    ANY,
    Timer,
    TimerKind,
    draft_for_log,
    fragment_of,
    fragment_of_unit,
    next_check,
)
from tests.support import factories as make

HALF = "0123456789ab0123456789ab"


def test_a_delayed_message_says_in_the_log_when_it_was_accepted_and_due() -> None:
    shard = ShardKey("orders", "0123456789ab", 0)
    timer = Timer(9_000, "any", TimerKind.DELIVER, shard, make.draft(), stored_ms=1_000)
    assert timer.draft
    assert draft_for_log(timer) == replace(timer.draft, accepted_ms=1_000, due_ms=9_000)
    earlier = make.draft(accepted_ms=500)
    assert draft_for_log(replace(timer, draft=earlier)) == replace(earlier, due_ms=9_000)


def test_a_retry_comes_into_its_lane_as_it_is() -> None:
    shard = ShardKey("orders~mail", "0123456789ab", 0)
    timer = Timer(9_000, "any", TimerKind.RETRY, shard, make.draft(), stored_ms=1_000)
    assert draft_for_log(timer) == timer.draft


def test_a_timer_weighs_what_its_message_does() -> None:
    shard = ShardKey("orders", "0123456789ab", 0)
    message = Timer(9_000, "any", TimerKind.DELIVER, shard, make.draft("x" * 10_000))
    assert message.draft
    assert message.weight == message.draft.weight > 10_000
    assert Timer(9_000, "any", TimerKind.WAKE, shard).weight == 0


@pytest.mark.parametrize(
    ("now_ms", "due_ms"), [(1_000, 1_300), (1_299, 1_300), (1_300, 1_600), (9_999, 10_000)]
)
def test_a_check_comes_again_after_whole_periods(now_ms: int, due_ms: int) -> None:
    timer = Timer(1_000, HALF, TimerKind.CHECK, ShardKey("orders", "0123456789ab", ANY), every_ms=300)
    assert next_check(timer, now_ms) == replace(timer, due_ms=due_ms)


def test_a_timer_keeps_its_fragment_in_every_process_and_release() -> None:
    assert fragment_of("0123456789ab-u1") == 5
    assert fragment_of_unit("0123456789ab", "k") == 4
