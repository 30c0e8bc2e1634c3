"""The pages in a real browser: nothing complains, nothing is out of reach, and it works without script, too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import pages
from tests.browser.chromium import click, signed_in
from tests.browser.scene import play_long_names
from tests.support.local_service import LocalService
from tests.support.rarely import rarely

pytestmark = pytest.mark.browser
NAMES = sorted(pages.paths("x"))
_MOST_USED = ("dead-letters", "group", "message", "messages", "overview", "topic")


@pytest.fixture(scope="module")
def page(chromium: Any, service: tuple[LocalService, str]) -> Any:
    return signed_in(chromium, service[0])


@pytest.fixture(scope="module")
def checked(chromium: Any, service: tuple[LocalService, str]) -> Any:
    """A page into which axe may be put, against the pages' own policy. On a phone more is to be scrolled by keys."""
    return signed_in(chromium, service[0], bypass_csp=True, viewport={"width": 375, "height": 700})


def opened(page: Any, service: tuple[LocalService, str], name: str) -> Any:
    page.goto(f"{service[0].url}/{pages.paths(service[1])[name]}")
    return page


@pytest.mark.parametrize("name", NAMES)
def test_no_page_breaks_its_own_policy_and_each_fits_a_phone(
    page: Any, service: tuple[LocalService, str], name: str
) -> None:
    page.set_viewport_size({"width": 375, "height": 700})
    assert opened(page, service, name).inner_text("h1, .troubles")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.complaints == []


