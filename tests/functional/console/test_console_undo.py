"""What was done is undone by a button, where it can be."""

from __future__ import annotations

from typing import Any

from tests.support.browser import Browser, Screen
from tests.support.http import Client


def undone(browser: Browser, screen: Screen) -> Screen:
    """Click on Undo."""
    (form,) = [form for form in screen.forms if "Undo" in form.buttons]
    screen = browser.submit(form)
    assert screen.status == 200, screen.text
    return screen


def test_settings_of_a_topic_are_put_back(api: Client, browser: Browser) -> None:
    topic = api.topic(retry={"max_attempts": 3, "ladder": [5, 10], "jitter": 0}, rate_limit=7)
    before = api.get(topic.path).expect(200)
    form = browser.get(f"/console/topics/{topic.name}/settings").form("put_topic")
    fields = {"max_attempts": "9", "ladder": "jmq", "rate_limit": "", "retention_days": "3"}
    screen = browser.submit(form, **fields)
    assert "Saved." in screen.text
    assert api.get(topic.path).expect(200)["retry"]["ladder"] == "jmq"
    undone(browser, screen)
    assert settings(api.get(topic.path).expect(200)) == settings(before)


def test_a_group_follows_its_topic_again(api: Client, browser: Browser) -> None:
    topic = api.topic()
    group = topic.group()
    before = api.get(group.path).expect(200)
    path = f"/console/topics/{topic.name}/groups/{group.name}/settings"
    own = {"lease_seconds": "60", "max_attempts": "3", "ladder": "jmq", "filter": "paid"}
    screen = browser.submit(browser.get(path).form("put_group"), **own)
    assert api.get(group.path).expect(200)["lease_seconds"] == 60
    undone(browser, screen)
    assert settings(api.get(group.path).expect(200)) == settings(before)
    browser.submit(browser.get(path).form("put_group"), **own)
    browser.submit(browser.get(path).form("put_group"), **dict.fromkeys(own, ""))
    assert settings(api.get(group.path).expect(200)) == settings(before)


def test_what_a_form_does_not_show_of_a_groups_retries_stays(api: Client, browser: Browser) -> None:
    topic = api.topic()
    own = {"max_attempts": 7, "ladder": "exponential", "jitter": 0.5, "base_seconds": 5, "factor": 3}
    group = topic.group(retry={**own, "cap_seconds": 50})
    before = api.get(group.path).expect(200)
    path = f"/console/topics/{topic.name}/groups/{group.name}/settings"
    screen = browser.submit(browser.get(path).form("put_group"), max_attempts="9")
    view = api.get(group.path).expect(200)
    assert view["retry"] == {**before["retry"], "max_attempts": 9}
    undone(browser, screen)
    assert settings(api.get(group.path).expect(200)) == settings(before)


def settings(view: Any) -> dict[str, Any]:
    names = ("mode", "retry", "lease_seconds", "retention_days", "rate_limit", "filter", "max_in_flight")
    return {name: view[name] for name in names if name in view}


def test_an_edited_body_and_a_moved_time_are_put_back(api: Client, browser: Browser) -> None:
    topic = api.topic()
    message = topic.produce({"n": 1.50}, delay_seconds=3600)
    path = f"/console/topics/{topic.name}/messages/{message['id']}"
    form = next(form for form in browser.get(path).forms if "body" in form.fields)
    undone(browser, browser.submit(form, body='{"n": 2}'))
    form = next(form for form in browser.get(path).forms if "Postpone" in form.buttons)
    undone(browser, browser.submit(form, deliver_at="2031-01-01T00:00:00Z"))
    view = api.get(f"{topic.path}/messages/{message['id']}").expect(200)
    assert (view["body"], view["deliver_at"]) == ({"n": 1.5}, message["deliver_at"])


def test_what_cannot_be_undone_offers_nothing(api: Client, browser: Browser) -> None:
    topic = api.topic()
    message = topic.produce(1, delay_seconds=3600)
    screen = browser.get(f"/console/topics/{topic.name}/messages/{message['id']}")
    screen = browser.submit(screen.form("cancel_message"))
    assert "Cancelled" in screen.text
    assert "Undo" not in screen.text
    new = browser.submit(browser.get("/console").form("put_topic"), topic=f"{topic.name}-new")
    assert "Undo" not in new.text


