"""Two groups over the same messages: the one that had them, and one that had them again, by a replay."""

from __future__ import annotations

import argparse
import time
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.common.arguments import DONE
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.failures import JobError
from glue_jobs.common.manifest import is_small, load_all, table
from glue_jobs.common.output import progress, summary
from glue_jobs.common.schemas import DELIVERIES, MESSAGES
from glue_jobs.common.session import Start
from glue_jobs.reporting.aggregates import MARK, attempts
from glue_jobs.reporting.tables import as_text, write

_MARK_OF = "headrace-replay-of"
_MESSAGE = ("topic", "topic_uid", "shard", "offset")
_SIDES = ("", "shadow_")
_SHOWN = 20


class NothingToCompare(JobError):
    """No message of the one topic was replayed into the other."""


def compared(messages: DataFrame, deliveries: DataFrame, options: argparse.Namespace) -> DataFrame:
    """A row for each message of the topic that was replayed into the shadow (the last time, where it was so more than
    once): `id`, `shadow_id`, and of both groups the `outcome` of the last attempt (null: none), `attempts` so far,
    `duration_ms` and `detail` of the last; `differs` says whether outcome or attempts do."""
    again = messages.where(F.col("topic") == options.shadow).select(
        *_MESSAGE,
        F.col("id").alias("shadow_id"),
        F.col("headers").getItem(_MARK_OF).alias("id"),
        F.col("headers").getItem(MARK).alias("replay"),
        "accepted_at",
    )
    if options.replay:
        again = again.where(F.col("replay") == options.replay)
    newest = Window.partitionBy("id").orderBy(F.desc("accepted_at"), F.desc("shadow_id"))
    again = again.where("id is not null").withColumn("n", F.row_number().over(newest)).where("n = 1")
    first = messages.where(F.col("topic") == options.topic).select(*_MESSAGE, "id")
    shadow = again.select(*_MESSAGE, "id", "shadow_id")
    ours = _ends(first, deliveries, options.group)
    theirs = _ends(shadow, deliveries, options.shadow_group, "shadow_id").select(
        "id", "shadow_id", *(F.col(name).alias(f"shadow_{name}") for name in _END)
    )
    differs = ~F.col("outcome").eqNullSafe(F.col("shadow_outcome")) | (
        F.col("attempts") != F.col("shadow_attempts")
    )
    both = ours.join(theirs, "id").withColumn("differs", differs)
    columns = (f"{side}{name}" for name in _END for side in _SIDES)
    return both.select("id", "shadow_id", "differs", *columns).orderBy(F.desc("differs"), "id")


_END = ("outcome", "attempts", "duration_ms", "detail")


def _ends(messages: DataFrame, deliveries: DataFrame, group: str, *more: str) -> DataFrame:
    """How each message ended for a group, so far."""
    tried = attempts(deliveries).where(F.col("group") == group)
    latest = Window.partitionBy(*_MESSAGE).orderBy(F.desc("started_at"), F.desc("attempt"))
    last = tried.withColumn("n", F.row_number().over(latest)).where("n = 1")
    count = tried.groupBy(*_MESSAGE).agg(F.count("*").alias("attempts"))
    ended = messages.join(last.select(*_MESSAGE, "outcome", "duration_ms", "detail"), [*_MESSAGE], "left")
    whole = ended.join(count, [*_MESSAGE], "left").fillna(0, ["attempts"])
    return whole.select("id", *more, *_END)


def sums(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Both groups in all: how many messages, how many of them differ, by outcome, attempts and durations."""
    pairs: dict[str, int] = {}
    for row in rows:
        pair = f"{row['outcome'] or 'OPEN'} -> {row['shadow_outcome'] or 'OPEN'}"
        pairs[pair] = pairs.get(pair, 0) + 1
    total: dict[str, Any] = {"messages": len(rows), "differ": sum(row["differs"] for row in rows)}
    total["outcomes"] = dict(sorted(pairs.items(), key=lambda item: (-item[1], item[0])))
    for side in _SIDES:
        total[f"{side}attempts"] = sum(row[f"{side}attempts"] for row in rows)
        durations = sorted(row[f"{side}duration_ms"] for row in rows if row[f"{side}duration_ms"] is not None)
        for name, rank in (("p50", 50), ("p99", 99)):
            total[f"{side}duration_{name}_ms"] = (
                durations[(len(durations) - 1) * rank // 100] if durations else None
            )
    return total


def run(start: Start, bucket: Bucket, options: argparse.Namespace) -> int:
    """Compare, write, print; the exit code."""
    began, manifests = time.monotonic(), load_all(bucket)
    spark = start(is_small=is_small(manifests))
    messages, deliveries = (
        table(spark, bucket, name, manifests, [options.topic, options.shadow])
        for name in (MESSAGES, DELIVERIES)
    )
    name = f"{options.topic}-{options.group}_{options.shadow}-{options.shadow_group}"
    place = f"reports/shadows/{name}"
    rows = write(spark, bucket, place, compared(messages, deliveries, options))
    if not rows:
        raise NothingToCompare(
            f"The archive has no message of {options.topic} that was replayed into {options.shadow}: replay, archive, "
            "and compare again."
        )
    differing = [row for row in rows if row["differs"]]
    if differing:
        names = ("id", "outcome", "shadow_outcome", "attempts", "shadow_attempts", "detail", "shadow_detail")
        print(as_text(differing[:_SHOWN], names))
    if len(differing) > _SHOWN:
        progress(f"compare: {len(differing) - _SHOWN} more differ, see {bucket.uri(place)}.csv")
    seconds = round(time.monotonic() - began, 1)
    summary("compare", table=bucket.uri(place), **sums(rows), seconds=seconds)
    return DONE