def test_the_longest_names_do_not_make_a_page_wider(page: Any, service: tuple[LocalService, str]) -> None:
    for path in play_long_names(service[0]):
        page.goto(f"{service[0].url}/{path}")
        for width in (375, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.parametrize("name", ["topic", "group", "dead-letters", "later", "tokens"])
def test_the_buttons_of_a_line_are_in_reach_on_a_phone(
    page: Any, service: tuple[LocalService, str], name: str
) -> None:
    page.set_viewport_size({"width": 375, "height": 700})
    opened(page, service, name)
    buttons = page.locator("td button").all()
    assert buttons
    for button in buttons:
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 375
    page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.parametrize("name", [*_MOST_USED, *rarely(*(name for name in NAMES if name not in _MOST_USED))])
def test_everybody_can_use_it(checked: Any, service: tuple[LocalService, str], name: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(opened(checked, service, name)).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in violations] == []


def test_it_works_without_script(chromium: Any, service: tuple[LocalService, str]) -> None:
    plain = signed_in(chromium, service[0], java_script_enabled=False)
    opened(plain, service, "topic")
    click(plain, "tr:has-text('warehouse') button")
    assert "Paused: no more messages are handed out" in plain.inner_text("main")
    click(plain, "tr:has-text('warehouse') button")
    assert "Resumed." in plain.inner_text("main")


def test_it_polls_while_somebody_looks_and_not_in_a_hidden_tab(
    page: Any, service: tuple[LocalService, str]
) -> None:
    opened(page, service, "tail")
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true") as answer:
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert "<html" not in answer.value.text()
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    before = page.evaluate("headracePolls()")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert page.evaluate("headracePolls()") == before


def test_keys_lead_everywhere(page: Any, service: tuple[LocalService, str]) -> None:
    opened(page, service, "topic")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url("**/console")
    page.keyboard.press("j")
    assert page.locator("tr.at").count() == 1
    page.keyboard.press("/")
    page.keyboard.type("order-7")
    page.keyboard.press("Enter")
    page.wait_for_url("**/messages/*")
    page.keyboard.press("/")
    page.wait_for_url("**/find")
    page.locator("h1").click()
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1


def test_the_line_and_what_has_the_focus_stay_when_the_moving_part_comes_anew(
    page: Any, service: tuple[LocalService, str]
) -> None:
    opened(page, service, "topic")
    page.keyboard.press("j")
    button = page.locator("tr:has-text('warehouse') button")
    button.focus()
    old = button.element_handle()
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    old.wait_for_element_state("hidden")
    page.locator("button:focus").wait_for()
    assert button.evaluate("each => each === document.activeElement")
    assert page.locator("tr.at").count() == 1


def test_the_panel_beside_a_list_gives_the_focus_back(page: Any, service: tuple[LocalService, str]) -> None:
    opened(page, service, "messages")
    link = page.locator("a[data-side]").nth(2)
    link.click()
    page.locator("#side:focus").wait_for()
    page.keyboard.press("Escape")
    page.locator("#side").wait_for(state="hidden")
    assert link.evaluate("each => each === document.activeElement")


def test_dark_light_and_local_time_are_remembered(page: Any, service: tuple[LocalService, str]) -> None:
    opened(page, service, "message")
    utc = page.inner_text("time.exact >> nth=0")
    assert utc.endswith("Z")
    page.click("[data-zone-button]")
    assert not page.inner_text("time.exact >> nth=0").endswith("Z")
    page.click("[data-zone-button]")
    page.click("[data-theme-button]")
    assert opened(page, service, "overview").get_attribute("html", "data-theme") == "dark"


def test_a_name_must_be_typed_before_the_button_works(page: Any, service: tuple[LocalService, str]) -> None:
    opened(page, service, "settings")
    form = page.locator("form[data-typed]").last
    button = form.locator("button")
    assert button.is_disabled()
    form.locator("input[name=confirm]").fill("orders")
    assert button.is_enabled()


def test_the_overview_says_what_is_stuck_and_why_and_a_click_tests_it(
    page: Any, service: tuple[LocalService, str]
) -> None:
    opened(page, service, "overview")
    case = page.locator(".troubles li", has_text="returns / desk").filter(has_text="shop fails since")
    case.wait_for()
    assert "(no connection)" in case.inner_text()
    assert case.locator("button", has_text="Pause").is_enabled()
    case.locator("button", has_text="Test").click()
    page.wait_for_selector("text=It would not have taken a message. no connection")
    assert page.complaints == []


def test_why_messages_failed_is_a_click_away_from_the_overview(
    page: Any, service: tuple[LocalService, str]
) -> None:
    opened(page, service, "overview")
    page.locator(".troubles li", has_text="orders / mailer").locator("a", has_text="dead letters").click()
    page.wait_for_url("**/dead-letters")
    assert "SMTP 550: no such mailbox" in page.inner_text("main")


def test_a_chart_says_the_value_under_the_pointer_and_by_keys(
    page: Any, service: tuple[LocalService, str]
) -> None:
    opened(page, service, "rates")
    plot = page.locator(".plot").first
    plot.hover()
    hovered = page.locator("figure output").first.inner_text()
    plot.focus()
    page.keyboard.press("ArrowLeft")
    assert {hovered, page.locator("figure output").first.inner_text()}.isdisjoint({""})
    assert page.locator("figure output").first.inner_text() != hovered


def test_fields_for_times_are_in_the_zone_that_times_are_shown_in(
    chromium: Any, service: tuple[LocalService, str]
) -> None:
    kolkata = signed_in(chromium, service[0], timezone_id="Asia/Kolkata")
    kolkata.click("[data-zone-button]")
    path = pages.paths(service[1])["messages"]
    kolkata.goto(f"{service[0].url}/{path}?from=2026-01-01T10:00&to=2099-01-01T10:00")
    assert kolkata.input_value("input[name=from]") == "2026-01-01T15:30"
    assert "from, local" in kolkata.inner_text("label:has(input[name=from])")
    kolkata.fill("input[name=from]", "2026-01-01T16:30")
    click(kolkata, "form:has(input[name=from]) button")
    assert "from=2026-01-01T11%3A00&to=2099-01-01T10%3A00" in kolkata.url
    assert kolkata.input_value("input[name=from]") == "2026-01-01T16:30"
    opened(kolkata, service, "message")
    assert kolkata.inner_text("time.exact >> nth=0").endswith("+05:30")
