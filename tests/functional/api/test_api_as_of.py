"""A topic as it was, as the report has counted it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib import wiring
from tests.support.http import Client, Topic

STATES = ("waiting", "in_flight", "retrying", "dead")


def counted(topic: Topic, day: str, groups: dict[str, int], until: int = 24) -> None:
    """Counts that tell hour and state: of `waiting` at 09:00 it is 90, or so much more."""
    report: dict[str, Any] = {
        "v": 1,
        "topic": topic.name,
        "day": day,
        "since": "2026-11-14",
        "complete": True,
    }
    report["groups"] = {
        name: {state: [10 * hour + n + more for hour in range(until + 1)] for n, state in enumerate(STATES)}
        for name, more in groups.items()
    }
    blobs = wiring.deps().adapters.blobs
    blobs.put(f"reports/hours/day={day}/{topic.name}.json", json.dumps(report).encode())


def as_of(topic: Topic, at: str) -> dict[str, Any]:
    answer: dict[str, Any] = topic.api.get(f"{topic.path}/as-of?at={at}").expect(200)
    return answer


@pytest.mark.parametrize(
    ("at", "hour", "exact"),
    [
        ("2026-11-21T09:00:00Z", 9, True),
        ("2026-11-21T09:59:59.999Z", 9, False),
        ("2026-11-21T00:30:00.000+00:00", 0, False),
        ("2026-11-22T01:15:00.000%2B02:00", 23, False),
    ],
)
def test_it_is_told_as_it_was_at_the_full_hour_before(api: Client, at: str, hour: int, exact: bool) -> None:
    topic = api.topic()
    counted(topic, "2026-11-21", {"billing": 0})
    answer = as_of(topic, at.replace("+", "%2B"))
    assert answer["counted_at"] == f"2026-11-21T{hour:02}:00:00.000Z"
    assert (answer["exact"], answer["complete"]) == (exact, True)
    assert answer["accepted_since"] == "2026-11-14T00:00:00.000Z"
    assert answer["groups"] == {"billing": {state: 10 * hour + n for n, state in enumerate(STATES)}}


def test_what_nobody_counted_says_how_to_get_it(api: Client) -> None:
    topic, other = api.topic(), api.topic()
    counted(topic, "2026-11-21", {"billing": 0}, until=9)
    assert as_of(topic, "2026-11-21T09:30:00Z")["groups"]
    for name, at in (
        (topic, "2026-11-21T10:00:00Z"),
        (topic, "2026-11-20T10:00:00Z"),
        (other, "2026-11-21T09:00:00Z"),
    ):
        problem = api.get(f"{name.path}/as-of?at={at}").refused(404, "NOT_ARCHIVED")
        assert f"--topic {name.name} --at {at}" in problem["detail"]
    api.get(f"{topic.path}/as-of").refused(400, "VALIDATION")
    api.get(f"{topic.path}/as-of?at=yesterday").refused(400, "VALIDATION")


@pytest.mark.parametrize("raw", [b"{", b"\xff", b"[]", b'{"groups": {"billing": 7}}'])
def test_counts_that_cannot_be_read_are_none(api: Client, raw: bytes) -> None:
    topic = api.topic()
    wiring.deps().adapters.blobs.put(f"reports/hours/day=2026-11-21/{topic.name}.json", raw)
    api.get(f"{topic.path}/as-of?at=2026-11-21T09:00:00Z").refused(404, "NOT_ARCHIVED")


def test_a_token_sees_only_the_groups_that_it_may_use(api: Client) -> None:
    topic = api.topic()
    counted(topic, "2026-11-21", {"billing": 0, "mailer": 1})
    token = api.post("/v1/tokens", {"name": "m", "scopes": ["consume"], "groups": ["mail*"]}).expect(201)
    holder = Client(api.gateway, token["token"])
    answer = holder.get(f"{topic.path}/as-of?at=2026-11-21T09:00:00Z").expect(200)
    assert list(answer["groups"]) == ["mailer"]
