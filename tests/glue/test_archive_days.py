"""The archive is made day by day: one follows another without a gap, and none stops or changes another."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.times import DAY_MS
from glue_jobs.archiving import completeness as proof
from glue_jobs.common import session
from glue_jobs.common.arguments import DONE, FAILED, INCOMPLETE
from tests.glue.jobs import read_summary
from tests.glue.journals import DAY, NEXT, NOON_MS, Place, delivery, message, orders


def test_days_follow_one_another_and_deliveries_find_the_ids_of_earlier_ones(place: Place) -> None:
    place.journal("a", [message(n) for n in range(3)])
    place.journal("b", [message(n, accepted_ms=NOON_MS + DAY_MS) for n in range(3, 6)])
    place.journal("c", [delivery(n, started_ms=NOON_MS + DAY_MS + 1) for n in range(6)])
    assert place.archive() == DONE
    assert place.query('day::text, "offset" from % order by 2') == [
        *((DAY, n) for n in range(3)),
        *((NEXT, n) for n in range(3, 6)),
    ]
    assert place.query("id from % order by 1", "deliveries") == [(f"m-0-{n}",) for n in range(6)]
    assert proof.load(place.bucket).ranges == {"orders:u1/0": ((0, 5),)}


def test_clocks_that_differ_at_midnight_leave_no_gap(place: Place) -> None:
    midnight = NOON_MS + DAY_MS // 2
    place.journal("a", [message(n, accepted_ms=midnight - 5) for n in (0, 1, 3)])
    place.journal("b", [message(n, accepted_ms=midnight) for n in (2, 4)])
    assert place.archive() == DONE
    assert place.places() == orders(0, 1, 2, 3, 4)


def test_a_bad_day_stops_no_other(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.journal("a", [message(0), message(1, v=2)])
    place.journal("b", [message(n, "fine", accepted_ms=NOON_MS + DAY_MS) for n in range(2)])
    assert place.archive() == FAILED
    summary = read_summary(capsys)
    assert list(summary["failed"]) == [DAY]
    assert "update the jobs" in summary["failed"][DAY]
    assert summary["windows"] == 1
    assert place.places() == [("fine", 0, 0), ("fine", 0, 1)]


def test_a_night_without_news_starts_no_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.journal("a", [message(0)])
    place.journal("b", [delivery(0)])
    assert place.archive() == DONE

    def start(is_small: bool = False) -> Any:
        raise AssertionError("there is nothing to do")

    monkeypatch.setattr(place, "start", start)
    assert place.archive("--compact-mb", "256") == place.compact() == DONE


def test_a_small_night_is_told_from_its_journal(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    small_flags: list[bool] = []

    def start(is_small: bool = False) -> Any:
        small_flags.append(is_small)
        return place.spark

    monkeypatch.setattr(place, "start", start)
    place.journal("a", [message(0)])
    place.archive()
    monkeypatch.setattr(session, "SMALL_BYTES", 1)
    place.archive("--window", DAY)
    assert small_flags == [True, False]


def test_the_day_before_is_followed_without_a_gap(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.journal("a", [message(n) for n in range(3)])
    place.journal("b", [message(n, accepted_ms=NOON_MS + DAY_MS) for n in (5, 6)])
    assert place.archive() == INCOMPLETE
    assert read_summary(capsys)["problems"][0]["missing"] == [[3, 4]]


def test_an_hour_is_its_day_so_far_and_the_rest_follows(place: Place) -> None:
    hour = 3_600_000
    place.journal("a", [message(0)])
    place.journal("b", [message(1, accepted_ms=NOON_MS + hour)])
    assert place.archive("--window", f"{DAY}T12") == DONE
    assert place.places() == orders(0)
    assert place.archive() == DONE
    assert place.places() == orders(0, 1)
    assert place.archive("--window", f"{DAY}T12") == DONE
    assert place.places() == orders(0, 1)
