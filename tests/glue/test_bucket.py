"""The bucket, as the jobs see it."""

from __future__ import annotations

from glue_jobs.common.bucket import Entry
from tests.glue.journals import Place


def test_files_are_listed_alike_on_s3_and_on_one_machine(place: Place) -> None:
    for name in ("a/x", "a/day=1/y", "a/day=1/hour=2/z", "b/other"):
        place.bucket.write(name, name)
    (place.folder / "a/empty").mkdir()
    here = place.bucket.list("a")
    assert here == [Entry("a/day=1/hour=2/z", 16), Entry("a/day=1/y", 9), Entry("a/x", 3)]
    place.bucket._is_mounted = False
    assert place.bucket.list("a") == here
    assert place.bucket.list("nowhere") == []
    place.bucket._is_mounted = True
    assert place.bucket.list("nowhere") == []
