"""The overview: one sentence, or the worst thing first; each topic in one line."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

from chalicelib import wiring
from tests.functional.console.test_console_rates import read
from tests.support.background import Background
from tests.support.browser import HOST, Browser
from tests.support.http import Client, ShiftingClock


def seen(browser: Browser, topic: str) -> str:
    """The topic's line on the page that begins with it, once it was counted."""
    name_before = topic[:-1] + chr(ord(topic[-1]) - 1) + "~"
    after = wiring.deps().signing_keys.seal("console-topics", name_before)
    for _ in range(600):
        screen = browser.get(f"/console?after={after}")
        assert screen.status == 200
        assert screen.units <= 20
        rows = [row for row in screen.html.split("<tr data-line")[1:] if f'topics/{topic}"' in row]
        if rows and "counted at the next look" not in rows[0]:
            return rows[0]
    raise AssertionError(f"{topic} was never counted")


def test_a_topics_line_counts_what_waits_and_what_is_dead(
    api: Client, browser: Browser, stranger: Browser, clock: ShiftingClock
) -> None:
    topic = api.topic(shards=1)
    group = topic.group("mailer")
    for n in range(5):
        topic.produce({"n": n})
    messages = group.receive(3)
    group.nack(messages[0], dead_letter=True)
    group.ack(messages[1])
    clock.advance(120)
    line = " ".join(seen(browser, topic.name).split())
    assert 'group=mailer&amp;status=NEW">3</a></td>' in line, "three are not settled"
    assert 'dead-letters">1</a></td>' in line
    screen = stranger.sign_in(api.new_token("admin", topics=[topic.name])["token"])
    assert f"{topic.name} / mailer : 3 waiting" in screen.text
    assert f"topics/{topic.name}/groups/mailer/many?call=redrive" in screen.html
    assert screen.text.index("no consumer at work") < screen.text.index("dead letter"), (
        "what waits comes first"
    )


def test_a_group_is_stuck_although_messages_are_leased(
    api: Client, stranger: Browser, background: Background, clock: ShiftingClock
) -> None:
    topic = api.topic(shards=1, mode="serial")
    group = topic.group("ledger")
    topic.batch([{"body": n} for n in range(9)])
    group.receive(1, lease_seconds=3_600)
    read(background, topic)
    stranger.enter(api.new_token("consume", topics=[topic.name])["token"])
    assert f"{topic.name} / ledger" not in stranger.get("/console").text
    clock.advance(200)
    text = stranger.get("/console").text
    assert f"{topic.name} / ledger : 9 waiting , the oldest for 3 m 20 s, none settled for 3 m" in text
    assert "no consumer at work" not in text


def test_a_token_for_some_topics_sees_only_those(api: Client, stranger: Browser) -> None:
    mine, other = api.topic(), api.topic()
    screen = stranger.sign_in(api.new_token("consume", topics=[mine.name])["token"])
    assert mine.name in screen.links
    assert other.name not in screen.html
    form = screen.form("put_topic")
    assert form.disabled, "what the token may not do is grey"


def test_where_there_is_nothing_it_says_how_to_begin(api: Client, stranger: Browser) -> None:
    screen = stranger.sign_in(api.new_token("produce", topics=["none-*"])["token"])
    assert "Nothing here yet." in screen.text
    assert "HEADRACE_URL=http://headrace.test" in screen.text


def test_a_topic_is_made_from_a_form(api: Client, browser: Browser) -> None:
    form = browser.get("/console").form("put_topic")
    screen = browser.submit(form, topic="made-by-hand", shards="2", mode="serial")
    assert screen.status == 200
    assert "Saved." in screen.text
    topic = api.get("/v1/topics/made-by-hand").expect(200)
    assert (topic["shards"], topic["mode"]) == (2, "serial")


def test_the_form_of_a_new_topic_changes_nothing_in_one_that_is_there(api: Client, browser: Browser) -> None:
    topic = api.topic(mode="serial")
    before = api.get(topic.path).expect(200)
    browser.submit(browser.get("/console").form("put_topic"), topic=topic.name)
    assert api.get(topic.path).expect(200) == before


@pytest.mark.parametrize(
    ("limits", "may"), [({"topics": ["shop.*"]}, True), ({"topics": ["shop.*"], "groups": ["mine"]}, False)]
)
def test_who_may_make_some_topics_has_the_button(
    api: Client, stranger: Browser, limits: dict[str, list[str]], may: bool
) -> None:
    form = stranger.sign_in(api.new_token("admin", **limits)["token"]).form("put_topic")
    assert form.disabled is not may
    if may:
        stranger.submit(form, topic="shop.made-by-hand")
        api.get("/v1/topics/shop.made-by-hand").expect(200)
    else:
        assert "needs a token for all groups" in form.refusal


def test_a_page_that_polls_gets_its_moving_part_only(browser: Browser) -> None:
    screen = browser.get("/console", hx_request="true")
    assert "<html" not in screen.html
    assert "read units" in screen.text


def test_a_topic_of_very_many_shards_does_not_make_the_page_dear(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=64)
    topic.group("g")
    topic.produce(1)
    assert "+" in seen(browser, topic.name), "some shards were not looked at"


def test_a_fragments_links_begin_where_it_is_shown(api: Client, browser: Browser) -> None:
    topic = api.topic()
    group = topic.group("mailer")
    id = topic.produce("x")["id"]
    path, at = f"/console/topics/{topic.name}/messages/{id}", f"/console/topics/{topic.name}/messages"
    screen = browser.get(path, hx_request="true", hx_current_url=f"http://{HOST}{at}?tag=x")
    assert "<html" not in screen.html
    for text, where in ((group.name, f"topics/{topic.name}/groups/mailer"), ("raw", f"{path[9:]}?as=raw")):
        assert urljoin(at, screen.links[text]) == f"/console/{where.lstrip('/')}"


def test_a_fragment_that_is_shown_elsewhere_has_the_links_of_its_own_path(
    api: Client, browser: Browser
) -> None:
    topic = api.topic()
    id = topic.produce("x")["id"]
    path = f"/console/topics/{topic.name}/messages/{id}"
    for url in ("https://evil.example/x", "", "http://[", f"http://{HOST}/elsewhere/a/b/c/d"):
        screen = browser.get(path, hx_request="true", hx_current_url=url)
        assert urljoin(path, screen.links["raw"]) == f"{path}?as=raw"
