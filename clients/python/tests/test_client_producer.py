"""The background producer: batches, order, back-pressure, what becomes of trouble, and what survives on disk."""

from __future__ import annotations

import asyncio
import queue
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import programs
import pytest
from faulty_proxy import LOSE, REFUSE, FaultyProxy

from headrace import AsyncHeadrace, Headrace, Producer, Retries, Sent, errors, moments
from headrace._sync.sends import Batch
from headrace.spool import Spool

ONCE = Retries(attempts=1)


def in_order(hr: Headrace, topic: str) -> list[Any]:
    """The bodies of a topic of one shard, as they were stored."""
    return [m.body for m in reversed(list(hr.list_messages(topic, limit=200)))]


@pytest.fixture
def line(hr: Headrace, topic: str) -> str:
    """A topic of one shard."""
    name = f"{topic}-line"
    hr.put_topic(name, shards=1)
    return name


def test_single_sends_travel_together_and_in_order(hr: Headrace, proxy: FaultyProxy, line: str) -> None:
    with Headrace(proxy.url, hr.transport.token) as client, client.producer(linger_ms=50) as producer:
        futures = [producer.send(line, n, key=f"k{n}") for n in range(250)]
    sent = [future.result(0) for future in futures]
    assert [s.offset for s in sent] == list(range(250))
    assert in_order(hr, line) == list(range(250))
    calls = [path for path, _ in proxy.requests if path.endswith("/batch")]
    assert len(calls) <= 6


def test_several_topics_keep_their_order_each(hr: Headrace, topic: str, line: str) -> None:
    with Producer(hr, linger_ms=5) as producer:
        futures = [producer.send(topic if n % 10 == 0 else line, n, shard=0) for n in range(60)]
    assert all(f.result(0).topic in (topic, line) for f in futures)
    assert in_order(hr, topic) == [n for n in range(60) if n % 10 == 0]
    assert in_order(hr, line) == [n for n in range(60) if n % 10]


def test_flush_waits_for_what_is_there(hr: Headrace, line: str) -> None:
    producer = Producer(hr, linger_ms=60_000)
    future = producer.send(line, "now")
    assert not future.done()
    assert producer.flush(30)
    assert future.result(0).offset == 0
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.send(line, "late")


def test_what_is_refused_fails_its_own_future(hr: Headrace, line: str) -> None:
    with Producer(hr) as producer:
        good, bad = producer.send(line, 1), producer.send(line, 2, shard=9)
        nowhere = producer.send("nowhere-at-all", 3)
    assert good.result(0).offset == 0
    with pytest.raises(errors.Refused, match="NO_SUCH_SHARD"):
        bad.result(0)
    with pytest.raises(errors.TopicNotFound):
        nowhere.result(0)
    with pytest.raises(TypeError, match=r"^'object' has no JSON form"):
        Producer(hr).send(line, object())


def test_a_full_producer_makes_senders_wait(hr: Headrace, line: str) -> None:
    with Producer(hr, linger_ms=60_000, max_pending=3) as producer:
        for n in range(3):
            producer.send(line, n)
        thread = threading.Thread(target=producer.send, args=(line, 3))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert producer.pending == 3
        producer.flush(30)
        thread.join(30)
    assert in_order(hr, line) == [0, 1, 2, 3]


def test_a_full_producer_may_refuse_instead(hr: Headrace, line: str) -> None:
    with Producer(hr, linger_ms=60_000, max_pending=1, block=False) as producer:
        producer.send(line, 0)
        with pytest.raises(queue.Full):
            producer.send(line, 1)


def test_without_an_answer_a_batch_is_sent_again(hr: Headrace, proxy: FaultyProxy, line: str) -> None:
    proxy.plan.extend([LOSE, REFUSE, LOSE])
    with Headrace(proxy.url, hr.transport.token, retries=Retries(base_seconds=0.01)) as client:
        future = client.producer(linger_ms=60_000).send(line, "once")
    assert future.result(0).duplicate, "a client closes its producers before itself"
    assert in_order(hr, line) == ["once"]
    marks = ["headrace-resend" in headers for _, headers in proxy.requests]
    assert marks == [False, True, True, True]


