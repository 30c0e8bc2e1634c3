"""Sends survive what a network does: nothing is lost, nothing is doubled, and the first try costs nothing more."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import socketserver
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import programs
import pytest
from faulty_proxy import DELAY, FAIL, HALF, LOSE, REFUSE, THROTTLE, FaultyProxy

from headrace import AsyncHeadrace, Headrace, Outgoing, Producer, Retries, errors
from headrace.models import Sent

PATIENT = Retries(attempts=60, base_seconds=0.01, cap_seconds=0.05)


def bodies(hr: Headrace, topic: str) -> Counter[object]:
    """All that is stored in a topic."""
    return Counter(m.body for m in hr.list_messages(topic, limit=200))


@pytest.mark.parametrize("fault", [REFUSE, LOSE, HALF, DELAY, THROTTLE, FAIL])
def test_a_send_survives_one_fault(
    hr: Headrace, shaky: Headrace, proxy: FaultyProxy, topic: str, fault: str
) -> None:
    proxy.plan.append(fault)
    sent = shaky.send(topic, "once", key="k")
    assert proxy.seen[fault] == 1
    assert bodies(hr, topic) == {"once": 1}
    assert hr.get_message(topic, sent.id).body == "once"
    assert sent.duplicate is (fault in (LOSE, HALF, FAIL))


@pytest.mark.parametrize("fault", [LOSE, HALF, FAIL])
def test_a_batch_a_raw_one_and_a_delayed_one_too(
    hr: Headrace, shaky: Headrace, proxy: FaultyProxy, topic: str, fault: str
) -> None:
    proxy.plan.append(fault)
    results = shaky.send_many(
        topic, [Outgoing(body="x"), Outgoing(body="x"), Outgoing(body="keyed", ordering_key="k")]
    )
    assert all(isinstance(result, Sent) and result.duplicate for result in results)
    proxy.plan.append(fault)
    assert shaky.publish(topic, b"raw").duplicate
    proxy.plan.append(fault)
    delayed_message = shaky.send(topic, "later", delay="1h")
    assert bodies(hr, topic) == {"x": 2, "keyed": 1, b"raw": 1}
    assert [m.id for m in hr.list_messages(topic, status="DELAYED")] == [delayed_message.id]


@pytest.mark.parametrize("answer", [b"", b'{"id":"m', b'{"ok":true}', b'{"id":"\xff"}'])
def test_an_answer_that_says_something_else_is_none(
    hr: Headrace, shaky: Headrace, proxy: FaultyProxy, topic: str, answer: bytes
) -> None:
    """It was no error of Headrace, and ended the threads that settle, renew and send in the background."""
    proxy.plan.append(answer)
    shaky.send(topic, "one")
    proxy.plan.append(answer)
    shaky.send_many(topic, ["two"])
    assert bodies(hr, topic) == {"one": 1, "two": 1}
    shaky.put_group(topic, "g", begin="earliest")
    proxy.plan.append(answer)
    messages = shaky.receive(topic, "g", wait=5)
    proxy.plan.append(answer)
    assert all(settled.ok for settled in shaky.ack(topic, "g", *messages))
    proxy.plan.extend([answer] * 8)
    with pytest.raises(errors.NoAnswer, match="none of Headrace's answers"):
        shaky.get_topic(topic)


def test_an_answer_without_a_result_of_each_is_none(
    hr: Headrace, shaky: Headrace, proxy: FaultyProxy, topic: str
) -> None:
    """It ended a batch with an error of Python's, and an ack as if all were settled."""
    answer = b'{"results":[]}'
    proxy.plan.append(answer)
    results = shaky.send_many(topic, [1, 2])
    assert (len(results), bodies(hr, topic)) == (2, {1: 1, 2: 1})
    shaky.put_group(topic, "g", begin="earliest")
    messages = shaky.receive(topic, "g", wait=5)
    while len(messages) < 2:
        messages += shaky.receive(topic, "g", wait=5)
    proxy.plan.append(answer)
    assert [settled.ok for settled in shaky.ack(topic, "g", *messages)] == [True, True]
    assert len(hr.ack(topic, "g", *messages, messages[0])) == 3, "one that comes twice has two, too"


