"""What script adds: a message beside its list, and steps that follow one another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.chromium import signed_in
from tests.support.local_service import LocalService

pytestmark = pytest.mark.browser
LETTERS = 7


@pytest.fixture(scope="module")
def page(chromium: Any, service: tuple[LocalService, str]) -> Any:
    return signed_in(chromium, service[0], viewport={"width": 1280, "height": 800})


@pytest.fixture
def letters(service: tuple[LocalService, str]) -> str:
    """The page of many dead letters."""
    ask, group = service[0].ask, "/topics/steps/groups/mailer"
    ask("PUT", "/topics/steps", {"shards": 1})
    ask("PUT", group, {"from": "earliest"})
    ask("POST", "/topics/steps/messages/batch", {"messages": [{"body": n} for n in range(LETTERS)]})
    messages = ask("POST", f"{group}/receive", {"max": LETTERS})["messages"]
    receipts = [message["receipt"] for message in messages]
    ask("POST", f"{group}/nack", {"receipts": receipts, "dead_letter": True})
    return f"{service[0].url}/console{group}/dead-letters"


def test_a_message_opens_beside_its_list(page: Any, service: tuple[LocalService, str]) -> None:
    at = f"{service[0].url}/console/topics/orders/messages"
    page.goto(at)
    page.click("a[data-side] >> nth=0")
    panel = page.locator("#side")
    panel.wait_for(state="visible")
    panel.locator("text=Time line").first.wait_for()
    assert page.url == at
    page.keyboard.press("Escape")
    panel.wait_for(state="hidden")
    page.click("a[data-side] >> nth=1")
    panel.wait_for(state="visible")
    panel.locator("text=Open its page").click()
    page.wait_for_url("**/messages/*")
    assert page.complaints == []


def test_steps_follow_one_another_until_no_letter_is_left(page: Any, letters: str) -> None:
    page.goto(f"{letters}/many?step=4&every=1")
    page.click("text=Go on by itself")
    page.wait_for_selector("text=No dead letter is left to be sent.")
    assert page.complaints == []


def test_they_do_not_go_on_where_nobody_asked(page: Any, letters: str) -> None:
    page.goto(f"{letters}/many?step=1&every=1")
    page.click("text=Go on by itself")
    page.wait_for_selector("text=1 dead letter is on its way again.")
    page.click("[data-go-button]")
    page.goto(f"{letters}/many?step=1&every=1")
    assert page.inner_text("[data-go-button]") == "Go on by itself"


def test_the_modes_are_tried_by_a_button(page: Any, service: tuple[LocalService, str]) -> None:
    page.goto(f"{service[0].url}/console/try")
    page.click("text=Try serial")
    page.wait_for_selector("text=Receive and acknowledge")
    page.click("text=Receive and acknowledge")
    page.wait_for_selector("text=2 received and settled.")
    assert page.complaints == []


def test_beside_a_list_a_message_that_is_gone_is_not_taken_for_another(
    page: Any, service: tuple[LocalService, str]
) -> None:
    page.goto(f"{service[0].url}/console/topics/orders/messages")
    page.click("a[data-side] >> nth=0")
    page.locator("#side-body >> text=What happened").wait_for()
    gone = {"status": 404, "body": "<h1>There is no such message.</h1>", "content_type": "text/html"}
    page.route("**/messages/*", lambda route: route.fulfill(**gone))
    page.click("a[data-side] >> nth=1")
    page.locator("#side-body >> text=There is no such message.").wait_for()
    assert page.locator("#side-body >> text=What happened").count() == 0
    page.unroute("**/messages/*")


def test_a_form_whose_answer_is_awaited_is_not_sent_again(
    page: Any, service: tuple[LocalService, str]
) -> None:
    page.goto(f"{service[0].url}/console/topics/clicks/send")
    awaited: list[Any] = []
    page.route("**/console/do", lambda route: awaited.append(route))
    box = page.locator("button:has-text('Send')").bounding_box()
    with page.expect_request("**/console/do"):
        page.mouse.click(box["x"] + 5, box["y"] + 5)
    page.mouse.click(box["x"] + 5, box["y"] + 5)  # a second request would end the first
    awaited[0].continue_()
    page.wait_for_selector("text=Sent.")
    page.unroute("**/console/do")
    page.go_back()
    page.click("button:has-text('Send')")
    page.wait_for_selector("text=Sent.")
