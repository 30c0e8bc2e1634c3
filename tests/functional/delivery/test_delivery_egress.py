"""The way out: only to addresses that were judged, always back in time, whatever the other side does."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import hypothesis.strategies as st
import pytest
import trustme
from hypothesis import given

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.connections import dial
from chalicelib.delivery.egress import HOP_HEADER, Egress, Reply, Unreached
from chalicelib.domain.limits import MAX_REPLY_BYTES, MAX_REPLY_HEADER_BYTES
from tests.functional.delivery.receivers import (
    OK,
    PATIENCE_SECONDS,
    RawReceiver,
    Receiver,
    answering,
    raw_receiver,
    read_request,
)

PUBLIC = "93.184.216.34"
HOOKS = "https://hooks.example.com/in"
UNUSABLE = "the address cannot be used"


class Dialled:
    """Connects to a receiver of this machine in the place of any address, and keeps what was asked."""

    def __init__(self, port: int = 0, dead: frozenset[str] = frozenset()) -> None:
        self.port = port
        self.dead = dead
        self.asked: list[tuple[str, int]] = []

    def __call__(self, address: str, port: int, seconds: float) -> socket.socket:
        self.asked.append((address, port))
        if address in self.dead:
            raise ConnectionRefusedError
        return dial("127.0.0.1", self.port, seconds)


def get(egress: Egress, url: str, seconds: float = PATIENCE_SECONDS) -> Reply | Unreached:
    return egress.call("POST", url, {}, b"hello", seconds)


def detail(egress: Egress, url: str, seconds: float = PATIENCE_SECONDS) -> str:
    answer = get(egress, url, seconds)
    assert isinstance(answer, Unreached), answer
    return answer.detail


@contextlib.contextmanager
def outward(
    resolve: Callable[[str], tuple[str, ...]], dialled: Dialled, tls: ssl.SSLContext | None = None
) -> Iterator[Egress]:
    """An egress as on AWS, whose public addresses are all this machine."""
    egress = Egress(Rules(), time.monotonic, resolve, tls, dialled)
    yield egress
    egress.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def certified(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def polite(_: RawReceiver, sock: socket.socket) -> None:
    sock.sendall(OK)
    while read_request(sock):
        sock.sendall(OK)


# What is sent


def test_a_request_arrives_as_it_was_given(egress: Egress, receiver: Receiver) -> None:
    receiver.status, receiver.headers, receiver.body = 418, {"X-Answer": "yes"}, b"teapot"
    answer = egress.call("POST", receiver.url, {"X-Word": "é\r\nX-Evil: 1"}, b"\x00\xffbody", 5)
    assert isinstance(answer, Reply)
    assert (answer.status, answer.headers["x-answer"], answer.body) == (418, "yes", b"teapot")
    (seen,) = receiver.seen
    assert (seen.method, seen.path, seen.body) == ("POST", "/in?from=headrace", b"\x00\xffbody")
    assert seen.headers["x-word"].encode("latin-1").decode() == "é X-Evil: 1"
    assert "x-evil" not in seen.headers
    assert (seen.headers["user-agent"], seen.headers[HOP_HEADER.lower()]) == ("headrace", "1")


def test_headers_of_the_connection_are_ours_alone(egress: Egress, receiver: Receiver) -> None:
    lies = {
        "Content-Length": "0", "host": "evil.example", "Transfer-Encoding": "chunked", "Connection": "close",
        "EXPECT": "100-continue", "user-agent": "evil", "accept-encoding": "gzip", "Bad Name": "x", "Upgrade": "h2c",
    }  # fmt: skip
    egress.call("POST", receiver.url, lies, b"hello", 5)
    (seen,) = receiver.seen
    assert seen.body == b"hello"
    assert seen.headers == {
        "host": f"127.0.0.1:{receiver.port}", "user-agent": "headrace", "accept-encoding": "identity",
        "headrace-hop": "1", "content-length": "5",
    }  # fmt: skip


def test_a_connection_is_used_again(egress: Egress) -> None:
    with raw_receiver(polite) as receiver:
        assert all(isinstance(get(egress, receiver.url), Reply) for _ in range(20))
        egress.close()
    assert receiver.connections == 1


def test_proxies_of_the_environment_are_ignored(
    egress: Egress, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert isinstance(get(egress, receiver.url), Reply)


def test_localhost_is_tried_at_each_of_its_addresses(egress: Egress) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        probe.listen()
        port = probe.getsockname()[1]
        answerer = threading.Thread(target=lambda: _answer_once(probe))
        answerer.start()
        assert isinstance(get(egress, f"http://localhost:{port}/"), Reply)
        answerer.join(PATIENCE_SECONDS)


def _answer_once(listener: socket.socket) -> None:
    accepted, _ = listener.accept()
    with accepted:
        read_request(accepted)
        accepted.sendall(OK)


# Where to


def test_the_checked_address_is_the_one_that_is_called(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    with raw_receiver(polite, certified(authority, "hooks.example.com")) as receiver:
        dialled = Dialled(receiver.port)
        with outward(lambda host: (PUBLIC,), dialled, trusting) as egress:
            assert isinstance(get(egress, HOOKS), Reply)
    assert dialled.asked == [(PUBLIC, 443)]


def test_a_name_that_changes_its_mind_is_judged_again_though_a_connection_is_open(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    answers = iter([(PUBLIC,), (PUBLIC,), ("127.0.0.1",), ("10.0.0.1",), (PUBLIC,)])
    with raw_receiver(polite, certified(authority, "hooks.example.com")) as receiver:
        dialled = Dialled(receiver.port)
        with outward(lambda host: next(answers), dialled, trusting) as egress:
            assert isinstance(get(egress, HOOKS), Reply)
            assert isinstance(get(egress, HOOKS), Reply)
            assert detail(egress, HOOKS) == UNUSABLE
            assert detail(egress, HOOKS) == UNUSABLE
            assert isinstance(get(egress, HOOKS), Reply)
    assert dialled.asked == [(PUBLIC, 443)]


@pytest.mark.parametrize(
    "found",
    [
        (),
        ("127.0.0.1",),
        ("10.1.2.3",),
        ("169.254.169.254",),
        (PUBLIC, "10.0.0.1"),
        ("192.168.1.1", PUBLIC),
        (PUBLIC, "8.8.8.8", "1.1.1.1", "9.9.9.9", "::1"),
        ("64:ff9b::a9fe:a9fe",),
        ("fe80::1%eth0",),
        ("nonsense",),
    ],
)
def test_one_bad_address_blocks_the_host_in_the_words_for_a_name_without_any(found: tuple[str, ...]) -> None:
    dialled = Dialled()
    with outward(lambda host: found, dialled) as egress:
        assert detail(egress, HOOKS) == UNUSABLE
        assert egress.refusal(HOOKS) == "has no address that may be called"
    assert dialled.asked == []


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1/", "http://localhost/"],
)
def test_without_leave_not_even_loopback_is_called(url: str) -> None:
    dialled = Dialled()
    with outward(lambda host: ("127.0.0.1",), dialled) as egress:
        assert detail(egress, url) == UNUSABLE
        assert egress.refusal(url)
    assert dialled.asked == []


def test_a_public_name_for_loopback_is_blocked_even_where_loopback_is_allowed(receiver: Receiver) -> None:
    egress = Egress(
        Rules(frozenset({receiver.port}), allow_loopback=True), time.monotonic, lambda host: ("127.0.0.1",)
    )
    assert detail(egress, f"https://hooks.example.com:{receiver.port}/") == UNUSABLE
    assert receiver.seen == []


def test_a_good_url_may_be_registered_and_a_bad_one_gets_a_reason() -> None:
    with outward(lambda host: (PUBLIC,), Dialled()) as egress:
        assert egress.refusal(HOOKS) is None
        assert egress.refusal("http://hooks.example.com/") == "must begin with https://"


def test_the_next_good_address_is_tried_when_the_first_takes_no_connection(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    with raw_receiver(polite, certified(authority, "hooks.example.com")) as receiver:
        dialled = Dialled(receiver.port, frozenset({"2606:4700::1111"}))
        with outward(lambda host: ("2606:4700::1111", PUBLIC), dialled, trusting) as egress:
            assert isinstance(get(egress, HOOKS), Reply)
    assert [address for address, _ in dialled.asked] == ["2606:4700::1111", PUBLIC]


def test_the_certificate_must_be_for_the_host(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    with raw_receiver(polite, certified(authority, "other.example.com", PUBLIC)) as receiver:
        with outward(lambda host: (PUBLIC,), Dialled(receiver.port), trusting) as egress:
            assert detail(egress, HOOKS) == "the certificate is not valid for the host"
        assert not receiver.arrived.acquire(blocking=False)


def test_a_certificate_nobody_vouches_for_is_refused(authority: trustme.CA) -> None:
    with (
        raw_receiver(polite, certified(authority, "hooks.example.com")) as receiver,
        outward(lambda host: (PUBLIC,), Dialled(receiver.port)) as egress,
    ):
        assert detail(egress, HOOKS) == "the certificate is not valid for the host"


def test_an_address_may_have_a_certificate_of_its_own(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    with (
        raw_receiver(polite, certified(authority, PUBLIC)) as receiver,
        outward(lambda host: (), Dialled(receiver.port), trusting) as egress,
    ):
        assert isinstance(get(egress, f"https://{PUBLIC}/"), Reply)


def test_a_server_without_tls_is_no_https_server(trusting: ssl.SSLContext) -> None:
    with (
        raw_receiver(polite) as receiver,
        outward(lambda host: (PUBLIC,), Dialled(receiver.port), trusting) as egress,
    ):
        assert isinstance(get(egress, HOOKS, 0.5), Unreached)


# What comes back


def test_a_redirect_is_an_answer_and_is_not_followed(egress: Egress, receiver: Receiver) -> None:
    with raw_receiver(polite) as elsewhere:
        receiver.status, receiver.headers = 302, {"Location": elsewhere.url}
        answer = get(egress, receiver.url)
        assert isinstance(answer, Reply)
        assert answer.status == 302
        assert elsewhere.connections == 0


def forever(piece: bytes, first: bytes = b"") -> Callable[[RawReceiver, socket.socket], None]:
    def act(receiver: RawReceiver, sock: socket.socket) -> None:
        sock.sendall(first)
        while not receiver.stop.is_set():
            sock.sendall(piece)

    return act


def trickle(first: bytes, piece: bytes) -> Callable[[RawReceiver, socket.socket], None]:
    def act(receiver: RawReceiver, sock: socket.socket) -> None:
        sock.sendall(first)
        while not receiver.stop.wait(0.01):
            sock.sendall(piece)

    return act


def silent(receiver: RawReceiver, _: socket.socket) -> None:
    receiver.stop.wait(PATIENCE_SECONDS)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    "act",
    [
        silent,
        trickle(b"", b"H"),
        trickle(HEAD, b"x"),
        trickle(HEAD + b"Content-Length: 9999\r\n\r\n", b"x"),
        trickle(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        trickle(HEAD + b"\r\n", b"x"),
        trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        trickle(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
)
def test_a_hanging_or_trickling_answer_ends_with_the_time(
    act: Callable[[RawReceiver, socket.socket], None],
    secure: bool,
    authority: trustme.CA,
    trusting: ssl.SSLContext,
) -> None:
    began = time.monotonic()
    with (
        raw_receiver(act, certified(authority, "localhost") if secure else None) as receiver,
        contextlib.closing(Egress(Rules(allow_loopback=True), time.monotonic, tls=trusting)) as egress,
    ):
        scheme = "https" if secure else "http"
        answer = get(egress, f"{scheme}://localhost:{receiver.port}/", 0.3)
    assert isinstance(answer, Unreached)
    assert answer.detail == "no answer within 0.3 s"
    assert answer.duration_ms >= 290
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_a_receiver_that_reads_nothing_of_a_large_body_ends_with_the_time(egress: Egress) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        answer = egress.call("POST", f"http://127.0.0.1:{deaf.getsockname()[1]}/", {}, bytes(16 << 20), 0.3)
    assert isinstance(answer, Unreached)
    assert answer.detail == "no answer within 0.3 s"


def test_a_receiver_that_takes_a_large_body_by_drops_ends_with_the_time(egress: Egress) -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def sip() -> None:
            accepted, _ = listener.accept()
            with accepted, contextlib.suppress(OSError):
                while not stop.wait(0.01):
                    accepted.recv(1 << 19)

        thread = threading.Thread(target=sip)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        answer = egress.call("POST", url, {}, bytes(64 << 20), 0.3)
        stop.set()
        thread.join(PATIENCE_SECONDS)
    assert isinstance(answer, Unreached)
    assert answer.detail == "no answer within 0.3 s"
    assert answer.duration_ms < PATIENCE_SECONDS * 1000


def test_tls_that_never_shakes_hands_ends_with_the_time(trusting: ssl.SSLContext) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        outward(lambda host: (PUBLIC,), Dialled(deaf.getsockname()[1]), trusting) as egress,
    ):
        assert detail(egress, HOOKS, 0.3) == "no answer within 0.3 s"


EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"


@pytest.mark.parametrize("early", [EARLY, EARLY * 9, b"HTTP/1.1 102 Processing\r\n\r\n" + EARLY])
def test_informational_answers_are_passed_over_until_the_final_one(egress: Egress, early: bytes) -> None:
    def act(_: RawReceiver, sock: socket.socket) -> None:
        sock.sendall(early + OK)
        read_request(sock)
        sock.sendall(early + b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy")

    with raw_receiver(act) as receiver:
        replies = [get(egress, receiver.url) for _ in range(2)]
        assert receiver.connections == 1
    assert [(r.status, r.body) for r in replies if isinstance(r, Reply)] == [(200, b""), (503, b"busy")]


def test_a_change_of_protocol_that_nobody_asked_for_is_an_answer_and_the_connections_end(
    egress: Egress,
) -> None:
    def act(_: RawReceiver, sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        read_request(sock)

    with raw_receiver(act) as receiver:
        for _ in range(2):
            answer = get(egress, receiver.url)
            assert isinstance(answer, Reply)
            assert answer.status == 101
        assert receiver.connections == 2


def test_endless_headers_are_not_read_to_their_end(egress: Egress) -> None:
    for piece in (b"X: " + b"y" * 1000 + b"\r\n", b"y" * 1000, b"HTTP/1.1 100 Continue\r\n\r\n", EARLY):
        with raw_receiver(forever(piece, HEAD if b"HTTP" not in piece else b"")) as receiver:
            assert detail(egress, receiver.url) == "the answer's headers are too long"


@pytest.mark.parametrize(
    ("size", "fits"), [(MAX_REPLY_HEADER_BYTES, True), (MAX_REPLY_HEADER_BYTES + 1, False)]
)
def test_headers_may_take_their_limit_and_no_byte_more(egress: Egress, size: int, fits: bool) -> None:
    fixed = HEAD + b"Content-Length: 0\r\nX-Fill: \r\n\r\n"
    head = fixed.replace(b"Fill: ", b"Fill: " + b"y" * (size - len(fixed)))
    assert len(head) == size
    with raw_receiver(answering(head)) as receiver:
        assert isinstance(get(egress, receiver.url), Reply) == fits


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"\r\n", b"x" * 4096),
        (b"Content-Length: 99999999999\r\n\r\n", b"x" * 4096),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"x" * 4096 + b"\r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", b"x" * 4096),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"y" * 1000 + b"\r\nx\r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"Trailer: " + b"y" * 1000 + b"\r\n"),
    ],
)
def test_an_endless_body_is_cut(egress: Egress, first: bytes, piece: bytes) -> None:
    with raw_receiver(forever(piece, HEAD + first)) as receiver:
        answer = get(egress, receiver.url)
        assert isinstance(answer, Reply)
        assert (answer.status, set(answer.body) <= {ord("x")}) == (200, True)
        assert len(answer.body) <= MAX_REPLY_BYTES
        get(egress, receiver.url)
        assert receiver.connections == 2


@pytest.mark.parametrize("size", [MAX_REPLY_BYTES - 1, MAX_REPLY_BYTES, MAX_REPLY_BYTES + 1])
def test_a_body_is_read_up_to_its_limit(egress: Egress, receiver: Receiver, size: int) -> None:
    receiver.body = b"z" * size
    answer = get(egress, receiver.url)
    assert isinstance(answer, Reply)
    assert answer.body == b"z" * min(size, MAX_REPLY_BYTES)


def test_compressed_bytes_stay_as_they_are(egress: Egress) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with raw_receiver(answering(head, bomb)) as receiver:
        answer = get(egress, receiver.url)
    assert isinstance(answer, Reply)
    assert answer.body == bomb


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", "the connection broke off"),
        (b"HTTP/1.1 200", "the connection broke off"),
        (HEAD, "the connection broke off"),
        (HEAD + b"Content-Le", "the connection broke off"),
        (HEAD + b"Content-Length: 10\r\n\r\nshort", "the connection broke off"),
        (HEAD + b"Content-Length: 10\r\n\r\n", "the connection broke off"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", "the connection broke off"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", "the connection broke off"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "the connection broke off"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nab", "no proper HTTP answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no proper HTTP answer"),
        (b"HTTP/1.1 ok\r\n\r\n", "no proper HTTP answer"),
        (b"HTTP/2 200\r\n\r\n", "no proper HTTP answer"),
        (b"HTTP/1.1 99999 x\r\n\r\n", "no proper HTTP answer"),
        (HEAD + b"A: b\r\n" * 200 + b"\r\n", "no proper HTTP answer"),
    ],
)
def test_an_answer_that_is_cut_or_wrong_is_none(egress: Egress, sent: bytes, expected: str) -> None:
    with raw_receiver(answering(sent)) as receiver:
        assert detail(egress, receiver.url) == expected


def test_nobody_there_is_told_as_such(egress: Egress) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]
    assert detail(egress, f"http://127.0.0.1:{port}/") == "no connection"


def test_an_early_answer_to_a_large_body_is_heard(egress: Egress) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(1024)
                accepted.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
                accepted.shutdown(socket.SHUT_WR)
                while accepted.recv(1 << 20):
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        answer = egress.call("POST", url, {}, bytes(8 << 20), PATIENCE_SECONDS)
        egress.close()
        thread.join(PATIENCE_SECONDS)
    assert isinstance(answer, Reply)
    assert answer.status == 413


@pytest.mark.parametrize("together", [True, False])
def test_an_answer_put_there_before_its_question_is_not_taken(egress: Egress, together: bool) -> None:
    planted = b"HTTP/1.1 299 Planted\r\nContent-Length: 0\r\n\r\n"
    sent = threading.Semaphore(0)

    def act(receiver: RawReceiver, sock: socket.socket) -> None:
        for part in [OK + planted] if together else [OK, planted]:
            sock.sendall(part)
        sent.release()
        receiver.stop.wait(PATIENCE_SECONDS)

    with raw_receiver(act) as receiver:
        for _ in range(3):
            answer = get(egress, receiver.url)
            assert isinstance(answer, Reply)
            assert answer.status == 200
            assert sent.acquire(timeout=PATIENCE_SECONDS)
        assert receiver.connections == 3


def test_a_connection_that_was_closed_while_it_waited_costs_no_failure(egress: Egress) -> None:
    with raw_receiver(
        answering(OK)
    ) as receiver:  # each is closed after its first answer, which does not say so
        for _ in range(5):
            assert isinstance(get(egress, receiver.url), Reply)


def test_a_connection_that_is_closed_just_when_it_is_used_again_costs_no_failure(egress: Egress) -> None:
    def act(_: RawReceiver, sock: socket.socket) -> None:
        sock.sendall(OK)
        read_request(sock)  # the second request is read, and never answered

    with raw_receiver(act) as receiver:
        for _ in range(4):
            assert isinstance(get(egress, receiver.url), Reply)
        assert receiver.connections == 4
        egress.close()


def test_a_fresh_connection_that_breaks_off_is_not_tried_again(egress: Egress) -> None:
    with raw_receiver(answering(b"")) as receiver:
        assert detail(egress, receiver.url) == "the connection broke off"
        assert receiver.connections == 1


@given(
    st.binary(max_size=80)
    | st.builds(
        b"".join,
        st.lists(
            st.sampled_from(
                [
                    HEAD, b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 204 \r\n", b"Content-Length: ", b"5", b"-1",
                    b"\r\n", b"Transfer-Encoding: chunked\r\n", b"abc", b"0\r\n\r\n", b":", b"\x00", b"\xff", b" ",
                    b"Connection: keep-alive\r\n", b"3;x=y\r\n", b"Content-Type: multipart/x; boundary=b\r\n",
                    b"9" * 5000,
                ]
            ),
            max_size=9,
        ),
    )
)  # fmt: skip
def test_whatever_comes_back_nothing_is_raised(sent: bytes) -> None:
    with (
        raw_receiver(answering(sent)) as receiver,
        contextlib.closing(Egress(Rules(allow_loopback=True), time.monotonic)) as egress,
    ):
        for _ in range(2):
            assert isinstance(get(egress, receiver.url), Reply | Unreached)


# Side by side


def test_many_threads_share_it_and_each_gets_its_own_answer(egress: Egress) -> None:
    def echo(_: RawReceiver, sock: socket.socket) -> None:
        request = b"POST /0 "
        while request:
            number = request.split(b" ")[1]
            sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(number), number))
            request = read_request(sock)

    wrong: list[object] = []

    def work(worker: int) -> None:
        get(egress, receiver.url)
        for n in range(20):
            answer = get(egress, f"{receiver.url}{worker}-{n}")
            if not isinstance(answer, Reply) or answer.body not in (f"/{worker}-{n}".encode(), b"/0"):
                wrong.append(answer)

    with raw_receiver(echo) as receiver:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        egress.close()
    assert wrong == []
    assert receiver.connections <= 64


def test_a_hanging_receiver_holds_up_its_own_callers_alone(egress: Egress, receiver: Receiver) -> None:
    with raw_receiver(silent) as hanging:
        threads = [threading.Thread(target=get, args=(egress, hanging.url)) for _ in range(64)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert hanging.arrived.acquire(timeout=PATIENCE_SECONDS)
        assert all(isinstance(get(egress, receiver.url), Reply) for _ in range(50))
        assert all(thread.is_alive() for thread in threads)
        hanging.stop.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)


def test_a_name_server_that_hangs_holds_one_thread_and_no_other_name() -> None:
    release = threading.Event()

    def resolve(host: str) -> tuple[str, ...]:
        if host.startswith("hanging"):
            release.wait(PATIENCE_SECONDS)
        return ()

    with outward(resolve, Dialled()) as egress:
        for _ in range(3):
            assert detail(egress, "https://hanging.example.com/", 0.05) == "no answer within 0.05 s"
        assert detail(egress, HOOKS, 5) == UNUSABLE
        hanging = [t for t in threading.enumerate() if t.name == "resolve hanging.example.com"]
        assert len(hanging) == 1
        release.set()
        hanging[0].join(PATIENCE_SECONDS)
        assert detail(egress, "https://hanging.example.com/", 5) == UNUSABLE


def test_connections_that_waited_too_long_are_closed() -> None:
    now = [1000.0]
    with raw_receiver(polite) as one, raw_receiver(polite) as other:
        egress = Egress(Rules(allow_loopback=True), lambda: now[0])
        get(egress, one.url)
        get(egress, other.url)
        now[0] += 5
        get(egress, one.url)
        assert (one.connections, other.connections) == (2, 1)
        get(egress, one.url)
        assert one.connections == 2
        get(egress, other.url)
        assert other.connections == 2
        egress.close()