def test_a_consumer_that_pulls_is_registered_again(api: Client, browser: Browser) -> None:
    for mode, can in (("queue", True), ("broadcast", False)):
        topic = api.topic()
        group = topic.group(mode=mode)
        group.register("worker")
        path = f"/console/topics/{topic.name}/groups/{group.name}"
        screen = browser.submit(browser.get(path).form("delete_consumer", consumer="worker"))
        assert api.get(f"{group.path}/consumers").expect(200)["items"] == []
        assert ("Undo" in screen.text) == can
        if can:
            undone(browser, screen)
            (consumer,) = api.get(f"{group.path}/consumers").expect(200)["items"]
            assert consumer["consumer"] == "worker"


def test_a_mended_dead_letter_gets_its_old_body_back(api: Client, browser: Browser) -> None:
    topic = api.topic()
    group = topic.group()
    message = topic.produce({"customer": 7})
    group.nack(*group.receive(), dead_letter=True)
    letters = f"{group.path}/dead-letters/{message['id']}"
    path = f"/console/topics/{topic.name}/groups/{group.name}/dead-letters/{message['id']}"
    form = next(form for form in browser.get(path).forms if "body" in form.fields)
    screen = browser.submit(form, body='{"customer": 8}')
    screen = browser.submit(screen.form("edit_dead_letter"))
    assert api.get(letters).expect(200)["body"] == {"customer": 8}
    undone(browser, screen)
    assert api.get(letters).expect(200)["body"] == {"customer": 7}


def test_what_somebody_else_set_meanwhile_is_not_put_back(api: Client, browser: Browser) -> None:
    topic = api.topic(retry={"max_attempts": 3, "ladder": "jmq"}, shards=1)
    group = topic.group(max_in_flight=5)
    pages = (
        (f"/console/topics/{topic.name}/settings", "put_topic", topic.path, "rate_limit", "alarm_backlog"),
        (
            f"/console/topics/{topic.name}/groups/{group.name}/settings",
            *("put_group", group.path, "lease_seconds", "max_in_flight"),
        ),
    )
    for page, action, path, mine, theirs in pages:
        before = api.get(path).expect(200)
        form = browser.get(page).form(action)
        api.put(path, {theirs: 70}).expect(200)  # while the page is open
        screen = browser.submit(form, **{mine: "60"})
        view = api.get(path).expect(200)
        assert (view[mine], view[theirs]) == (60, 70), "the form sends what was changed in it"
        api.put(path, {theirs: 90}).expect(200)  # before it is undone
        undone(browser, screen)
        view = api.get(path).expect(200)
        assert (view[mine], view[theirs], view["retry"]) == (before[mine], 90, before["retry"])


def test_a_form_that_was_refused_leaves_what_nobody_touched_when_it_is_sent_again(
    api: Client, browser: Browser
) -> None:
    topic = api.topic(shards=1)
    form = browser.get(f"/console/topics/{topic.name}/settings").form("put_topic")
    api.put(topic.path, {"shards": 4, "alarm_backlog": 70}).expect(200)
    refusal = browser.submit(form, rate_limit="many")
    again = refusal.form("put_topic")
    assert not [name for name in again.open_fields if name.startswith("was")]
    assert "Saved." in browser.submit(again, rate_limit="60").text
    view = api.get(topic.path).expect(200)
    assert (view["rate_limit"], view["shards"], view["alarm_backlog"]) == (60, 4, 70)


def test_of_a_retry_policy_a_field_that_nobody_touched_is_sent_with_those_that_were(
    api: Client, browser: Browser
) -> None:
    topic = api.topic()
    group = topic.group(retry={"max_attempts": 3, "ladder": "jmq"})
    form = browser.get(f"/console/topics/{topic.name}/groups/{group.name}/settings").form("put_group")
    browser.submit(form, max_attempts="")
    assert api.get(group.path).expect(200)["retry"]["ladder"] == "jmq"
