"""The event source mapping's part: calls a function with the records of a table's stream."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from local.engine.core import Engine
from local.functions import Context, Function, attempt

BATCH = 100  # records that a function gets at once, by default
_QUICK_SECONDS, _IDLE_SECONDS = 0.03, 0.25  # Lambda polls four times a second
_IDLE_AFTER = 40  # pauses grow to a fortieth of the silence: 30 ms for a second, 250 ms after ten
_LONGEST_TROUBLE_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 60.0
_TRIMMED = "TrimmedDataAccessException"
_STALE = ("ExpiredIteratorException", "ValidationException", _TRIMMED)
_FROM_THE_FIRST = {"ShardIteratorType": "TRIM_HORIZON"}
_CREATED = "ApproximateCreationDateTime"
_NAMES = {"UNKNOWN_TO_SDK_VERSION": "REMOVE"}  # what DynamoDB Local calls an expiry


@dataclass(slots=True)
class _Shard:
    """A shard and how far it was read."""

    id: str
    parent: str | None
    start: dict[str, str]
    iterator: str | None = None
    ended: bool = False


@dataclass(eq=False)
class StreamPoller:
    """Reads the stream of a table from now on, and calls the function at least once with each record.

    Records of a shard come in order, a shard's after its parent's. A batch whose function raises, or puts it off, is
    tried again with growing pauses, then given up with a line on standard error. `dynamodb` and `streams` are boto3
    clients, or those of the embedded `engine`, which says when there is something to read.

    `seconds`: between polls; None: few after traffic, more after silence.
    """

    table: str
    name: str
    function: Function
    dynamodb: Any
    streams: Any
    seconds: float | None = None
    retry_pauses: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 5.0)
    batch: int = BATCH
    engine: Engine | None = None

    def __post_init__(self) -> None:
        self._arn = ""
        self._shards: dict[str, _Shard] = {}
        self._looked, self._look_again = False, True
        self._ready = threading.Event()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Read the stream until `stop`, also while the engine fails."""
        last_traffic = time.monotonic()
        trouble = 0
        while not self._stopping.is_set():
            seen = self.engine.news if self.engine else 0
            try:
                if self._poll():
                    last_traffic = time.monotonic()
                trouble = 0
                self._ready.set()
            except (ClientError, BotoCoreError) as error:
                if not trouble:
                    print(f"The stream of {self.table} cannot be read, trying on: {error}", file=sys.stderr)
                trouble += 1
                self._look_again = True
            silence = 0 if self.engine else time.monotonic() - last_traffic
            pause = self.seconds or min(_IDLE_SECONDS, max(_QUICK_SECONDS, silence / _IDLE_AFTER))
            if trouble:
                self._stopping.wait(min(pause * 2**trouble, _LONGEST_TROUBLE_SECONDS))
            elif not self._stopping.wait(pause) and self.engine:
                self.engine.wait_for_news(seen, _LONGEST_WAIT_SECONDS)
        with suppress(ClientError, BotoCoreError):
            self._poll()  # what came since: the next start reads only what comes after it

    def wait_until_ready(self, seconds: float) -> bool:
        """Wait until its place in the stream is taken: what is written from then on reaches the function."""
        return self._ready.wait(seconds)

    def stop(self) -> None:
        """End `run`, after the call under way and a last look."""
        self._stopping.set()
        if self.engine:
            self.engine.wake()

    def _poll(self) -> bool:
        """Read every shard until it gives no full batch, and the children of those that end; whether there was
        anything."""
        is_busy, may_have_children = False, True
        while may_have_children:
            may_have_children = False
            if self._look_again:
                self._discover()
            for shard in self._shards.values():
                parent = self._shards.get(shard.parent or "")
                count = self.batch if parent is None or parent.ended else 0
                while count == self.batch and not shard.ended:
                    count = self._read(shard)
                    is_busy |= count > 0
                    may_have_children |= shard.ended
        return is_busy

    def _discover(self) -> None:
        """Find the stream's shards. Those open at the very first look are read from then on, later ones whole."""
        self._arn = self.dynamodb.describe_table(TableName=self.table)["Table"]["LatestStreamArn"]
        shards, self._shards = self._shards, {}
        start = _FROM_THE_FIRST if self._looked else {"ShardIteratorType": "LATEST"}
        page: dict[str, str] | None = {}
        while page is not None:
            stream = self.streams.describe_stream(StreamArn=self._arn, **page)["StreamDescription"]
            for each in stream["Shards"]:
                is_over = not self._looked and "EndingSequenceNumber" in each["SequenceNumberRange"]
                new = _Shard(each["ShardId"], each.get("ParentShardId"), start, ended=is_over)
                self._shards[new.id] = shards.get(new.id, new)
            last = stream.get("LastEvaluatedShardId")
            page = {"ExclusiveStartShardId": last} if last else None
        self._looked = True
        parents = {shard.parent for shard in self._shards.values()}
        self._look_again = any(shard.ended and shard.id not in parents for shard in self._shards.values())

    def _read(self, shard: _Shard) -> int:
        """Deliver the shard's next records; how many there were."""
        try:
            if shard.iterator is None:
                where = {"StreamArn": self._arn, "ShardId": shard.id, **shard.start}
                shard.iterator = self.streams.get_shard_iterator(**where)["ShardIterator"]
            answer = self.streams.get_records(ShardIterator=shard.iterator, Limit=self.batch)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _STALE:
                shard.iterator = None
            if code != _TRIMMED or shard.start == _FROM_THE_FIRST:
                raise
            shard.start = _FROM_THE_FIRST  # DynamoDB Local also says so at the first record of an empty shard
            return self._read(shard)  # now: this may be the last look
        records: list[dict[str, Any]] = answer["Records"]
        if records:
            self._deliver(stream_event(records, self._arn))
            last = records[-1]["dynamodb"]["SequenceNumber"]
            shard.start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": last}
        shard.iterator = answer.get("NextShardIterator")
        shard.ended = shard.iterator is None
        self._look_again |= shard.ended
        return len(records)

    def _deliver(self, event: dict[str, Any]) -> None:
        for pause in (*self.retry_pauses, None):
            if attempt(self.function, event, Context(self.name, self._stopping)):
                return
            if pause is not None and self._stopping.wait(pause):
                return
        count = len(event["Records"])
        print(f"{self.name} failed too often with {count} records: going on.", file=sys.stderr)


def stream_event(records: list[dict[str, Any]], arn: str) -> dict[str, Any]:
    """Stream records as Lambda gets them: plain JSON, with the source's ARN."""
    changes = []
    for record in records:
        change = dict(record["dynamodb"])
        if _CREATED in change:
            change[_CREATED] = change[_CREATED].timestamp()
        name = _NAMES.get(record["eventName"], record["eventName"])
        changes.append({**record, "eventName": name, "eventSourceARN": arn, "dynamodb": change})
    # by way of JSON, so that bytes become base64
    event: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({"Records": changes}))
    return event
