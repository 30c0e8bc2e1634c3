"""The client's rules without clock, chance or network."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Headrace, Outgoing, Retries
from headrace.calls import encode, path
from headrace.consume.settings import ConsumerSettings
from headrace.durations import asked_wait, rfc3339, seconds, whole_seconds
from headrace.errors import NoAnswer, RateLimited, ResendTooLate, TopicNotFound, Unavailable, of_answer
from headrace.moments import DAY_SECONDS, Moment, resend_seconds
from headrace.outgoing import RequestIds, chunks

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=timezone.utc)
CHANCE = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 10), CHANCE, st.floats(0, 200), st.floats(0, 60))
def test_a_pause_is_never_shorter_than_retry_after_nor_beyond_the_time(
    try_count: int, chance: float, elapsed: float, after: float
) -> None:
    rule = Retries(attempts=5, base_seconds=0.2, cap_seconds=10, total_seconds=120)
    error = RateLimited("RATE_LIMITED", "slow down", retryable=True, retry_after=after)
    pause = rule.pause(error, try_count, elapsed, chance)
    if pause is None:
        assert try_count >= 5 or elapsed + max(10.0, after) > 120
    else:
        assert try_count < 5
        assert pause >= after
        assert elapsed + pause <= 120


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        *[("0", 0), ("7", 7), (" 7 ", 7), ("9" * 5_000, math.inf)],
        *[("Sun, 22 Nov 2026 09:00:30 GMT", 30), ("Sun, 22 Nov 2026 08:59:59 GMT", 0)],
        *[("Sunday, 22-Nov-26 09:01:00 GMT", 60), ("Sun Nov 22 10:00:00 2026", 3_600)],
        *((text, None) for text in (None, "", "soon", "-5", "7.5", "1e3", "٣", "2026-11-22T09:00:30Z")),
        *((text, None) for text in ("Sun, 99 Nov 2026 09:00:00 GMT", "Nov 9 99999999999999999999 9:00 +")),
    ],
)
def test_a_retry_after_is_a_number_of_seconds_or_a_date(text: str | None, wait: float | None) -> None:
    assert asked_wait(text, NOW.timestamp()) == wait
    error = of_answer(503, {"retry-after": text or ""}, b"", NOW.timestamp())
    assert error.retry_after == wait


@given(CHANCE)
def test_what_is_not_retryable_is_not_tried_again(chance: float) -> None:
    assert Retries().pause(TopicNotFound("TOPIC_NOT_FOUND", "no"), 1, 0.0, chance) is None


@given(st.integers(0, 9), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_durations_read_as_people_write_them(days: int, hours: int, minutes: int, rest: int) -> None:
    duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=rest)
    assert seconds(f"{days}d{hours}h{minutes}m{rest}s") == seconds(duration) == duration.total_seconds()


@given(st.floats(0, 1e8))
def test_nothing_comes_too_early(number: float) -> None:
    assert whole_seconds(number) == math.ceil(number)


@pytest.mark.parametrize("text", ["", "soon", "30", "m30", "1h x", "-5s", "1.h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        seconds(text)


def test_times_need_their_zone() -> None:
    with pytest.raises(ValueError, match="no time"):
        rfc3339(NOW.date())  # type: ignore[arg-type]
    berlin = timezone(timedelta(hours=1))
    assert rfc3339(datetime(2026, 11, 22, 10, 0, 0, 123456, berlin)) == "2026-11-22T09:00:00.123Z"
    with pytest.raises(ValueError, match="zone"):
        rfc3339(datetime(2026, 11, 22))  # noqa: DTZ001


def test_what_waits_has_one_time() -> None:
    fields = Outgoing(body=1, key="k", keys=("k", "l"), delay="30m").fields(NOW)
    assert fields["deliver_at"] == "2026-11-22T09:30:00.000Z"
    assert "dedup_id" not in fields, "the request's name identifies it"
    assert fields["keys"] == ["k", "l"]
    assert Outgoing(body=1, delay=0).fields(NOW) == {"body": 1, "delay_seconds": 0}, "as the caller said"
    assert Outgoing(body=1, dedup_id="").fields()["dedup_id"] == "", "for the service to refuse"
    assert Outgoing(body=1, delay="1.5s").fields()["delay_seconds"] == 2, (
        "by the service's clock, not by ours"
    )
    with pytest.raises(ValueError, match="not both"):
        Outgoing(body=1, delay=1, deliver_at=NOW).fields(NOW)


@given(st.lists(st.integers(), max_size=50), st.integers(1, 10))
def test_chunks_keep_all_in_order(numbers: list[int], size: int) -> None:
    parts = list(chunks(numbers, size))
    assert [message.body for chunk in parts for message in chunk] == numbers
    assert all(1 <= len(chunk) <= size for chunk in parts)


@given(st.floats(0, 2e9), st.floats(0, 80_000), st.floats(-1e9, 80_000))
def test_a_resend_never_understates_how_long_ago_the_first_try_was(
    up: float, later: float, set_by: float
) -> None:
    """Also where the clock was set meanwhile: by the clock alone a message was stored twice."""
    first = Moment(1e9, up, "a")
    for passed_up, passed_wall in ((later, set_by), (set_by, later)):
        header = int(resend_seconds(first, Moment(1e9 + passed_wall, up + passed_up, "a")))
        assert max(passed_up, passed_wall) - 1e-3 <= header <= DAY_SECONDS


@pytest.mark.parametrize(
    ("wall", "up", "run", "header"),
    [
        (-3_600, 7.5, "a", "8"),  # the clock was set back
        (7.5, 2, "a", "8"),  # a virtual machine stood still
        (
            60,
            -500,
            "b",
            "86400",
        ),  # another process of a machine that was started since: its clock may be wrong
        (-60, 900, "b", "86400"),
        (DAY_SECONDS + 1, 5, "a", None),
        (5, DAY_SECONDS + 1, "a", None),
        (DAY_SECONDS + 1, 5, "b", None),
    ],
)
def test_clocks_that_step_and_machines_that_sleep_make_an_age_longer_or_too_long(
    wall: float, up: float, run: str, header: str | None
) -> None:
    first, later = Moment(1e9, 1e4, "a"), Moment(1e9 + wall, 1e4 + up, run)
    if header is None:
        with pytest.raises(ResendTooLate, match="24 hours ago"):
            resend_seconds(first, later)
    else:
        assert resend_seconds(first, later) == header


def test_names_of_requests_differ_and_share_their_sender() -> None:
    ids, other_ids = RequestIds(), RequestIds()
    names = [ids.next() for _ in range(3)]
    assert len({*names, other_ids.next()}) == 4
    assert len({name.rpartition("-")[0] for name in names}) == 1


def test_an_answer_from_something_in_between_is_an_error_all_the_same() -> None:
    gateway = of_answer(502, {}, b"<html>Bad Gateway</html>", NOW.timestamp())
    assert (gateway.code, gateway.status, gateway.retryable) == ("HTTP_502", 502, True)
    error = of_answer(429, {"retry-after": "7"}, b'{"message": "Too Many Requests"}', NOW.timestamp())
    assert (error.retry_after, error.retryable) == (7.0, True)
    assert "Too Many Requests" in error.detail
    assert issubclass(NoAnswer, type(gateway))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"kind":"Status","status":"Failure","message":"over","code":503}',  # Kubernetes
        b'{"code":"X","status":null}',
        b'{"code":"X","errors":null}',
        b'{"code":"X","errors":["why"]}',
        b'{"message":{"text":"over"}}',
        b"[1]",
        b"\xff",
        b"",
    ],
)
def test_a_problem_of_something_in_between_is_not_taken_for_one_of_the_service(raw: bytes) -> None:
    """What could not be read ended the threads that settle, renew and send in the background."""
    error = of_answer(503, {}, raw, NOW.timestamp())
    assert (type(error), error.code, error.status, error.retryable) == (Unavailable, "HTTP_503", 503, True)


@pytest.mark.parametrize("part", ["", ".", "..", None, 5])
def test_no_id_makes_the_path_of_something_else(part: object) -> None:
    """To delete the dead letter ".." would be to delete its group."""
    with pytest.raises(ValueError, match="no name and no id"):
        path("topics", "orders", "groups", "mailer", "dead-letters", part)  # type: ignore[arg-type]


@given(st.text(min_size=1))
def test_every_other_id_stays_one_part_of_its_path(part: str) -> None:
    if part not in (".", "..") and part.isprintable():
        assert httpx.URL("http://localhost" + path("topics", part, "groups")).raw_path.count(b"/") == 4


@dataclass
class Reading:
    value: float | None


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_would_be_sent_as_null_is_refused(number: float) -> None:
    for body in (number, [None, number], {"a": (1, number)}, Reading(number), {"a": [Reading(number)]}):
        with pytest.raises(ValueError, match="no JSON form"):
            encode({"body": body})


def test_nothing_is_sent_as_null() -> None:
    body = {"none": None, "text": "null", "raw": msgspec.Raw(b"null"), "reading": Reading(None), "one": 1.0}
    assert json.loads(encode(body))["reading"] == {"value": None}


def test_one_text_is_not_several_keys_and_one_message_not_many() -> None:
    with pytest.raises(TypeError, match="key="):
        Outgoing(body=1, keys="order-188").fields()
    for message in ("text", b"bytes", {"order": 188}, Outgoing(body=1)):
        with pytest.raises(TypeError, match="send"):
            list(chunks(message, 100))


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8700/v1", "http://127.0.0.1:8700"),
        (" https://q.example.com/api//v1/ ", "https://q.example.com/api"),
        ("https://q.example.com/api/", "https://q.example.com/api"),
        ("https://q.example.com/v1/v1", "https://q.example.com/v1"),
        ("https://q.example.com/av1", "https://q.example.com/av1"),
        ("http://v1", "http://v1"),
    ],
)
def test_a_url_may_end_as_that_of_the_interface(url: str, base: str) -> None:
    assert Headrace(url, "hr_a_b").transport.urls == (base,)


@pytest.mark.parametrize("token", ["", "secret", "Bearer hr_a_b", "hr_a b", "hr_é_b", "hr_"])
def test_what_is_no_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ValueError, match="HEADRACE_TOKEN") as refusal:
        Headrace("http://127.0.0.1", token)
    assert not token or token not in str(refusal.value).replace("hr_…", "")


def test_what_ends_a_line_is_not_of_the_token() -> None:
    assert Headrace("http://127.0.0.1", "hr_a_b\n").transport.token == "hr_a_b"


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8700", "ftp://127.0.0.1", "http://", "https:///v1"),
        *("http://127.0.0.1:port", "http://127.0.0.1:87000", "http://[::1"),
    ],
)
def test_what_is_no_address_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="HEADRACE_URL"):
        Headrace(url, "hr_a_b")


@pytest.mark.parametrize("host", ["jörgs-laptop", "地址", "-x_y.example.com", "h" * 200, ""])
def test_a_consumer_has_a_name_that_the_service_takes_whatever_its_hosts_is(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    name = ConsumerSettings("orders", "mailer").consumer_name()
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name)