def test_after_the_clients_retries_its_futures_fail(
    hr: Headrace, proxy: FaultyProxy, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of a schedule of its own was tried as often as that allows."""
    proxy.plan.extend([REFUSE] * 3)
    with Headrace(proxy.url, hr.transport.token, retries=Retries(attempts=2, base_seconds=0.01)) as client:
        with Producer(client) as producer:
            future = producer.send(line, "lost")
        with pytest.raises(errors.NoAnswer):
            future.result(0)
    assert proxy.seen == {REFUSE: 2}
    assert f"1 of 1 messages for {line} failed: NO_ANSWER" in caplog.text, (
        "futures that are looked at by none"
    )


def test_a_future_can_be_awaited(hr: Headrace, service: str, line: str) -> None:
    async def main() -> list[Sent]:
        async with AsyncHeadrace(service, hr.transport.token) as client:
            producer = client.producer(linger_ms=60_000)
            futures = [asyncio.wrap_future(producer.send(line, n)) for n in range(20)]
        return await asyncio.gather(*futures)

    assert [s.offset for s in asyncio.run(main())] == list(range(20))


ENDS = """
import logging, multiprocessing, sys
from headrace import Headrace, Retries, _ending
line, spool = sys.argv[1:]
logging.basicConfig(stream=sys.stdout)
_ending._EXIT_SECONDS = 1.5
def work(client, body, **options):
    producer = client.producer(linger_ms=60_000, **options)
    for _ in range(3):
        producer.send(line, body)
hr = Headrace.from_env()
child = multiprocessing.get_context("fork").Process(target=work, args=(hr, "child"))
child.start()
child.join()
away = Headrace("http://127.0.0.1:9", "hr_x", retries=Retries(base_seconds=60))
work(away, "lost")
work(away, "kept", spool=spool)
work(hr, "parent")
sys.exit(3)
"""


def test_a_process_that_ends_sends_what_its_producers_hold_or_says_how_much_is_left(
    hr: Headrace, line: str, tmp_path: Path
) -> None:
    """All of it was lost without a word: after `sys.exit`, in a child of multiprocessing, and where `close` was
    forgotten."""
    with programs.start(hr, ENDS, line, str(tmp_path / "spool")) as process:
        output = process.communicate(timeout=programs.SECONDS)[0]
    assert process.returncode == 3
    assert Counter(in_order(hr, line)) == {"child": 3, "parent": 3}
    assert output.count("The process ends: 3 messages of a producer have no answer") == 1
    assert f"3 messages are left in the spool {tmp_path / 'spool'}" in output
    spool = Spool(tmp_path / "spool")
    waiting = spool.next(9, 99)
    spool.close()
    assert waiting
    assert (len(waiting.numbers), waiting.request) == (3, None), "without a connection it was not sent yet"


FORKS = """
import os, sys
from headrace import Headrace, Producer
line = sys.argv[1]
with Producer(Headrace.from_env(), linger_ms=60_000) as producer:
    producer.send(line, "parent")
    if pid := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    else:
        producer.send(line, "child")
        os._exit(not producer.flush(30))
sys.exit(status)
"""


def test_a_forked_child_has_a_producer_of_its_own(hr: Headrace, line: str) -> None:
    programs.run(hr, FORKS, line)
    assert sorted(in_order(hr, line)) == ["child", "parent"]


OPENS = """
import sys
from headrace.spool import Spool
try:
    Spool(sys.argv[1])
except BlockingIOError:
    sys.exit()
sys.exit("It has the spool.")
"""

TAKES_OVER = """
import os, subprocess, sys
from headrace import Headrace, Producer
line, path, opens = sys.argv[1:]
(refused, has_refused), (closed, has_closed) = os.pipe(), os.pipe()
producer = Producer(Headrace.from_env(), linger_ms=60_000, spool=path)
producer.send(line, "parent")
if pid := os.fork():
    os.close(has_refused)
    os.read(refused, 1)
    subprocess.run([sys.executable, "-c", opens, path], check=True)
    assert os.path.exists(f"{path}-journal"), "the parent's protection against a crash"
    producer.close()
    os.write(has_closed, b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
refusals, status = 0, 1
try:
    for _ in range(2):
        try:
            producer.send(line, "too early")
        except BlockingIOError:
            refusals += 1
    os.write(has_refused, b"x")
    os.read(closed, 1)
    producer.send(line, "child")
    status = not (refusals == 2 and producer.flush(30))
finally:
    os._exit(status)
"""


def test_a_forked_child_takes_over_the_spool_when_its_parent_has_closed_it(
    hr: Headrace, line: str, tmp_path: Path
) -> None:
    """It was refused for ever, as if it were itself the other process. Until then it is refused each time: its second
    send once went into the parent's file by the parent's connection, and was never sent."""
    programs.run(hr, TAKES_OVER, line, str(tmp_path / "spool"), OPENS)
    assert in_order(hr, line) == ["parent", "child"]


FORKS_WITHIN_A_CALL = """
import os, sys, threading
from headrace.spool import Spool
path = sys.argv[1]
spool, has_begun = Spool(path), threading.Event()
closed, has_closed = os.pipe()

def begin(statement):
    has_begun.set()
    threading.Event().wait(0.1)

spool._file.set_trace_callback(begin)
adding = threading.Thread(target=spool.add, args=("orders", b"{}"))
adding.start()
has_begun.wait()
if pid := os.fork():
    adding.join()
    spool.close()
    os.write(has_closed, b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
status = 1
try:
    os.close(has_closed)
    spool.leave_to_parent()
    os.read(closed, 1)
    status = Spool(path).count() != 1
finally:
    os._exit(status)
"""


def test_a_child_forked_within_a_call_of_the_spool_may_take_it_over(hr: Headrace, tmp_path: Path) -> None:
    programs.run(hr, FORKS_WITHIN_A_CALL, str(tmp_path / "spool"))


def test_a_spool_outlives_the_outage_and_keeps_the_order(
    hr: Headrace, proxy: FaultyProxy, line: str, tmp_path: Path
) -> None:
    proxy.harm, proxy.faults = 1.0, [REFUSE]
    with Headrace(proxy.url, hr.transport.token, retries=ONCE) as client:
        producer = Producer(client, spool=tmp_path / "spool")
        for n in range(5):
            producer.send(line, n)
        producer.close(timeout=0)
    assert in_order(hr, line) == []
    with Producer(hr, spool=tmp_path / "spool") as producer:
        assert producer.send(line, 5).result(30).offset == 5
    assert in_order(hr, line) == list(range(6))
    spool = Spool(tmp_path / "spool")
    assert spool.count() == 0
    spool.close()


def test_what_was_sent_together_goes_again_together_though_batches_are_smaller_by_then(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "spool")
    numbers = [spool.add("orders", b"{}") for _ in range(3)]
    spool.begin(numbers, "a-1", moments.now())
    spool.close()
    spool = Spool(tmp_path / "spool")
    waiting = spool.next(2, 1)
    spool.close()
    assert waiting
    assert (waiting.numbers, waiting.request) == (tuple(numbers), "a-1")


def test_a_file_that_is_no_spool_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("not yours\n" * 100)
    with pytest.raises(ValueError, match="is no spool"):
        Spool(notes)
    assert notes.read_text() == "not yours\n" * 100


CLOSED_TO_IT = """
import os, sys
from headrace.spool import Spool
if os.getuid() == 0:
    os.setuid(65534)
try:
    Spool(sys.argv[1])
except PermissionError:
    sys.exit()
sys.exit("It was opened.")
"""


def test_what_cannot_be_written_is_refused_at_once(hr: Headrace, tmp_path: Path) -> None:
    """It was opened, and each send failed; it was one process's no more."""
    with pytest.raises(IsADirectoryError):
        Spool(tmp_path)
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are its user's only
        Path(folder).chmod(0o755)
        path = Path(folder) / "spool"
        Spool(path).close()
        path.chmod(0o444)
        programs.run(hr, CLOSED_TO_IT, str(path))


@pytest.mark.parametrize("is_link", [False, True])
def test_a_spool_is_its_owners_only(tmp_path: Path, is_link: bool) -> None:
    if is_link:
        (tmp_path / "spool").symlink_to(tmp_path / "elsewhere")
    spool = Spool(tmp_path / "spool")
    spool.add("orders", b"{}")
    assert [file.name for file in tmp_path.iterdir() if file.stat().st_mode & 0o077] == []
    spool.close()


SENDER = """
import sys
from headrace import Headrace, Producer, Retries
hr = Headrace.from_env(retries=Retries(attempts=1))
producer = Producer(hr, linger_ms=1, max_batch=7, spool=sys.argv[2])
for n in range(int(sys.argv[3]), int(sys.argv[3]) + 10_000):
    producer.send(sys.argv[1], n)
    print(n, flush=True)
"""


def spooled_until_killed(hr: Headrace, line: str, spool: Path, kills: Sequence[int]) -> set[int]:
    """A process sends numbers until it is killed, and the next one higher numbers; those that are surely on disk."""
    written: set[int] = set()
    for kill, lines in enumerate(kills):
        with programs.start(hr, SENDER, line, str(spool), str(kill * 10_000)) as process:
            assert process.stdout is not None
            for _ in range(lines):
                written.add(int(process.stdout.readline()))
            process.send_signal(signal.SIGKILL)
            written.update(map(int, process.stdout.read().split()))
    return written


def test_what_a_killed_process_has_spooled_is_sent_once_by_the_next(
    hr: Headrace, proxy: FaultyProxy, line: str, tmp_path: Path
) -> None:
    proxy.harm, proxy.faults = 0.3, [LOSE, REFUSE]
    with Headrace(proxy.url, hr.transport.token) as shaky:
        written = spooled_until_killed(shaky, line, tmp_path / "spool", [20, 33])
    proxy.harm = 0.0
    with Producer(hr, spool=tmp_path / "spool") as producer:
        assert producer.flush(30)
    bodies = in_order(hr, line)
    assert bodies == sorted(set(bodies))
    assert written <= set(bodies)


def test_a_token_that_is_no_good_loses_nothing(hr: Headrace, service: str, line: str, tmp_path: Path) -> None:
    with Headrace(service, "hr_revoked") as client:
        producer = Producer(client, linger_ms=0, spool=tmp_path / "spool")
        future = producer.send(line, "kept")
        assert not producer.flush(0.2)
        assert not future.done()
        producer.close(timeout=0)
    with Producer(hr, spool=tmp_path / "spool") as producer:
        assert producer.flush(30)
    assert in_order(hr, line) == ["kept"]


def test_a_producer_whose_client_was_closed_says_so_and_its_spool_loses_nothing(
    hr: Headrace, service: str, line: str, tmp_path: Path
) -> None:
    client = Headrace(service, hr.transport.token)
    client.close()
    with Producer(client, linger_ms=0) as producer:
        future = producer.send(line, "told")
    with pytest.raises(errors.ClientClosed):
        future.result(0)
    producer = Producer(client, linger_ms=0, spool=tmp_path / "spool")
    producer.send(line, "kept")
    producer.close(timeout=0)
    with Producer(hr, spool=tmp_path / "spool") as producer:
        assert producer.flush(30)
    assert in_order(hr, line) == ["kept"]


def test_what_is_refused_for_good_stays_in_the_spool_with_its_reason(
    hr: Headrace, line: str, tmp_path: Path
) -> None:
    with Producer(hr, spool=tmp_path / "spool") as producer:
        futures = [producer.send(line, n, shard=n) for n in range(3)]
    with pytest.raises(errors.Refused, match="NO_SUCH_SHARD"):
        futures[2].result(0)
    spool = Spool(tmp_path / "spool")
    assert [(entry.topic, (entry.reason or "").partition(":")[0]) for entry in spool.contents(10)] == [
        (line, "NO_SUCH_SHARD"),
        (line, "NO_SUCH_SHARD"),
    ]
    hr.put_topic(line, shards=3, key_shards=3)
    assert (spool.readmit(), spool.count(), spool.readmit()) == (2, 2, 0)
    spool.close()
    with Producer(hr, spool=tmp_path / "spool") as producer:
        assert producer.flush(30)
    assert sorted(in_order(hr, line)) == [0, 1, 2]


def test_one_spool_is_one_processs_also_after_another_was_refused(hr: Headrace, tmp_path: Path) -> None:
    """The second one here, though refused, had opened the spool to others: what they took was lost."""
    spool = Spool(tmp_path / "spool")
    with pytest.raises(BlockingIOError, match="in use"):
        Spool(tmp_path / "spool")
    programs.run(hr, OPENS, str(tmp_path / "spool"))
    spool.close()


@pytest.mark.parametrize(("seconds", "is_known"), [(3_600, True), (200_000, False)])
def test_what_a_spool_has_held_for_long_is_stored_once_or_said_to_be_sent_as_new(
    hr: Headrace, line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, seconds: int, is_known: bool
) -> None:
    """After a day the service was asked for what it has stored within a day: a message was stored twice without a
    word, and so it was after a start of the machine with a clock that was behind."""
    hr.send_batch(Batch(line, "a-1", [{"body": 1}]))
    spool = Spool(tmp_path / "spool")
    present = moments.now()
    first_sent = present._replace(wall=present.wall - seconds, run="before the machine was started")
    spool.begin([spool.add(line, b'{"body":1}')], "a-1", first_sent)
    spool.close()
    with Producer(hr, spool=tmp_path / "spool") as producer:
        assert producer.flush(30)
    assert in_order(hr, line) == [1] * (1 if is_known else 2)
    assert ("1 messages are sent as new ones, and may be stored twice" in caplog.text) is not is_known
