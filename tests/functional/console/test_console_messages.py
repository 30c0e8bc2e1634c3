"""Messages: lists with filters in the URL; one with its time line; what may be done to it."""

from __future__ import annotations

import ast
import html
import inspect
import json
import re
from typing import Any

import pytest
from headrace import Headrace

from chalicelib.console import forms
from chalicelib.console.pages.messages import FIELDS
from chalicelib.domain.times import DAY_SECONDS
from chalicelib.services.inspect.surveyor import MOST_FAILURES
from tests.support.background import Background
from tests.support.browser import Browser, Screen
from tests.support.dead_letters import bury, edit
from tests.support.http import Client, Group, Topic


def shown(screen: Screen) -> list[str]:
    """The bodies in a list."""
    assert screen.status == 200, screen.text
    assert screen.units <= 20
    return re.findall(r'<td class="clip mono">(.*?)</td>', screen.html)


@pytest.fixture
def orders(api: Client) -> Group:
    """Ten messages: two are settled, one is dead, one waits for its next attempt, one is leased."""
    topic = api.topic(shards=2, retry={"max_attempts": 4, "ladder": [600]})
    group = topic.group("mailer")
    for n in range(10):
        topic.produce({"n": n}, keys=[f"key-{n}"], tag="odd" if n % 2 else "even", shard=0)
    messages = group.receive(5)
    group.ack(*messages[:2])
    group.nack(messages[2], dead_letter=True, reason="no mailbox")
    group.nack(messages[3], delay_seconds=None, reason="try later")
    return group


def page(browser: Browser, topic: Topic, query: str = "") -> Screen:
    return browser.get(f"/console/topics/{topic.name}/messages?{query}")


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("", range(9, -1, -1)),
        ("group=mailer&status=NEW", range(9, 4, -1)),
        ("group=mailer&status=RUNNING", [4]),
        ("group=mailer&status=RETRYING", [3]),
        ("group=mailer&status=DEAD", [2]),
        ("group=mailer&status=SUCCESS", [1, 0]),
        ("tag=odd", [9, 7, 5, 3, 1]),
        ("key=key-6", [6]),
        ("text=%22n%22:8", [8]),
        ("shard=1", []),
        ("key=key-2&group=mailer&status=DEAD", [2]),
        ("key=key-6&group=mailer&status=DEAD", []),
        ("key=key-6&text=%22n%22:8", []),
        ("group=mailer&status=DEAD&tag=odd", []),
        ("group=mailer&status=DEAD&text=%22n%22:8", []),
        ("from=2200-01-01T00:00", []),
        ("to=2000-01-01T00:00", []),
    ],
)
def test_filters_stand_in_the_url(browser: Browser, orders: Group, query: str, numbers: Any) -> None:
    bodies = shown(page(browser, orders.topic, query))
    assert [json.loads(body.replace("&#34;", '"'))["n"] for body in bodies] == list(numbers)


def test_the_form_has_a_field_for_each_filter(api: Client, browser: Browser) -> None:
    screen = page(browser, api.topic())
    assert any(form.fields.keys() == set(FIELDS) for form in screen.forms)


@pytest.mark.parametrize("query", ["key=k", "group=g&status=RUNNING", "group=g&status=DEAD&tag=t"])
def test_every_list_leads_on_until_its_end(api: Client, browser: Browser, query: str) -> None:
    topic = api.topic(shards=2)
    topic.batch([{"body": n, "keys": ["k"], "tag": "t", "shard": n % 2} for n in range(45)])
    group = topic.group("g")
    messages = group.receive(45)
    if "DEAD" in query:
        group.nack(*messages, dead_letter=True)
    bodies = shown(page(browser, topic, query))
    while browser.screen and "Older" in browser.screen.text:
        bodies += shown(browser.follow("Older"))
    assert sorted(map(int, bodies)) == list(range(45))


