"""A run of a replay: what it chooses of the archive, and what becomes of it."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from glue_jobs.common import job
from glue_jobs.common.arguments import BAD_ARGUMENTS, DONE, FAILED, INCOMPLETE, progress, summary
from glue_jobs.common.bucket import Bucket, bucket_of
from glue_jobs.common.damage import name_damage, refuse_damaged, sound_table
from glue_jobs.common.failures import JobError, sentence
from glue_jobs.common.manifest import load_all
from glue_jobs.common.schemas import MESSAGES
from glue_jobs.common.service import RETRYABLE, Refused, Service, Unreachable
from glue_jobs.replaying.options import SELECTION
from glue_jobs.replaying.predicate import Tree, condition
from glue_jobs.replaying.sender import ReplaySender, Sent

_MOST_SENDERS = 16
_BEAT_SECONDS = 60.0
_MAX_ERROR_CHARS = 512
_COLUMNS = (
    "id",
    "shard",
    "offset",
    "content_type",
    "body",
    "keys",
    "tag",
    "tenant",
    "ordering_key",
    "headers",
)


@dataclass(kw_only=True, frozen=True, slots=True)
class ReplayRequest:
    """A replay as the service returns it."""

    id: str
    topic: str
    begin: datetime
    end: datetime
    tag: str | None
    key: str | None
    predicate: Tree | None
    rate: int
    dry_run: bool
    state: str

    @property
    def days(self) -> tuple[date, date]:
        """The first and the last day of its messages."""
        return self.begin.date(), (self.end - timedelta(microseconds=1)).date()


def request_of(answer: Mapping[str, Any]) -> ReplayRequest:
    """The replay in an answer of the service."""
    begin, end = (datetime.fromisoformat(answer[name]) for name in ("from", "to"))
    return ReplayRequest(
        id=answer["replay_id"],
        topic=answer["topic"],
        begin=begin,
        end=end,
        tag=answer["tag"],
        key=answer["key"],
        predicate=answer["predicate"],
        rate=answer["rate"],
        dry_run=answer["dry_run"],
        state=answer["state"],
    )


def choose(messages: DataFrame, request: ReplayRequest) -> DataFrame:
    """The rows of the table of messages that a replay means."""
    rows = messages.where(
        (F.col("topic") == request.topic)
        & (F.col("accepted_at") >= F.lit(request.begin))
        & (F.col("accepted_at") < F.lit(request.end))
    )
    if request.tag is not None:
        rows = rows.where(F.col("tag") == F.lit(request.tag))
    if request.key is not None:
        rows = rows.where(F.array_contains("keys", F.lit(request.key)))
    return rows.where(condition(request.predicate)) if request.predicate else rows


Portion = tuple[date, str]
"""A day and a topic_uid. A topic that was made again under its name begins at offset 0 again, so its messages are sent
after those of the one before."""


def counts(messages: DataFrame) -> dict[Portion, dict[int, int]]:
    """How many messages of each portion and shard; portions by day and time."""
    shards = messages.groupBy("day", "topic_uid", "shard").agg(
        F.count("*").alias("count"), F.min("accepted_at").alias("first")
    )
    portions: dict[Portion, dict[int, int]] = {}
    for row in shards.orderBy("day", "first").collect():
        portions.setdefault((row["day"], row["topic_uid"]), {})[row["shard"]] = row["count"]
    return portions


def in_order(messages: DataFrame, senders: int) -> DataFrame:
    """What is sent of the rows, in a partition for each sender (or fewer): a shard is in one of them, by offset."""
    parts = messages.select(*_COLUMNS).repartitionByRange(senders, "shard")
    return parts.sortWithinPartitions("shard", "offset")


def send(messages: DataFrame, service: Service, request: ReplayRequest, shards: int) -> Sent:
    """Send rows from the executors, a shard's in their order. Together the senders keep to the rate: each has its part
    of it, and there are no more of them than can run at once."""
    at_once = messages.sparkSession.sparkContext.defaultParallelism
    senders = max(1, min(shards, at_once, request.rate, _MOST_SENDERS))
    deliverer = ReplaySender(service=service, replay=request.id, rate=request.rate / senders)
    return sum(in_order(messages, senders).rdd.mapPartitions(deliverer.partition).collect(), Sent())


class ReplayJob:
    """One run of a replay."""

    def __init__(
        self, *, spark: SparkSession, bucket: Bucket, service: Service, request: ReplayRequest
    ) -> None:
        self._spark = spark
        self._bucket = bucket
        self._service = service
        self._request = request
        self.matched: int | None = None
        self.done = Sent()

    def run(self) -> int:
        """Count, send day after day, and tell the service, also that the job is still at work; the exit code."""
        self._tell("RUNNING")
        with self.heartbeat():
            self._send()
        if self.done.refused:
            refusals = ", ".join(f"{count} {code}" for code, count in sorted(self.done.refused.items()))
            self._tell("FAILED", f"Some messages were refused: {refusals}.")
            return INCOMPLETE
        self._tell("DONE")
        return DONE

    def _send(self) -> None:
        request = self._request
        manifests = load_all(self._bucket, *request.days)
        refuse_damaged(self._bucket, manifests, [request.topic])
        with name_damage(self._bucket, manifests, [request.topic]):
            archive = sound_table(self._spark, self._bucket, MESSAGES, manifests, [request.topic])
            rows = choose(archive, request)
            portions = counts(rows)
            self.matched = sum(sum(shards.values()) for shards in portions.values())
            days = len({day for day, _ in portions})
            progress(f"replay {request.id}: {self.matched} messages match, on {days} days")
            for (day, topic_uid), shards in portions.items() if not request.dry_run else ():
                self._tell("RUNNING")
                portion = rows.where((F.col("day") == F.lit(day)) & (F.col("topic_uid") == topic_uid))
                self.done += send(portion, self._service, request, len(shards))
                progress(f"replay {request.id}: {day} is done, {self.done.sent} of {self.matched} sent")

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Meanwhile tell the service each minute that the replay runs: one that does not change any more was killed."""
        end = threading.Event()

        def tell() -> None:
            while not end.wait(_BEAT_SECONDS):
                try:
                    self._tell("RUNNING")
                except JobError as error:
                    progress(f"the service was not told that the replay runs: {error}")

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            end.set()
            teller.join()

    def fail(self, why: str) -> None:
        """Report the failure to the service, if it can be reached."""
        try:
            self._tell("FAILED", why)
        except (Refused, Unreachable) as error:
            progress(f"the service was not told of the failure: {error}")

    def _tell(self, state: str, error: str | None = None) -> None:
        progress_fields = {"state": state, "matched": self.matched, "sent": self.done.sent}
        body = {**progress_fields, "error": error and error[:_MAX_ERROR_CHARS]}
        self._service.ask("PATCH", f"/v1/replays/{self._request.id}", body)


