"""The state of a topic at a moment, computed from the messages and attempts until then."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.common.arguments import DONE, INCOMPLETE, summary
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.damage import name_damage, refuse_damaged, sound_table
from glue_jobs.common.failures import JobError
from glue_jobs.common.manifest import Manifest, days, has_topic, is_small, load_all
from glue_jobs.common.schemas import DELIVERIES, MESSAGES
from glue_jobs.common.session import Start
from glue_jobs.reporting import lives
from glue_jobs.reporting.aggregates import attempt_end, attempts
from glue_jobs.reporting.run import Span, gaps, quiet_days
from glue_jobs.reporting.tables import as_text

STATES = ("waiting", "in_flight", "retrying", "dead", "done", "passed_over")
"""Of a message, for a group, at the moment. `waiting`: nobody had tried it, though somebody did later, or nobody had
come so far. `passed_over`: others behind it were tried, and it never was: its filter does not want it, it expired, or
the group began later."""

_INSTANT = timedelta(microseconds=1)
_SHARD = ("topic", "topic_uid", "shard")
_ATTEMPT = ("group", *_SHARD, "offset")


class NotArchived(JobError):
    """The archive does not reach to that moment."""


def states(messages: DataFrame, deliveries: DataFrame, at: datetime) -> DataFrame:
    """For each message that was accepted by then, and each group that ever tried one of its topic: `topic`, `group`,
    `shard`, `offset`, `id`, `accepted_at`, `attempts` made or begun by then, `consumer` of the last, and `state`. Of a
    topic or group that was deleted and made again, those count that lived then."""
    all_attempts = lives.of_groups_at(attempts(deliveries), at)
    by_then = all_attempts.where(F.col("started_at") <= F.lit(at))
    latest = Window.partitionBy(*_ATTEMPT).orderBy(F.desc("started_at"), F.desc("attempt"))
    last = by_then.withColumn("n", F.row_number().over(latest)).where("n = 1")
    last = last.select(
        *_ATTEMPT, "consumer", F.col("attempt").alias("attempts"), "outcome", attempt_end().alias("ended_at")
    )
    frontier = by_then.groupBy("group", *_SHARD).agg(F.max("offset").alias("reached"))
    ever = all_attempts.select(*_ATTEMPT).distinct().withColumn("is_tried", F.lit(True))
    groups = deliveries.select("group", "topic", "topic_uid").distinct()
    return (
        messages.where(F.col("accepted_at") <= F.lit(at))
        .select(*_SHARD, "offset", "id", "accepted_at")
        .join(lives.topics_at(messages, at), [*lives.TOPIC])
        .join(groups, ["topic", "topic_uid"])
        .join(last, [*_ATTEMPT], "left")
        .join(ever, [*_ATTEMPT], "left")
        .join(frontier, ["group", *_SHARD], "left")
        .select(
            "topic",
            "group",
            "shard",
            "offset",
            "id",
            "accepted_at",
            F.coalesce("attempts", F.lit(0)).alias("attempts"),
            "consumer",
            _state(at).alias("state"),
        )
    )


def _state(at: datetime) -> Column:
    is_ahead = F.col("reached").isNull() | (F.col("offset") > F.col("reached"))
    return (
        F.when(F.col("outcome").isNull() & (F.col("is_tried") | is_ahead), "waiting")
        .when(F.col("outcome").isNull(), "passed_over")
        .when(F.col("ended_at") > F.lit(at), "in_flight")
        .when(F.col("outcome") == "SUCCESS", "done")
        .when(F.col("outcome") == "DEAD", "dead")
        .otherwise("retrying")
    )


def state_counts(states: DataFrame) -> list[dict[str, Any]]:
    """By topic and group: how many messages were in each state, and since when the oldest was not done."""
    is_open = F.col("state").isin("waiting", "in_flight", "retrying")
    oldest = F.min(F.when(is_open, F.col("accepted_at")))
    rows = (
        states.groupBy("topic", "group")
        .agg(
            *(F.count_if(F.col("state") == state).alias(state) for state in STATES),
            F.date_format(oldest, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("oldest_open_at"),
        )
        .orderBy("topic", "group")
    )
    return [row.asDict() for row in rows.collect()]


def run(start: Start, bucket: Bucket, options: argparse.Namespace) -> int:
    """Print both tables; the exit code."""
    start_time, at = time.monotonic(), options.at
    first = (at - timedelta(days=options.look_back_days)).date()
    manifests = load_all(bucket, first)
    latest = manifests or load_all(bucket, *map(date.fromisoformat, days(bucket)[-1:]))
    archive_end = max((each.known_until for each in latest), default=None)
    if not archive_end or archive_end < at:
        hint = f" (it ends at {archive_end:%Y-%m-%dT%H:%M:%SZ})" if archive_end else ""
        raise NotArchived(
            f"The archive does not reach to {at:%Y-%m-%dT%H:%M:%SZ}{hint}: run make archive first."
        )
    if not has_topic(manifests, options.topic):
        raise NotArchived(
            f"Nothing of {options.topic} is archived of {first} and later: check the name; GET /v1/archive lists the "
            "topics that are there."
        )
    refuse_damaged(bucket, manifests, [options.topic])
    spark = start(is_small=is_small(manifests))
    with name_damage(bucket, manifests, [options.topic]):
        messages, deliveries = (
            sound_table(spark, bucket, name, manifests, [options.topic]) for name in (MESSAGES, DELIVERIES)
        )
        if options.group:
            deliveries = deliveries.where(F.col("group") == options.group)
        messages_then = states(messages, deliveries, at).persist()
        groups = state_counts(messages_then)
    if not groups:
        raise NotArchived(
            f"Nobody has tried anything of {options.topic}{_of(options.group)} that had come by "
            f"{at:%Y-%m-%dT%H:%M:%SZ}, as far as is archived."
        )
    print(as_text(groups, ("group", *STATES, "oldest_open_at")))
    if options.list and (open_rows := _open(messages_then, options.list)):
        print("\n" + as_text(open_rows, ("group", "state", "id", "accepted_at", "attempts", "consumer")))
    span = Span(max(first, _first(manifests)), (at - _INSTANT).date())
    gap_sentences = gaps(manifests, span, quiet_days(bucket))
    seconds = round(time.monotonic() - start_time, 1)
    moment = at.isoformat().replace("+00:00", "Z")
    summary("asof", topic=options.topic, at=moment, groups=groups, lacking=gap_sentences, seconds=seconds)
    return INCOMPLETE if gap_sentences else DONE


def _first(manifests: Sequence[Manifest]) -> Any:
    return datetime.fromisoformat(min(each.day for each in manifests)).date()


def _of(group: str | None) -> str:
    return f" for {group}" if group else ""


def _open(messages_then: DataFrame, most: int) -> list[dict[str, Any]]:
    rows = messages_then.where(F.col("state").isin("waiting", "in_flight", "retrying", "dead"))
    text = F.date_format("accepted_at", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    oldest = rows.orderBy("accepted_at", "shard", "offset", "group").withColumn("accepted_at", text)
    return [row.asDict() for row in oldest.limit(most).collect()]
