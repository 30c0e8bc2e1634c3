"""A small HTTP client over the in-process gateway, and a clock that tests move."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tests.support import described

_numbers = itertools.count(1)
EVERYWHERE = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
PROBLEM_FIELDS = {"type", "title", "status", "detail", "code", "retryable", "request_id"}
_REAL_SLEEP_BELOW_SECONDS = 0.02


class Gateway(Protocol):
    """What local.gateway.Gateway offers."""

    def handle(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]: ...


class ShiftingClock:
    """Begins at the machine's time and goes on by what tests add, and by a millisecond with each reading: what is
    later has a later time, and how long this machine takes for it changes nothing. Waiting for messages costs no time;
    `on_wait` is called once, at the next such wait. The store's short back-offs are real, too: they let other threads
    go on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ms = 0
        self._tick_ms = 1
        self.on_wait: Callable[[], Any] | None = None
        self.catch_up()

    def now_ms(self) -> int:
        with self._lock:
            self._ms += self._tick_ms
            return self._ms

    monotonic_ms = now_ms

    def catch_up(self) -> None:
        """Be no earlier than the machine's time: the engine removes rows whose time is past by that."""
        with self._lock:
            self._ms = max(self._ms, time.time_ns() // 1_000_000)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """In this block time stands still between readings."""
        with self._ticking(0):
            yield

    @contextmanager
    def slow(self) -> Iterator[None]:
        """In this block a second passes between any two readings of the time."""
        with self._ticking(1_000):
            yield

    @contextmanager
    def _ticking(self, ms: int) -> Iterator[None]:
        self._tick_ms, before = ms, self._tick_ms
        try:
            yield
        finally:
            self._tick_ms = before

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        if seconds < _REAL_SLEEP_BELOW_SECONDS:
            time.sleep(seconds)
            return
        act, self.on_wait = self.on_wait, None
        if act:
            act()

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._ms += int(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    def expect(self, status: int) -> Any:
        """The JSON of an answer that must have this status (None where it has no body)."""
        assert self.status == status, f"{self.status}, expected {status}: {self.raw[:500]!r}"
        return self.json if self.raw else None

    def refused(self, status: int, code: str | None = None) -> Any:
        """The problem of a refusal: complete, of this status and code, and retryable only if that helps."""
        assert self.status == status, f"{self.status}, expected {status}: {self.raw[:500]!r}"
        headers = {name.lower(): value for name, value in self.headers.items()}
        assert headers["content-type"] == "application/problem+json"
        problem = self.json
        check_problem(problem)
        assert problem["status"] == status
        assert code is None or problem["code"] == code, problem
        return problem


def check_problem(problem: Mapping[str, Any]) -> None:
    """Is it complete, as RFC 9457 and our contract want it?"""
    assert PROBLEM_FIELDS <= problem.keys() <= {*PROBLEM_FIELDS, "errors"}, problem
    assert problem["type"].endswith(f"/errors/{problem['code']}")
    assert problem["code"] == problem["code"].upper()
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"]
    is_retryable = problem["status"] in (429, 503, 504) or problem["code"] == "CHANGED_MEANWHILE"
    assert problem["retryable"] is is_retryable
    for issue in problem.get("errors", []):
        assert issue.keys() == {"path", "issue"}
        assert issue["issue"]


@dataclass(frozen=True)
class Client:
    """Calls as a user makes them. `body` is sent as JSON, `raw` as it is."""

    gateway: Gateway
    token: str | None

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        own_headers = {"Content-Type": "application/json"} if body is not None else {}
        if self.token is not None:
            own_headers["Authorization"] = f"Bearer {self.token}"
        data = json.dumps(body).encode() if body is not None else raw
        status, answer_headers, answer = self.gateway.handle(
            method, path, {**own_headers, **(headers or {})}, data
        )
        assert answer.endswith(b"\n") or not answer, "a shell's prompt would stand behind it"
        assert answer_headers.items() >= EVERYWHERE.items()
        described.check(method, path, status, answer_headers, answer)
        return Reply(status, answer_headers, answer)

    def get(self, path: str) -> Reply:
        return self.call("GET", path)

    def put(self, path: str, body: Any = None) -> Reply:
        return self.call("PUT", path, body if body is not None else {})

    def post(self, path: str, body: Any = None) -> Reply:
        return self.call("POST", path, body if body is not None else {})

    def delete(self, path: str) -> Reply:
        return self.call("DELETE", path)

    def with_token(self, token: str | None) -> Client:
        return replace(self, token=token)

    def new_token(self, *scopes: str, **fields: Any) -> Any:
        """A new token: of admin, unless other scopes are given."""
        body = {"name": "t", "scopes": list(scopes or ("admin",)), **fields}
        return self.post("/v1/tokens", body).expect(201)

    def topic(self, **settings: Any) -> Topic:
        """A new topic with a name of its own."""
        name = f"topic-{next(_numbers)}"
        self.put(f"/v1/topics/{name}", settings).expect(201)
        return Topic(self, name)

    def pages(self, path: str, limit: int) -> list[list[Any]]:
        """All pages of a list."""
        joint = "&" if "?" in path else "?"
        pages = []
        next_token: str | None = ""
        while next_token is not None:
            token = f"&page_token={next_token}" if next_token else ""
            page = self.get(f"{path}{joint}limit={limit}{token}").expect(200)
            assert len(page["items"]) <= limit
            pages.append(page["items"])
            next_token = page.get("next_page_token")
        return pages


@dataclass(frozen=True)
class Topic:
    """One topic, and the calls below it."""

    api: Client
    name: str

    @property
    def path(self) -> str:
        return f"/v1/topics/{self.name}"

    def group(self, name: str = "g", **settings: Any) -> Group:
        self.api.put(f"{self.path}/groups/{name}", {"from": "earliest", **settings}).expect(201)
        return Group(self.api, self, name)

    def produce(self, body: Any, **fields: Any) -> Any:
        return self.api.post(f"{self.path}/messages", {"body": body, **fields}).expect(201)

    def batch(self, messages: Sequence[Any]) -> list[Any]:
        answer = self.api.post(f"{self.path}/messages/batch", {"messages": messages}).expect(200)
        results: list[Any] = answer["results"]
        return results

    def publish(self, raw: bytes, **headers: str) -> Reply:
        """`ce_id="x"` is sent as the header `ce-id: x`."""
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.api.call("POST", f"/v1/publish/{self.name}", raw=raw, headers=extra)

    @property
    def accepted(self) -> int:
        return int(self.api.get(self.path).expect(200)["stats"]["accepted"])

    def counts(self, group: str = "g") -> Any:
        return self.api.get(self.path).expect(200)["stats"]["groups"][group]


@dataclass(frozen=True)
class Group:
    """One group, and the calls below it."""

    api: Client
    topic: Topic
    name: str

    @property
    def path(self) -> str:
        return f"{self.topic.path}/groups/{self.name}"

    def receive(self, most: int = 10, **fields: Any) -> list[Any]:
        """Receive messages, and leave their leases open."""
        messages: list[Any] = self.api.post(f"{self.path}/receive", {"max": most, **fields}).expect(200)[
            "messages"
        ]
        return messages

    def bodies(self, most: int = 10, **fields: Any) -> list[Any]:
        """Receive messages, and leave their leases open: a second call gets the next ones."""
        return [message["body"] for message in self.receive(most, **fields)]

    def settle(self, how: str, messages: Sequence[Any], **fields: Any) -> list[Any]:
        """Settle by messages or receipts; the answer is "ok", "already" or the error's code for each."""
        receipts = [m if isinstance(m, str) else m["receipt"] for m in messages]
        answer = self.api.post(f"{self.path}/{how}", {"receipts": receipts, **fields}).expect(200)
        assert [r["receipt"] for r in answer["results"]] == receipts
        return [_outcome(result) for result in answer["results"]]

    def ack(self, *messages: Any) -> list[Any]:
        return self.settle("ack", messages)

    def nack(self, *messages: Any, **fields: Any) -> list[Any]:
        """Give back at once; or as `fields` say: with a `delay_seconds` of None as long as the ladder does."""
        settings = {"delay_seconds": 0, **fields}
        return self.settle("nack", messages, **{k: v for k, v in settings.items() if v is not None})

    def register(self, consumer: str, **fields: Any) -> Any:
        return self.api.put(f"{self.path}/consumers/{consumer}", fields).expect(201)

    def heartbeat(self, consumer: str, **fields: Any) -> Any:
        return self.api.post(f"{self.path}/consumers/{consumer}/heartbeat", fields).expect(200)

    def status_of(self, message_id: str) -> Any:
        view = self.api.get(f"{self.topic.path}/messages/{message_id}").expect(200)
        return view["deliveries"][self.name]


def _outcome(result: Mapping[str, Any]) -> str:
    if "error" not in result:
        assert result["ok"] is True
        return "already" if result.get("already") else "ok"
    check_problem(result["error"])
    return str(result["error"]["code"])
