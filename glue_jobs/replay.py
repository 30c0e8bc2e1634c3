"""Send archived messages again: from the archive into a topic, or to one of its groups.

A replay is made by the service, which checks it and knows every message that was sent under it: run the job again after
whatever happened, and nothing is sent twice. Two ways to say which:

  --replay ID                                  one that POST /v1/topics/{topic}/replays has made
  --topic orders --from 2026-11-01 --to …      make one now, and run it; --dry-run yes only counts

  python -m glue_jobs.replay --topic orders --from 2026-11-01 --to 2026-11-02T12:00:00Z \\
      --where "customer.country = 'FI' AND total > 100" --into orders-again --rate 50

The token is HEADRACE_TOKEN, else what HEADRACE_DATA/token holds; on AWS the secret that --token-secret names.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import arguments, session
from .arguments import BAD_ARGUMENTS, DONE, FAILED, INCOMPLETE
from .bucket import Bucket
from .manifest import TooNew, load_all, table
from .predicate import Tree, condition
from .schemas import MESSAGES
from .sending import ReplaySender, Sent
from .service import RETRYABLE, Refused, Service, Unreachable
from .telling import progress, summary

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_MOST_SENDERS = 16
_MAX_ERROR_CHARS = 512
_SELECTION = ("tag", "key", "where", "into", "group", "rate")
_COLUMNS = ("id", "shard", "offset", "content_type", "body", "keys", "tag", "ordering_key", "headers")


@dataclass(frozen=True, slots=True)
class Asked:
    """A replay as the service tells it."""

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


def asked_of(told: Mapping[str, Any]) -> Asked:
    """What the service told of a replay."""
    begin, end = (datetime.fromisoformat(told[name]) for name in ("from", "to"))
    return Asked(
        told["replay_id"],
        told["topic"],
        begin,
        end,
        told["tag"],
        told["key"],
        told["predicate"],
        told["rate"],
        told["dry_run"],
        told["state"],
    )


def choose(messages: DataFrame, asked: Asked) -> DataFrame:
    """The rows of the table of messages that a replay means."""
    found = messages.where(
        (F.col("topic") == asked.topic)
        & (F.col("accepted_at") >= F.lit(asked.begin))
        & (F.col("accepted_at") < F.lit(asked.end))
    )
    if asked.tag is not None:
        found = found.where(F.col("tag") == F.lit(asked.tag))
    if asked.key is not None:
        found = found.where(F.array_contains("keys", F.lit(asked.key)))
    return found.where(condition(asked.predicate)) if asked.predicate else found


def counts(chosen: DataFrame) -> dict[date, dict[int, int]]:
    """How many messages of each day and shard, days in order."""
    found: dict[date, dict[int, int]] = {}
    for row in chosen.groupBy("day", "shard").count().orderBy("day", "shard").collect():
        found.setdefault(row["day"], {})[row["shard"]] = row["count"]
    return found


def in_order(chosen: DataFrame, senders: int) -> DataFrame:
    """What is sent of the rows, in a partition for each sender (or fewer): a shard is in one of them, by offset."""
    parts = chosen.select(*_COLUMNS).repartitionByRange(senders, "shard")
    return parts.sortWithinPartitions("shard", "offset")


def send(chosen: DataFrame, service: Service, asked: Asked, shards: int) -> Sent:
    """Send rows from the executors, a shard's in their order. Together the senders keep to the rate: each has its part
    of it, and there are no more of them than can run at once."""
    at_once = chosen.sparkSession.sparkContext.defaultParallelism
    senders = max(1, min(shards, at_once, asked.rate, _MOST_SENDERS))
    deliverer = ReplaySender(service, asked.id, asked.rate / senders)
    return sum(in_order(chosen, senders).rdd.mapPartitions(deliverer.partition).collect(), Sent())


_FAILURES = (Refused, Unreachable, TooNew, PySparkException, Py4JError, OSError)
_OURS = re.compile(r"^glue_jobs\.\S+: (.+)$", re.MULTILINE)


class ReplayJob:
    """One run of a replay."""

    def __init__(self, spark: SparkSession, bucket: Bucket, service: Service, asked: Asked) -> None:
        self._spark = spark
        self._bucket = bucket
        self._service = service
        self._asked = asked
        self.matched: int | None = None
        self.done = Sent()

    def run(self) -> int:
        """Count, send day after day, and tell the service; the exit code."""
        asked = self._asked
        self._tell("RUNNING")
        archived = table(
            self._spark, self._bucket, MESSAGES, load_all(self._bucket, *asked.days), [asked.topic]
        )
        chosen = choose(archived, asked)
        days = counts(chosen)
        self.matched = sum(sum(shards.values()) for shards in days.values())
        progress(f"replay {asked.id}: {self.matched} messages match, on {len(days)} days")
        for day, shards in days.items() if not asked.dry_run else ():
            self._tell("RUNNING")
            self.done += send(chosen.where(F.col("day") == F.lit(day)), self._service, asked, len(shards))
            progress(f"replay {asked.id}: {day} is done, {self.done.sent} of {self.matched} sent")
        if self.done.refused:
            told = ", ".join(f"{count} {code}" for code, count in sorted(self.done.refused.items()))
            self._tell("FAILED", f"Some messages were refused: {told}.")
            return INCOMPLETE
        self._tell("DONE")
        return DONE

    def fail(self, why: str) -> None:
        """Tell the service, if it can be told."""
        try:
            self._tell("FAILED", why)
        except (Refused, Unreachable) as error:
            progress(f"the service was not told of the failure: {error}")

    def _tell(self, state: str, error: str | None = None) -> None:
        told = {"state": state, "matched": self.matched, "sent": self.done.sent}
        body = {**told, "error": error and error[:_MAX_ERROR_CHARS]}
        self._service.ask("PATCH", f"/v1/replays/{self._asked.id}", body)


def read(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments."""
    parser = arguments.reader("replay", __doc__)
    parser.add_argument("--replay", type=_name, metavar="ID", help="the replay to run, or to run again")
    parser.add_argument("--topic", type=_name, help="make a replay of this topic's archived messages")
    parser.add_argument("--from", dest="begin", type=arguments.instant, help="accepted from this time on")
    parser.add_argument("--to", dest="end", type=arguments.instant, help="accepted before this time")
    parser.add_argument("--tag", help="only with this tag")
    parser.add_argument("--key", help="only with this business key")
    parser.add_argument("--where", help="only where this holds of the JSON body, as \"a.b > 5 AND c = 'x'\"")
    parser.add_argument("--into", metavar="TOPIC", help="the topic to send to (the same)")
    parser.add_argument("--group", help="the one group of it that gets them (all)")
    parser.add_argument("--rate", type=arguments.positive, help="messages a second (100)")
    parser.add_argument(
        "--dry-run", type=arguments.yes_no, default=False, metavar="yes|no", help="only count (no)"
    )
    parser.add_argument(
        "--url",
        default=os.environ.get("HEADRACE_URL") or "http://127.0.0.1:8700",
        help="where Headrace is (HEADRACE_URL, else http://127.0.0.1:8700)",
    )
    parser.add_argument(
        "--token-secret", metavar="NAME", help="the secret that holds the admin token, on AWS"
    )
    given = arguments.parse(parser, argv)
    _check(parser, given)
    return given


