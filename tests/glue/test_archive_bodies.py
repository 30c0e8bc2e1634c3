"""Large bodies, which lie in S3 beside the log: the archive has them, and says which are lost."""

from __future__ import annotations

import pytest

from glue_jobs.common.arguments import DONE, INCOMPLETE
from tests.glue.jobs import read_summary
from tests.glue.journals import DAY, Place, message


def test_large_bodies_are_fetched_and_lost_ones_told(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "bodies/orders/u1/abc"
    (place.folder / name).parent.mkdir(parents=True)
    (place.folder / name).write_bytes(b"\xffbig")
    place.journal(
        "a", [message(0), message(1, body=None, body_blob=name), message(2, body=None, body_blob="bodies/no")]
    )
    assert place.archive() == INCOMPLETE
    assert read_summary(capsys)["problems"] == [{"day": DAY, "bodies_missing": ["bodies/no"]}]
    assert place.query('body from % order by "offset"') == [(b'{"n":0}',), (b"\xffbig",), (None,)]


def test_a_large_body_that_went_with_its_retention_stays_in_the_archive(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"bodies/orders/u1/{n}" for n in range(2)]
    (place.folder / names[0]).parent.mkdir(parents=True)
    for name in names:
        (place.folder / name).write_bytes(name.encode())
    place.journal("a", [message(n, body=None, body_blob=name) for n, name in enumerate(names)])
    assert place.archive() == DONE
    (place.folder / names[0]).unlink()
    place.journal("late", [message(2, body=None, body_blob="bodies/no"), message(3)])
    assert place.archive() == INCOMPLETE
    assert read_summary(capsys)["problems"] == [{"day": DAY, "bodies_missing": ["bodies/no"]}]
    bodies = [*((name.encode(),) for name in names), (None,), (b'{"n":3}',)]
    assert place.query('body from % order by "offset"') == bodies


def test_large_bodies_lie_in_a_file_of_their_own_until_the_day_is_compacted(place: Place) -> None:
    names = [f"bodies/orders/u1/{n}" for n in (1, 3)]
    (place.folder / names[0]).parent.mkdir(parents=True)
    for name in names:
        (place.folder / name).write_bytes(name.encode())
    place.journal("a", [message(0), message(1, body=None, body_blob=names[0]), message(2)])
    place.journal("b", [message(3, body=None, body_blob=names[1])])
    place.journal("c", [message(3, edition=1, void="cancelled", body=None)])
    rows = [(0, b'{"n":0}'), (1, names[0].encode()), (2, b'{"n":2}')]
    for job, files in ((place.archive, 2), (place.compact, 1)):
        assert job() == DONE
        assert (len(place.files()), place.query('"offset", body from % order by 1')) == (files, rows)
    (shard,) = place.manifest().shards
    assert (shard.ranges, shard.voids) == (((0, 3),), 1)
