"""The audit trail on a page: filters in the URL, pages, and who may see it. And tokens that are rotated."""

from __future__ import annotations

import pytest

from chalicelib import wiring
from chalicelib.domain.audit import AuditEntry
from tests.support.browser import Browser, page
from tests.support.http import Client, ShiftingClock


def test_it_shows_who_changed_what_and_what_was_refused(api: Client, browser: Browser) -> None:
    new_token = api.new_token(name="<i>ops</i>")
    ops = api.with_token(new_token["token"])
    topic = ops.topic()
    ops.call("DELETE", topic.path).refused(400)
    screen = page(browser, f"audit?topic={topic.name}")
    assert "<i>ops" not in screen.html
    assert "PUT /v1/topics/{topic}" in screen.text
    assert f"topic {topic.name} OK" in screen.text
    assert f"topic {topic.name} CONFIRM_MISSING" in screen.text
    assert f"topic {topic.name}" in page(browser, f"audit?token={new_token['id']}").text
    assert "fits." in page(browser, f"audit?token={new_token['id']}&topic=another").text
    assert "fits." in page(browser, f"audit?topic={topic.name}&to=2026-01-01T00:00").text
    assert browser.get("/console/audit?from=yesterday").status == 400


@pytest.mark.parametrize("is_page", [True, False])
def test_what_the_console_refuses_a_token_is_in_the_trail_as_of_any_call(
    api: Client, stranger: Browser, is_page: bool
) -> None:
    new_token, foreign = api.new_token(topics=["mine.*"]), api.topic()
    forms = stranger.sign_in(new_token["token"]).forms
    if is_page:
        assert stranger.get(f"/console/topics/{foreign.name}").status == 403
    else:
        (csrf,) = {form.fields["csrf"] for form in forms if "csrf" in form.fields}
        fields = {"call": "put_topic", "topic": foreign.name, "csrf": csrf}
        assert stranger.post("/console/do", fields).status == 403
    (entry,) = api.get(f"/v1/audit?token={new_token['id']}").expect(200)["items"]
    assert (entry["object"], entry["result"]) == (f"topic {foreign.name}", "TOPIC_FORBIDDEN")


def test_a_long_trail_comes_in_pages_and_each_stays_cheap(
    api: Client, browser: Browser, clock: ShiftingClock
) -> None:
    clock.advance(1)
    trail = wiring.deps().adapters.audit
    for n in range(450):
        at_ms = clock.now_ms() - n
        what = f"topic {'x' * 200}"
        trail.add(
            AuditEntry(
                at_ms=at_ms,
                token_id="busy",
                token_name="busy",
                method="PUT",
                path="/v1/topics/{topic}",
                object=what,
                result="OK",
                request_id=f"r{n}",
            )
        )
    screen = page(browser, "audit?token=busy")
    assert screen.html.count("<tr data-line>") == 50
    assert browser.follow("Older").html.count("<tr data-line>") == 50
    assert browser.screen
    assert browser.screen.units <= 20
    screen = page(browser, "audit?token=nobody")
    assert "None of those looked at fits." in screen.text
    browser.follow("Look further back")