def _name(text: str) -> str:
    """The name of a topic, or a replay's id."""
    if not _NAME.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name")
    return text


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Leave the process where the arguments do not fit one another."""
    making = [name for name in ("topic", "begin", "end", *_SELECTION, "dry_run") if getattr(given, name)]
    if given.replay and making:
        parser.error("--replay names a replay whose choice is made: give nothing else to choose by.")
    if not given.replay and not (given.topic and given.begin and given.end):
        parser.error("give --replay, or --topic with --from and --to.")
    if not given.url.startswith(("http://", "https://")):
        parser.error("--url begins with http:// or https://.")
    if not given.token_secret and not _token_here():
        parser.error("there is no token: set HEADRACE_TOKEN, or HEADRACE_DATA to the folder of `make run`.")


def _token_here() -> str | None:
    data = os.environ.get("HEADRACE_DATA")
    file = Path(data, "token") if data else None
    return os.environ.get("HEADRACE_TOKEN") or (file.read_text().strip() if file and file.exists() else None)


def _token(given: argparse.Namespace) -> str:
    if not given.token_secret:
        return _token_here() or ""
    import boto3

    return str(boto3.client("secretsmanager").get_secret_value(SecretId=given.token_secret)["SecretString"])


def find(service: Service, given: argparse.Namespace) -> Asked:
    """The replay that was named, or a new one. Raises Refused, Unreachable."""
    if given.replay:
        return asked_of(service.ask("GET", f"/v1/replays/{given.replay}"))
    times = {"from": _text(given.begin), "to": _text(given.end)}
    chosen = {name: value for name in _SELECTION if (value := getattr(given, name)) is not None}
    body = {**times, **chosen, "dry_run": given.dry_run, "start": False}
    return asked_of(service.ask("POST", f"/v1/topics/{given.topic}/replays", body))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    given = read(argv)
    return run(given, Service(given.url.rstrip("/"), _token(given)))


def run(given: argparse.Namespace, service: Service) -> int:
    """Do the job; its exit code."""
    try:
        asked = find(service, given)
    except (Refused, Unreachable) as error:
        print(error, file=sys.stderr)
        is_final = isinstance(error, Refused) and error.status not in RETRYABLE
        return BAD_ARGUMENTS if is_final else FAILED
    began = time.monotonic()
    code, told = _run(given, service, asked)
    summary(
        "replay", replay=asked.id, dry_run=asked.dry_run, **told, seconds=round(time.monotonic() - began, 1)
    )
    return code


def reason(error: Exception) -> str:
    """What went wrong, in a sentence: of a failed task what its own code said."""
    told = str(error)
    ours = _OURS.findall(told)
    return str(ours[-1]) if ours else f"{type(error).__name__}: {told.partition(chr(10))[0]}"


def _run(given: argparse.Namespace, service: Service, asked: Asked) -> tuple[int, dict[str, Any]]:
    if asked.state == "DONE":
        progress(f"replay {asked.id} was done before: nothing is sent")
        return DONE, {"state": "DONE"}
    spark = session.start("replay", given.folder, given.bucket)
    job = ReplayJob(spark, Bucket(spark, given.bucket), service, asked)
    try:
        code = job.run()
    except _FAILURES as error:
        job.fail(reason(error))
        print(f"The replay failed: {reason(error)}\nRun it again: --replay {asked.id}", file=sys.stderr)
        code = FAILED
    finally:
        spark.stop()
    done = job.done
    counted = {"matched": job.matched, "sent": done.sent, "sent_before": done.before}
    return code, {"state": "DONE" if code == DONE else "FAILED", **counted, "refused": dict(done.refused)}


if __name__ == "__main__":
    sys.exit(main())
