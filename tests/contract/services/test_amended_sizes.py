"""How many edits a cursor notes, and how large an edited row may become."""

from __future__ import annotations

import random

import pytest

from chalicelib.domain.errors import TooLarge
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES, MAX_AMENDED_BYTES, MAX_AMENDED_RANGES
from chalicelib.services.core.bodies import with_body
from tests.support import factories as make
from tests.support.amending import _attempt, bodies, edit, having_read
from tests.support.desk import Desk
from tests.support.stages import Stage


def test_a_cursors_notes_stay_few_and_no_edit_is_lost_among_many(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    count = 3 * MAX_AMENDED_RANGES
    results = desk.produce(*make.drafts(count + 1))
    other = having_read(desk, group)
    numbers = list(range(2, count, 2))
    random.Random(1).shuffle(numbers)
    for n in numbers:
        edit(desk, results[n], str(n).encode())
    assert len(desk.cursor(group).amended) <= MAX_AMENDED_RANGES
    messages = other.receive(group, count)
    assert bodies(messages) == [
        b'{"n":%d}' % n if n % 2 or n == count else b"%d" % n for n in range(1, count + 1)
    ]


def test_those_who_never_edit_store_nothing_for_it(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    desk.drain(group)
    assert desk.cursor(group).amended == ()
    assert desk.rows()[0].edition == 0


def _wide(seed: int, chars: int) -> str:
    """Text that does not compress well."""
    chance = random.Random(seed)
    return "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(chars))


def test_a_large_body_goes_to_the_blob_store_and_so_does_one_for_which_the_row_has_no_room(
    stage: Stage,
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*(make.draft(_wide(n, 6_000)) for n in range(20)))
    assert len(desk.rows()) == 1
    new_bodies: list[bytes] = []
    for n in range(20):
        size = BLOB_THRESHOLD_BYTES + 1 if n == 0 else 30_000
        new_bodies.append(make.draft(_wide(100 + n, size // 3)).body)
        edit(desk, results[n], new_bodies[-1])
    (row,) = desk.rows()
    assert {bool(draft.blob) for draft in row.drafts} == {True, False}
    messages = desk.receive(group, 20)
    blobs = stage.adapters.blobs
    assert [with_body(blobs, d.message).draft.body for d in messages] == new_bodies


def test_a_row_that_would_become_too_large_is_refused_and_stays_as_it_is(stage: Stage) -> None:
    desk = Desk.at(stage)
    results = desk.produce(*(make.draft("x", headers={"h": _wide(n, 3_000)}) for n in range(40)))
    answer, edits = "ok", 0
    while answer == "ok":
        before = desk.rows()
        answer = _attempt(edit, desk, results[edits], headers={"h": _wide(100 + edits, 8_000)})
        edits += 1
    assert (answer, desk.rows()) == ("SEGMENT_FULL", before)
    with pytest.raises(TooLarge, match="BODY_TOO_LARGE"):
        edit(desk, results[0], b"x" * (desk.topic.max_body_bytes + 1))
    assert MAX_AMENDED_BYTES < 400 * 1024
