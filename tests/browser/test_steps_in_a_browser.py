"""What script adds: a message beside its list, and steps that follow one another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.chromium import signed_in
from tests.support.local_service import LocalService

pytestmark = pytest.mark.browser
LETTERS, OTHERS = 450, 3


@pytest.fixture(scope="module")
def page(chromium: Any, service: tuple[LocalService, str]) -> Any:
    return signed_in(chromium, service[0], viewport={"width": 1280, "height": 800})


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


def test_the_tail_marks_what_it_skipped(page: Any, service: tuple[LocalService, str]) -> None:
    service[0].ask("PUT", "/topics/rapid", {"shards": 1})
    page.goto(f"{service[0].url}/console/topics/rapid/tail")
    for number in (1, 30):
        messages = [{"body": n} for n in range(number)]
        service[0].ask("POST", "/topics/rapid/messages/batch", {"messages": messages})
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_selector(f"text=/{number - 1}")
    page.wait_for_selector("text=messages were not shown so far.")
    assert page.complaints == []


def test_the_code_follows_what_is_filled_in(page: Any, service: tuple[LocalService, str]) -> None:
    page.goto(f"{service[0].url}/console/topics/clicks/send")
    page.fill("input[name=tag]", "paid")
    page.wait_for_selector("pre:has-text(\"tag='paid'\")")
    assert page.input_value("input[name=tag]") == "paid"
    assert page.complaints == []


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
