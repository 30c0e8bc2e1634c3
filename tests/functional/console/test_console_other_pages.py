"""Delayed messages, live tail, transactions, finding, tokens, the schedules; and what a token for some groups sees."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from chalicelib import wiring
from chalicelib.console.figures import NOTHING
from tests.support.browser import Browser, page
from tests.support.http import Client, ShiftingClock

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"


def test_the_tail_says_how_many_messages_it_did_not_show(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=2)
    topic.batch([{"body": n, "shard": 0} for n in range(3)])
    assert "not shown" not in page(browser, f"topics/{topic.name}/tail").text
    topic.batch([{"body": n, "shard": 0} for n in range(12)])
    topic.produce(1, shard=1)
    screen = browser.follow("Show what came since")
    assert "2 earlier messages of shard 0 came too fast to be shown" in screen.text
    screen = browser.follow("Show what came since")
    assert "too fast" not in screen.text
    assert "2 messages were not shown so far." in screen.text, "they stay counted"
    assert page(browser, f"topics/{topic.name}/tail?seen=x~1.y~2").status == 200


def test_a_transaction_is_committed_or_rolled_back(api: Client, browser: Browser) -> None:
    topic = api.topic()
    transactions = [
        api.post(f"{topic.path}/transactions", {"message": {"body": n}}).expect(201) for n in range(2)
    ]
    screen = page(browser, f"topics/{topic.name}/transactions")
    browser.submit(screen.form("commit", id=transactions[0]["transaction_id"]))
    screen = page(browser, f"topics/{topic.name}/transactions")
    browser.submit(screen.form("roll_back", id=transactions[1]["transaction_id"]))
    states = [
        api.get(f"/v1/transactions/{each['transaction_id']}").expect(200)["state"] for each in transactions
    ]
    assert states == ["COMMITTED", "ROLLED_BACK"]


def test_a_token_is_made_shown_once_and_revoked(api: Client, browser: Browser) -> None:
    form = page(browser, "tokens").form("create_token")
    limits = {"topics": "orders.*", "groups": "mail.*, bill.*", "expires_in_days": "7", "rate_limit": "20"}
    screen = browser.submit(form, name="<b>shop</b>", **limits)
    assert "hr_" in screen.text
    text = next(word for word in screen.text.split() if word.startswith("hr_"))
    token_id = text.split("_")[1]
    tokens = {each["id"]: each for page_of_tokens in api.pages("/v1/tokens", 200) for each in page_of_tokens}
    entry = tokens[token_id]
    assert (entry["groups"], entry["rate_limit"]) == (["mail.*", "bill.*"], 20)
    screen = browser.find_in_list("/console/tokens", token_id)
    assert text not in screen.html
    assert "<b>shop" not in screen.html
    assert "Revoked." in browser.submit(screen.form("delete_token", id=token_id)).text
    assert token_id not in {
        each["id"] for page_of_tokens in api.pages("/v1/tokens", 200) for each in page_of_tokens
    }


@pytest.mark.parametrize("path", ["tokens", "audit", "topics/{topic}/replays"])
def test_a_page_says_why_a_token_may_not_see_it(api: Client, stranger: Browser, path: str) -> None:
    stranger.enter(api.new_token("consume")["token"])
    screen = page(stranger, path.format(topic=api.topic().name))
    assert "needs a token with the scope 'admin'" in screen.text


def test_a_rotated_token_ends_the_sessions_of_its_old_text(api: Client, stranger: Browser) -> None:
    new_token = api.new_token()
    stranger.enter(new_token["token"])
    assert "Overview" in page(stranger, "system").text
    api.post(f"/v1/tokens/{new_token['id']}/rotate", {"overlap_seconds": 0}).expect(200)
    assert "password" in stranger.get("/console/system").html


def test_a_token_for_some_groups_sees_only_those(api: Client, stranger: Browser) -> None:
    topic = api.topic(shards=1)
    topic.group("mine")
    topic.group("theirs")
    message = topic.produce(1)
    stranger.enter(api.new_token(topics=[topic.name], groups=["mine"])["token"])
    for path in (
        "",
        f"topics/{topic.name}",
        f"topics/{topic.name}/rates",
        f"topics/{topic.name}/messages",
        f"topics/{topic.name}/messages/{message['id']}",
    ):
        screen = stranger.get(f"/console/{path}".rstrip("/"))
        assert screen.status == 200
        assert "mine" in screen.text
        assert "theirs" not in screen.text, path
    for path in ("", "/settings", "/dead-letters"):
        assert stranger.get(f"/console/topics/{topic.name}/groups/theirs{path}").status == 403


def test_a_token_for_some_groups_sees_no_number_of_all_of_them_together(
    api: Client, browser: Browser, stranger: Browser, clock: ShiftingClock
) -> None:
    topic = api.topic(shards=1)
    topic.group("mine")
    theirs = topic.group("theirs")
    path = f"topics/{topic.name}"
    page(browser, path)
    topic.produce(1)
    theirs.ack(*theirs.receive(1))
    clock.advance(20)
    assert re.search(r"Handled 0\.0\d+", page(browser, path).text)
    stranger.enter(api.new_token(topics=[topic.name], groups=["mine"])["token"])
    for place in (path, ""):
        text = stranger.get(f"/console/{place}".rstrip("/")).text
        assert "mine" in text
        assert f"Handled {NOTHING}" in text, place
    assert "Today, UTC" in page(browser, "system").text
    assert "Today, UTC" not in page(stranger, "system").text


def test_the_page_of_the_system_names_no_topic_of_others(
    api: Client, browser: Browser, stranger: Browser
) -> None:
    mine, theirs = api.topic(), api.topic()
    rounds = wiring.deps().adapters.rounds
    before = rounds.bookmark("checkpoint")
    during = rounds.keep("checkpoint", replace(before, after=theirs.name, is_open=True))
    stranger.enter(api.new_token(topics=[mine.name])["token"])
    pages = [page(each, "system").text for each in (browser, stranger)]
    assert during
    rounds.keep("checkpoint", replace(before, version=during.version))
    assert [theirs.name in text for text in pages] == [True, False]


def test_what_a_token_for_some_groups_may_not_do_has_no_button_that_works(
    api: Client, stranger: Browser
) -> None:
    topic = api.topic(shards=1)
    topic.group("mine")
    result = topic.produce(1)
    stranger.enter(api.new_token(groups=["mine"])["token"])
    message = f"topics/{topic.name}/messages/{result['id']}"
    settings = f"topics/{topic.name}/settings"
    pages = {settings: ("put_topic", "delete_topic"), message: ("amend_message", "cancel_message")}
    for path, actions in pages.items():
        for action in actions:
            form = stranger.get(f"/console/{path}").form(action)
            assert form.disabled, action
            confirmation = {"confirm": topic.name} if "confirm" in form.open_fields else {}
            assert stranger.submit(replace(form, disabled=False), **confirmation).status == 403, action
    assert not stranger.get(f"/console/topics/{topic.name}/groups/mine/settings").form("put_group").disabled
    replays = f"/console/topics/{topic.name}/replays?from=2026-01-01T00:00&to=2026-01-02T00:00"
    assert "needs a token for all groups" in stranger.get(replays).text
    assert not stranger.get(f"{replays}&group=mine").form("create_replay").disabled


def test_a_token_for_some_topics_sees_no_page_of_another(api: Client, stranger: Browser) -> None:
    mine, theirs = api.topic(shards=1), api.topic(shards=1)
    theirs.group("g")
    message = theirs.produce(1)
    stranger.enter(api.new_token(topics=[mine.name])["token"])
    assert stranger.get(f"/console/topics/{mine.name}").status == 200
    for path in (
        "",
        "/messages",
        f"/messages/{message['id']}",
        "/send",
        "/groups/g",
        "/groups/g/dead-letters",
    ):
        screen = stranger.get(f"/console/topics/{theirs.name}{path}")
        assert (screen.status, "limited to other topics" in screen.text) == (403, True), path


def test_the_schedules_say_when_they_last_came_round(browser: Browser) -> None:
    text = page(browser, "system").text
    assert "Every table can be read." in text
    assert "sweep" in text


def test_errors_and_refusals_are_told_in_chinese_with_the_words_of_the_api_below(
    api: Client, stranger: Browser
) -> None:
    stranger.enter(api.new_token("produce")["token"])
    screen = stranger.get("/console/topics/no-such", accept_language="zh")
    assert screen.status == 404
    assert "没有这个主题, 请先创建它。" in screen.text
    assert "There is no topic" in screen.text
    assert "没有这个主题" not in stranger.get("/console/topics/no-such").text
    assert "令牌缺少所需的权限" in stranger.get("/console/tokens", accept_language="zh").text


def test_a_message_is_found_by_id_and_by_key_over_all_topics(api: Client, stranger: Browser) -> None:
    topic = api.topic()
    message = topic.produce("x", keys=["a-very-own-key"])
    stranger.enter(api.new_token("consume", topics=[topic.name])["token"])
    for text in (message["id"], "a-very-own-key"):
        screen = stranger.get(f"/console/find?q={text}")
        assert screen.url.endswith(f"/messages/{message['id']}"), "the only one is shown at once"
    assert "Nothing has this name, id or key" in stranger.get("/console/find?q=nothing").text


def test_a_group_and_a_consumer_are_found_by_their_names(api: Client, stranger: Browser) -> None:
    topic = api.topic()
    group = topic.group("the-mailer")
    api.put(f"{group.path}/consumers/the-worker").expect(201)
    stranger.enter(api.new_token("consume", topics=[topic.name], groups=["the-mailer"])["token"])
    at = f"/console/topics/{topic.name}"
    for text, place in (
        (topic.name, at),
        ("the-mailer", f"{at}/groups/the-mailer"),
        ("the-worker", f"{at}/groups/the-mailer/consumers/the-worker"),
    ):
        assert stranger.get(f"/console/find?q={text}").url == place
    links = stranger.get("/console/find?q=the-").links
    assert {f"{topic.name} / the-mailer", f"{topic.name} / the-mailer / the-worker"} <= links.keys()
    topic.group("the-others")
    assert "the-others" not in stranger.get("/console/find?q=the-").html


def test_a_search_over_very_many_topics_says_where_it_stopped_and_goes_on(
    api: Client, stranger: Browser
) -> None:
    family = api.topic().name
    for n in range(40):
        api.put(f"/v1/topics/{family}.{n:02d}").expect(201)
    message = api.post(f"/v1/topics/{family}.39/messages", {"body": 1, "keys": ["the-last"]}).expect(201)
    stranger.enter(api.new_token("consume", topics=[f"{family}*"])["token"])
    screen = stranger.get("/console/find?q=the-last")
    pages = 1
    while message["id"] not in screen.links:
        assert screen.units <= 20
        assert "topics were searched here" in screen.text
        assert "Nothing has this" not in screen.text
        screen = stranger.follow("Look further")
        pages += 1
    assert 1 < pages < 6
    screen = stranger.get(f"/console/find?q={family}.1")
    assert [f"{family}.1{n}" in screen.links for n in range(10)] == [True] * 10
    assert family not in screen.links


def test_nothing_that_anybody_writes_becomes_markup(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=1)
    group = topic.group("g")
    message = topic.produce({"x": EVIL}, keys=[EVIL], tag="<b>", ordering_key=EVIL, headers={"X-A": EVIL})
    topic.publish(EVIL.encode(), content_type="text/html")
    group.nack(*group.receive(1), dead_letter=True, reason=EVIL)
    evil = "%3Cscript%3Ealert(1)%3C/script%3E%22'%3E"
    pages = [
        f"topics/{topic.name}/messages",
        f"topics/{topic.name}/messages?tag={evil}&text={evil}&key={evil}&from=&to=",
        f"topics/{topic.name}/messages?tag={evil}&text={evil}&key={evil}&group={evil}&status={evil}&from=&to=&shard={evil}",
        f"topics/{topic.name}/messages/{message['id']}?as={evil}&group={evil}",
        f"topics/{topic.name}/send?like={message['id']}",
        f"find?q={evil}",
        f"find?q={EVIL[:5]}",
        f"?did={evil}&n={evil}&after={evil}",
    ]
    for path in pages:
        screen = browser.get(f"/console/{path}" if not path.startswith("?") else f"/console{path}")
        assert screen.status in (200, 400, 404), (path, screen.text)
        names = {tag.split()[0] for tag in screen.tags}
        assert "img" not in names, path
        assert "b" not in names or "messages/" in path, path
        assert "<script>alert" not in screen.html, path
        assert "onerror=alert(2)>" not in screen.html or "&lt;img" in screen.html, path
        assert screen.tags.count("script") == 0, "only scripts with a src"


def test_schedules_are_listed_made_run_paused_and_deleted(api: Client, browser: Browser) -> None:
    topic = api.topic()
    name = f"{topic.name}-daily"
    assert name not in page(browser, "schedules").text
    fields = {"schedule": name, "topic": topic.name, "cron": "0 9 * * *", "timezone": "Europe/Berlin"}
    form = page(browser, "schedules").form("put_schedule")
    assert "The schedule is stored." in browser.submit(form, **fields, body=f'{{"n": "{EVIL[:8]}"}}').text
    screen = page(browser, "schedules")
    assert "0 9 * * * Europe/Berlin" in screen.text
    assert "Sent." in browser.submit(screen.form("run_schedule", schedule=name)).text
    (sent,) = api.get(f"/v1/schedules/{name}").expect(200)["last"]
    screen = page(browser, f"schedules/{name}")
    assert sent["message_id"] in screen.text
    assert EVIL[:8] in screen.text
    assert EVIL[:8] not in screen.html
    screen = browser.submit(screen.form("pause_schedule", schedule=name))
    assert "It is paused." in screen.text
    browser.submit(screen.form("resume_schedule", schedule=name))
    screen = browser.submit(page(browser, f"schedules/{name}").form("delete_schedule", schedule=name))
    assert name not in screen.text
    assert browser.get(f"/console/schedules/{name}").status == 404
