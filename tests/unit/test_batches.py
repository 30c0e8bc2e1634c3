"""Which messages go out in one request, and when a batch that failed is split."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.topic import Consumer, ConsumerKind, Group
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.push import settlements
from tests.support import factories as make

OWN_FAILURE = CallResult(Verdict.FAILED, is_own_answer=True)
DONE = CallResult(Verdict.DONE, is_own_answer=True)


def pushing(size: int, payload: str = "batch", kind: str = "url") -> tuple[Group, Consumer]:
    group = make.group(make.topic(), payload=payload, batch_size=size)
    return group, make.consumer(group, kind=ConsumerKind(kind))


@pytest.mark.parametrize(
    ("attempt", "settings", "limit"),
    [
        pytest.param(1, {}, 50, id="the first"),
        pytest.param(2, {}, 7, id="after one failure"),
        pytest.param(3, {}, 1, id="after two"),
        pytest.param(1, {"last_attempt": 1}, 1, id="the first and last"),
        pytest.param(2, {"last_attempt": 2}, 1, id="the last after one failure"),
        pytest.param(6, {"attempts_before_redrive": 5}, 50, id="the first since a redrive"),
        pytest.param(7, {"attempts_before_redrive": 5}, 7, id="the second since a redrive"),
        pytest.param(4, {"attempts_before_entry": 3}, 1, id="the lane does not begin anew"),
    ],
)
def test_a_message_that_failed_is_sent_with_fewer_others(
    attempt: int, settings: dict[str, Any], limit: int
) -> None:
    assert settlements.batch_limit(50, make.claimed_message(attempt, **settings)) == limit


@pytest.mark.parametrize(("size", "limit"), [(8, 1), (9, 3), (16, 4)])
def test_a_small_batch_is_split_into_single_messages(size: int, limit: int) -> None:
    assert settlements.batch_limit(size, make.claimed_message(2)) == limit


@pytest.mark.parametrize(
    ("results", "is_split"),
    [
        ([OWN_FAILURE, OWN_FAILURE], True),
        ([OWN_FAILURE], False),
        ([OWN_FAILURE, DONE], False),
        ([DONE, DONE], False),
        ([OWN_FAILURE, CallResult(Verdict.FAILED)], False),
    ],
)
def test_a_batch_is_split_if_its_subscriber_refused_all_of_it(
    results: list[CallResult], is_split: bool
) -> None:
    assert settlements.is_to_be_split([make.claimed_message()] * len(results), results) is is_split


@pytest.mark.parametrize(
    ("payload", "kind", "size"),
    [("batch", "url", 10), ("binary", "function", 10), ("binary", "url", 1), ("structured", "url", 1)],
)
def test_functions_get_batches_and_whoever_asked_for_them(payload: str, kind: str, size: int) -> None:
    assert settlements.batch_of(*pushing(10, payload, kind)) == size


@given(size=st.integers(1, 30), attempts=st.lists(st.integers(1, 4), max_size=60))
def test_every_message_is_in_one_batch_that_is_as_large_as_its_messages_allow(
    size: int, attempts: list[int]
) -> None:
    messages = [
        make.claimed_message(attempt, offset, last_attempt=4) for offset, attempt in enumerate(attempts)
    ]
    push_batches = list(settlements.in_batches(*pushing(size), messages))
    messages_sent = [each for push_batch in push_batches for each in push_batch]
    assert sorted(each.receipt.offset for each in messages_sent) == list(range(len(messages)))
    assert all(len(push_batch) <= smallest_limit(size, push_batch) for push_batch in push_batches)
    for push_batch, next_batch in pairwise(push_batches):
        assert len(push_batch) + 1 > smallest_limit(size, [*push_batch, next_batch[0]]), (
            "one more would have fitted"
        )


def smallest_limit(size: int, push_batch: list[ClaimedMessage]) -> int:
    return min(settlements.batch_limit(size, each) for each in push_batch)
