"""The figures of a report, as functions from the archive's tables to small ones.

An attempt counts on the day it began, a message on the day it was accepted. Latency is end to end: from acceptance to
the end of the attempt that succeeded, retries and waiting included.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.reporting import lives

REPLAY_HEADER = "headrace-replay"
_PAIR = ("topic", "group")
_SHARD = ("topic", "topic_uid", "shard")
_MESSAGE = (*_SHARD, "offset")
_FAILED = ("RETRY", "LAPSED", "DEAD")
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_ACCURACY = 10_000


def attempts(deliveries: DataFrame) -> DataFrame:
    """Without what was noted but not tried (redriven dead letters), and without outcomes that only a later release
    knows."""
    known = F.col("outcome").isin("SUCCESS", *_FAILED)
    return deliveries.where(known).fillna("", ["group_uid"])  # old lines have none


def volumes(messages: DataFrame) -> DataFrame:
    """By topic and day: how many messages were accepted, their bytes, how many of them by a replay."""
    return (
        messages.groupBy("topic", "day")
        .agg(
            F.count("*").alias("accepted"),
            F.sum(F.coalesce(F.length("body"), F.lit(0))).alias("body_bytes"),
            _count_if(F.col("headers").getItem(REPLAY_HEADER).isNotNull()).alias("replayed"),
        )
        .orderBy("topic", "day")
    )


def by_day(messages: DataFrame, deliveries: DataFrame) -> DataFrame:
    """By topic, group and day: attempts, what they came to, and latency in ms. `messages` may hold more days: those
    whose messages were delivered later."""
    return _delivery_stats(messages, deliveries, "day")


def by_hour(messages: DataFrame, deliveries: DataFrame) -> DataFrame:
    """The same by hour."""
    return _delivery_stats(
        messages, deliveries.withColumn("hour", F.date_trunc("hour", "started_at")), "hour"
    )


def _delivery_stats(messages: DataFrame, deliveries: DataFrame, time_column: str) -> DataFrame:
    arrivals = messages.select(*_MESSAGE, "accepted_at")
    tries = attempts(deliveries).join(arrivals, list(_MESSAGE), "left")
    latency = F.when(F.col("outcome") == "SUCCESS", _ms(attempt_end()) - _ms(F.col("accepted_at")))
    ranks = F.array(*(F.lit(rank) for rank in _PERCENTILES.values()))
    rows = (
        tries.withColumn("latency", latency)
        .groupBy(*_PAIR, time_column)
        .agg(
            F.count("*").alias("attempts"),
            F.countDistinct(*_MESSAGE).alias("messages"),
            *(_count_if(F.col("outcome") == outcome).alias(name) for name, outcome in _OUTCOMES.items()),
            F.countDistinct("consumer").alias("consumers"),
            F.max("attempt").alias("most_attempts"),
            F.percentile_approx("latency", ranks, _ACCURACY).alias("ranks"),
            F.max("latency").alias("latency_max_ms"),
        )
    )
    percentiles = [F.col("ranks")[n].alias(f"latency_{name}_ms") for n, name in enumerate(_PERCENTILES)]
    plain = [name for name in rows.columns if name not in ("ranks", "latency_max_ms")]
    return rows.select(*plain, *percentiles, "latency_max_ms").orderBy(*_PAIR, time_column)


_OUTCOMES = {"delivered": "SUCCESS", "retried": "RETRY", "lapsed": "LAPSED", "dead_letters": "DEAD"}


def failures(deliveries: DataFrame) -> DataFrame:
    """By topic, group and day: failed attempts by outcome and reason, the most frequent first."""
    reason = F.when(F.coalesce(F.col("detail"), F.lit("")) == "", F.lit("no reason given")).otherwise(
        F.col("detail")
    )
    return (
        deliveries.where(F.col("outcome").isin(*_FAILED))
        .groupBy(*_PAIR, "day", "outcome", reason.alias("reason"))
        .agg(F.count("*").alias("attempts"))
        .orderBy(*_PAIR, "day", F.desc("attempts"), "outcome", "reason")
    )


DELIVERED, DEAD, UNDER_WAY, WAITING, PASSED_OVER, DELETED = FATES = (
    "delivered",
    "dead",
    "under_way",
    "waiting",
    "passed_over",
    "deleted",
)
"""What became of a message for a group. UNDER_WAY: tried and not ended. WAITING: behind the last that was tried in its
shard. PASSED_OVER: before it and not tried: its filter does not want it, it expired, or the group began later.
DELETED: it had not ended when its topic was deleted and made again."""


def fates(messages: DataFrame, deliveries: DataFrame) -> DataFrame:
    """For each message and each group that was seen to try something of its topic: `topic`, `group`, `accepted_at`,
    `ended_at` (null: not yet) and `fate`. Of a group that was made again only its last life counts."""
    tries = lives.of_last_groups(attempts(deliveries))
    end = F.when(F.col("outcome").isin("SUCCESS", "DEAD"), attempt_end())
    ends = tries.groupBy("group", *_MESSAGE).agg(
        F.min(end).alias("ended_at"), F.max(F.col("outcome") == "SUCCESS").alias("is_delivered")
    )
    frontier = tries.groupBy("group", *_SHARD).agg(F.max("offset").alias("reached"))
    groups = deliveries.select("group", "topic", "topic_uid").distinct()
    fate = (
        F.when(F.col("is_delivered"), DELIVERED)
        .when(F.col("ended_at").isNotNull(), DEAD)
        .when(F.col("is_delivered").isNull() & (F.col("offset") <= F.col("reached")), PASSED_OVER)
        .when(F.col("topic_over_at").isNotNull(), DELETED)
        .when(F.col("is_delivered").isNotNull(), UNDER_WAY)
        .otherwise(WAITING)
    )
    over_at = F.when(F.col("topic_over_at").isNotNull(), F.greatest("topic_over_at", "accepted_at"))
    return (
        messages.select(*_MESSAGE, "day", "accepted_at")
        .join(groups, ["topic", "topic_uid"])
        .join(frontier, ["group", *_SHARD], "left")
        .join(ends, ["group", *_MESSAGE], "left")
        .join(F.broadcast(lives.topics(messages)), [*lives.TOPIC])
        .select(
            *_PAIR,
            "day",
            "accepted_at",
            F.coalesce("ended_at", over_at).alias("ended_at"),
            fate.alias("fate"),
        )
    )


def fate_counts(fates: DataFrame) -> DataFrame:
    """By topic and group: how many messages were accepted, and of what fate they are, which adds up; and when the
    oldest was accepted that waits or is under way."""
    is_open = F.col("fate").isin(UNDER_WAY, WAITING)
    return (
        fates.groupBy(*_PAIR)
        .agg(
            F.count("*").alias("accepted"),
            *(_count_if(F.col("fate") == fate).alias(fate) for fate in FATES),
            F.min(F.when(is_open, F.col("accepted_at"))).alias("oldest_open_at"),
        )
        .orderBy(*_PAIR)
    )


def messages_to_deliver(fates: DataFrame) -> DataFrame:
    """Topic, group, accepted_at and ended_at of the messages that a group had or has before it."""
    return fates.where(F.col("fate") != PASSED_OVER).select(*_PAIR, "accepted_at", "ended_at")


def backlog(messages: DataFrame, begin: datetime, end: datetime) -> DataFrame:
    """By topic, group and hour from `begin` to `end`: how many messages came, how many ended, and how many were waiting
    at the hour's end. What waited at `begin` came before the first hour."""
    steps = F.explode(
        F.array(
            F.struct(F.col("accepted_at").alias("at"), F.lit(1).alias("came"), F.lit(0).alias("ended")),
            F.struct(F.col("ended_at").alias("at"), F.lit(0).alias("came"), F.lit(1).alias("ended")),
        )
    )
    events = (
        messages.select(*_PAIR, steps.alias("step")).select(*_PAIR, "step.*").where(F.col("at") < F.lit(end))
    )
    before = events.where(F.col("at") < F.lit(begin)).groupBy(*_PAIR)
    opening = before.agg(F.sum(F.col("came") - F.col("ended")).alias("opening"))
    hours = events.where(F.col("at") >= F.lit(begin)).groupBy(
        *_PAIR, F.date_trunc("hour", "at").alias("hour")
    )
    counts = hours.agg(F.sum("came").alias("came"), F.sum("ended").alias("ended"))
    every_hour = F.explode(
        F.sequence(F.lit(begin), F.lit(end) - F.expr("INTERVAL 1 HOUR"), F.expr("INTERVAL 1 HOUR"))
    )
    grid = messages.select(*_PAIR).distinct().select(*_PAIR, every_hour.alias("hour"))
    so_far = Window.partitionBy(*_PAIR).orderBy("hour").rowsBetween(Window.unboundedPreceding, 0)
    filled_grid = grid.join(counts, [*_PAIR, "hour"], "left").join(opening, list(_PAIR), "left").fillna(0)
    waiting_count = F.col("opening") + F.sum(F.col("came") - F.col("ended")).over(so_far)
    return filled_grid.select(*_PAIR, "hour", "came", "ended", waiting_count.alias("waiting")).orderBy(
        *_PAIR, "hour"
    )


def attempt_end() -> Column:
    """When an attempt was over."""
    return (F.col("started_at").cast("double") + F.col("duration_ms") / 1000).cast("timestamp")


def _ms(moment: Column) -> Column:
    return F.round(moment.cast("double") * 1000).cast("long")


def _count_if(condition: Column) -> Column:
    return F.count(F.when(condition, 1))
