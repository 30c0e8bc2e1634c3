#!/usr/bin/env python3
"""Real departures as messages: one topic, three groups at once, one for each mode.

Every departure becomes a message: its ordering key is the aircraft's tail number, its tag the carrier, its key
the flight. While they are sent, three groups receive them and what they saw is checked:

  queue      several workers, every departure once
  serial     several workers; each aircraft's departures in order, the next only after the last is acknowledged
  broadcast  two registered consumers, each gets every departure

Needs a running Headrace (`make run`) and nothing but Python.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import secrets
import sys
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flights_check import Reception, check, praise
from headrace_client import Failed, Group, Headrace, add_options, find_token

BATCH = 100
WORKERS = 3
LEASE_SECONDS = 300  # a slow machine shall not look like a message that came twice
WORK_SECONDS = 0.01
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Run:
    """One run on one topic. Its messages and groups have its `id`."""

    headrace: Headrace
    topic: str
    id: str
    events: list[dict[str, Any]]

    def group(self, mode: str) -> Group:
        return Group(self.headrace, self.topic, f"{mode}-{self.id}")


def main() -> int:
    """0: all is as it should be; 1: a check failed; 2: it could not be tried."""
    args = arguments()
    try:
        events = departures(args.file, args.count)
        run = Run(Headrace(args.url, find_token(args.token)), args.topic, secrets.token_hex(4), events)
        receptions = exchange(run)
    except Failed as error:
        print(f"flights: {error}", file=sys.stderr)
        return 2
    return report(run, receptions)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--topic", default="flights", help="the topic to use (%(default)s)")
    parser.add_argument(
        "--file", type=Path, default=HERE / "flights.jsonl.gz", help="departures, gzipped JSON lines"
    )
    parser.add_argument("--count", type=positive, help="send only so many (default: all of the file)")
    return parser.parse_args()


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError("must be a number above 0")
    return int(text)


def departures(file: Path, count: int | None) -> list[dict[str, Any]]:
    """The file's first departures, numbered; Failed for a file that is not what it should be."""
    events: list[dict[str, Any]] = []
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if number == count:
                    break
                events.append(departure(line, number, file))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Failed(f"{file} is not a whole gzip file ({error}).") from None
    except UnicodeDecodeError:
        raise Failed(f"{file}, line {len(events) + 1}: not UTF-8.") from None
    except OSError as error:
        raise Failed(f"{file} cannot be read ({error.strerror}).") from None
    if not events:
        raise Failed(f"{file} has no departures.")
    return events


def departure(line: str, number: int, file: Path) -> dict[str, Any]:
    try:
        event = json.loads(line)
        texts = [event[name] for name in ("carrier", "scheduled_departure")]
        texts += [event["tail_number"]] if event["tail_number"] is not None else []  # a few are not known
        if not all(isinstance(text, str) and text for text in texts) or type(event["flight"]) is not int:
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise Failed(
            f"{file}, line {number + 1}: not a departure (a JSON object with scheduled_departure, carrier, flight "
            "and tail_number)."
        ) from None
    return {**event, "number": number}


def exchange(run: Run) -> list[Reception]:
    """Send all while three groups receive; what each saw. Failed if something got in the way."""
    run.headrace.ask("PUT", f"/v1/topics/{quote(run.topic)}", {})
    # From "latest": messages of earlier runs are skipped.
    for mode in ("queue", "serial", "broadcast"):
        run.group(mode).create(mode=mode, lease_seconds=LEASE_SECONDS, **{"from": "latest"})
    for consumer in ("radar", "tower"):
        run.group("broadcast").register(consumer)
    try:
        return receive(run)
    finally:
        with contextlib.suppress(Failed):  # the groups were for this run only
            for mode in ("queue", "serial", "broadcast"):
                run.group(mode).delete()


def receive(run: Run) -> list[Reception]:
    """A thread sends, others receive."""
    names = ("queue", "serial", "broadcast radar", "broadcast tower")
    receptions = {name: Reception(name, len(run.events)) for name in names}
    jobs: list[Callable[[], None]] = [lambda: send(run)]
    for mode in ("queue", "serial"):
        jobs += [worker(run, mode, receptions[mode]) for _ in range(WORKERS)]
    for consumer in ("radar", "tower"):
        jobs.append(worker(run, "broadcast", receptions[f"broadcast {consumer}"], consumer))
    run_together(jobs, list(receptions.values()))
    return list(receptions.values())


def send(run: Run) -> None:
    path = f"/v1/topics/{quote(run.topic)}/messages/batch"
    for start in range(0, len(run.events), BATCH):
        batch = run.events[start : start + BATCH]
        results = run.headrace.ask("POST", path, {"messages": [message(run, event) for event in batch]})[
            "results"
        ]
        for result in results:
            if "error" in result:
                raise Failed(f"A departure was refused: {result['error']['detail']}")


def message(run: Run, event: dict[str, Any]) -> dict[str, Any]:
    return {
        "body": event,
        "ordering_key": event["tail_number"],
        "tag": event["carrier"],
        "keys": [f"{event['carrier']}{event['flight']}"],
        "headers": {"run": run.id},
    }


def worker(run: Run, mode: str, reception: Reception, consumer: str | None = None) -> Callable[[], None]:
    """Receives and acknowledges until its group has seen everything, or nothing more comes."""
    group = run.group(mode)

    def work() -> None:
        while not reception.done and not reception.stuck:
            messages = group.receive(BATCH, 1, consumer)
            ours = [m for m in messages if m["headers"].get("run") == run.id]  # others may use the topic, too
            reception.begin(ours)
            time.sleep(WORK_SECONDS if ours else 0)
            reception.end(ours)
            if messages:
                group.ack(messages)

    return work


def run_together(jobs: list[Callable[[], None]], receptions: list[Reception]) -> None:
    """Run all at once, telling progress; Failed with the first failure."""
    failures: list[Failed] = []

    def run_job(job: Callable[[], None]) -> None:
        try:
            job()
        except Failed as error:
            failures.append(error)

    threads = [threading.Thread(target=run_job, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not failures:
        progress(receptions)
        time.sleep(0.5)
    progress(receptions)
    if failures:
        raise failures[0]


def progress(receptions: list[Reception]) -> None:
    print(
        "received: " + ", ".join(f"{s.name} {len(s.numbers)}/{s.expected}" for s in receptions),
        file=sys.stderr,
    )


def report(run: Run, receptions: list[Reception]) -> int:
    """Print what each saw and whether that is right; the exit code."""
    aircraft = len({event["tail_number"] for event in run.events} - {None})
    print(f"sent {len(run.events)} departures of {aircraft} aircraft to topic {run.topic}")
    wrong = 0
    for each in receptions:
        faults = check(each, run.events)
        wrong += bool(faults)
        print(f"{each.name}: received {len(each.numbers)}: {'; '.join(faults) or praise(each)}")
    print(f"{wrong} of {len(receptions)} checks failed" if wrong else "all is as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
