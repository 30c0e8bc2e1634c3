"""Two groups over the same messages: the one that had them, and one that had them again, by a replay."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.common.arguments import DONE, INCOMPLETE, progress, summary
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.damage import name_damage, refuse_damaged, sound_table
from glue_jobs.common.failures import JobError
from glue_jobs.common.manifest import Manifest, has_topic, is_small, load_all
from glue_jobs.common.schemas import DELIVERIES, MESSAGES
from glue_jobs.common.session import Start
from glue_jobs.reporting import lives
from glue_jobs.reporting.aggregates import REPLAY_HEADER, attempts
from glue_jobs.reporting.comparison import SIDES, Comparison
from glue_jobs.reporting.tables import as_text, write_large

_REPLAY_OF_HEADER = "headrace-replay-of"
_MESSAGE = ("topic", "topic_uid", "shard", "offset")
_END = ("outcome", "attempts", "duration_ms", "detail")
_COLUMNS = tuple(f"{side}{name}" for name in _END for side in SIDES)


class NothingToCompare(JobError):
    """No message of the first topic was replayed into the second, or a group has tried none of them."""


def comparison_rows(messages: DataFrame, deliveries: DataFrame, options: argparse.Namespace) -> DataFrame:
    """A row for each message of the topic that was replayed into the shadow (the last time, where it was so more than
    once): `id`, `shadow_id`, and of both groups the `outcome` of the last attempt (null: none), `attempts` so far,
    `duration_ms` and `detail` of the last; `differs` says whether outcome or attempts do. First come the messages that
    only the topic's own group delivered, then other outcomes, then other numbers of attempts.

    Of a group, or a shadow, that was deleted and created again, only the last counts."""
    first = messages.where(F.col("topic") == options.topic).select(*_MESSAGE, "id")
    tries = lives.of_last_groups(attempts(deliveries))
    ours = _ends(first, tries, options.group)
    theirs = _ends(_last_replays(messages, options), tries, options.shadow_group, "shadow_id").select(
        "id", "shadow_id", *(F.col(name).alias(f"shadow_{name}") for name in _END)
    )
    ends_otherwise = ~F.col("outcome").eqNullSafe(F.col("shadow_outcome"))
    is_worse = ends_otherwise & (F.col("outcome") == "SUCCESS")
    differs = ends_otherwise | (F.col("attempts") != F.col("shadow_attempts"))
    compared_rows = ours.join(theirs, "id").withColumn("differs", differs)
    order = (F.coalesce(is_worse, F.lit(False)).desc(), ends_otherwise.desc(), differs.desc(), "id")
    return compared_rows.orderBy(*order).select("id", "shadow_id", "differs", *_COLUMNS)


def _last_replays(messages: DataFrame, options: argparse.Namespace) -> DataFrame:
    """The messages of the shadow that are the last replay of one: its `id`, and their own as `shadow_id`."""
    replays = messages.where(F.col("topic") == options.shadow).select(
        *_MESSAGE,
        F.col("id").alias("shadow_id"),
        F.col("headers").getItem(_REPLAY_OF_HEADER).alias("id"),
        F.col("headers").getItem(REPLAY_HEADER).alias("replay"),
        "accepted_at",
    )
    if options.replay:
        replays = replays.where(F.col("replay") == options.replay)
    newest = Window.partitionBy("id").orderBy(F.desc("accepted_at"), F.desc("shadow_id"))
    of_last = lives.of_last_topic(replays.where("id is not null"))
    return of_last.withColumn("n", F.row_number().over(newest)).where("n = 1")


def _ends(messages: DataFrame, tries: DataFrame, group: str, *columns: str) -> DataFrame:
    """How each message ended for a group, so far."""
    own = tries.where(F.col("group") == group)
    latest = Window.partitionBy(*_MESSAGE).orderBy(F.desc("started_at"), F.desc("attempt"))
    last = own.withColumn("n", F.row_number().over(latest)).where("n = 1")
    count = own.groupBy(*_MESSAGE).agg(F.count("*").alias("attempts"))
    messages_with_end = messages.join(
        last.select(*_MESSAGE, "outcome", "duration_ms", "detail"), [*_MESSAGE], "left"
    )
    messages_with_count = messages_with_end.join(count, [*_MESSAGE], "left").fillna(0, ["attempts"])
    return messages_with_count.select("id", *columns, *_END)


def run(start: Start, bucket: Bucket, options: argparse.Namespace) -> int:
    """Compare, write, print; the exit code."""
    start_time, manifests = time.monotonic(), load_all(bucket)
    topics = [options.topic, options.shadow]
    if not all(has_topic(manifests, topic) for topic in topics):
        refuse_nothing(Comparison(), options)
    refuse_damaged(bucket, manifests, topics)
    spark = start(is_small=is_small(manifests))
    folder = f"reports/shadows/{options.topic}/{options.group}/{options.shadow}/{options.shadow_group}"
    comparison = Comparison()
    with name_damage(bucket, manifests, topics):
        messages, deliveries = (
            sound_table(spark, bucket, name, manifests, topics) for name in (MESSAGES, DELIVERIES)
        )
        write_large(bucket, folder, comparison_rows(messages, deliveries, options), comparison.add)
    refuse_nothing(comparison, options)
    print("\n\n".join(texts(comparison, options)))
    file = options.folder / f"{folder}.csv" if options.folder else f"{bucket.uri(folder)}.csv"
    progress(f"compare: {comparison.differ} of {comparison.messages} messages differ, all are in {file}")
    gap_sentences = _gap_sentences(manifests, topics)
    summary(
        "compare",
        table=bucket.uri(folder),
        messages=comparison.messages,
        differ=comparison.differ,
        outcomes={
            f"{each['outcome']} -> {each['shadow_outcome']}": each["messages"]
            for each in comparison.outcomes()
        },
        **comparison.sums(),
        lacking=gap_sentences,
        seconds=round(time.monotonic() - start_time, 1),
    )
    return INCOMPLETE if gap_sentences else DONE


def _groups(options: argparse.Namespace) -> tuple[tuple[str, str, str], ...]:
    """Both sides: what their columns begin with, topic, group."""
    ours, theirs = SIDES
    return (ours, options.topic, options.group), (theirs, options.shadow, options.shadow_group)


def refuse_nothing(comparison: Comparison, options: argparse.Namespace) -> None:
    """Raises NothingToCompare."""
    if not comparison.messages:
        by = f" by {options.replay}" if options.replay else ""
        raise NothingToCompare(
            f"The archive has no message of {options.topic} that was replayed into {options.shadow}{by}: replay, "
            "archive, and compare again."
        )
    for side, topic, group in _groups(options):
        if not comparison.sides[side].attempts:
            raise NothingToCompare(
                f"The group {group} of {topic} has tried none of the {comparison.messages} messages, as far as is "
                "archived: check its name, let it work, archive, and compare again."
            )


def texts(comparison: Comparison, options: argparse.Namespace) -> list[str]:
    """For people: messages that differ, and both groups in all."""
    groups = [
        {"topic": topic, "group": group, **comparison.sides[side].sums()}
        for side, topic, group in _groups(options)
    ]
    return [
        *([as_text(comparison.listed, ("id", *_COLUMNS))] if comparison.listed else []),
        as_text(comparison.outcomes(), ("outcome", "shadow_outcome", "messages")),
        as_text(groups, list(groups[0])),
    ]


def _gap_sentences(manifests: Sequence[Manifest], topics: Sequence[str]) -> list[str]:
    """What the archive lacks of days on which it has something of these topics, in sentences."""
    return [
        f"The archive of {day.day} is not complete: see its manifest."
        for day in manifests
        if not day.complete and day.topics.intersection(topics)
    ]
