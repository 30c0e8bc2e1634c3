"""Unreadable rows of scheduled jobs, rate limits, ends of logs and begun deletions do not block other work."""

from __future__ import annotations

import pytest

from chalicelib.domain.append import KeyEntry
from chalicelib.domain.token_bucket import Grant
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.damage import (
    Change,
    change_account,
    change_control,
    change_key_entry,
    having,
    without,
)
from tests.support.stages import Stage

NO_TEXT = {"S": "?"}


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
