"""What is damaged of the archive's own files stops what needs it, and nothing else."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from chalicelib.domain.times import DAY_MS
from glue_jobs.archiving import completeness
from glue_jobs.common import job, manifest
from glue_jobs.common.arguments import DONE, FAILED
from tests.glue.jobs import read_summary

from .journals import DAY, NEXT, NOON_MS, Place, delivery, message

BEFORE = "2026-11-20"


@pytest.mark.soak
def test_a_damaged_manifest_stops_its_own_day_and_no_other(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("before", [message(0, "bills", accepted_ms=NOON_MS - DAY_MS)])
    place.journal("a", [message(0)])
    place.journal("b", [delivery(0)])
    (place.folder / "archive/manifests").mkdir(parents=True)
    path = place.folder / manifest.name_of(BEFORE)
    path.write_text('{"v":2')
    assert place.archive() == FAILED
    failures = read_summary(capsys)["failed"]
    assert list(failures) == [BEFORE]
    assert f"delete it and run the archive with --window {BEFORE}" in failures[BEFORE]
    assert place.manifest(DAY).complete
    path.unlink()
    assert place.archive("--window", BEFORE) == DONE


@pytest.mark.soak
def test_a_day_whose_ids_a_damaged_manifest_should_tell_waits_for_it(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    assert place.archive() == DONE
    (place.folder / manifest.name_of(DAY)).write_bytes(b"\xff")
    place.journal("b", [message(1, accepted_ms=NOON_MS + DAY_MS)])
    place.journal("c", [delivery(0, started_ms=NOON_MS + DAY_MS)])
    assert place.archive() == FAILED
    failures = read_summary(capsys)["failed"]
    assert sorted(failures) == [DAY, NEXT]
    assert all(f"{DAY}.json can't be read" in why for why in failures.values())


def test_a_damaged_proof_is_told_and_without_it_the_manifests_prove_the_same(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(n) for n in (0, 1, 2)])
    place.journal("b", [message(3, accepted_ms=NOON_MS + DAY_MS)])
    place.archive()
    proof = completeness.load(place.bucket)
    assert proof.ranges == {"orders:u1/0": ((0, 3),)}
    file = place.folder / completeness.NAME
    file.write_text("{")
    capsys.readouterr()
    assert job.run_guarded("archive", place.archive) == FAILED
    assert "archive/proved.json can't be read: delete it" in read_summary(capsys)["error"]
    file.unlink()
    assert place.archive() == DONE
    assert completeness.load(place.bucket) == proof


def test_a_folder_of_the_journal_that_is_no_day_is_passed_over(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    place.journal("b", [message(1)], day=f"{DAY}.old")
    assert place.archive() == DONE
    out, err = capsys.readouterr()
    assert json.loads(out)["messages"] == 1
    assert f"journal/*/day={DAY}.old is no day" in err


def test_a_day_later_than_now_is_named_and_passed_over(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    assert place.archive("--now", f"{BEFORE}T23:00:00Z", "--open", "yes") == DONE
    out, err = capsys.readouterr()
    assert json.loads(out)["windows"] == 0
    assert f"journal/*/day={DAY} is later than now" in err
