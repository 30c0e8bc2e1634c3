"""An egress returns in time for every answer of a receiver, with a reply or a reason."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import trustme
from hypothesis import given

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress, Reply, Unreached
from chalicelib.domain.limits import MAX_REPLY_BYTES, MAX_REPLY_HEADER_BYTES
from tests.functional.delivery.egress_peers import (
    HEAD,
    HOOKS,
    PUBLIC,
    Dialled,
    certified,
    detail,
    forever,
    get,
    outward,
    polite,
    silent,
    trickle,
)
from tests.functional.delivery.receivers import (
    OK,
    PATIENCE_SECONDS,
    RawReceiver,
    Receiver,
    answering,
    raw_receiver,
    read_request,
)


def test_a_redirect_is_an_answer_and_is_not_followed(egress: Egress, receiver: Receiver) -> None:
    with raw_receiver(polite) as elsewhere:
        receiver.status, receiver.headers = 302, {"Location": elsewhere.url}
        answer = get(egress, receiver.url)
        assert isinstance(answer, Reply)
        assert answer.status == 302
        assert elsewhere.connections == 0


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
    client_tls: ssl.SSLContext,
) -> None:
    start = time.monotonic()
    with (
        raw_receiver(act, certified(authority, "localhost") if secure else None) as receiver,
        contextlib.closing(
            Egress(rules=Rules(allow_loopback=True), monotonic=time.monotonic, tls=client_tls)
        ) as egress,
    ):
        scheme = "https" if secure else "http"
        answer = get(egress, f"{scheme}://localhost:{receiver.port}/", 0.3)
    assert isinstance(answer, Unreached)
    assert answer.detail == "no answer within 0.3 s"
    assert answer.duration_ms >= 290
    assert time.monotonic() - start < PATIENCE_SECONDS


def test_a_receiver_that_reads_nothing_of_a_large_body_ends_with_the_time(egress: Egress) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        answer = egress.call("POST", f"http://127.0.0.1:{deaf.getsockname()[1]}/", {}, bytes(16 << 20), 0.3)
    assert isinstance(answer, Unreached)
    assert answer.detail == "no answer within 0.3 s"


def test_a_receiver_that_takes_a_large_body_by_drops_ends_with_the_time(egress: Egress) -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def sip() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                while not stop.wait(0.01):
                    connection.recv(1 << 19)

        thread = threading.Thread(target=sip)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        answer = egress.call("POST", url, {}, bytes(64 << 20), 0.3)
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)  # on a busy machine the time may have ended before it connected
        thread.join(PATIENCE_SECONDS)
    assert isinstance(answer, Unreached)
    assert answer.detail == "no answer within 0.3 s"
    assert answer.duration_ms < PATIENCE_SECONDS * 1000


def test_tls_that_never_shakes_hands_ends_with_the_time(client_tls: ssl.SSLContext) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        outward(lambda host: (PUBLIC,), Dialled(deaf.getsockname()[1]), client_tls) as egress,
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
    fixed_part = HEAD + b"Content-Length: 0\r\nX-Fill: \r\n\r\n"
    head = fixed_part.replace(b"Fill: ", b"Fill: " + b"y" * (size - len(fixed_part)))
    assert len(head) == size
    with raw_receiver(answering(head)) as receiver:
        assert isinstance(get(egress, receiver.url), Reply) == fits


def test_headers_are_bounded_by_their_bytes_and_not_by_their_number(egress: Egress) -> None:
    fields = (
        b"a:\r\n" * ((MAX_REPLY_HEADER_BYTES - 100) // 4) + b"Retry-After: 7\r\nContent-Length: 2\r\n\r\n"
    )
    with raw_receiver(answering(HEAD + fields + b"ok")) as receiver:
        answer = get(egress, receiver.url)
    assert isinstance(answer, Reply)
    assert (answer.status, answer.headers["retry-after"], answer.body) == (200, "7", b"ok")


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
    ("answer", "expected"),
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
    ],
)
def test_an_answer_that_is_cut_or_wrong_is_none(egress: Egress, answer: bytes, expected: str) -> None:
    with raw_receiver(answering(answer)) as receiver:
        assert detail(egress, receiver.url) == expected


def test_nobody_there_is_told_as_such(egress: Egress) -> None:
    with socket.socket() as free_socket:  # its port is closed, and stays free
        free_socket.bind(("127.0.0.1", 0))
        assert detail(egress, f"http://127.0.0.1:{free_socket.getsockname()[1]}/") == "no connection"


def test_an_early_answer_to_a_large_body_is_heard(egress: Egress) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 20):
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
    planted_answer = b"HTTP/1.1 299 Planted\r\nContent-Length: 0\r\n\r\n"
    signal = threading.Semaphore(0)

    def act(receiver: RawReceiver, sock: socket.socket) -> None:
        for part in [OK + planted_answer] if together else [OK, planted_answer]:
            sock.sendall(part)
        signal.release()
        receiver.stop.wait(PATIENCE_SECONDS)

    with raw_receiver(act) as receiver:
        for _ in range(3):
            answer = get(egress, receiver.url)
            assert isinstance(answer, Reply)
            assert answer.status == 200
            assert signal.acquire(timeout=PATIENCE_SECONDS)
        assert receiver.connections == 3


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
def test_whatever_comes_back_nothing_is_raised(answer: bytes) -> None:
    with (
        raw_receiver(answering(answer)) as receiver,
        contextlib.closing(Egress(rules=Rules(allow_loopback=True), monotonic=time.monotonic)) as egress,
    ):
        for _ in range(2):
            assert isinstance(get(egress, receiver.url), Reply | Unreached)
