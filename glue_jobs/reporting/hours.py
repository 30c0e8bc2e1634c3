"""A topic as it was at the full hours of a day: one small text for each topic and day, which the service reads.

`reports/hours/day=2026-11-21/orders.json` (docs/report.md) has the counts of its groups at 00:00, 01:00 … 24:00: what a
job that starts for minutes must have said before, for a call that answers in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from datetime import date, datetime, timedelta
from itertools import accumulate
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.common.bucket import Bucket
from glue_jobs.reporting import lives
from glue_jobs.reporting.aggregates import attempt_end, attempts

VERSION = 1
STATES = ("waiting", "in_flight", "retrying", "dead")
MOST_DAYS = 31
"""Of a longer report no hours are told: that would be very many texts."""

_HOUR = timedelta(hours=1)
_HOUR_US = 3_600_000_000
_MESSAGE = ("topic", "topic_uid", "shard", "offset")
_LIFE = ("group", "group_uid")
_GROUP = (*_LIFE, "topic", "topic_uid", "shard")
Counts = dict[str, dict[str, list[int]]]
"""By group and state: how many messages at each full hour, from the span's beginning on."""


def name_of(topic: str, day: date) -> str:
    return f"reports/hours/day={day}/{topic}.json"


def steps(messages: DataFrame, deliveries: DataFrame, begin: datetime, end: datetime) -> DataFrame:
    """By `topic`, `group`, `state` and `hour` (how many after `begin`): by how many messages more (or fewer) are in the
    state at that hour than an hour before; at the first, than nothing. States are those of `as_of`."""
    arrivals = messages.where(F.col("accepted_at") <= F.lit(end)).select(*_MESSAGE, "accepted_at")
    tries = attempts(deliveries).where(F.col("started_at") <= F.lit(end)).join(arrivals, [*_MESSAGE])
    topics = F.broadcast(lives.topics(arrivals))
    groups = lives.groups(tries).join(topics, [*lives.TOPIC])
    spans = groups.withColumn("over_at", F.least("over_at", "topic_over_at")).drop("topic_over_at")
    events = _moves_of_waiting(arrivals, tries, spans).unionByName(_moves_of_attempts(tries, spans))
    after_us = F.unix_micros("at") - F.unix_micros(F.lit(begin))
    hour = F.greatest(F.ceil(after_us / _HOUR_US), F.lit(0))
    state_changes = events.where("state is not null and at is not null").withColumn("hour", hour)
    within = state_changes.where(F.col("hour") <= (end - begin) // _HOUR)
    return within.groupBy("topic", "group", "state", "hour").agg(F.sum("step").alias("step"))


def _moves_of_waiting(arrivals: DataFrame, tries: DataFrame, spans: DataFrame) -> DataFrame:
    """Waiting lasts from a message's acceptance until its first attempt, or until a later message's; `spans` are the
    lives of groups."""
    first = tries.groupBy(*_LIFE, *_MESSAGE).agg(F.min("started_at").alias("first"))
    behind = Window.partitionBy(*_GROUP).orderBy(F.desc("offset")).rowsBetween(Window.unboundedPreceding, 0)
    each = arrivals.join(spans, [*lives.TOPIC]).join(first, [*_LIFE, *_MESSAGE], "left")
    departure = F.least(F.coalesce("first", F.min("first").over(behind)), "over_at")
    departures = each.withColumn("left", departure).withColumn("since", F.greatest("accepted_at", "began_at"))
    until = F.when(F.col("left").isNotNull(), F.greatest("since", "left"))  # clocks differ
    return _moves(departures.withColumn("until", until), ("waiting", "since", 1), ("waiting", "until", -1))


def _moves_of_attempts(tries: DataFrame, spans: DataFrame) -> DataFrame:
    """In flight while an attempt lasts, and then what it came to, until the next one or the end of the group's life."""
    order = Window.partitionBy(*_LIFE, *_MESSAGE).orderBy("started_at", "attempt")
    until = F.least(F.lead("started_at").over(order), "over_at")
    following = tries.join(F.broadcast(spans), [*lives.GROUP]).withColumn(
        "next", F.when(until.isNotNull(), F.greatest("started_at", until))
    )
    over = following.withColumn("over", F.least(attempt_end(), "next"))
    new_state = F.when(F.col("outcome") == "DEAD", "dead").when(F.col("outcome") != "SUCCESS", "retrying")
    return _moves(
        over.withColumn("became", new_state),
        ("in_flight", "started_at", 1),
        ("in_flight", "over", -1),
        (F.col("became"), "over", 1),
        (F.col("became"), "next", -1),
    )


def _moves(rows: DataFrame, *moves: tuple[str | Column, str, int]) -> DataFrame:
    """A row for each move into a state (1) or out of it (-1), with the time `at` which that was."""
    structs = [
        F.struct(
            (F.lit(state) if isinstance(state, str) else state).alias("state"),
            F.col(at).alias("at"),
            F.lit(step).alias("step"),
        )
        for state, at, step in moves
    ]
    return rows.select("topic", "group", F.explode(F.array(*structs)).alias("move")).select(
        "topic", "group", "move.*"
    )


def counts(rows: Iterable[Mapping[str, Any]], hours: int) -> dict[str, Counts]:
    """The counts of each topic from its steps, for so many hours and the beginning of the first."""
    steps_by_topic: dict[str, Counts] = {}
    for row in rows:
        groups = steps_by_topic.setdefault(row["topic"], {})
        states = groups.setdefault(row["group"], {state: [0] * (hours + 1) for state in STATES})
        states[row["state"]][row["hour"]] += row["step"]
    return {
        topic: {
            group: {state: list(accumulate(each)) for state, each in states.items()}
            for group, states in groups.items()
        }
        for topic, groups in steps_by_topic.items()
    }


def write(
    bucket: Bucket,
    topics: Mapping[str, Counts],
    begin: datetime,
    end: datetime,
    since: date,
    whole_days: Set[str],
) -> int:
    """Put the texts; how many. `since` is the day from which on accepted messages count; `whole_days` are those
    that the archive has all of."""
    hours, texts = (end - begin) // _HOUR, 0
    for first in range(0, hours or 1, 24):
        day = begin.date() + timedelta(days=first // 24)
        is_whole = [str(since + timedelta(days=n)) in whole_days for n in range((day - since).days + 1)]
        for topic, groups in sorted(topics.items()):
            counts = {
                "v": VERSION,
                "topic": topic,
                "day": str(day),
                "since": str(since),
                "complete": all(is_whole),
                "groups": {
                    group: {state: each[first : first + 25] for state, each in states.items()}
                    for group, states in sorted(groups.items())
                },
            }
            bucket.write(name_of(topic, day), json.dumps(counts, separators=(",", ":")))
            texts += 1
    return texts
