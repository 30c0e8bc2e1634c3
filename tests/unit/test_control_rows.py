"""Unreadable rows of settings: who gets an error, and what is concluded from the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.assignment import Assignment, Staffed
from chalicelib.domain.errors import Unreadable
from chalicelib.domain.signing import Secret
from chalicelib.store import control_rows as rows
from chalicelib.store.attributes import Item, number, text
from chalicelib.store.control import Control
from tests.support import factories as make
from tests.support.scripted import Scripted

TOPIC = make.topic()
HOME = f"topic#{TOPIC.uid}"
GROUP = replace(make.group(TOPIC), version=1)
WORKERS = tuple(replace(make.consumer(GROUP, name), version=1) for name in ("w1", "w2"))
DEALT = Assignment(1, "mod", (WORKERS[0].uid,), (WORKERS[0].uid,))
DAMAGED = {"version": text("?")}
NEWER = {"v": number(3)}


def row(model: type[rows.Row[Any]], sk: str, noun: Any) -> Item:
    """A row as it is stored for the first time."""
    item: Item = model.of(rows.Key(HOME, sk), noun).serialize() | {"version": number(1)}
    return item


def staffed(**changes: Item) -> list[Staffed]:
    """The groups that are found where these rows are otherwise."""
    items = {
        "assignment": row(rows.AssignmentRow, f"assignment#{GROUP.uid}", DEALT),
        "w1": row(rows.ConsumerRow, f"consumer#{GROUP.uid}#w1", WORKERS[0]),
        "w2": row(rows.ConsumerRow, f"consumer#{GROUP.uid}#w2", WORKERS[1]),
        "group": row(rows.GroupRow, f"group#{GROUP.name}", GROUP),
    }
    changed_items = [item | changes.get(name, {}) for name, item in items.items()]
    return Control(Scripted({"Items": changed_items}).dynamo).staffed_groups(TOPIC)


def test_a_group_has_its_consumers_and_its_assignment() -> None:
    assert staffed() == [Staffed(GROUP, WORKERS, DEALT)]


@pytest.mark.parametrize("row", ["group", "assignment", "w1"])
@pytest.mark.parametrize("damage", [DAMAGED, NEWER], ids=["damaged", "newer"])
def test_a_topic_with_an_unreadable_row_is_refused(row: str, damage: Item) -> None:
    with pytest.raises(Unreadable, match=f"topic#{TOPIC.uid} "):
        staffed(**{row: damage})


def test_of_a_group_without_consumers_nothing_is_asked() -> None:
    client = Scripted(
        {
            "Items": [
                row(rows.AssignmentRow, f"assignment#{GROUP.uid}", DEALT) | DAMAGED,
                row(rows.GroupRow, f"group#{GROUP.name}", GROUP),
            ]
        }
    )
    assert Control(client.dynamo).staffed_groups(TOPIC) == []


@pytest.mark.parametrize("until_ms", [None, 0, 77])
def test_an_encrypted_secret_comes_back_with_its_end(until_ms: int | None) -> None:
    encrypted_secret = Secret(until_ms=until_ms, ciphertext="c2VhbGVk", fingerprint="f1")
    plain = Secret("00ff", until_ms)
    worker = replace(WORKERS[0], secrets=(encrypted_secret, plain))
    item = row(rows.ConsumerRow, "consumer#g#w1", worker)
    assert rows.ConsumerRow.decoded(item) == worker
    assert all(("until_ms" in each["M"]) == (until_ms is not None) for each in item["secrets"]["L"])
