"""Unreadable rows of scheduled jobs, rate limits, ends of logs and begun deletions do not block other work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain.append import KeyEntry
from chalicelib.domain.mark import Bookmark
from chalicelib.domain.token_bucket import Grant
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.damage import (
    Change,
    change_account,
    change_control,
    change_key_entry,
    change_round,
    having,
    without,
)
from tests.support.stages import Stage

NO_TEXT = {"S": "?"}


@pytest.mark.parametrize(
    "damage",
    [
        without("e"),
        having("e", NO_TEXT),
        having("p", NO_TEXT),
        having("a", {"N": "7"}),
        having("o", {"N": "1"}),
    ],
    ids=range(5),
)
def test_a_place_that_cannot_be_read_is_none_and_the_next_is_kept_in_its_stead(
    stage: Stage, damage: Change
) -> None:
    rounds, job = stage.adapters.rounds, make.uid("job-")
    assert rounds.keep(job, Bookmark("a", 5, True))
    change_round(stage, "place", job, damage)
    found = rounds.bookmark(job)
    new = rounds.keep(job, replace(found, after="b", passed_ms=7, is_open=False))
    assert new == rounds.bookmark(job) == Bookmark("b", 7, False, found.version + 1)
    assert rounds.keep(job, found) is None, "it has its place"


@pytest.mark.parametrize("damage", [without("e"), having("e", NO_TEXT)], ids=range(2))
def test_watched_topics_are_listed_beside_one_whose_edition_cannot_be_read(
    stage: Stage, damage: Change
) -> None:
    marks, names = stage.adapters.marks, [make.uid("w-") for _ in range(2)]
    for name in names:
        marks.watch(name, 2)
    change_round(stage, "watched", names[0], damage)
    watched = marks.each_minute().watched
    assert [watched[name] for name in names] == [0, 2]


@pytest.mark.parametrize("damage", [without("t"), having("t", NO_TEXT)], ids=range(2))
def test_an_account_that_cannot_be_read_is_an_idle_one_and_kept_again(stage: Stage, damage: Change) -> None:
    buckets, account = stage.adapters.token_buckets, make.uid("a-")
    assert buckets.take(account, 10, 5, START_MS) == Grant(5)
    change_account(stage, account, damage)
    assert buckets.take(account, 10, 5, START_MS) == Grant(5)
    assert buckets.take(account, 10, 1, START_MS).count == 0


def test_messages_with_a_key_are_found_beside_one_whose_expiry_cannot_be_read(stage: Stage) -> None:
    keys, uid = stage.adapters.keys, make.uid("t-")
    entries = [KeyEntry(uid, "k", f"m{n}", START_MS + n, 4_000_000_000) for n in range(2)]
    keys.note(entries)
    change_key_entry(stage, entries[0], having("x", NO_TEXT))
    assert [entry.message_id for entry in keys.newest(uid, "k", None, None, None, 10)] == ["m1", "m0"]


def test_a_token_that_cannot_be_read_can_be_revoked(stage: Stage) -> None:
    """Its groups are unknown, and a later release may be able to read it."""
    control, token = stage.adapters.control, make.token(make.uid())
    assert control.put_token(token, None)
    change_control(stage, "tokens", token.id, without("scopes"))
    assert control.delete_token(token.id)
    assert not control.delete_token(token.id)
    assert control.token(token.id) is None
