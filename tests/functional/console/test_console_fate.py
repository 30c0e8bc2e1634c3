"""Where a message is for each group, and that the sums agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.browser import Browser, Screen
from tests.support.http import Client, Group, Topic


def page(browser: Browser, topic: Topic, id: str) -> Screen:
    screen = browser.get(f"/console/topics/{topic.name}/messages/{id}/fate")
    assert screen.status == 200
    assert screen.units <= 20
    return screen


def leave(group: Group) -> None:
    """No consumer comes."""


def work(group: Group) -> None:
    group.receive(1)


def fail(group: Group) -> None:
    group.nack(*group.receive(1), delay_seconds=900)


def give_up(group: Group) -> None:
    group.nack(*group.receive(1), dead_letter=True)


def finish(group: Group) -> None:
    group.ack(*group.receive(1))


@pytest.mark.parametrize(
    ("what", "place"),
    [(leave, "log"), (work, "lease"), (fail, "timer"), (give_up, "dead letter"), (finish, "settled")],
)
def test_it_is_in_one_place(api: Client, browser: Browser, what: Callable[[Group], None], place: str) -> None:
    topic = api.topic(shards=1)
    group = topic.group("mailer")
    id = topic.produce("x")["id"]
    what(group)
    screen = page(browser, topic, id)
    assert "The sums agree" in screen.text
    assert f"<td>{place}</td>" in screen.html
    assert ('class="status ok"' in screen.html) is (place != "dead letter"), "not green where it is dead"


def test_very_many_groups_do_not_make_the_page_dear(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=1)
    for n in range(12):
        topic.group(f"g-{n}")
    assert "more groups are in the call" in page(browser, topic, topic.produce("x")["id"]).text


def test_what_is_not_in_the_log_yet_has_no_fate(api: Client, browser: Browser) -> None:
    topic = api.topic()
    topic.group()
    id = topic.produce("x", delay_seconds=600)["id"]
    assert "not in the log yet" in page(browser, topic, id).text
    assert browser.get(f"/console/topics/{topic.name}/messages/nobody/fate").status == 404


def test_a_token_for_some_groups_is_told_of_all_whether_they_are_done(api: Client, stranger: Browser) -> None:
    topic = api.topic(shards=1)
    mine, theirs = topic.group("mine"), topic.group("a-foreign-one")
    id = topic.produce("x")["id"]
    mine.ack(*mine.receive(1))
    token = api.new_token("produce", "consume", groups=["mine"])["token"]
    holder, message = api.with_token(token), f"{topic.path}/messages/{id}"
    stranger.enter(token)
    for status, is_complete in (("RUNNING", False), ("SUCCESS", True)):
        if is_complete:
            theirs.ack(*theirs.receive(1))
        fate = holder.get(f"{message}/fate").expect(200)
        assert (fate["message"]["status"], fate["complete"], list(fate["groups"])) == (
            status,
            is_complete,
            ["mine"],
        )
        screen = page(stranger, topic, id)
        assert ("Every group is done with it." in screen.text) is is_complete
        whole = stranger.get(f"/console/topics/{topic.name}/messages/{id}")
        assert f"{status} accepted" in whole.text
        assert "A group has claimed it" in whole.text
        assert not any("foreign" in each.html for each in (screen, whole))
