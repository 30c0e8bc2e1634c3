"""Try it: a button a mode (X92), then the messages are received by hand; and the first page leads there."""

from __future__ import annotations

import pytest

from tests.support.browser import Browser, Form, Screen
from tests.support.http import Client


def begun(browser: Browser, mode: str) -> Screen:
    browser.get("/console/try")
    assert browser.screen
    (form,) = [form for form in browser.screen.forms if form.buttons == [f"Try {mode}"]]
    screen = browser.submit(form)
    assert screen.status == 200
    assert screen.units <= 20
    return screen


def take(screen: Screen, way: str, consumer: str = "") -> dict[str, str]:
    forms = [f for f in screen.forms if "ids" in f.fields and f.fields["consumer"] == consumer]
    return {**forms[0].fields, "way": way}


def form_of(screen: Screen, consumer: str = "") -> Form:
    return next(f for f in screen.forms if "ids" in f.fields and f.fields["consumer"] == consumer)


def statuses(api: Client, screen: Screen, mode: str) -> list[str]:
    ids = (
        form_of(screen).fields["ids"].split()
        if mode != "broadcast"
        else form_of(screen, "one").fields["ids"].split()
    )
    assert len(ids) == 3
    path = f"/v1/topics/try-{mode}/messages"
    return [api.get(f"{path}/{id}").expect(200)["status"] for id in ids]


def test_queue(api: Client, browser: Browser) -> None:
    screen = begun(browser, "queue")
    assert statuses(api, screen, "queue") == ["NEW"] * 3
    screen = browser.submit(form_of(screen), way="ack")
    assert "3 received and settled." in screen.text
    assert statuses(api, screen, "queue") == ["SUCCESS"] * 3
    screen = browser.submit(form_of(screen), way="ack")
    assert "Nothing could be received" in screen.text


def test_serial(api: Client, browser: Browser) -> None:
    screen = begun(browser, "serial")
    screen = browser.submit(form_of(screen), way="fail")
    assert "2 received and settled." in screen.text, "a red one and the blue one"
    assert statuses(api, screen, "serial") == ["RETRYING", "NEW", "RETRYING"]


def test_broadcast(api: Client, browser: Browser) -> None:
    screen = begun(browser, "broadcast")
    screen = browser.submit(form_of(screen, "one"), way="ack")
    assert statuses(api, screen, "broadcast") == ["RUNNING"] * 3, "the other one has not had them"
    screen = browser.submit(form_of(screen, "two"), way="give_up")
    assert statuses(api, screen, "broadcast") == ["DEAD"] * 3


@pytest.mark.parametrize(("path", "fields"), [("", {"mode": "x"}), ("/take", {"mode": "queue", "way": "x"})])
def test_what_is_no_form_of_ours_is_refused(browser: Browser, path: str, fields: dict[str, str]) -> None:
    screen = browser.get("/console/try")
    csrf = next(form.fields["csrf"] for form in screen.forms if "csrf" in form.fields)
    screen = browser.post(f"/console/try{path}", {"csrf": csrf, **fields})
    assert "FORM_UNREADABLE" in screen.text


def test_a_token_that_may_not_sees_why(api: Client, stranger: Browser) -> None:
    stranger.enter(api.new_token("consume")["token"])
    screen = stranger.get("/console/try")
    forms = [form for form in screen.forms if form.buttons and form.buttons[0].startswith("Try ")]
    assert [form.disabled for form in forms] == [True] * 3
    assert "needs a token with the scope 'admin'" in screen.text
    assert "SCOPE_MISSING" not in screen.text
