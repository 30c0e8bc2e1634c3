"""What is sent again, where to, and what goes with it, against a service with given answers."""

from __future__ import annotations

import asyncio
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from headrace import Retries, _async_http, _environment, _http, moments
from headrace._async.transport import AsyncTransport
from headrace._sync.transport import Transport
from headrace.calls import REQUEST, RESEND, Call
from headrace.errors import ClientClosed, HeadraceError, NoAnswer, RateLimited, Unavailable
from headrace.moments import Moment

CHANCE = st.floats(0, 1, exclude_max=True)
PROBLEM = {
    203: b"<h1>We are back soon</h1>",
    429: b'{"code":"RATE_LIMITED"}',
    503: b'{"code":"UNAVAILABLE"}',
    404: b'{"code":"TOPIC_NOT_FOUND"}',
}


@given(st.integers(1, 9), CHANCE)
def test_a_wait_is_between_half_of_its_step_and_the_step_which_doubles(try_count: int, chance: float) -> None:
    step = min(10.0, 0.2 * 2 ** (try_count - 1))
    pause = Retries(attempts=10).pause(
        Unavailable("UNAVAILABLE", "later", retryable=True), try_count, 0, chance
    )
    assert pause is not None
    assert step / 2 <= pause <= step
    assert pause == pytest.approx(step * (0.5 + chance / 2))


def test_a_send_goes_on_for_two_minutes_and_another_call_for_five_tries() -> None:
    """Of a service that refuses connections a send knew after three seconds."""
    error = NoAnswer("NO_ANSWER", "refused", retryable=True)

    def pauses(*, is_send: bool) -> list[float]:
        waits: list[float] = []
        while (wait := Retries().pause(error, len(waits) + 1, sum(waits), 0.5, is_send=is_send)) is not None:
            waits.append(wait)
        return waits

    assert 110 < sum(pauses(is_send=True)) <= 120
    assert len(pauses(is_send=False)) == 4
    assert Retries(attempts=3).pause(error, 3, 0, 0.5) is None


