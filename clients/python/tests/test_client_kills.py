"""Consumers that are killed while they work: every message is still handled, and each attempt is explained."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import programs
import pytest

from headrace import Headrace, Message
from headrace.models import Event

LEASE = 1
WORKER = """
import sys, time
from headrace import Headrace
hr = Headrace.from_env()
@hr.consumer(sys.argv[1], group="g", concurrency=4, prefetch=4, wait=1, lease=1)
def handle(message):
    print(message.body, message.attempt, flush=True)
    time.sleep(0.05)
hr.run()
"""


@contextmanager
def worker(hr: Headrace, topic: str) -> Iterator[subprocess.Popen[str]]:
    """A consumer in a process of its own, that has begun to work; it is killed at the end."""
    with programs.start(hr, WORKER, topic) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()
        process.stdout.read()


def kill_many(hr: Headrace, topic: str, kills: int) -> None:
    """Send more with each life of a consumer, and kill it; then let one live, and look at every message."""
    chance = random.Random(kills)
    hr.put_topic(topic, retry={"ladder": [1], "max_attempts": 500}, lease_seconds=LEASE)
    hr.put_group(topic, "g", begin="earliest")
    ids = []
    for n in range(kills):
        ids += [hr.send(topic, [n, k]).id for k in range(6)]
        with worker(hr, topic):
            time.sleep(chance.uniform(0.0, 0.25))  # the moment of the kill is what is tried

    @hr.consumer(topic, group="g", concurrency=8, wait=1)
    def handle(message: Message) -> None:
        """It works."""

    watch = threading.Thread(target=stop_when_settled, args=(hr, topic, len(ids)))
    watch.start()
    hr.run(for_seconds=120)
    watch.join()
    attempts_by_message = [attempts_of(hr.get_trace(topic, id)) for id in ids]
    assert settled_count(hr, topic) == len(ids)
    assert sum(len(attempts) for attempts in attempts_by_message) > len(ids), "no kill has hit anything"


def stop_when_settled(hr: Headrace, topic: str, number: int) -> None:
    until = time.monotonic() + 110
    while settled_count(hr, topic) < number and time.monotonic() < until:
        time.sleep(0.05)
    hr.stop()


def settled_count(hr: Headrace, topic: str) -> int:
    stats = hr.get_topic(topic).stats
    assert stats is not None
    return stats.groups["g"].consumed


def attempts_of(trace: list[Event]) -> list[int]:
    """The numbers of a message's attempts, each of which has an end: all but the last failed or ran out of time."""
    outcomes = {e.attempt: e.outcome for e in trace if e.attempt is not None and e.outcome is not None}
    numbers = sorted(outcomes)
    assert numbers == list(range(1, len(numbers) + 1)), trace
    assert outcomes[numbers[-1]] == "SUCCESS", trace
    assert "SUCCESS" not in [outcomes[n] for n in numbers[:-1]], trace
    return numbers


@pytest.mark.soak
def test_fifty_kills_lose_nothing(hr: Headrace, topic: str) -> None:
    kill_many(hr, topic, 50)