@pytest.mark.parametrize("query", ["", "group=g&status=DEAD"])
def test_a_list_says_that_a_group_has_more_failures_than_it_read(
    api: Client, browser: Browser, query: str
) -> None:
    topic = api.topic(shards=1)
    group = topic.group("g")
    topic.batch([{"body": n} for n in range(MOST_FAILURES + 1)])
    group.nack(*group.receive(MOST_FAILURES - 1), dead_letter=True)
    assert "it may have more" not in page(browser, topic, query).text
    group.nack(*group.receive(2), dead_letter=True)
    assert "it may have more" in page(browser, topic, query).text
    assert browser.follow("All of its dead letters").status == 200


def test_the_list_goes_out_as_json_lines(browser: Browser, orders: Group) -> None:
    screen = browser.get(f"/console/topics/{orders.topic.name}/messages.jsonl?status=DEAD&group=mailer")
    (row,) = [json.loads(line) for line in screen.html.splitlines()]
    assert (row["body"], row["statuses"]) == ({"n": 2}, {"mailer": "DEAD"})


def test_a_large_body_goes_out_whole_or_is_left_out(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=1, max_body_bytes=4_194_304)
    for n, size in enumerate((300_000, 3_900_000, 10)):
        topic.produce({"n": n, "text": "x" * size})
    rows = browser.get(f"/console/topics/{topic.name}/messages.jsonl").html.splitlines()
    small, large, first = map(json.loads, rows)
    assert [len(row["body"]["text"]) for row in (small, large)] == [10, 3_900_000]
    assert first["size"] > 300_000
    assert not {"body", "body_base64"} & first.keys()


def test_a_message_shows_its_path_and_what_is_to_come(browser: Browser, orders: Group) -> None:
    page(browser, orders.topic, "group=mailer&status=RETRYING")
    assert browser.screen
    (link,) = set(re.findall(r'href="([^"]*/messages/[0-9a-z-]+)"', browser.screen.html))
    screen = browser.get(
        "/console/topics/x/" + link if not link.startswith("../") else _joined(browser, link)
    )
    assert screen.units <= 20
    assert "RETRYING" in screen.text
    assert "try later after 1 attempt · Next attempt" in screen.text
    assert "3 attempts are left, then it is a dead letter" in screen.text
    assert screen.html.count('class="t-fail"') == 1
    assert screen.html.count('class="t-coming"') == 3, (
        "three attempts are left, each ten minutes after the other"
    )


def _joined(browser: Browser, link: str) -> str:
    from urllib.parse import urljoin

    assert browser.screen
    return urljoin(browser.screen.url, link)


def one(browser: Browser, topic: Topic, message_id: str, query: str = "") -> Screen:
    screen = browser.get(f"/console/topics/{topic.name}/messages/{message_id}?{query}")
    assert screen.status == 200, screen.text
    assert screen.units <= 20
    return screen


def test_the_body_is_pretty_raw_or_hex_to_the_digit(api: Client, browser: Browser) -> None:
    topic = api.topic()
    raw = b'{"price": 1.10, "n": 12345678901234567890123}'
    message = api.call(
        "POST",
        f"{topic.path}/messages",
        raw=b'{"body": ' + raw + b"}",
        headers={"Content-Type": "application/json"},
    ).expect(201)
    assert "&#34;price&#34;: 1.10" in one(browser, topic, message["id"]).html
    assert "12345678901234567890123" in one(browser, topic, message["id"], "as=raw").html
    assert "7b 22 70 72 69 63 65" in one(browser, topic, message["id"], "as=hex").html


def test_a_message_that_nobody_claimed_is_edited_and_cancelled(api: Client, browser: Browser) -> None:
    topic = api.topic()
    message = topic.produce({"total": 1})
    topic.group("g")
    screen = one(browser, topic, message["id"])
    screen = browser.submit(screen.form("amend_message"), body='{"total": 2.50}')
    assert "Changed." in screen.text
    assert api.get(f"{topic.path}/messages/{message['id']}").raw.find(b'{"total":2.50}') > 0
    screen = browser.submit(one(browser, topic, message["id"]).form("cancel_message"))
    assert "Cancelled: no group gets it." in screen.text
    assert "it can be changed no more" in screen.text