class Service:
    """Answers with these statuses, the last of them for ever; `requests` are what came: its port and headers."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.requests: list[tuple[int, dict[str, str]]] = []

    def answer(self, port: int, headers: dict[str, str]) -> int:
        self.requests.append((port, headers))
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


@pytest.fixture(scope="module")
def servers() -> Iterator[list[ThreadingHTTPServer]]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service: Service = self.server.service  # type: ignore[attr-defined]
            status = service.answer(self.server.server_address[1], dict(self.headers))
            body = PROBLEM.get(status, b"{}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


def tries_of(
    servers: list[ThreadingHTTPServer], service: Service, call: Call
) -> tuple[list[int], list[bool], HeadraceError | None]:
    """At which address each try arrived, whether it said that it comes again, and the result."""
    for server in servers:
        server.service = service  # type: ignore[attr-defined]
    ports = [server.server_address[1] for server in servers]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    transport = Transport(urls, "hr_x", Retries(attempts=3, base_seconds=0.001), 5, 2)
    error = None
    try:
        transport.send(call)
    except HeadraceError as refusal:
        error = refusal
    finally:
        transport.close()
    requests = [(ports.index(port), RESEND in headers) for port, headers in service.requests]
    return [at for at, _ in requests], [resend for _, resend in requests], error


def test_what_perhaps_was_done_goes_to_the_next_address_and_says_that_it_comes_again(
    servers: list[ThreadingHTTPServer],
) -> None:
    call = Call("GET", "/v1/topics", headers={REQUEST: "r1"})
    assert tries_of(servers, Service(503, 503, 200), call) == ([0, 1, 0], [False, True, True], None)


@pytest.mark.parametrize("kind", [Transport, AsyncTransport])
def test_what_found_no_connection_goes_to_the_next_address_as_if_for_the_first_time(
    servers: list[ThreadingHTTPServer], kind: type
) -> None:
    service = servers[0].service = Service(200)  # type: ignore[attr-defined]
    urls = ["http://127.0.0.1:9", f"http://127.0.0.1:{servers[0].server_address[1]}"]
    call = Call("GET", "/v1/topics", headers={REQUEST: "r1"}, repeatable=False)
    in_kind(kind(urls, "hr_x", Retries(attempts=2, base_seconds=0.001), 5, 2), call)
    assert [RESEND in headers for _, headers in service.requests] == [False]
    for first_sent in (None, moments.now()):
        with pytest.raises(NoAnswer, match="onnect") as error:
            in_kind(kind(urls[:1], "hr_x", Retries(attempts=1), 5, 2), replace(call, first_sent=first_sent))
        assert error.value.was_sent is (first_sent is not None)


def in_kind(transport: Transport | AsyncTransport, *calls: Call) -> None:
    """Send calls, one after the other, and close."""

    async def with_tasks(transport: AsyncTransport) -> None:
        for call in calls:
            await transport.send(call)
        await transport.aclose()

    if isinstance(transport, AsyncTransport):
        asyncio.run(with_tasks(transport))
        return
    for call in calls:
        transport.send(call)
    transport.close()


@pytest.mark.parametrize("kind", [Transport, AsyncTransport])
def test_a_certificate_that_is_not_trusted_is_said_at_once(
    servers: list[ThreadingHTTPServer], monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    service = Service(200)
    with ThreadingHTTPServer(("127.0.0.1", 0), servers[0].RequestHandlerClass) as server:
        server.service = service  # type: ignore[attr-defined]
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url, call = f"https://127.0.0.1:{server.server_address[1]}", Call("GET", "/v1/topics", is_send=True)
        with pytest.raises(NoAnswer, match="SSL_CERT_FILE"):
            in_kind(kind([url], "hr_x", Retries(), 5, 2), call)
        with authority.cert_pem.tempfile() as path:
            monkeypatch.setenv("SSL_CERT_FILE", path)
            monkeypatch.setattr(_environment, "_context", _environment._context.__wrapped__)
            in_kind(kind([url], "hr_x", Retries(), 5, 2), call)
        server.shutdown()
    assert len(service.requests) == 1


def test_threads_that_meet_a_dead_address_together_all_go_to_the_next(
    servers: list[ThreadingHTTPServer],
) -> None:
    """The second one to move on came back to it."""
    urls = [f"http://127.0.0.1:{server.server_address[1]}" for server in servers]
    together = threading.Barrier(2, timeout=20)

    class Half(Service):
        def answer(self, port: int, headers: dict[str, str]) -> int:
            if len(self.requests) < 2:
                self.requests.append((port, headers))
                together.wait()
                return 503
            return super().answer(port, headers)

    service = Half(200)
    for server in servers:
        server.service = service  # type: ignore[attr-defined]
    transport = Transport(urls, "hr_x", Retries(attempts=2, base_seconds=0.001), 5, 2)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(transport.send, [Call("GET", "/v1/topics")] * 2))
    transport.close()
    ports = [server.server_address[1] for server in servers]
    assert [ports.index(port) for port, _ in service.requests] == [0, 0, 1, 1]


def test_what_may_not_be_sent_again_is_sent_once_where_nobody_knows_what_became_of_it(
    servers: list[ThreadingHTTPServer],
) -> None:
    places, _, error = tries_of(servers, Service(503, 200), Call("GET", "/v1/topics", repeatable=False))
    assert places == [0]
    assert isinstance(error, Unavailable)


@pytest.mark.parametrize("repeatable", [True, False])
def test_what_was_refused_for_now_goes_to_the_same_address_as_if_for_the_first_time(
    servers: list[ThreadingHTTPServer], repeatable: bool
) -> None:
    call = Call("GET", "/v1/topics", headers={REQUEST: "r1"}, repeatable=repeatable)
    assert tries_of(servers, Service(429, 200), call) == ([0, 0], [False, False], None)


def test_it_is_tried_as_often_as_was_said_and_what_will_not_change_once(
    servers: list[ThreadingHTTPServer],
) -> None:
    places, _, error = tries_of(servers, Service(429), Call("GET", "/v1/topics"))
    assert len(places) == 3
    assert isinstance(error, RateLimited)
    assert len(tries_of(servers, Service(404), Call("GET", "/v1/topics"))[0]) == 1


def test_after_a_pause_that_is_cut_short_one_more_try_is_the_last(servers: list[ThreadingHTTPServer]) -> None:
    service = servers[0].service = Service(503)  # type: ignore[attr-defined]
    transport = Transport([f"http://127.0.0.1:{servers[0].server_address[1]}"], "hr_x", Retries(), 5, 2)
    pauses: list[float] = []
    with pytest.raises(Unavailable):
        transport.read(
            Call("GET", "/v1/topics"), bytes, pause=lambda wait: pauses.append(wait) or len(pauses) == 2
        )
    transport.close()
    assert len(service.requests) == 3


@pytest.mark.parametrize("kind", [Transport, AsyncTransport])
def test_a_proxy_of_the_environment_is_used_but_for_what_needs_none(
    servers: list[ThreadingHTTPServer], monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    service = servers[0].service = Service(200)  # type: ignore[attr-defined]
    place = f"127.0.0.1:{servers[0].server_address[1]}"
    monkeypatch.setenv("http_proxy", f"http://user:p%20w@{place}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for url in ("http://queue.invalid/api", f"http://{place}"):
        in_kind(kind([url], "hr_x", Retries(attempts=1), 5, 2), Call("GET", "/v1/topics"))
    by_proxy, direct = ({k.title(): v for k, v in headers.items()} for _, headers in service.requests)
    assert (by_proxy["Host"], by_proxy["Proxy-Authorization"]) == ("queue.invalid", "Basic dXNlcjpwIHc=")
    assert (direct["Host"], "Proxy-Authorization" in direct) == (place, False)
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    with pytest.raises(ValueError, match=r"add queue\.invalid to NO_PROXY"):
        Transport(["http://queue.invalid"], "hr_x", Retries(), 5, 2).send(Call("GET", "/v1/topics"))


def test_a_page_in_the_place_of_an_answer_is_none(servers: list[ThreadingHTTPServer]) -> None:
    """As by a proxy. It ended the threads that settle, renew and send in the background."""
    call = Call("GET", "/v1/topics", headers={REQUEST: "r1"})
    assert tries_of(servers, Service(203, 200), call) == ([0, 1], [False, True], None)
    _, _, error = tries_of(servers, Service(203), call)
    assert isinstance(error, Unavailable)


class Forgetful(socketserver.ThreadingTCPServer):
    """Answers the first request of each connection, all of the first `number` at once, and resets it at the second:
    as through a firewall that has lost its table."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, number: int) -> None:
        super().__init__(("127.0.0.1", 0), ForgetfulHandler)
        self.together = threading.Barrier(number)
        self.resets = 0