def test_what_is_said_of_bytes_may_be_any_text(hr: Headrace, topic: str) -> None:
    """The interface reads headers as UTF-8; the client sent ASCII only."""
    sent = hr.publish(topic, b"raw", key="Müller", tag="bezahlt-€", headers={"Headrace-Forward-X": "日本"})
    stored = hr.get_message(topic, sent.id)
    assert (stored.keys, stored.tag, stored.headers) == (["Müller"], "bezahlt-€", {"x": "日本"})


@pytest.mark.parametrize("spooled", [False, True])
def test_equal_messages_over_a_rate_limit_are_all_stored(
    hr: Headrace, service: str, topic: str, tmp_path: Path, spooled: bool
) -> None:
    """What the first try was refused for must not be taken for what it stored."""
    hr.put_topic(topic, rate_limit=20)
    with Headrace(service, hr.transport.token, retries=PATIENT) as client:
        if spooled:
            with Producer(client, spool=tmp_path / "spool", linger_ms=50) as producer:
                results = [future.result(30) for future in [producer.send(topic, "tick") for _ in range(15)]]
        else:
            results = client.send_many(topic, ["tick"] * 15)
    assert len({result.id for result in results if isinstance(result, Sent)}) == 15
    assert bodies(hr, topic) == {"tick": 15}


def test_a_prepared_transaction_and_its_commit_too(
    hr: Headrace, shaky: Headrace, proxy: FaultyProxy, topic: str
) -> None:
    proxy.plan.extend([LOSE, LOSE])
    with shaky.transaction(topic, "paid") as tx:
        proxy.plan.extend([FAIL, HALF])
    assert hr.get_transaction(tx.transaction_id).state == "COMMITTED"
    assert bodies(hr, topic) == {"paid": 1}


def test_only_a_repeat_says_so(shaky: Headrace, proxy: FaultyProxy, topic: str) -> None:
    proxy.plan.extend([THROTTLE, LOSE])
    shaky.send(topic, 1)
    shaky.send(topic, 2)
    names = [headers.get("headrace-request") for _, headers in proxy.requests]
    marks = ["headrace-resend" in headers for _, headers in proxy.requests]
    assert names[0] == names[1] == names[2] != names[3]
    assert marks == [False, False, True, False], "a throttled call did nothing, so it is still the first"


def test_a_delay_of_none_at_all_is_sent_as_it_was_said(
    shaky: Headrace, proxy: FaultyProxy, topic: str
) -> None:
    assert shaky.publish(topic, b"raw", delay=0).status == shaky.send(topic, 1, delay=0).status == "NEW"
    assert shaky.publish(topic, b"raw").status == "NEW"
    headers_with_delay, headers_without = proxy.requests[0][1], proxy.requests[2][1]
    assert headers_with_delay["headrace-delay-seconds"] == "0"
    assert not {"headrace-delay-seconds", "headrace-dedup-id"} & headers_without.keys()


def test_what_is_published_after_a_block_is_sent_when_it_ended_well(
    hr: Headrace, service: str, topic: str
) -> None:
    def fails() -> None:
        with hr.publish_after() as after:
            after.send(topic, "the database said no")
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    with hr.publish_after() as after:
        after.send(topic, 1, key="order-1")
        after.send(topic, 2)
        with pytest.raises(ValueError, match="no duration"):
            after.send(topic, 3, delay="soon")
        assert bodies(hr, topic) == {}
    assert [isinstance(result, Sent) for result in after.results] == [True, True]
    assert bodies(hr, topic) == {1: 1, 2: 1}

    async def in_a_loop() -> None:
        async with AsyncHeadrace(service, hr.transport.token) as client, client.publish_after() as after:
            after.send(topic, "async")
            after.send(topic, "refused", shard=99)

    with pytest.raises(errors.Refused, match="NO_SUCH_SHARD"):
        asyncio.run(in_a_loop())
    assert bodies(hr, topic) == {1: 1, 2: 1, "async": 1}


