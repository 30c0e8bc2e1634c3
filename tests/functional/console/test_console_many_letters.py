"""Many at once: a patch with preview, a canary that stops at the first failure, steps, a rate, JSON lines."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from chalicelib.console.pages import many as many_page
from tests.support.browser import Browser, Form, Screen
from tests.support.http import Client, Group


@pytest.fixture
def group(api: Client) -> Group:
    """Fourteen dead letters."""
    group = api.topic(shards=1).group("mailer")
    group.topic.batch([{"body": {"n": n, "customer": 7}, "tag": "paid"} for n in range(13)])
    api.post(f"{group.topic.path}/messages", {"body_base64": "AAE=", "tag": "odd"}).expect(201)
    group.nack(*group.receive(14), dead_letter=True, reason="no mailbox")
    return group


def page(browser: Browser, group: Group, rest: str) -> Screen:
    screen = browser.get(f"/console/topics/{group.topic.name}/groups/{group.name}/dead-letters{rest}")
    assert screen.status == 200, screen.text
    return screen


def left(group: Group) -> list[Any]:
    items: list[Any] = group.api.get(f"{group.path}/dead-letters?limit=100").expect(200)["items"]
    return items


def patch_form(screen: Screen) -> Form:
    return next(form for form in screen.forms if "patch" in form.fields and "call" not in form.fields)


def work(group: Group) -> None:
    """What was sent again succeeds."""
    messages = group.receive(20, wait_seconds=1)
    assert messages
    group.ack(*messages)


def test_a_patch_is_shown_before_it_changes_anything(browser: Browser, group: Group) -> None:
    screen = browser.submit(patch_form(page(browser, group, "/many")), patch='{"customer": null, "x": 1.50}')
    assert screen.units <= 20
    assert "Of 14 letters on this page 13 would change. 1 holds no JSON" in screen.text
    assert '<del>-   "customer": 7</del>' in screen.html.replace("&#34;", '"')
    assert {letter["edited"] for letter in left(group)} == {False}
    screen = browser.submit(screen.form("merge_dead_letters"))
    assert "13 dead letters have their new bodies." in screen.text
    assert [letter["body"] for letter in left(group) if "body" in letter] == [
        {"n": n, "x": 1.5} for n in range(13)
    ]


@pytest.mark.parametrize("patch", ["{", "[1]", "7"])
def test_a_patch_that_is_none_is_refused(browser: Browser, group: Group, patch: str) -> None:
    screen = browser.submit(patch_form(page(browser, group, "/many")), patch=patch)
    assert (screen.status, "The patch is no JSON object" in screen.text) == (400, True)
    assert not [form for form in screen.forms if form.fields.get("call") == "merge_dead_letters"]


def many(browser: Browser, group: Group, rest: str) -> Screen:
    """The page before an action on many."""
    screen = browser.get(f"/console/topics/{group.topic.name}/groups/{group.name}/many?{rest}")
    assert screen.status == 200, screen.text
    return screen


def test_a_canary_sends_one_and_the_others_are_sent_after_it_succeeded(
    browser: Browser, group: Group
) -> None:
    group.api.post(f"{group.path}/pause").expect(200)
    screen = many(browser, group, "call=redrive&tag=paid")
    screen = browser.submit(screen.form("resume_group"))
    assert "13 in all , 1 cause" in screen.text
    assert [form.buttons for form in screen.forms if form.fields.get("call") == "redrive"] == [
        ["Send 1"],
        ["Send 10"],
        ["Redrive all 13"],
    ]
    screen = browser.submit(screen.form("redrive"))
    assert "Waiting for the outcome." in screen.text
    assert len(left(group)) == 13
    assert not [form for form in screen.forms if form.fields.get("call") == "redrive"], "nothing more for now"
    work(group)
    screen = browser.get(screen.url)
    assert "All of them succeeded." in screen.text
    screen = browser.submit(screen.form("redrive", limit="200"))
    assert "12 of 12 done." in screen.text
    assert [letter["tag"] for letter in left(group)] == ["odd"], "what the filter means, and no other"
    screen = browser.follow("Each step is in the audit trail")
    assert screen.text.count("dead-letters/redrive") >= 2


def test_many_are_sent_in_steps_and_what_dies_meanwhile_is_not(
    browser: Browser, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_page, "_STEP", 5)
    form = many(browser, group, "call=redrive").form("redrive", limit="5")
    screen = browser.submit(form, rate="50")
    assert "5 of 14 done." in screen.text
    assert "50 a second" in screen.text
    assert "Stop: pause the group" in screen.text, "a pause stops what is due later"
    group.topic.produce("late")
    group.nack(*[each for each in group.receive(20) if each["body"] == "late"], dead_letter=True)
    for done in (10, 14):
        assert 'data-go="1"' in screen.html
        screen = browser.submit(screen.form("redrive", rate="50"))
        assert f"{done} of 14 done." in screen.text
    assert "All steps are done." in screen.text
    assert [letter["body"] for letter in left(group)] == ["late"]


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_a_purge_drops_as_many_as_the_page_says(api: Client, browser: Browser, mode: str) -> None:
    group = api.topic(shards=2, mode=mode).group("mailer")
    group.topic.batch([{"body": n, "ordering_key": f"k{n}"} for n in range(20)])
    messages = group.receive(6)
    group.nack(*messages[:3], delay_seconds=900)
    group.ack(messages[5])
    screen = many(browser, group, "call=purge_group")
    assert "19 in all" in screen.text
    screen = browser.submit(screen.form("purge_group"), confirm=group.name)
    assert "19 of 19 done." in screen.text


def test_what_a_page_for_many_does_not_do_is_refused(browser: Browser, group: Group) -> None:
    for call in ("recheck", "delete_topic", ""):
        url = f"/console/topics/{group.topic.name}/groups/{group.name}/many?call={call}"
        assert browser.get(url).status == 400


def test_they_are_exported_as_json_lines(browser: Browser, group: Group) -> None:
    screen = page(browser, group, ".jsonl?tag=paid")
    lines = [json.loads(line) for line in screen.html.splitlines()]
    assert [line["body"]["n"] for line in lines] == list(range(13))
    assert {(line["reason"], line["last_error"], line["tag"]) for line in lines} == {
        ("REJECTED", "no mailbox", "paid")
    }
    assert screen.headers["Content-Type"] == "application/x-ndjson"
    (odd,) = [json.loads(line) for line in page(browser, group, ".jsonl?tag=odd").html.splitlines()]
    assert odd["body_base64"] == "AAE="


def test_an_export_ends_where_it_is_full(api: Client, browser: Browser) -> None:
    group = api.topic(shards=1, max_body_bytes=4_194_304).group()
    for _ in range(3):
        api.post(f"{group.topic.path}/messages", {"body": "x" * 1_900_000}).expect(201)
        group.nack(*group.receive(), dead_letter=True)
    lines = [json.loads(line) for line in page(browser, group, ".jsonl").html.splitlines()]
    assert [len(line["body"]) for line in lines] == [1_900_000] * 2


@pytest.mark.parametrize(
    "large",
    [
        {"body_base64": base64.b64encode(bytes(3_100_000)).decode()},
        {"body": "x" * 3_999_900},
    ],
    ids=["bytes", "JSON that just fits"],
)
def test_a_large_letter_is_exported_without_its_body_and_the_others_follow(
    api: Client, browser: Browser, large: dict[str, Any]
) -> None:
    group = api.topic(shards=1, max_body_bytes=4_194_304).group()
    for fields in (large, {"body": 1}, {"body": 2}):
        api.post(f"{group.topic.path}/messages", fields).expect(201)
        group.nack(*group.receive(), dead_letter=True)
    first, *others = [json.loads(line) for line in page(browser, group, ".jsonl").html.splitlines()]
    assert not {"body", "body_base64"} & first.keys()
    assert first["size"] >= 3_100_000
    assert [line["body"] for line in others] == [1, 2]


def test_dead_letters_are_deleted_once_the_groups_name_is_typed(browser: Browser, group: Group) -> None:
    form = many(browser, group, "call=delete_dead_letters&tag=paid").form("delete_dead_letters")
    screen = browser.submit(form, confirm="other")
    assert (screen.status, len(left(group))) == (400, 14)
    form = many(browser, group, "call=delete_dead_letters&tag=paid").form("delete_dead_letters")
    assert "13 of 13 done." in browser.submit(form, confirm=group.name).text
    assert [letter["tag"] for letter in left(group)] == ["odd"]
