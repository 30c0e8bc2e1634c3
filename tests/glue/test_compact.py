"""Compaction changes files, never rows, and no reader sees it happen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from glue_jobs import manifest
from glue_jobs.arguments import DONE
from glue_jobs.publish import Mismatch
from tests.glue.journals import DAY, Place, message
from tests.glue.test_archive import Killed, Stopping, named


@pytest.fixture
def parted(place: Place) -> Place:
    """An archive with a partition of several files."""
    place.journal("a", [message(n * 4_096) for n in range(16)])
    place.archive("--rows-per-file", "1")
    assert len(place.files()) > 1
    return place


def rows(place: Place) -> list[tuple[object, ...]]:
    return place.query('* replace (epoch_ms(accepted_at) as accepted_at) from % order by "offset"')


def test_many_files_become_one_with_the_same_rows(parted: Place) -> None:
    before, part = rows(parted), parted.manifest().part("messages", "orders")
    assert parted.compact() == DONE
    now = parted.manifest().part("messages", "orders")
    assert part
    assert now
    assert (now.rows, now.checksum) == (part.rows, part.checksum)
    assert len(parted.files()) == 1
    assert rows(parted) == before
    files = parted.files()
    assert parted.compact() == DONE
    assert parted.archive("--window", DAY) != 1
    assert parted.files() == files  # a rerun of the day keeps what was compacted


def test_a_reader_keeps_its_files_until_the_grace_is_over(parted: Place) -> None:
    old = manifest.load_all(parted.bucket)
    assert parted.compact("--grace-minutes", "60") == DONE
    for manifests in (old, manifest.load_all(parted.bucket)):
        assert manifest.table(parted.spark, parted.bucket, "messages", manifests).count() == 16
    assert parted.compact("--grace-minutes", "60", "--now", "2026-11-23T07:01:00Z") == DONE
    assert named(parted) == set(parted.files())


def test_files_that_are_not_what_the_manifest_says_stay_as_they_are(parted: Place) -> None:
    path = parted.folder / f"archive/manifests/{DAY}.json"
    told = json.loads(path.read_text())
    told["tables"]["messages"][0]["checksum"] = "0"
    path.write_text(json.dumps(told))
    files = parted.files()
    with pytest.raises(Mismatch):
        parted.compact()
    assert parted.files() == files


def test_killed_before_any_change_it_loses_nothing(parted: Place, tmp_path: Path) -> None:
    before = rows(parted)
    shutil.copytree(parted.folder, tmp_path / "before")
    bucket, changes = Stopping(parted.spark, parted.name), 0
    while True:
        shutil.rmtree(parted.folder)
        shutil.copytree(tmp_path / "before", parted.folder)
        bucket.left = changes
        try:
            parted.compact(bucket=bucket)
            break
        except Killed:
            changes += 1
        assert named(parted) <= set(parted.files())
        assert parted.compact() == DONE
        assert named(parted) == set(parted.files())
        assert rows(parted) == before
    assert changes >= 4