def find(service: Service, options: argparse.Namespace) -> ReplayRequest:
    """The replay that was named, or a new one. Raises Refused, Unreachable."""
    if options.replay:
        return request_of(service.ask("GET", f"/v1/replays/{options.replay}"))
    times = {"from": _text(options.begin), "to": _text(options.end)}
    selection = {name: value for name in SELECTION if (value := getattr(options, name)) is not None}
    body = {**times, **selection, "dry_run": options.dry_run, "start": False}
    return request_of(service.ask("POST", f"/v1/topics/{options.topic}/replays", body))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run(options: argparse.Namespace, service: Service) -> int:
    """Do the job; its exit code."""
    try:
        request = find(service, options)
    except Refused as error:
        if error.status in RETRYABLE:
            raise
        print(error, file=sys.stderr)
        summary("replay", error=str(error))
        return BAD_ARGUMENTS
    start_time = time.monotonic()
    if request.state == "DONE":
        progress(f"replay {request.id} was done before: nothing is sent")
        code, report = DONE, {"state": "DONE"}
    else:
        with job.spark("replay", options) as start:
            code, report = _run(start(), options, service, request)
    seconds = round(time.monotonic() - start_time, 1)
    summary("replay", replay=request.id, dry_run=request.dry_run, **report, seconds=seconds)
    return code


def _run(
    spark: SparkSession, options: argparse.Namespace, service: Service, request: ReplayRequest
) -> tuple[int, dict[str, Any]]:
    replay = ReplayJob(
        spark=spark, bucket=bucket_of(options.bucket, options.folder), service=service, request=request
    )
    why = None
    try:
        code = replay.run()
    except Exception as error:  # noqa: BLE001
        code, why = FAILED, sentence(error)
        replay.fail(why)
        print(f"The replay failed: {why}\nRun it again: --replay {request.id}", file=sys.stderr)
    totals = {"matched": replay.matched, "sent": replay.done.sent, "sent_before": replay.done.before}
    report = {"state": "DONE" if code == DONE else "FAILED", **totals, "refused": dict(replay.done.refused)}
    return code, report | ({"error": why} if why else {})