def test_after_a_block_each_topic_is_sent_to_once_whatever_becomes_of_another(
    hr: Headrace, topic: str
) -> None:
    after = hr.publish_after()

    def leaves() -> None:
        with after:
            after.send("no-such-topic", 0)
            after.send(topic, 1)

    with pytest.raises(errors.TopicNotFound):
        leaves()
    assert [type(result) for result in after.results] == [errors.TopicNotFound, Sent]
    with after:
        after.send(topic, 2)
    assert bodies(hr, topic) == {1: 1, 2: 1}
    with pytest.raises(RuntimeError, match="inside the block"):
        after.send(topic, 3)


def test_a_call_that_is_not_safe_to_repeat_is_not(shaky: Headrace, proxy: FaultyProxy) -> None:
    proxy.plan.append(LOSE)
    with pytest.raises(errors.NoAnswer):
        shaky.create_token("once", ["produce"])
    assert proxy.seen == {LOSE: 1}


def test_in_the_end_it_gives_up_and_says_what_is_known(proxy: FaultyProxy, topic: str, hr: Headrace) -> None:
    proxy.harm, proxy.faults = 1.0, [REFUSE]
    impatient = Retries(attempts=3, base_seconds=0.01)
    client = Headrace(proxy.url, hr.transport.token, retries=impatient)
    with client, pytest.raises(errors.NoAnswer, match="Is the service up") as error:
        client.send(topic, 1)
    assert proxy.seen == {REFUSE: 3}
    assert (error.value.__cause__, error.value.__suppress_context__) == (None, True), "a short traceback"
    assert {entry.path.name for entry in error.traceback.filter(error)} == {Path(__file__).name}


def test_a_call_ends_when_its_time_is_over(topic: str) -> None:
    impatient = Retries(attempts=3, base_seconds=0.01, total_seconds=0.4)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = Headrace(f"http://127.0.0.1:{deaf.getsockname()[1]}", "hr_a_token", retries=impatient)
        start = time.monotonic()
        with client, pytest.raises(errors.NoAnswer, match="did not answer in time"):
            client.send(topic, 1)
        assert time.monotonic() - start < 20, "one try alone would have had thirty seconds"


class Dripping(socketserver.StreamRequestHandler):
    """Gives an answer that has no end, a blank at a time, as fast as they are read."""

    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n{")
        with contextlib.suppress(OSError):
            for _ in range(1_000_000):
                self.wfile.write(b" ")


@pytest.mark.parametrize("kind", [Headrace, AsyncHeadrace])
def test_a_call_ends_in_the_middle_of_an_answer_too(kind: type) -> None:
    """A time-out was of each part of it: a call had no end while something came."""
    impatient = Retries(attempts=3, base_seconds=0.01, total_seconds=0.1)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dripping) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        client = kind(f"http://127.0.0.1:{server.server_address[1]}", "hr_a_token", retries=impatient)
        with pytest.raises(errors.NoAnswer, match="not whole in time"):
            asyncio.run(client.get_topic("t")) if kind is AsyncHeadrace else client.get_topic("t")
        server.shutdown()


def test_where_one_address_does_not_answer_the_next_is_asked(hr: Headrace, service: str, topic: str) -> None:
    quick = Retries(attempts=3, base_seconds=0.01)
    with Headrace(f"http://127.0.0.1:9,{service}", hr.transport.token, retries=quick) as two:
        two.send(topic, 1)
        two.send(topic, 2)
    assert bodies(hr, topic) == {1: 1, 2: 1}


