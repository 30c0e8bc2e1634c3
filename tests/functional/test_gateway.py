"""The local gateway answers as API Gateway does, in the shape of our problems."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chalicelib.domain.limits import MAX_REQUEST_BYTES
from local.gateway import INTEGRATION_SECONDS, Gateway, Throttle
from tests.functional.tiny_app import GOOD, OPEN, Clock, make


@pytest.fixture
def ticks() -> Clock:
    return Clock()


@pytest.fixture
def gateway(ticks: Clock) -> Gateway:
    return Gateway(make(ticks), clock=ticks)


def refused(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str]:
    """Status and code of a refusal, once its form is found right."""
    status, headers, body = answer
    problem = json.loads(body)
    assert headers["Content-Type"] == "application/problem+json"
    assert problem.keys() == {"type", "title", "status", "detail", "code", "retryable", "request_id"}
    assert problem["status"] == status
    assert problem["type"] == f"/errors/{problem['code']}"
    assert problem["request_id"] == headers["X-Request-Id"]
    assert problem["retryable"] is (status in (503, 504))
    return status, problem["code"]


def ok(answer: tuple[int, dict[str, str], bytes]) -> Any:
    assert answer[0] == 200, answer
    return json.loads(answer[2])


def test_a_good_token_reaches_the_route(gateway: Gateway) -> None:
    assert ok(gateway.handle("GET", "/private", GOOD, None)) == {"caller": "somebody"}


@pytest.mark.parametrize("name", ["authorization", "AUTHORIZATION", "Authorization"])
def test_header_names_may_have_any_case(gateway: Gateway, name: str) -> None:
    assert ok(gateway.handle("GET", "/private", {name: "Bearer good", "ACCEPT": "*/*"}, None))


@pytest.mark.parametrize(
    "token", [None, "", "  ", "Bearer bad", "Bearer göod", "Bearer \U0001f600", "\udcff"]
)
def test_without_a_good_token_it_is_401(gateway: Gateway, token: str | None) -> None:
    headers = OPEN if token is None else {**OPEN, "Authorization": token}
    answer = gateway.handle("GET", "/private", headers, None)
    assert refused(answer) == (401, "UNAUTHORIZED")
    assert answer[1]["WWW-Authenticate"] == "Bearer"


def test_of_two_spellings_of_a_header_the_last_counts(gateway: Gateway) -> None:
    twice = {"Authorization": "Bearer bad", "authorization": "Bearer good", "accept": "*/*"}
    assert ok(gateway.handle("GET", "/private", twice, None))


def test_a_policy_for_other_paths_is_403(gateway: Gateway) -> None:
    answer = gateway.handle("GET", "/private", {**OPEN, "Authorization": "Bearer limited"}, None)
    assert refused(answer) == (403, "FORBIDDEN")


@pytest.mark.parametrize("token", ["Bearer broken", "Bearer odd"])
def test_a_failing_authorizer_is_503(
    gateway: Gateway, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = gateway.handle("GET", "/private", {**OPEN, "Authorization": token}, None)
    assert refused(answer) == (503, "UNAVAILABLE")
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path",
    [
        *("", "*", "/", "/none", "/echo", "/echo/", "/echo//", "/echo/a/b", "//echo/a", "//x/private"),
        *("//[", "/%zz", "/private/%2e%2e", "/private;x", "/\udcff", "http://[", "private"),
    ],
)
@pytest.mark.parametrize("headers", [OPEN, GOOD, {"Authorization": "é"}])
def test_a_path_of_no_route_is_404(gateway: Gateway, path: str, headers: dict[str, str]) -> None:
    assert refused(gateway.handle("POST", path, headers, b"")) == (404, "ROUTE_NOT_FOUND")


def test_a_slash_at_the_end_does_not_matter(gateway: Gateway) -> None:
    assert ok(gateway.handle("GET", "/private/", GOOD, None))


@pytest.mark.parametrize("method", ["HEAD", "DELETE", "OPTIONS", "TRACE", "BREW", "get", "POST"])
def test_a_method_without_a_route_is_405(gateway: Gateway, method: str) -> None:
    answer = gateway.handle(method, "/private", OPEN, None)
    assert refused(answer) == (405, "METHOD_NOT_ALLOWED")
    assert answer[1]["Allow"] == "GET"


def test_a_body_of_just_the_limit_passes(gateway: Gateway) -> None:
    for size in (MAX_REQUEST_BYTES - 1, MAX_REQUEST_BYTES):
        assert ok(gateway.handle("POST", "/echo/a", OPEN, bytes(size)))["size"] == size


@pytest.mark.parametrize("path", ["/echo/a", "/none"])
def test_a_body_over_the_limit_is_413(gateway: Gateway, path: str) -> None:
    answer = gateway.handle("POST", path, OPEN, bytes(MAX_REQUEST_BYTES + 1))
    assert refused(answer) == (413, "BODY_TOO_LARGE")


def test_an_answer_in_time_counts_and_a_late_one_is_504(gateway: Gateway) -> None:
    assert ok(gateway.handle("GET", f"/slow/{INTEGRATION_SECONDS}", OPEN, None))
    assert refused(gateway.handle("GET", f"/slow/{INTEGRATION_SECONDS + 0.01}", OPEN, None)) == (
        504,
        "TIMED_OUT",
    )


@pytest.mark.parametrize("binary", [True, False])
def test_a_failing_app_is_503_and_says_why_only_on_standard_error(
    binary: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = Gateway(make(binary=binary)).handle("GET", "/broken", OPEN, None)
    assert refused(answer) == (503, "UNAVAILABLE")
    assert answer[1]["Retry-After"] == "1"
    assert b"ZeroDivision" not in answer[2]
    output = capsys.readouterr()
    assert "ZeroDivisionError" in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    "query", ["a=%zz", "%ff=%ff", "a=%", "a==&&;=", "?", "a=%00", "\udcff", "a" * 5000, "#x"]
)
def test_odd_queries_do_not_crash(gateway: Gateway, query: str) -> None:
    assert ok(gateway.handle("POST", f"/echo/a?{query}", OPEN, None))


def test_what_was_sent_arrives(gateway: Gateway) -> None:
    echo = ok(gateway.handle("PUT", "/echo/a%2Fb?x=1&x=2&y=", {**OPEN, "X-Key": "v"}, b"\x00\xff"))
    assert (echo["name"], echo["query"], echo["body"]) == ("a%2Fb", {"x": "2", "y": ""}, "\x00\xff")
    assert echo["headers"]["x-key"] == "v"
    assert echo["context"], "the request id in the event and in the Lambda context must be the same"


def test_bytes_come_back_as_they_were(gateway: Gateway) -> None:
    status, headers, body = gateway.handle("GET", "/bytes", OPEN, None)
    assert (status, headers["Content-Type"], body) == (200, "application/octet-stream", bytes(range(256)))


def test_each_of_two_requests_at_once_sees_itself(gateway: Gateway) -> None:
    with ThreadPoolExecutor(2) as threads:
        answers = threads.map(lambda name: gateway.handle("GET", f"/meet/{name}", OPEN, None), ["a", "b"])
        echoes = [ok(answer) for answer in answers]
    assert echoes == [{"name": name, "seen": name, "context": True} for name in ("a", "b")]


def test_a_request_is_as_old_as_it_is_though_the_authorizer_took_its_time(ticks: Clock) -> None:
    gateway = Gateway(make(ticks), clock=ticks, now_ms=lambda: round(ticks.now * 1000))
    ticks.now = 7.0
    assert ok(gateway.handle("GET", "/when", GOOD, None)) == {"received_ms": 7_000}


def test_calls_without_a_token_have_a_bound_each_and_others_none(ticks: Clock) -> None:
    ticks.now = 1000.0
    gateway = Gateway(make(ticks), clock=ticks, throttle=Throttle(10))

    def made(path: str, headers: dict[str, str], seconds: float = 0) -> int:
        statuses = []
        for _ in range(100):
            ticks.now += seconds / 100
            answer = gateway.handle("GET", path, headers, None)
            statuses.append(answer[0])
        if statuses[-1] == 429:
            assert json.loads(answer[2])["code"] == "THROTTLED"
            assert answer[1]["Retry-After"] == "1"
        return statuses.count(200)

    assert made("/bytes", OPEN) == 5, "half a second's worth at once"
    assert made("/other", OPEN) == 5, "each has its own"
    assert made("/private", GOOD) == 100
    ticks.now += 60
    assert 95 <= made("/bytes", OPEN, seconds=10) + made("/bytes", OPEN) <= 110
