"""What the consumers of flights.py saw, and whether that is right."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

SILENCE_SECONDS = 60.0


@dataclass
class Reception:
    """What one group (in a broadcast: one consumer) received, in the order in which it came."""

    name: str
    expected: int
    numbers: list[int] = field(default_factory=list)
    overlaps: int = 0
    busy: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    last: float = field(default_factory=time.monotonic)

    def begin(self, messages: list[dict[str, Any]]) -> None:
        """Note them; an aircraft that is still busy with another departure is an overlap."""
        with self.lock:
            self.last = time.monotonic() if messages else self.last
            for message in messages:
                self.numbers.append(message["body"]["number"])
                if message["ordering_key"]:
                    self.overlaps += message["ordering_key"] in self.busy
                    self.busy.add(message["ordering_key"])

    def end(self, messages: list[dict[str, Any]]) -> None:
        """They are about to be acknowledged: only after that may the next ones of their aircraft come."""
        with self.lock:
            self.busy -= {message["ordering_key"] for message in messages}

    @property
    def done(self) -> bool:
        with self.lock:
            return len(set(self.numbers)) >= self.expected

    @property
    def stuck(self) -> bool:
        return time.monotonic() - self.last > SILENCE_SECONDS


def praise(reception: Reception) -> str:
    if reception.name == "serial":
        return "every aircraft in order, one departure at a time"
    return "every departure once" if reception.name == "queue" else "every departure"


def check(reception: Reception, events: list[dict[str, Any]]) -> list[str]:
    """What is wrong with what was seen."""
    counts = Counter(reception.numbers)
    missing_count = len(events) - len(counts.keys() & set(range(len(events))))
    repeated_count = sum(count - 1 for count in counts.values())
    faults = [f"{missing_count} missing"] if missing_count else []
    if repeated_count:
        faults.append(f"{repeated_count} came more than once")
    if reception.name == "serial":
        early = out_of_order(reception.numbers, events)
        faults += [f"{early} before an earlier departure of their aircraft"] if early else []
        faults += (
            [f"{reception.overlaps} before the last of their aircraft was acknowledged"]
            if reception.overlaps
            else []
        )
    return faults


def out_of_order(numbers: list[int], events: list[dict[str, Any]]) -> int:
    """How many came behind a later departure of the same aircraft."""
    latest: dict[str, int] = {}
    early = 0
    for number in numbers:
        aircraft = events[number]["tail_number"]
        if aircraft is None:  # no ordering key: no order was asked for
            continue
        early += number < latest.get(aircraft, -1)
        latest[aircraft] = max(number, latest.get(aircraft, -1))
    return early
