"""Rows of the release before, one by one; and bugs planted where they are read and written."""

from __future__ import annotations

import pytest

from chalicelib.store import codec, control_rows, cursors, records, timers, transactions
from tests.releases.fixture import kept
from tests.releases.rows import complaints
from tests.support.planting import Bug

ROWS = kept("38f1826")["rows"]

BUGS: dict[str, Bug] = {
    "a number that older cursors do not have": Bug(
        cursors, "_cursor", 'item.get(name, _ABSENT.get(name, {}))["N"]', 'item[name]["N"]'
    ),
    "a cursor without the map that releases before it write to": Bug(cursors, "_item", '"d": {"M": {}},', ""),
    "a span in words of its own": Bug(cursors, "span_text", 'f"*{span.attempt}"', 'f"^{span.attempt}"'),
    "a lease with a fourth field": Bug(
        cursors, "lease_text", "{lease.deadline_ms};{lease.owner}", "{lease.deadline_ms};{lease.owner};1"
    ),
    "a lease that ends at a time in other words": Bug(
        cursors, "lease_text", "{lease.deadline_ms};", "{lease.deadline_ms}ms;"
    ),
    "a waiting span under another key": Bug(cursors, "_item", "{str(s.start): {", '{f"o{s.start}": {'),
    "a change count that only changed timers have": Bug(
        timers, "_content", '"e": timer.edits,', '"e2": timer.edits,'
    ),
    "a transaction that must say until when its keys find it": Bug(
        transactions, "_transaction_of", 'int_of(item, "n")', 'int(item["n"]["N"])'
    ),
    "a message that must say when it was accepted": Bug(
        codec, "_draft", "accepted_ms=wire.z", "accepted_ms=int(wire.z)"
    ),
    "control rows of one format only": Bug(control_rows.Row, "_read", 'if "doc" in item:', "if False:"),
    "a dead letter without its edition": Bug(records, "_letter_item", '"e": number(letter.version),', ""),
}


def test_each_row_is_read_and_written_as_before() -> None:
    assert list(complaints(ROWS)) == []


def test_the_fixture_has_rows_of_every_table() -> None:
    assert {table for table, rows in ROWS.items() if rows} == set(ROWS) - {"rounds"}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    BUGS[name].plant(monkeypatch)
    assert list(complaints(ROWS))