class ForgetfulHandler(socketserver.StreamRequestHandler):
    server: Forgetful

    def handle(self) -> None:
        self._read()
        if not self.server.resets:
            self.server.together.wait(20)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        if self._read():
            self.server.resets += 1
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _read(self) -> bytes:
        head = b""
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            head += line
        return head


@pytest.mark.parametrize("kind", [Transport, AsyncTransport])
def test_a_repeat_meets_none_of_the_connections_that_were_idle_when_one_of_them_was_cut(kind: type) -> None:
    call, number = Call("GET", "/v1/topics"), 4
    with Forgetful(number) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        transport = kind([url], "hr_x", Retries(attempts=2, base_seconds=0.001), 20, number)

        async def with_tasks() -> None:
            await asyncio.gather(*[transport.send(call) for _ in range(number)])
            await transport.send(call)
            await transport.aclose()

        if kind is AsyncTransport:
            asyncio.run(with_tasks())
        else:
            with ThreadPoolExecutor(number) as pool:
                list(pool.map(transport.send, [call] * number))
            transport.send(call)
            transport.close()
        server.shutdown()
    assert server.resets == 1


@pytest.mark.parametrize("kind", [Transport, AsyncTransport])
def test_a_client_that_was_closed_says_so_and_sends_nothing(
    servers: list[ThreadingHTTPServer], kind: type
) -> None:
    service = servers[0].service = Service(200)  # type: ignore[attr-defined]
    transport = kind([f"http://127.0.0.1:{servers[0].server_address[1]}"], "hr_x", Retries(), 5, 2)
    call = Call("GET", "/v1/topics")

    async def with_tasks() -> None:
        await transport.send(call)
        await transport.aclose()
        await transport.aclose()
        await transport.send(call)

    def with_threads() -> None:
        transport.send(call)
        transport.close()
        transport.close()
        transport.send(call)

    with pytest.raises(ClientClosed, match="Make a new one"):
        asyncio.run(with_tasks()) if kind is AsyncTransport else with_threads()
    assert len(service.requests) == 1


