"""The state of a topic at a moment, from the archive's messages and attempts until then."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glue_jobs.common import job
from glue_jobs.common.arguments import DONE, FAILED, INCOMPLETE
from glue_jobs.common.bucket import FolderBucket
from glue_jobs.common.manifest import Manifest, Rows, Table, load_all, save, table
from glue_jobs.reporting import as_of, options, shadow

from .archives import BEGIN, delivery, fill, frame, message
from .journals import Place

AT = BEGIN + timedelta(minutes=10)


def later(of: dict[str, Any], minutes: float, **fields: Any) -> dict[str, Any]:
    """An attempt so many minutes after BEGIN."""
    return delivery(of, **{"started_at": BEGIN + timedelta(minutes=minutes), **fields})


@pytest.fixture(scope="module")
def filled_place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Shard 0 of a topic, at whose moment each message is something else."""
    place = Place.in_folder(spark, tmp_path_factory.mktemp("filled") / "bucket", "filled")
    names = ("done", "flying", "retrying", "lapsed", "dead", "unwanted", "slow", "ahead", "future")
    rows = {
        name: message(4 * n, minutes=n if name != "future" else 11, id=name) for n, name in enumerate(names)
    }
    attempts = [
        later(rows["done"], 1, outcome="RETRY"),
        later(rows["done"], 2, attempt=2),
        later(rows["flying"], 9.9, duration_ms=30_000),
        later(rows["retrying"], 5, outcome="RETRY"),
        later(rows["retrying"], 20, attempt=2),
        later(rows["lapsed"], 5, outcome="LAPSED", duration_ms=60_000),
        later(rows["dead"], 6, outcome="DEAD"),
        later(rows["slow"], 12),  # was waiting, though one behind it had been tried
        later(message(4 * 6 + 2, id="other shard"), 3),
    ]
    attempts.append(later(rows["ahead"], 9, group="eager"))
    fill(place, messages=rows.values(), deliveries=attempts)
    return place


def run(place: Place, *arguments: str) -> int:
    argv = ["--bucket", place.name, "--folder", str(place.folder), "--topic", "orders", *arguments]
    return job.run_guarded("asof", lambda: as_of.run(place.start, place.bucket, options.of_asof(None, argv)))


def test_every_message_is_in_the_state_that_it_was_in(filled_place: Place) -> None:
    manifests = load_all(filled_place.bucket)
    messages, deliveries = (
        table(filled_place.spark, filled_place.bucket, name, manifests) for name in ("messages", "deliveries")
    )
    rows = as_of.states(messages, deliveries, AT).where("group = 'g'").collect()
    assert {row.id: (row.state, row.attempts) for row in rows} == {
        "done": ("done", 2),
        "flying": ("in_flight", 1),
        "retrying": ("retrying", 1),
        "lapsed": ("retrying", 1),
        "dead": ("dead", 1),
        "unwanted": ("waiting", 0),  # no later message had an attempt yet
        "slow": ("waiting", 0),
        "ahead": ("waiting", 0),
    }
    rows = as_of.states(messages, deliveries, BEGIN + timedelta(minutes=15)).where("group = 'g'").collect()
    assert {row.state for row in rows if row.id == "unwanted"} == {"passed_over"}


def test_groups_are_counted_and_the_oldest_listed(
    filled_place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(filled_place, "--at", "2030-01-01T00:10:00Z", "--list", "2") in (DONE, INCOMPLETE)
    lines = capsys.readouterr().out.splitlines()
    summary = json.loads(lines[-1])
    eager, group = summary["groups"]
    assert group == {
        **{
            "topic": "orders",
            "group": "g",
            "waiting": 3,
            "in_flight": 1,
            "retrying": 2,
            "dead": 1,
            "done": 1,
        },
        **{"passed_over": 0, "oldest_open_at": "2030-01-01T00:01:00.000Z"},
    }
    assert (eager["group"], eager["done"], eager["passed_over"]) == ("eager", 1, 7)
    assert [line.split()[:3] for line in lines[4:7]] == [
        ["group", "state", "id"],
        ["g", "in_flight", "flying"],
        ["g", "retrying", "retrying"],
    ]


def test_a_topic_and_a_group_that_were_made_again_are_others(place: Place) -> None:
    first = [message(4 * n, minutes=n, topic_uid="first", id=f"first {n}") for n in range(3)]
    second = [message(4 * n, minutes=20 + n, topic_uid="second", id=f"second {n}") for n in range(3)]
    attempts = [later(first[0], 5)]
    attempts += [later(each, 30, group_uid="old") for each in second[:2]]
    attempts += [later(second[0], 40, group_uid="new", outcome="RETRY")]
    messages, deliveries = (
        frame(place.spark, *of) for of in (("messages", first + second), ("deliveries", attempts))
    )

    def at(minutes: int) -> dict[str, str]:
        states = as_of.states(messages, deliveries, BEGIN + timedelta(minutes=minutes))
        return {row.id: row.state for row in states.collect()}

    assert at(10) == {"first 0": "done", "first 1": "waiting", "first 2": "waiting"}
    assert at(35) == {"second 0": "done", "second 1": "done", "second 2": "waiting"}
    assert at(50) == {"second 0": "retrying", "second 1": "waiting", "second 2": "waiting"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--at", "2030-01-02T00:00:01Z"],
            "The archive does not reach to 2030-01-02T00:00:01Z (it ends at 2030-01-02T00:00:00Z)",
        ),
        (
            ["--at", "2040-01-01T00:00:00Z"],
            "The archive does not reach to 2040-01-01T00:00:00Z (it ends at 2030-01-02T00:00:00Z)",
        ),
        (
            ["--at", "2030-01-01T00:10:00Z", "--group", "nobody"],
            "Nobody has tried anything of orders for nobody",
        ),
    ],
)
def test_what_cannot_be_told_is_said(
    filled_place: Place, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(filled_place, *arguments) == FAILED
    assert json.loads(capsys.readouterr().out)["error"].startswith(sentence)


def test_a_topic_that_is_not_archived_is_named_before_spark_starts(tmp_path: Path) -> None:
    no_spark: Any = None
    bucket = FolderBucket(tmp_path / "bucket", "headrace")
    save(bucket, Manifest("2030-01-01", 24, "", {"messages": Table((), {"orders": Rows(1, "0")})}, ()))
    argv = ["--folder", str(tmp_path / "bucket"), "--at", "2030-01-01T09:00:00Z", "--topic", "order"]
    with pytest.raises(as_of.NotArchived, match="Nothing of order is archived of 2029-12-02 and later"):
        as_of.run(no_spark, bucket, options.of_asof(None, argv))
    names = ["--topic", "orders", "--group", "g", "--shadow", "shade", "--shadow-group", "next"]
    with pytest.raises(shadow.NothingToCompare, match="no message of orders that was replayed into shade"):
        shadow.run(no_spark, bucket, options.of_compare(None, ["--folder", str(tmp_path / "bucket"), *names]))
