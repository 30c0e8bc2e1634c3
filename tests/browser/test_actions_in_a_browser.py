"""What people do on the pages of those who run it, in a real browser that runs no script."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.browser.chromium import click, signed_in
from tests.support.local_service import LocalService

pytestmark = pytest.mark.browser
SUBSCRIBER = "console/topics/returns/groups/desk/consumers/shop"


@pytest.fixture(scope="module")
def plain(chromium: Any, service: tuple[LocalService, str]) -> Any:
    return signed_in(chromium, service[0], java_script_enabled=False)


def test_a_link_of_a_terminal_signs_in_and_leaves_no_ticket(
    chromium: Any, service: tuple[LocalService, str]
) -> None:
    link = service[0].ask("POST", "/sign-in-links", {})["url"]
    page = chromium.new_context(java_script_enabled=False).new_page()
    page.goto(link)
    assert page.url == f"{service[0].url}/console"
    assert "Sign out" in page.inner_text("header")
    second = chromium.new_context(java_script_enabled=False).new_page()
    second.goto(link)
    assert "This link was used" in second.inner_text("main")


def test_a_transform_is_previewed_and_registered(plain: Any, service: tuple[LocalService, str]) -> None:
    plain.goto(f"{service[0].url}/{SUBSCRIBER}")
    plain.fill("textarea[name=transform]", "{t: body.total}")
    plain.fill("textarea[name=headers]", "X-Api-Key: k-1")
    click(plain, "button[formaction]")
    assert '{"t":7}' in plain.inner_text("main")
    plain.go_back()
    plain.fill("textarea[name=transform]", "{t: body.total}")
    plain.fill("textarea[name=headers]", "X-Api-Key: k-1")
    click(plain, "button:text-is('Register')")
    plain.goto(f"{service[0].url}/{SUBSCRIBER}")
    assert plain.input_value("textarea[name=transform]") == "{t: body.total}"
    assert plain.input_value("textarea[name=headers]") == ""
    assert "Remove X-Api-Key" in plain.inner_text("main")


def test_a_token_is_made_and_rotated(plain: Any, service: tuple[LocalService, str]) -> None:
    plain.goto(f"{service[0].url}/console/tokens")
    plain.click("summary:has-text('New token')")
    plain.fill("details input[name=name]", "billing")
    click(plain, "text=Make")
    first = plain.inner_text("pre")
    click(plain, "text=Back")
    click(plain, "tr:has-text('billing') button:has-text('Rotate')")
    second = plain.inner_text("pre")
    assert first != second
    assert first.split("_")[1] == second.split("_")[1], "it is the same token, with another text"
    plain.goto(f"{service[0].url}/console/audit")
    assert "/v1/tokens/{id}/rotate" in plain.inner_text("table")


def test_ticked_messages_are_postponed_and_put_back(plain: Any, service: tuple[LocalService, str]) -> None:
    plain.goto(f"{service[0].url}/console/topics/invoices/later")
    ticks = plain.locator("input[type=checkbox]")
    first = str(ticks.first.get_attribute("name")).removeprefix("id.")
    before = service[0].ask("GET", f"/topics/invoices/messages/{first}")["deliver_at"]
    ticks.nth(0).check()
    ticks.nth(1).check()
    click(plain, "text=Many at once")
    assert "2 messages" in plain.inner_text("main")
    click(plain, "text=+ an hour")
    assert "2 messages changed." in plain.inner_text("main")
    assert service[0].ask("GET", f"/topics/invoices/messages/{first}")["deliver_at"] > before
    click(plain, "text=Undo")
    assert service[0].ask("GET", f"/topics/invoices/messages/{first}")["deliver_at"] == before


def test_a_message_is_postponed_in_its_row(plain: Any, service: tuple[LocalService, str]) -> None:
    plain.goto(f"{service[0].url}/console/topics/invoices/later")
    row = plain.locator("tr[data-line]").last
    id = row.locator("th").inner_text()
    before = service[0].ask("GET", f"/topics/invoices/messages/{id}")["deliver_at"]
    row.locator("summary").click()
    with plain.expect_navigation():
        row.locator("button:has-text('+ a day')").click()
    after = service[0].ask("GET", f"/topics/invoices/messages/{id}")["deliver_at"]
    assert datetime.fromisoformat(after) - datetime.fromisoformat(before) == timedelta(days=1)