class Clock:
    """Stands still; `is_ready` when the call with this as its query is made ready."""

    def __init__(self) -> None:
        self.time = 0.0
        self.is_ready = threading.Event()

    def now(self) -> Moment:
        return Moment(-self.time, self.time, "a")

    def items(self) -> list[tuple[str, str]]:
        self.is_ready.set()
        return []


class BusyService(Service):
    """Answers its first request when seven seconds have passed since the second one was made ready."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(200)
        self.clock = clock
        self.busy = threading.Event()

    def answer(self, port: int, headers: dict[str, str]) -> int:
        if not self.requests:
            self.busy.set()
            assert self.clock.is_ready.wait(20)
            self.clock.time += 7
        return super().answer(port, headers)


def send_beside(
    transport: Transport | AsyncTransport,
    first: Call,
    second: Call,
    wait: Callable[[], object],
    then: Callable[[], object] = lambda: None,
) -> None:
    """Send the first call in a thread or a task, after `wait` the second; then call `then`, and wait for the first."""

    async def with_tasks(transport: AsyncTransport) -> None:
        task = asyncio.create_task(transport.send(first))
        await asyncio.to_thread(wait)
        await transport.send(second)
        then()
        await task
        await transport.aclose()

    if isinstance(transport, AsyncTransport):
        asyncio.run(with_tasks(transport))
        return
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(transport.send, first)
        wait()
        transport.send(second)
        then()
        future.result()
    transport.close()


@pytest.mark.parametrize("kind", [Transport, AsyncTransport])
def test_a_repeat_that_waits_for_a_connection_counts_the_wait(
    servers: list[ThreadingHTTPServer], monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    clock = Clock()
    service = servers[0].service = BusyService(clock)  # type: ignore[attr-defined]
    transport = kind([f"http://127.0.0.1:{servers[0].server_address[1]}"], "hr_x", Retries(attempts=1), 20, 1)
    first = Call("GET", "/v1/topics")
    query: Any = clock
    repeat = Call("GET", "/v1/topics", headers={REQUEST: "r1"}, query=query, first_sent=clock.now())
    for module in (moments, _http, _async_http):
        monkeypatch.setattr(module, "now", clock.now)

    def wait_until_busy() -> None:
        assert service.busy.wait(20)

    send_beside(transport, first, repeat, wait_until_busy)
    assert [headers.get(RESEND) for _, headers in service.requests] == [None, "8"]


class PollingService(Service):
    """Keeps its first request until `message` is set."""

    def __init__(self) -> None:
        super().__init__(200)
        self.waits, self.message = threading.Event(), threading.Event()

    def answer(self, port: int, headers: dict[str, str]) -> int:
        is_poll = not self.requests
        status = super().answer(port, headers)
        if is_poll:
            self.waits.set()
            assert self.message.wait(60), "the other call waited for this one's connection"
        return status


@pytest.mark.parametrize("kind", [Transport, AsyncTransport])
def test_what_waits_for_messages_keeps_no_connection_from_the_others(
    servers: list[ThreadingHTTPServer], kind: type
) -> None:
    """Consumers of 32 topics, all of which wait, left none for settling and renewing."""
    service = servers[0].service = PollingService()  # type: ignore[attr-defined]
    transport = kind([f"http://127.0.0.1:{servers[0].server_address[1]}"], "hr_x", Retries(attempts=1), 20, 1)
    poll, other = Call("GET", "/v1/topics", wait_seconds=20), Call("GET", "/v1/topics")

    def wait_for_poll() -> None:
        assert service.waits.wait(20)

    send_beside(transport, poll, other, wait_for_poll, service.message.set)
    assert len(service.requests) == 2
