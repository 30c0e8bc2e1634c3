"""The figures of a report, on tiny tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from glue_jobs.common.schemas import DELIVERIES, MESSAGES
from glue_jobs.reporting import aggregates as figures
from glue_jobs.reporting.run import Span, tables

from .archives import BEGIN, delivery, frame, message

DAY = BEGIN.date()
HOUR = timedelta(hours=1)


def messages(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return frame(spark, MESSAGES, rows)


def deliveries(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return frame(spark, DELIVERIES, rows)


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def test_a_redrive_and_what_a_later_release_notes_are_no_attempts(spark: SparkSession) -> None:
    of = message(1)
    outcomes = ("SUCCESS", "RETRY", "LAPSED", "DEAD", "REDRIVEN", "LATER")
    frame = figures.attempts(deliveries(spark, *(delivery(of, outcome=end) for end in outcomes)))
    assert {row["outcome"] for row in rows_of(frame)} == {"SUCCESS", "RETRY", "LAPSED", "DEAD"}


def test_a_reports_tables_tell_of_its_days_and_know_what_came_before(spark: SparkSession) -> None:
    before, within, after = (message(4 * n, minutes=24 * 60 * n - 1) for n in range(3))
    attempts = [delivery(before, seconds=61), delivery(within, outcome="RETRY"), delivery(after)]
    report_tables = tables(
        messages(spark, before, within, after), deliveries(spark, *attempts), Span(DAY, DAY), BEGIN + 2 * HOUR
    )
    assert [(row["day"], row["accepted"]) for row in rows_of(report_tables["volumes"])] == [(DAY, 1)]
    [day] = rows_of(report_tables["daily"])
    assert (day["attempts"], day["delivered"], day["latency_max_ms"]) == (2, 1, 61_000)
    assert [row["attempts"] for row in rows_of(report_tables["failures"])] == [1]
    assert [(row["came"], row["ended"], row["waiting"]) for row in rows_of(report_tables["backlog"])] == [
        (0, 1, 0), (0, 0, 0),
    ]  # fmt: skip


def test_volumes_are_by_topic_and_day(spark: SparkSession) -> None:
    frame = figures.volumes(
        messages(
            spark,
            message(1, body=b"12345"),
            message(2, body=None, headers={"headrace-replay": "r"}),
            message(3, minutes=24 * 60, body=b"1"),
            message(4, topic="others", body=b"1"),
        )
    )
    assert [tuple(row.values()) for row in rows_of(frame)] == [
        ("orders", DAY, 2, 5, 1),
        ("orders", DAY + timedelta(days=1), 1, 1, 0),
        ("others", DAY, 1, 1, 0),
    ]


def test_a_day_counts_attempts_and_what_they_came_to(spark: SparkSession) -> None:
    one, two, three = (message(n) for n in (1, 2, 3))
    frame = figures.by_day(
        messages(spark, one, two, three),
        deliveries(
            spark,
            delivery(one, seconds=1, duration_ms=500),
            delivery(two, seconds=1, outcome="RETRY", consumer="d"),
            delivery(two, seconds=10, attempt=2, outcome="LAPSED"),
            delivery(two, seconds=60, attempt=3),
            delivery(three, outcome="DEAD"),
            delivery(three, seconds=5, outcome="REDRIVEN", attempt=1),
            delivery(one, group="other", seconds=2),
        ),
    )
    first, second = rows_of(frame)
    assert first == {
        **{"topic": "orders", "group": "g", "day": DAY, "attempts": 5, "messages": 3, "consumers": 2},
        **{"delivered": 2, "retried": 1, "lapsed": 1, "dead_letters": 1, "most_attempts": 3},
        **{
            "latency_p50_ms": 1500,
            "latency_p90_ms": 60_000,
            "latency_p99_ms": 60_000,
            "latency_max_ms": 60_000,
        },
    }
    assert (second["group"], second["attempts"], second["latency_p50_ms"]) == ("other", 1, 2000)


def test_percentiles_are_of_successes_only_and_unknown_without_any(spark: SparkSession) -> None:
    sent_messages = [message(n) for n in range(100)]
    attempts = [delivery(m, seconds=n + 1) for n, m in enumerate(sent_messages)]
    [row] = rows_of(figures.by_day(messages(spark, *sent_messages), deliveries(spark, *attempts)))
    ranks = [row[f"latency_{name}_ms"] for name in ("p50", "p90", "p99", "max")]
    assert ranks == [50_000, 90_000, 99_000, 100_000]
    failed_attempts = deliveries(spark, delivery(sent_messages[0], outcome="RETRY"))
    [row] = rows_of(figures.by_day(messages(spark, *sent_messages), failed_attempts))
    assert row["latency_p50_ms"] is None
    [row] = rows_of(figures.by_day(messages(spark, sent_messages[1]), deliveries(spark, attempts[0])))
    assert (row["delivered"], row["latency_p50_ms"]) == (1, None)


def test_failures_are_counted_by_reason(spark: SparkSession) -> None:
    of = message(1)
    outcomes = [
        ("RETRY", "HTTP 500"),
        ("RETRY", "HTTP 500"),
        ("RETRY", ""),
        ("DEAD", "HTTP 489"),
        ("SUCCESS", "fine"),
    ]
    attempts = [delivery(of, outcome=outcome, detail=detail) for outcome, detail in outcomes]
    frame = figures.failures(deliveries(spark, *attempts, delivery(of, outcome="LAPSED", detail=None)))
    assert [(row["outcome"], row["reason"], row["attempts"]) for row in rows_of(frame)] == [
        ("RETRY", "HTTP 500", 2),
        ("DEAD", "HTTP 489", 1),
        ("LAPSED", "no reason given", 1),
        ("RETRY", "no reason given", 1),
    ]


def owed(frame: DataFrame) -> set[tuple[float, float | None]]:
    """Acceptance and end in seconds after BEGIN."""
    seconds = [frame[name].cast("double") - BEGIN.timestamp() for name in ("accepted_at", "ended_at")]
    return {tuple(row) for row in frame.select(*seconds).collect()}


def test_a_group_owes_what_it_tried_and_what_it_has_not_reached(spark: SparkSession) -> None:
    done_message, passed_message, tried_message, ahead_message = (
        message(4 * n, minutes=n) for n in range(4)
    )  # all in shard 0
    elsewhere = message(1, minutes=9)  # in a shard that the group never touched
    frame = figures.fates(
        messages(
            spark,
            done_message,
            passed_message,
            tried_message,
            ahead_message,
            elsewhere,
            message(1, topic="others"),
        ),
        deliveries(
            spark,
            delivery(done_message, outcome="RETRY"),
            delivery(done_message, seconds=30, attempt=2, duration_ms=250),
            delivery(done_message, seconds=40, attempt=3),
            delivery(tried_message, outcome="RETRY"),
        ),
    )
    assert owed(figures.messages_to_deliver(frame)) == {(0, 30.25), (120, None), (180, None), (540, None)}


def test_what_was_left_of_a_topic_ends_with_it_and_a_group_made_again_begins_anew(
    spark: SparkSession,
) -> None:
    first = [message(4 * n, topic_uid="first") for n in range(4)]
    second = [message(4 * n, minutes=9 + n, topic_uid="second") for n in range(2)]
    attempts = [delivery(first[1], seconds=30), delivery(first[2], outcome="RETRY", group_uid=None)]
    attempts += [delivery(first[2], seconds=1, outcome="RETRY", group_uid="g-uid")]
    attempts += [delivery(second[n], seconds=60, group_uid="old") for n in (0, 1)]
    attempts += [delivery(second[0], seconds=120, group_uid="new", outcome="RETRY")]
    frame = figures.fates(messages(spark, *first, *second), deliveries(spark, *attempts))
    assert owed(figures.messages_to_deliver(frame)) == {(0, 30), (0, 540), (540, None), (600, None)}
    [row] = rows_of(figures.fate_counts(frame))
    counts = {"delivered": 1, "dead": 0, "under_way": 1, "waiting": 1, "passed_over": 1, "deleted": 2}
    assert row.items() >= {"accepted": 6, **counts}.items()


def test_the_backlog_is_what_came_and_has_not_ended(spark: SparkSession) -> None:
    rows = [
        ("t", "g", BEGIN - 5 * HOUR, BEGIN - HOUR),
        ("t", "g", BEGIN - 5 * HOUR, BEGIN + 1.5 * HOUR),
        ("t", "g", BEGIN - 5 * HOUR, None),
        ("t", "g", BEGIN, BEGIN + HOUR / 2),
        ("t", "g", BEGIN + HOUR, BEGIN + 2 * HOUR),
        ("t", "g", BEGIN + 2.9 * HOUR, BEGIN + 30 * HOUR),
        ("t", "g", BEGIN + 3 * HOUR, None),
        ("t", "h", BEGIN + 2 * HOUR, None),
    ]
    schema = "topic string, group string, accepted_at timestamp, ended_at timestamp"
    rows_by_hour = rows_of(figures.backlog(spark.createDataFrame(rows, schema), BEGIN, BEGIN + 3 * HOUR))
    assert [(row["group"], row["came"], row["ended"], row["waiting"]) for row in rows_by_hour] == [
        ("g", 1, 1, 2),
        ("g", 1, 1, 2),
        ("g", 1, 1, 2),
        ("h", 0, 0, 0),
        ("h", 0, 0, 0),
        ("h", 1, 0, 1),
    ]
