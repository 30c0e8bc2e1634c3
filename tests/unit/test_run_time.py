"""How long attempts and leases of one run may take."""

from __future__ import annotations

import pytest

from chalicelib.domain.assignment import Team
from chalicelib.domain.topic import Consumer, ConsumerKind
from chalicelib.services.core.wake import DispatchTask
from chalicelib.services.push.run_time import RunTime
from chalicelib.services.push.sources import Sources
from tests.support import factories as make

TOPIC = make.topic(lease_seconds=40)
GROUP = make.group(TOPIC)
URL = make.consumer(GROUP, "url", kind=ConsumerKind.URL)
QUICK = make.consumer(GROUP, "quick", kind=ConsumerKind.FUNCTION, timeout_seconds=20)
SLOW = make.consumer(GROUP, "slow", kind=ConsumerKind.FUNCTION, timeout_seconds=200)
UNKNOWN = make.consumer(GROUP, "unknown", kind=ConsumerKind.FUNCTION)


def sources(*consumers: Consumer, lease_seconds: int | None = None) -> Sources:
    group = make.group(TOPIC, lease_seconds=lease_seconds)
    return Sources(TOPIC, group, DispatchTask(TOPIC.name, group.name), Team(consumers, consumers))


@pytest.mark.parametrize(
    ("consumer", "lease_seconds", "at_start", "attempt", "lease"),
    [
        pytest.param(URL, None, 600, 40, 46, id="the topic's lease"),
        pytest.param(URL, 12, 600, 12, 18, id="the group's"),
        pytest.param(URL, 300, 600, 60, 66, id="a minute at most"),
        pytest.param(URL, None, 60, 30, 36, id="half of a short run"),
        pytest.param(QUICK, None, 600, 30, 36, id="a function's time-out, and its start"),
        pytest.param(SLOW, None, 120, 110, 216, id="a function that the run may not see ending"),
        pytest.param(UNKNOWN, None, 600, 40, 916, id="a function whose time-out is not known"),
    ],
)
def test_an_attempt_and_its_lease(
    consumer: Consumer, lease_seconds: int | None, at_start: float, attempt: float, lease: int
) -> None:
    time, here = RunTime(lambda: at_start), sources(consumer, lease_seconds=lease_seconds)
    assert time.attempt_seconds(here, consumer) == attempt
    assert time.lease_seconds(here, consumer) == time.longest_lease_seconds(here) == lease


def test_the_slowest_consumer_decides_for_all() -> None:
    answers = [600.0]
    time, both = RunTime(lambda: answers[0]), sources(QUICK, SLOW)
    assert time.longest_lease_seconds(both) == 216
    for seconds, is_allowed in ((215.0, True), (214.9, False), (215.0, True)):
        answers[0] = seconds
        assert time.allows_attempt(both) is is_allowed
        assert time.ran_out is not is_allowed
    assert time.longest_lease_seconds(sources()) == 0


@pytest.mark.parametrize(("seconds", "is_allowed"), [(5.0, True), (4.9, False)])
def test_a_settlement_needs_some_seconds(seconds: float, is_allowed: bool) -> None:
    assert RunTime(lambda: seconds).allows_settlement() is is_allowed