@pytest.mark.parametrize("form", ["pretty", "raw", "hex"])
def test_a_form_that_saves_a_body_holds_the_whole_of_it_or_there_is_none(
    api: Client, browser: Browser, form: str
) -> None:
    topic = api.topic()
    short, long = (topic.produce("1" * size)["id"] for size in (60_000, 70_000))
    edit = one(browser, topic, short, f"as={form}").form("amend_message")
    assert edit.fields["body"] == f'"{"1" * 60_000}"'
    screen = one(browser, topic, long, f"as={form}")
    assert "too long to be edited on a page" in screen.text
    assert [each for each in screen.forms if "body" in each.fields] == []
    screen = browser.get(f"/console/topics/{topic.name}/send?like={long}")
    assert "too long for a page" in screen.text
    assert screen.form("produce").fields["body"] == ""


def test_bytes_that_are_no_text_are_not_put_into_a_form(api: Client, browser: Browser) -> None:
    topic = api.topic()
    for body_base64, field in (("Iv8i", ""), ("Imhp", '"hi')):  # "\xff", and half of a JSON text
        draft = {"body_base64": body_base64, "content_type": "text/plain"}
        message = api.post(f"{topic.path}/messages", draft).expect(201)
        assert one(browser, topic, message["id"]).form("amend_message").fields["body"] == field


def test_a_dead_or_waiting_delivery_is_tried_now(browser: Browser, orders: Group, api: Client) -> None:
    (dead_message,) = api.get(f"{orders.topic.path}/messages?group=mailer&status=DEAD").expect(200)["items"]
    screen = browser.submit(one(browser, orders.topic, dead_message["id"]).form("retry_now", group="mailer"))
    assert "The next attempt is made now." in screen.text
    assert dead_message["id"] in [message["id"] for message in orders.receive(20, wait_seconds=1)]


def test_a_delayed_message_is_postponed_and_hurried(api: Client, browser: Browser) -> None:
    topic = api.topic()
    message = topic.produce("later", delay_seconds=600)
    screen = one(browser, topic, message["id"])
    assert "DELAYED" in screen.text
    postpone, now = [form for form in screen.forms if "deliver_at" in form.fields]
    assert "Changed." in browser.submit(postpone, deliver_at="2030-01-01T00:00:00.000Z").text
    assert api.get(f"{topic.path}/messages/{message['id']}").expect(200)["deliver_at"].startswith("2030")
    browser.get(screen.url)
    browser.submit(now)
    assert api.get(f"{topic.path}/messages/{message['id']}").expect(200)["deliver_at"] < "2030"


def test_a_message_is_sent_by_hand_and_again_as_new(api: Client, browser: Browser) -> None:
    topic = api.topic()
    screen = browser.get(f"/console/topics/{topic.name}/send")
    screen = browser.submit(
        screen.form("produce"), body='{"a": [1]}', keys="k-1, k-2", tag="paid", headers="X-A: 1"
    )
    assert "Sent." in screen.text
    assert "k-1" in screen.links
    screen = browser.follow("Send again as new")
    form = screen.form("produce")
    assert (form.fields["keys"], form.fields["tag"]) == ("k-1, k-2", "paid")
    assert json.loads(form.fields["body"]) == {"a": [1]}
    browser.submit(form)
    assert topic.accepted == 2


def codes(screen: Screen) -> tuple[ast.Call, str]:
    """The Python client's call on the page, and the TypeScript."""
    python, typescript, _ = map(html.unescape, re.findall(r"<pre[^>]*><code>(.*?)</code>", screen.html, re.S))
    (statement,) = (each for each in ast.parse(python).body if isinstance(each, ast.Expr))
    assert isinstance(statement.value, ast.Call)
    return statement.value, typescript


