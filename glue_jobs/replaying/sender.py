"""Sending archived messages from the executors: in order, in batches, no faster than asked, each once.

The service gives every message a dedup id of the replay's and the message's ids, so all of this may be tried again.
"""

from __future__ import annotations

import base64
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from glue_jobs.common.service import Refused, Service, Unreachable

MOST_PER_BATCH = 495  # five rows of the log with dedup ids
MOST_BYTES = 3_000_000
_TRIES = 7
_TELL_SECONDS = 10.0
_OF_A_MESSAGE = (400, 413, 422)  # a request is refused with these for what one of its messages is

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of messages: in their topic (`sent`, some of which an earlier run had put there), or refused, by
    error code."""

    sent: int = 0
    before: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.sent + other.sent, self.before + other.before, self.refused + other.refused)


class Pace:
    """Lets so many a second through; a pause is not made up for."""

    def __init__(self, rate: float, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._free_at = now()

    def wait(self, count: int) -> None:
        """Wait until the next `count` may go."""
        now = self._now()
        if now < self._free_at:
            self._sleep(self._free_at - now)
        self._free_at = max(now, self._free_at) + count / self._rate


@dataclass(kw_only=True, frozen=True)
class ReplaySender:
    """Sends one partition of a replay. Travels to the executors."""

    service: Service
    replay: str
    rate: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def partition(self, rows: Iterable[Any]) -> Iterator[Sent]:
        """Send rows of the table of messages; what became of them."""
        pace = Pace(self.rate, self.now, self.sleep)
        total, told_at = Sent(), self.now()
        for batch in batches(map(message, rows), max(1, int(self.rate))):
            pace.wait(len(batch))
            total += self.batch(batch)
            if self.now() - told_at >= _TELL_SECONDS:
                told_at = self.now()
                print(f"replay {self.replay}: {total.sent} sent by this task", file=sys.stderr, flush=True)
        yield total

    def batch(self, messages: Sequence[Message]) -> Sent:
        """Send a batch until every message is placed or refused for good. One that makes the service refuse all of
        them is counted by itself. Raises Refused, Unreachable."""
        try:
            return self._send(messages)
        except Refused as error:
            if error.status not in _OF_A_MESSAGE:
                raise
            if len(messages) == 1:
                return Sent(refused=Counter({error.code: 1}))
        half = len(messages) // 2
        return self.batch(messages[:half]) + self.batch(messages[half:])

    def _send(self, messages: Sequence[Message]) -> Sent:
        total = Sent()
        for n in range(_TRIES):
            path = f"/v1/replays/{self.replay}/messages"
            results = self.service.ask("POST", path, {"messages": messages})["results"]
            unknown_messages = [m for m, r in zip(messages, results, strict=True) if _is_unknown(r)]
            total = sum((outcome(r) for r in results if not _is_unknown(r)), total)
            if not unknown_messages:
                return total
            messages = unknown_messages
            self.sleep(0.5 * 2**n)
        raise Unreachable("The service could not store some messages, however often they were sent.")


def _is_unknown(result: dict[str, Any]) -> bool:
    return bool(result.get("error", {}).get("retryable"))


def outcome(result: dict[str, Any]) -> Sent:
    """What one result says. A dedup id that was used for other content: the archive has a later edition of a message
    that an earlier run has sent."""
    code = result.get("error", {}).get("code")
    if code is None:
        return Sent(1, int(result["duplicate"]))
    return Sent(1, 1) if code == "DEDUP_MISMATCH" else Sent(0, 0, Counter({str(code): 1}))


def message(row: Any) -> Message:
    """A row of the table of messages, as the service takes it."""
    return {
        "id": row.id,
        "shard": row.shard,
        "body_base64": base64.b64encode(row.body or b"").decode(),
        "content_type": row.content_type,
        "keys": list(row.keys or ()),
        "tag": row.tag,
        "tenant": row.tenant,
        "ordering_key": row.ordering_key,
        "headers": dict(row.headers or {}),
    }


def batches(messages: Iterable[Message], most: int) -> Iterator[list[Message]]:
    """In their order, as many together as one request may hold, and no more than `most`."""
    batch: list[Message] = []
    size = 0
    for each in messages:
        if batch and (len(batch) >= min(most, MOST_PER_BATCH) or size + _size(each) > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += _size(each)
    if batch:
        yield batch


def _size(each: Message) -> int:
    texts = (*each["keys"], *each["headers"], *each["headers"].values(), each["ordering_key"] or "")
    return len(each["body_base64"]) + sum(6 * len(text) for text in texts) + 500
