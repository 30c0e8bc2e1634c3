"""Dead letters: grouped by their errors, edited with a diff, and redriven, one, some or all."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api.lists import LETTER_FILTERS
from tests.support.browser import Browser, Screen
from tests.support.http import Client, Group

_PAST, _FUTURE = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
FITTING = {"reason": "REJECTED", "tag": "paid", "key": "key-1"}
FITTING |= {"since": _PAST, "until": _FUTURE, "error": "mailbox"}
UNFIT = {
    "reason": "EXPIRED",
    "tag": "other",
    "key": "other",
    "since": _FUTURE,
    "until": _PAST,
    "error": "other",
}
"""Values of filters: of some dead letters of `group`, and of none."""


@pytest.fixture
def group(api: Client) -> Group:
    """Five dead letters of two kinds."""
    group = api.topic(shards=1).group("mailer")
    for n in range(5):
        group.topic.produce({"n": n, "total": 1.10}, keys=[f"key-{n}"], tag="paid")
    messages = group.receive(5)
    group.nack(*messages[:3], dead_letter=True, reason="no mailbox")
    group.nack(*messages[3:], dead_letter=True, reason="<b>odd</b>")
    return group


def page(browser: Browser, group: Group, rest: str = "") -> Screen:
    screen = browser.get(f"/console/topics/{group.topic.name}/groups/{group.name}/dead-letters{rest}")
    assert screen.status == 200, screen.text
    assert screen.units <= 20
    return screen


def left(group: Group) -> list[Any]:
    items: list[Any] = group.api.get(f"{group.path}/dead-letters").expect(200)["items"]
    return items


def test_they_are_grouped_by_reason_error_and_tag(browser: Browser, group: Group) -> None:
    screen = page(browser, group)
    some = [form for form in screen.forms if " " in form.fields.get("ids", "")]
    assert [form.buttons for form in some] == [["Redrive 3"], ["Redrive 2"]], "the most frequent first"
    assert "<b>odd" not in screen.html
    assert "Redrive all 5" in screen.text, "counted before anything happens"


def test_one_kind_is_redriven_and_then_all(browser: Browser, group: Group) -> None:
    (some,) = [form for form in page(browser, group).forms if form.buttons == ["Redrive 2"]]
    assert "2 dead letters are on their way again." in browser.submit(some).text
    assert {letter["last_error"] for letter in left(group)} == {"no mailbox"}
    (every,) = [form for form in page(browser, group).forms if form.buttons == ["Redrive all 3"]]
    assert "3 dead letters are on their way again." in browser.submit(every).text
    assert left(group) == []
    assert "No dead letters." in page(browser, group).text


def test_a_kind_is_chosen_among_those_that_the_filters_leave(browser: Browser, group: Group) -> None:
    screen = page(browser, group, "?since=2020-01-01T00%3A00%3A00Z")
    assert "since: 2020-01-01T00:00:00Z" in screen.text
    assert "dead-letters?since=2020-01-01T00%3A00%3A00Z&amp;reason=REJECTED" in screen.html


@pytest.mark.parametrize("name", LETTER_FILTERS)
def test_each_filter_goes_from_the_url_into_the_redrive(browser: Browser, group: Group, name: str) -> None:
    screen = page(browser, group, f"?{name}={FITTING[name]}")
    (those,) = [form for form in screen.forms if "Redrive all that fit" in " ".join(form.buttons)]
    assert those.fields[name] == FITTING[name]
    for rest in ("", "/canary", "/many"):
        screen = page(browser, group, f"{rest}?{name}={UNFIT[name]}")
        assert not [form for form in screen.forms if form.fields.get("call") == "redrive"]
    export = f"/console/topics/{group.topic.name}/groups/{group.name}/dead-letters.jsonl"
    assert browser.get(f"{export}?{name}={UNFIT[name]}").html == ""


def test_those_that_fit_a_filter_are_redriven(browser: Browser, group: Group) -> None:
    screen = page(browser, group, "?key=key-1")
    (those,) = [form for form in screen.forms if form.buttons == ["Redrive all that fit, 1"]]
    assert "1 dead letter is" in browser.submit(those).text
    assert len(left(group)) == 4


def test_a_filter_that_cannot_be_is_refused(browser: Browser, group: Group) -> None:
    screen = browser.get(
        f"/console/topics/{group.topic.name}/groups/{group.name}/dead-letters?since=yesterday"
    )
    assert (screen.status, "must be a time" in screen.text) == (400, True)


def test_a_letter_is_mended_with_a_diff_and_sent_again(browser: Browser, group: Group) -> None:
    letter = left(group)[0]["id"]
    screen = page(browser, group, f"/{letter}")
    (edit,) = [
        form
        for form in screen.forms
        if "textarea" in screen.html and "body" in form.fields and "call" not in form.fields
    ]
    assert '"total": 1.1' in edit.fields["body"]
    screen = browser.submit(edit, body='{"n": 0, "total": 2.50}')
    assert "This would change" in screen.text
    assert "<del>-" in screen.html
    assert "<ins>+" in screen.html
    assert left(group)[0]["edited"] is False, "nothing has happened yet"
    screen = browser.submit(screen.form("edit_dead_letter"))
    assert "The dead letter has its new body." in screen.text
    assert left(group)[0]["body"] == {"n": 0, "total": 2.5}
    (one,) = [form for form in page(browser, group, f"/{letter}").forms if form.buttons == ["Redrive it"]]
    browser.submit(one)
    assert [message["body"] for message in group.receive(1, wait_seconds=1)] == [{"n": 0, "total": 2.5}]


def test_a_body_that_is_no_json_is_not_offered_to_be_saved(browser: Browser, group: Group) -> None:
    letter = left(group)[0]["id"]
    (edit,) = [
        form
        for form in page(browser, group, f"/{letter}").forms
        if "body" in form.fields and "call" not in form.fields
    ]
    screen = browser.submit(edit, body="{")
    assert (screen.status, "This is no JSON" in screen.text) == (400, True)
    assert not [form for form in screen.forms if form.fields.get("call") == "edit_dead_letter"]


def test_a_body_that_is_too_long_for_a_page_is_shown_and_not_edited(api: Client, browser: Browser) -> None:
    group = api.topic().group()
    letter = group.topic.produce("1" * 70_000)["id"]
    group.nack(*group.receive(), dead_letter=True)
    screen = page(browser, group, f"/{letter}")
    assert "1" * 60_000 in screen.html
    assert "too long to be edited on a page" in screen.text
    assert [form for form in screen.forms if "body" in form.fields] == []


def test_a_letter_is_deleted_for_good(browser: Browser, group: Group) -> None:
    letter = left(group)[0]["id"]
    screen = browser.submit(page(browser, group, f"/{letter}").form("delete_dead_letter"))
    assert "The dead letter is deleted." in screen.text
    assert letter not in [each["id"] for each in left(group)]


def test_very_many_letters_are_shown_page_by_page_at_a_bounded_cost(api: Client, browser: Browser) -> None:
    group = api.topic(shards=1).group("mailer")
    group.topic.batch([{"body": "x" * 900} for _ in range(90)])
    group.nack(*group.receive(90), dead_letter=True)
    screen = page(browser, group)
    count = screen.html.count(">Redrive<")
    while "More" in screen.links:
        assert "Redrive all 50+" in screen.text
        screen = browser.follow("More")
        assert screen.units <= 20
        count += screen.html.count(">Redrive<")
    assert "Redrive all 50+" in screen.text, "the last page knows of no fewer than the first"
    assert count == 90
