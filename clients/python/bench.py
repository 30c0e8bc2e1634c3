"""What the client does in a second here: `python clients/python/bench.py` (against HEADRACE_URL, or a service of its
own in memory). Prints the table of docs/figures.md."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import urllib3

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "src"))

from headrace import Headrace, Message, Producer  # noqa: E402  the package is beside this file


@contextlib.contextmanager
def service(*, is_durable: bool) -> Iterator[tuple[str, str]]:
    """URL and token of a service: the one that HEADRACE_URL names, or one in a process of its own."""
    if url := os.environ.get("HEADRACE_URL"):
        yield url, os.environ["HEADRACE_TOKEN"]
        return
    command = [sys.executable, "-m", "headrace_local", "--port", "0", "--json"]
    quiet = subprocess.DEVNULL
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as data,
        subprocess.Popen(
            [*command, *(["--data", data] if is_durable else ["--ephemeral"])],
            cwd=HERE.parents[1],
            stdout=subprocess.PIPE,
            stderr=quiet,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())
        try:
            yield address["url"], address["token"]
        finally:
            process.terminate()


_IMPORT = "import time; t = time.process_time(); import headrace; print(time.process_time() - t)"


def import_seconds() -> float:
    """Processor time that `import headrace` takes: the best of ten."""
    environment = {**os.environ, "PYTHONPATH": str(HERE / "src")}
    command = [sys.executable, "-c", _IMPORT]
    runs = [subprocess.run(command, check=True, env=environment, capture_output=True) for _ in range(10)]
    return min(float(run.stdout) for run in runs)


def single_sends(hr: Headrace, topic: str, number: int) -> float:
    """Sends a second, one after the other."""
    start = time.perf_counter()
    for n in range(number):
        hr.send(topic, {"order": n})
    return number / (time.perf_counter() - start)


def send_costs(hr: Headrace, topic: str, number: int) -> tuple[float, float]:
    """Processor time of one send, and of one bare POST of the same by urllib3, in seconds: in turns, since a machine
    may be busy now and idle then."""
    url = f"{hr.transport.urls[0]}/v1/topics/{topic}/messages"
    headers = {"Authorization": f"Bearer {hr.transport.token}", "Content-Type": "application/json"}
    headers |= {"User-Agent": "bench", "Headrace-Request": "bench-1"}
    pool = urllib3.PoolManager()

    def bare() -> None:
        assert pool.request("POST", url, body=b'{"body":{"order":1}}', headers=headers).status == 201

    def cost(send: Callable[[], object]) -> float:
        start = time.process_time()
        for _ in range(number // 10):
            send()
        return time.process_time() - start

    turns = [(cost(lambda: hr.send(topic, {"order": 1})), cost(bare)) for _ in range(11)][1:]
    pool.clear()
    return sum(own for own, _ in turns) / number, sum(other for _, other in turns) / number


def lingering_sends(hr: Headrace, topic: str, number: int) -> float:
    """The same through a producer that lingers."""
    start = time.perf_counter()
    with Producer(hr, linger_ms=10) as producer:
        for n in range(number):
            producer.send(topic, {"order": n})
    return number / (time.perf_counter() - start)


def consumption_rate(hr: Headrace, topic: str, number: int) -> float:
    """Messages a second through one consumer with eight handlers at default settings, from the first to the last."""
    arrivals: list[float] = []
    lock = threading.Lock()

    @hr.consumer(topic, group="bench", concurrency=8, wait=1)
    def handle(message: Message) -> None:
        with lock:
            arrivals.append(time.perf_counter())
            if len(arrivals) == number:
                hr.stop()

    hr.run(for_seconds=300)
    assert len(arrivals) >= number, f"only {len(arrivals)} of {number} arrived"
    return number / (arrivals[-1] - arrivals[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--durable", action="store_true", help="its service keeps everything on disk")
    options = parser.parse_args()
    print(f"| import headrace | {1000 * import_seconds():.0f} ms |", flush=True)
    with service(is_durable=options.durable) as (url, token), Headrace(url, token) as hr:
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        hr.put_topic(topic)
        single = single_sends(hr, topic, max(100, options.messages // 40))
        print(f"| sends, one after the other | {single:,.0f} a second |", flush=True)
        own, bare = send_costs(hr, topic, 1000)
        print(
            f"| processor time of one send | {1e6 * own:.0f} µs, {own / bare:.1f} times a bare POST by urllib3 |",
            flush=True,
        )
        many = lingering_sends(hr, topic, options.messages)
        print(
            f"| sends through a `Producer` that lingers 10 ms | {many:,.0f} a second, "
            f"{many / single:.0f} times as many |",
            flush=True,
        )
        rate = consumption_rate(hr, topic, options.messages)
        print(f"| messages through one consumer, 8 handlers | {rate:,.0f} a second |", flush=True)


if __name__ == "__main__":
    main()