def many(proxy: FaultyProxy, hr: Headrace, topic: str, number: int) -> None:
    """Send from eight threads through a network at its worst."""
    proxy.harm = 0.3
    with Headrace(proxy.url, hr.transport.token, retries=PATIENT) as client, ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda n: client.send(topic, n), range(number)))
    proxy.harm = 0.0
    assert len({each.id for each in sent}) == number
    assert bodies(hr, topic) == dict.fromkeys(range(number), 1)
    assert min(proxy.seen[fault] for fault in proxy.faults) > 0


def test_of_many_sends_through_a_bad_network_each_is_stored_once(
    proxy: FaultyProxy, hr: Headrace, topic: str
) -> None:
    many(proxy, hr, topic, 200)


@pytest.mark.soak
def test_of_ten_thousand_sends_through_a_bad_network_each_is_stored_once(
    proxy: FaultyProxy, hr: Headrace, topic: str
) -> None:
    many(proxy, hr, topic, 10_000)


def test_asyncio_sends_survive_as_well(
    proxy: FaultyProxy, hr: Headrace, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        async with AsyncHeadrace(proxy.url, hr.transport.token, retries=PATIENT) as client:
            await asyncio.gather(*(client.send(topic, n) for n in range(40)))

    proxy.harm = 0.3
    asyncio.run(main())
    proxy.harm = 0.0
    assert bodies(hr, topic) == dict.fromkeys(range(40), 1)
    assert all(record.name.startswith("headrace") for record in caplog.records), "not a line for each request"


def test_only_a_send_logs_each_try(caplog: pytest.LogCaptureFixture) -> None:
    """An outage of 20 seconds was 50 lines of three consumers."""
    caplog.set_level("INFO", "headrace")
    hr = Headrace("http://127.0.0.1:1", "hr_a_b", retries=Retries(attempts=2, base_seconds=0))
    for call in (lambda: hr.receive("orders", "mailer"), lambda: hr.send("orders", 1)):
        with pytest.raises(errors.NoAnswer):
            call()
    (line,) = caplog.messages
    assert line.startswith("POST /v1/topics/orders/messages: NO_ANSWER, again in")


FORKS = """
import os, sys
from headrace import Headrace
hr, topic = Headrace.from_env(), sys.argv[1]
hr.send(topic, "parent")
if pid := os.fork():
    hr.send(topic, "parent again")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
hr.send(topic, "child")
"""


def test_a_forked_process_has_connections_and_names_of_its_own(hr: Headrace, topic: str) -> None:
    programs.run(hr, FORKS, topic)
    assert bodies(hr, topic) == {"parent": 1, "child": 1, "parent again": 1}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_event_loop_has_connections_of_its_own(hr: Headrace, service: str, topic: str) -> None:
    """Of the second `asyncio.run` with one client the first call failed: its connection was the first loop's."""
    client = AsyncHeadrace(service, hr.transport.token, retries=Retries(attempts=1))
    for n in range(3):
        asyncio.run(client.send(topic, n))
    assert len(client.transport._connections._pools) == 1, "that of a closed loop is forgotten"
    asyncio.run(client.aclose())
    assert client.transport._connections._pools == {}
    gc.collect()  # here, where it may warn: a closed loop leaves its connections open
    assert bodies(hr, topic) == {0: 1, 1: 1, 2: 1}


def test_a_client_says_which_app_it_is(
    hr: Headrace, proxy: FaultyProxy, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = hr.transport.token
    monkeypatch.setenv("HEADRACE_URL", proxy.url)
    monkeypatch.setenv("HEADRACE_TOKEN", token)
    monkeypatch.setenv("HEADRACE_APP", "billing/1.4")
    with Headrace.from_env() as client:
        first = client.get_trace(topic, client.send(topic, 1).id)[0]
    assert (first.app, bool(first.address)) == ("billing/1.4", True)
    assert all(headers["user-agent"].startswith("headrace-python") for _, headers in proxy.requests)
    with Headrace.from_env(app="shop") as client:
        assert client.transport.app == "shop"
    with pytest.raises(ValueError, match="HEADRACE_APP"):
        Headrace(proxy.url, token, app="a b")
