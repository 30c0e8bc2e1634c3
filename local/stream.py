"""The event source mapping's part: calls a function with the records of a table's stream."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from local.engine.core import Engine
from local.functions import Context, Function, attempt

BATCH = 100  # records that a function gets at once, by default
QUICK_SECONDS, IDLE_SECONDS = 0.03, 0.25  # Lambda polls four times a second
_IDLE_AFTER = 40  # pauses grow to a fortieth of the silence: 30 ms for a second, 250 ms after ten
_RETRY_PAUSES = (0.1, 0.3, 1.0, 3.0, 5.0)
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


class StreamPoller:
    """Reads the stream of a table from now on, and calls the function at least once with each record.

    Records of a shard come in order, a shard's after its parent's. A batch whose function raises, or puts it off, is
    tried again with growing pauses, then given up with a line on standard error. A table without a stream gets one.
    """

    def __init__(
        self,
        *,
        table: str,
        name: str,
        function: Function,
        dynamodb: Any,
        streams: Any,
        quick_seconds: float = QUICK_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        retry_pauses: Sequence[float] = _RETRY_PAUSES,
        batch: int = BATCH,
        images: bool = False,
        engine: Engine | None = None,
    ) -> None:
        """`dynamodb` and `streams` are boto3 clients, or those of the embedded `engine`, which signals new records. The
        pause between polls is `quick_seconds` after traffic and grows to `idle_seconds`. With `images`, a stream that
        carries keys only is replaced by one with new rows."""
        self._table, self._name, self._function = table, name, function
        self._dynamodb, self._streams = dynamodb, streams
        self._quick, self._idle = quick_seconds, idle_seconds
        self._retry_pauses = retry_pauses
        self._batch = batch
        self._images = images
        self._engine = engine
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
            seen = self._engine.news if self._engine else 0
            try:
                if self._poll():
                    last_traffic = time.monotonic()
                trouble = 0
                self._ready.set()
            except (ClientError, BotoCoreError) as error:
                if not trouble:
                    print(f"The stream of {self._table} cannot be read, trying on: {error}", file=sys.stderr)
                trouble += 1
                self._look_again = True
            if self._engine and not trouble:
                if not self._stopping.wait(self._quick):
                    self._engine.wait_for_news(seen, _LONGEST_WAIT_SECONDS)
                continue
            silence = time.monotonic() - last_traffic
            pause = min(self._idle, max(self._quick, silence / _IDLE_AFTER))
            self._stopping.wait(min(_LONGEST_TROUBLE_SECONDS, pause * 2**trouble) if trouble else pause)
        with suppress(ClientError, BotoCoreError):
            self._poll()  # what came since: the next start reads only what comes after it

    def wait_until_ready(self, seconds: float) -> bool:
        """Wait until its place in the stream is taken: what is written from then on reaches the function."""
        return self._ready.wait(seconds)

    def stop(self) -> None:
        """End `run`, after the call under way and a last look."""
        self._stopping.set()
        if self._engine:
            self._engine.wake()

    def _poll(self) -> bool:
        """Read every shard until it gives no full batch, and the children of those that end; whether there was
        anything."""
        busy, may_have_children = False, True
        while may_have_children:
            may_have_children = False
            if self._look_again:
                self._discover()
            for shard in self._shards.values():
                parent = self._shards.get(shard.parent or "")
                if not shard.ended and (parent is None or parent.ended):
                    busy |= self._read_on(shard)
                    may_have_children |= shard.ended
        return busy

    def _read_on(self, shard: _Shard) -> bool:
        """Read it until it gives no full batch; whether there was anything."""
        first_count = count = self._read(shard)
        while count == self._batch and not shard.ended:
            count = self._read(shard)
        return first_count > 0

    def _discover(self) -> None:
        """Find the stream's shards. Those open at the very first look are read from then on, later ones whole."""
        self._arn = self._stream()
        shards, self._shards = self._shards, {}
        for shard in self._list_shards():
            new = _Shard(
                shard["ShardId"],
                shard.get("ParentShardId"),
                _FROM_THE_FIRST if self._looked else {"ShardIteratorType": "LATEST"},
                ended=not self._looked and "EndingSequenceNumber" in shard["SequenceNumberRange"],
            )
            self._shards[new.id] = shards.get(new.id, new)
        self._looked = True
        parents = {shard.parent for shard in self._shards.values()}
        self._look_again = any(shard.ended and shard.id not in parents for shard in self._shards.values())

    def _stream(self) -> str:
        """The ARN of the table's stream, which is enabled if it is not."""
        table = self._dynamodb.describe_table(TableName=self._table)["Table"]
        if self._images and table.get("StreamSpecification", {}).get("StreamViewType") == "KEYS_ONLY":
            table = self._switch(StreamEnabled=False)  # a data folder from before the journal
        if not table.get("StreamSpecification", {}).get("StreamEnabled"):
            table = self._switch(StreamEnabled=True, StreamViewType="NEW_IMAGE")
        return str(table["LatestStreamArn"])

    def _switch(self, **stream: Any) -> dict[str, Any]:
        answer = self._dynamodb.update_table(TableName=self._table, StreamSpecification=stream)
        return dict(answer["TableDescription"])

    def _list_shards(self) -> Iterator[dict[str, Any]]:
        page: dict[str, str] = {}
        while True:
            stream = self._streams.describe_stream(StreamArn=self._arn, **page)["StreamDescription"]
            yield from stream["Shards"]
            if "LastEvaluatedShardId" not in stream:
                return
            page = {"ExclusiveStartShardId": stream["LastEvaluatedShardId"]}

    def _read(self, shard: _Shard) -> int:
        """Deliver the shard's next records; how many there were."""
        try:
            shard.iterator = shard.iterator or self._iterator(shard)
            answer = self._streams.get_records(ShardIterator=shard.iterator, Limit=self._batch)
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

    def _iterator(self, shard: _Shard) -> str:
        answer = self._streams.get_shard_iterator(StreamArn=self._arn, ShardId=shard.id, **shard.start)
        return str(answer["ShardIterator"])

    def _deliver(self, event: dict[str, Any]) -> None:
        for pause in (*self._retry_pauses, None):
            if attempt(
                self._function,
                event,
                Context(function_name=self._name, request_id=str(uuid.uuid4()), stop=self._stopping),
            ):
                return
            if pause is not None and self._stopping.wait(pause):
                return
        print(
            f"{self._name} failed too often with {len(event['Records'])} records: going on.", file=sys.stderr
        )


def stream_event(records: list[dict[str, Any]], arn: str) -> dict[str, Any]:
    """Stream records as Lambda gets them: plain JSON, with the source's ARN."""
    changes = [
        {**record, "eventName": _NAMES.get(record["eventName"], record["eventName"]), "eventSourceARN": arn}
        for record in records
    ]
    for record in changes:
        change = record["dynamodb"]
        record["dynamodb"] = (
            {**change, _CREATED: change[_CREATED].timestamp()} if _CREATED in change else change
        )
    # by way of JSON, so that bytes become base64
    event: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({"Records": changes}))
    return event