def test_what_was_filled_in_is_shown_as_code_and_not_sent(api: Client, browser: Browser) -> None:
    topic = api.topic()
    path = f"/console/topics/{topic.name}/send"
    form = browser.get(path).form("produce")
    filled = {**form.fields, "body": '{"a": [1.50, true]}', "tag": "paid", "delay_seconds": "60"}
    screen = browser.post(path, filled)
    python, typescript = codes(screen)
    assert [ast.literal_eval(each) for each in python.args] == [topic.name, {"a": [1.5, True]}]
    assert {each.arg: ast.literal_eval(each.value) for each in python.keywords} == {
        "tag": "paid",
        "delay": 60,
    }
    assert '"delay_seconds": 60' in typescript
    assert "1.50" in typescript, "to the digit"
    assert screen.form("produce").fields["tag"] == "paid", "the form keeps it"
    refusal = browser.post(path, {**filled, "body": "{"})
    assert (refusal.status, "must be JSON" in refusal.text) == (400, True)
    assert topic.accepted == 0


def test_a_template_fills_in_the_form_and_the_calls_beside_it(
    api: Client, browser: Browser, stranger: Browser
) -> None:
    topic = api.topic(shards=3)
    path = f"/console/topics/{topic.name}/send"
    screen = browser.get(f"{path}?like=newest")
    assert json.loads(screen.form("produce").fields["body"]) == {"order": 188}, "there is none yet"
    for number, name in enumerate(("keys", "ordered", "later", "once", "headers", "nonsense")):
        screen = browser.get(f"{path}?template={name}")
        form = screen.form("produce")
        (python, typescript), call = codes(screen), forms.of(form.fields).action
        assert {each.arg for each in python.keywords} <= inspect.signature(Headrace.send).parameters.keys()
        assert len(python.keywords) == len(call.body) - 1
        assert f'await hr.send("{topic.name}", {{' in typescript
        assert "Sent." in browser.submit(form).text
        topic.produce({"number": number}, keys=["last"], shard=number % 3)
        assert call.raw.decode() in html.unescape(screen.html)
    screen = browser.get(f"{path}?like=newest")
    fields = screen.form("produce").fields
    assert (json.loads(fields["body"]), fields["keys"]) == ({"number": 5}, "last")
    stranger.enter(api.new_token("produce")["token"])
    screen = stranger.get(f"{path}?like=newest")
    assert "last" not in screen.form("produce").fields.values(), "it reads no messages"


def test_bodies_are_for_those_who_may_consume(api: Client, stranger: Browser) -> None:
    topic = api.topic()
    message = topic.produce("secret")
    stranger.enter(api.new_token("produce")["token"])
    for path in ("messages", f"messages/{message['id']}", "messages.jsonl"):
        screen = stranger.get(f"/console/topics/{topic.name}/{path}")
        assert (screen.status, "secret" in screen.text) == (403, False)
    assert stranger.get("/console/find?q=x").status == 403


def test_very_many_groups_do_not_make_the_search_for_a_dead_letter_dear(
    api: Client, browser: Browser, background: Background
) -> None:
    topic = api.topic(shards=1, retention_days=1)
    groups = [topic.group(f"g-{n:02}") for n in range(30)]
    id = topic.produce("x")["id"]
    bury(groups[3])
    edit(groups[3], id, "edited").expect(200)
    background.clock.advance(9 * DAY_SECONDS)
    browser.enter(str(api.token))
    assert "edited" in one(browser, topic, id).text
    fate = browser.get(f"/console/topics/{topic.name}/messages/{id}/fate")
    assert fate.status == 200
    assert fate.units <= 20


def test_the_status_is_that_of_all_groups_or_is_not_told(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=1)
    groups = [topic.group(f"g-{n:02}") for n in range(16)]
    id = topic.produce("x")["id"]
    for group in groups[:-1]:
        group.ack(*group.receive(1))
    assert api.get(f"{topic.path}/messages/{id}").expect(200)["status"] == "RUNNING"
    for query in ("", "?group=g-00"):
        screen = browser.get(f"/console/topics/{topic.name}/messages/{id}{query}")
        assert "g-00 SUCCESS" in screen.text
        assert "g-15 NEW" not in screen.text
        assert "SUCCESS accepted" not in screen.text
