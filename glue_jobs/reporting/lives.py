"""The lives of a name. A topic or group that was deleted and made again under its name has another uid; nothing that
the earlier one left unfinished is delivered to it.

The archive does not note when a life ends: it is over at the first message of the next topic, or the first attempt
of the next group, under that name.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

TOPIC = ("topic", "topic_uid")
GROUP = ("group", *TOPIC, "group_uid")
_NAME = ("group", *TOPIC)


def topics(messages: DataFrame) -> DataFrame:
    """Of each life of a topic: `topic`, `topic_uid`, `topic_over_at` (null: it is the last)."""
    first = messages.groupBy(*TOPIC).agg(F.min("accepted_at").alias("began_at"))
    order = Window.partitionBy("topic").orderBy("began_at", "topic_uid")
    return first.select(*TOPIC, F.lead("began_at").over(order).alias("topic_over_at"))


def topics_at(messages: DataFrame, at: datetime) -> DataFrame:
    """`topic` and `topic_uid` of each topic that had a message at a moment."""
    by_then = messages.where(F.col("accepted_at") <= F.lit(at))
    return by_then.groupBy("topic").agg(F.max_by("topic_uid", "accepted_at").alias("topic_uid"))


def of_last_topic(messages: DataFrame) -> DataFrame:
    """Only the messages of the last life of their topic."""
    last = messages.groupBy("topic").agg(F.max_by("topic_uid", "accepted_at").alias("topic_uid"))
    return messages.join(last, [*TOPIC], "left_semi")


def groups(tries: DataFrame) -> DataFrame:
    """Of each life of a group in one of its topic: `group`, `topic`, `topic_uid`, `group_uid`, `began_at` (null: it is
    the first) and `over_at` (null: it is the last)."""
    first = tries.groupBy(*GROUP).agg(F.min("started_at").alias("first"))
    order = Window.partitionBy(*_NAME).orderBy("first", "group_uid")
    begin = F.when(F.row_number().over(order) > 1, F.col("first"))
    return first.select(*GROUP, begin.alias("began_at"), F.lead("first").over(order).alias("over_at"))


def of_groups_at(tries: DataFrame, at: datetime) -> DataFrame:
    """Only the attempts of the groups that lived at a moment."""
    start = F.col("started_at")
    latest, earliest = F.when(start <= F.lit(at), start), F.when(start > F.lit(at), start)
    return _of(tries, F.coalesce(F.max_by("group_uid", latest), F.min_by("group_uid", earliest)))


def of_last_groups(tries: DataFrame) -> DataFrame:
    """Only the attempts of the last life of each group."""
    return _of(tries, F.max_by("group_uid", "started_at"))


def _of(tries: DataFrame, group_uid: Column) -> DataFrame:
    return tries.join(tries.groupBy(*_NAME).agg(group_uid.alias("group_uid")), [*GROUP], "left_semi")
