"""A day that is not over: how much of it the archive has, and how it is told."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from glue_jobs.archiving import options
from glue_jobs.common.arguments import DONE
from glue_jobs.reporting.run import Span, _hour_behind, known_until, notes

from .journals import DAY, Place, message

MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)


def test_a_day_in_its_last_hour_is_not_closed_until_it_is_looked_at_again(place: Place) -> None:
    place.journal("a", [message(n) for n in range(80)])
    assert place.archive("--open", "yes", "--now", "2026-11-21T23:48:00Z") == DONE
    day = place.manifest()
    assert (day.until_hour, day.is_closed) == (24, False)
    assert day.known_until == MIDNIGHT - timedelta(minutes=12)
    assert notes([day]) == [f"{DAY} is archived until 23:48."]
    files = place.files()
    assert place.compact("--now", "2026-11-22T03:00:00Z") == DONE
    assert not place.manifest().is_closed
    assert place.archive() == DONE  # the journal is the same
    day = place.manifest()
    assert (day.is_closed, day.known_until, notes([day])) == (True, MIDNIGHT, [])
    assert place.files() == files


def test_a_day_is_not_closed_while_late_data_may_come(place: Place) -> None:
    place.journal("a", [message(0)])
    for minute in (3, 7):  # the second time the journal is the same
        assert place.archive("--open", "yes", "--now", f"2026-11-22T00:{minute:02}:00Z") == DONE
        day = place.manifest()
        assert (day.is_closed, notes([day])) == (False, [f"{DAY} is archived until 23:59."])
    assert place.archive("--open", "yes", "--now", "2026-11-22T00:15:00Z") == DONE
    assert place.manifest().is_closed


def test_what_is_told_ends_where_the_journal_was_read(place: Place) -> None:
    place.journal("a", [message(0)])
    span = Span(date.fromisoformat(DAY), date.fromisoformat(DAY))
    for minute in (5, 55):
        place.archive("--open", "yes", "--now", f"2026-11-21T12:{minute:02}:00Z")
        end = known_until([place.manifest()], span)
        assert end == datetime(2026, 11, 21, 12, minute, tzinfo=UTC)
        assert _hour_behind(end) == datetime(2026, 11, 21, 13, tzinfo=UTC)
    assert _hour_behind(MIDNIGHT) == MIDNIGHT


@pytest.mark.parametrize("text", ["259200000", "", "soon", "1" * 30])
def test_now_is_the_time_of_a_service_whose_clock_was_moved(tmp_path: Path, text: str) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "clock").write_text(text)
    ahead = timedelta(days=3 if text == "259200000" else 0)
    for read_options in (options.of_archive, options.of_compact):
        before = datetime.now(UTC)
        now = read_options(None, ["--folder", str(tmp_path / "bucket")]).now
        assert before + ahead <= now <= datetime.now(UTC) + ahead
