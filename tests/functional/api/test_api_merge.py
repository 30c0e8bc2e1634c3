"""A JSON merge patch fixes many dead letters at once: previewed, then applied page by page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http import Client, Group


@pytest.fixture
def group(api: Client) -> Group:
    """Four dead letters; one of them holds no JSON."""
    group = api.topic(shards=1, max_body_bytes=200).group("mailer")
    for n in range(3):
        group.topic.produce({"n": n, "to": {"mail": "x", "name": "y"}}, tag="paid" if n else "refunded")
    api.post(f"{group.topic.path}/messages", {"body_base64": "AAE="}).expect(201)
    group.nack(*group.receive(4), dead_letter=True)
    return group


def merge(group: Group, patch: Any, query: str = "", **more: Any) -> Any:
    return group.api.call("PATCH", f"{group.path}/dead-letters{query}", {"patch": patch, **more})


def bodies(group: Group) -> list[Any]:
    letters = group.api.get(f"{group.path}/dead-letters").expect(200)["items"]
    return [letter.get("body") for letter in letters]


def test_it_is_told_before_it_is_done(group: Group) -> None:
    before = bodies(group)
    preview = merge(group, {"to": {"mail": "a@b.example", "name": None}}, dry_run=True).expect(200)["items"]
    assert bodies(group) == before, "nothing has happened"
    assert [item.get("changed") for item in preview] == [True, True, True, None]
    assert preview[3]["error"]["code"] == "NO_JSON"
    items = merge(group, {"to": {"mail": "a@b.example", "name": None}}).expect(200)["items"]
    assert items[:3] == preview[:3]
    assert bodies(group)[:3] == [{"n": n, "to": {"mail": "a@b.example"}} for n in range(3)]
    again = merge(group, {"to": {"mail": "a@b.example", "name": None}}).expect(200)["items"]
    assert [item.get("changed") for item in again] == [False, False, False, None]


def test_only_those_that_fit_are_changed_page_by_page(group: Group) -> None:
    first = merge(group, {"n": 9}, "?tag=paid&limit=1").expect(200)
    assert [item["body"]["n"] for item in first["items"]] == [9]
    rest = merge(group, {"n": 9}, f"?tag=paid&limit=1&page_token={first['next_page_token']}").expect(200)
    assert [item["body"]["n"] for item in rest["items"]] == [9]
    assert [body["n"] for body in bodies(group)[:3]] == [0, 9, 9]


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_would_be_too_large_stays_as_it_is(group: Group, dry_run: bool) -> None:
    items = merge(group, {"text": "x" * 300}, "?tag=paid", dry_run=dry_run).expect(200)["items"]
    assert {item["error"]["code"] for item in items} == {"BODY_TOO_LARGE"}
    assert all("text" not in body for body in bodies(group)[:3])


@pytest.mark.parametrize("patch", [1, [], "x", None])
def test_a_patch_is_an_object(group: Group, patch: Any) -> None:
    merge(group, patch).refused(400, "VALIDATION")


def test_what_was_mended_is_redriven_as_it_stands(group: Group) -> None:
    merge(group, {"mended": True}, "?tag=refunded").expect(200)
    group.api.post(f"{group.path}/dead-letters/redrive", {"filter": {"tag": "refunded"}}).expect(200)
    (message,) = group.receive(1, wait_seconds=1)
    assert message["body"]["mended"] is True
