"""What a timer's id still tells when its row cannot be read, and what a timer's draft says in the log."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import ids
from chalicelib.domain.message import Origin
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import (
    ANY,
    Timer,
    TimerKind,
    draft_for_log,
    fragment_of,
    fragment_of_unit,
    kind_by_id,
    next_check,
    retry_id,
    retry_of,
)
from tests.support import factories as make

uids = st.from_regex(r"[0-9a-z]{12}", fullmatch=True)
HALF = "0123456789ab0123456789ab"


@given(uids, uids | st.just(""), st.integers(0, 63), st.integers(0, 10**17), st.integers(1, 1000))
def test_a_retrys_id_tells_where_its_message_stands(
    group_uid: str, consumer_uid: str, shard: int, offset: int, attempts: int
) -> None:
    timer_id = retry_id(group_uid, consumer_uid, shard, offset, attempts)
    assert retry_of(timer_id) == Origin("", shard, offset, 0, attempts)
    assert kind_by_id(timer_id, 0) is TimerKind.RETRY


@pytest.mark.parametrize(
    ("timer_id", "shard", "kind"),
    [
        pytest.param(ids.timed_id("0123456789ab", None, 1), ANY, TimerKind.DELIVER, id="delayed"),
        pytest.param(ids.timed_id("0123456789ab", 3, 1), 3, TimerKind.DELIVER, id="delayed in a shard"),
        pytest.param(ids.half_id(HALF), ANY, TimerKind.DELIVER, id="committed for later"),
        pytest.param(HALF, ANY, TimerKind.CHECK, id="a transaction's"),
        pytest.param(HALF, 0, TimerKind.WAKE, id="a transaction's name on a shard"),
        pytest.param("anything", ANY, TimerKind.WAKE, id="any other"),
    ],
)
def test_an_id_tells_what_its_timer_is_for(timer_id: str, shard: int, kind: TimerKind) -> None:
    assert kind_by_id(timer_id, shard) is kind
    assert retry_of(timer_id) is None


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
