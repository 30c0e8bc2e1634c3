"""Dead letters: grouped by their errors, edited with a diff, and redriven, one, some or all."""

from __future__ import annotations

import html
import re
from random import Random
from typing import Any
from urllib.parse import urljoin

import pytest

from chalicelib.api.lists import LETTER_FILTERS
from tests.support.browser import Browser, Screen
from tests.support.http import Client, Group

_PAST, _FUTURE = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
FITTING = {"reason": "REJECTED", "tag": "paid", "key": "key-1", "tenant": "acme"}
FITTING |= {"since": _PAST, "until": _FUTURE, "error": "mailbox"}
UNFIT = {
    "reason": "EXPIRED",
    "tag": "other",
    "tenant": "other",
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
        group.topic.produce({"n": n, "total": 1.10}, keys=[f"key-{n}"], tag="paid", tenant="acme")
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


def redrive_of(browser: Browser, label: str) -> Screen:
    """The page behind a link, before a redrive."""
    screen = browser.follow(label)
    assert screen.status == 200, screen.text
    return screen


def test_they_are_grouped_by_reason_and_error_and_one_cause_is_redriven(
    browser: Browser, group: Group
) -> None:
    group.topic.produce("other", tag="paid")
    group.nack(*group.receive(1), dead_letter=True, reason="order 4711 has no mailbox")
    screen = page(browser, group)
    assert re.findall(r'"n hot"><a [^>]*>(\d+)<', screen.html) == ["3", "2", "1"], "the most frequent first"
    assert "<b>odd" not in screen.html
    assert "6 dead letters" in screen.text
    links = re.findall(r'href="([^"]*many\?call=redrive[^"]*)"', screen.html)
    screen = browser.get(urljoin(screen.url, html.unescape(links[2])))
    assert "error: <b>odd</b>" in screen.text
    assert "2 in all , 1 cause" in screen.text
    assert "2 of 2 done." in browser.submit(screen.form("redrive", limit="200")).text
    assert {letter["last_error"] for letter in left(group)} == {"no mailbox", "order 4711 has no mailbox"}


@pytest.mark.parametrize("name", LETTER_FILTERS)
def test_each_filter_goes_from_the_url_into_the_redrive(browser: Browser, group: Group, name: str) -> None:
    page(browser, group, f"?{name}={FITTING[name]}")
    those = redrive_of(browser, "Redrive …").form("redrive", limit="200")
    assert those.fields[name] == FITTING[name]
    export = f"/console/topics/{group.topic.name}/groups/{group.name}/dead-letters.jsonl"
    assert browser.get(f"{export}?{name}={UNFIT[name]}").html == ""
    many = f"/console/topics/{group.topic.name}/groups/{group.name}/many?call=redrive"
    screen = browser.get(f"{many}&{name}={UNFIT[name]}")
    assert "There is nothing to do here." in screen.text
    assert not [form for form in screen.forms if form.fields.get("call") == "redrive"]


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
    group.topic.batch([{"body": Random(n).randbytes(900).hex()} for n in range(90)])
    while messages := group.receive(100):
        group.nack(*messages, dead_letter=True)
    screen = page(browser, group)
    count = screen.html.count(">Redrive<")
    assert re.search(r"By what went wrong of \d+\+", screen.text), "more than the page may read"
    every = browser.get(
        urljoin(screen.url, next(screen.links[text] for text in screen.links if "Count up to" in text))
    )
    assert "90 dead letters" in every.text
    assert "of 90" in every.text
    screen = page(browser, group)
    while "More" in screen.links:
        assert "+ dead letters" in screen.text
        screen = browser.follow("More")
        assert screen.units <= 20
        count += screen.html.count(">Redrive<")
    assert count == 90
