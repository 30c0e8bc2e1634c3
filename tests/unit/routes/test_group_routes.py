"""Groups and their consumers: calls of the API on a store in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib import wiring
from chalicelib.domain.call_result import CallResult
from chalicelib.store.cursors import Cursors
from chalicelib.wiring import Deps
from tests.support.clock import Hasty, ManualClock
from tests.support.http import Client, Topic
from tests.support.push import Inbox
from tests.support.troubled import Troubled


def test_who_is_called_hears_that_its_group_was_sought_back_or_divided_anew(
    topic: Topic, inbox: Inbox, clock: ManualClock
) -> None:
    group = topic.group()
    subscriber = {"url": "https://hooks.example.com/mail"}
    topic.api.put(f"{group.path}/consumers/mail", subscriber).expect(201)
    inbox.asked.clear()
    topic.api.post(f"{group.path}/seek", {"to": "earliest"}).expect(200)
    assert "deliver" in [function for function, _ in inbox.asked]
    for setting in ({"max_in_flight": 7}, {"batch_size": 7}, {"rate_limit": 7}):
        clock.advance(60_000)
        inbox.asked.clear()
        topic.api.put(group.path, setting).expect(200)
        assert "mover" in [function for function, _ in inbox.asked], setting


@pytest.mark.parametrize(("leaves", "status"), [("/consumers/a", 200), ("", 404)])
def test_a_broadcast_is_sought_back_without_the_consumer_that_leaves_meanwhile(
    deps: Deps, api: Client, monkeypatch: pytest.MonkeyPatch, leaves: str, status: int
) -> None:
    topic = api.topic(shards=1)
    group = topic.group(mode="broadcast")
    for name in ("a", "b"):
        group.register(name)
    topic.produce("x")
    group.ack(*group.receive(consumer="b"))

    def left(call: str, *_: Any) -> bool:
        if call == "get" and group.path + leaves not in gone:
            gone.append(group.path + leaves)
            api.delete(gone[0]).expect(204)
        return False

    gone: list[str] = []
    process = Deps(replace(deps.adapters, cursors=cast(Cursors, Troubled(deps.adapters.cursors, left))))
    monkeypatch.setattr(wiring, "deps", lambda: process)
    api.post(f"{group.path}/seek", {"to": "earliest"}).expect(status)
    if status == 200:
        assert group.bodies(consumer="b") == ["x"]


def test_a_list_of_attempts_that_takes_long_to_read_ends_early_and_says_so(
    deps: Deps, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = api.topic(shards=16).group()
    group.register("mail")
    path = f"{group.path}/consumers/mail/attempts"
    assert api.get(path).expect(200)["complete"]
    slow = Deps(replace(deps.adapters, clock=Hasty()))
    monkeypatch.setattr(wiring, "deps", lambda: slow)
    assert not api.get(path).expect(200)["complete"]


@pytest.mark.parametrize(("port", "call"), [("control", "assignment"), ("timers", "store")])
def test_a_new_secret_is_shown_though_what_follows_its_storing_fails(
    deps: Deps, topic: Topic, monkeypatch: pytest.MonkeyPatch, port: str, call: str
) -> None:
    """Repeating the call shows it no more."""
    group = topic.group()
    troubled = Troubled(getattr(deps.adapters, port), lambda name, *_: name == call)
    changes: dict[str, Any] = {port: troubled}
    process = Deps(replace(deps.adapters, **changes))
    monkeypatch.setattr(wiring, "deps", lambda: process)
    body = {"url": "https://hooks.example.com"}
    view = topic.api.put(f"{group.path}/consumers/mail", body).expect(201)
    assert view["secret"].startswith("whsec_")
    assert troubled.refused
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    assert "secret" not in topic.api.put(f"{group.path}/consumers/mail", body).expect(200)


@pytest.mark.parametrize("again", [True, False])
def test_i20_who_was_asked_for_consent_while_the_group_was_deleted_is_registered_in_none_that_is_gone(
    deps: Deps, topic: Topic, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    group, greet = topic.group(), deps.outbound.greet

    def slowly(url: str) -> CallResult:
        topic.api.delete(topic.path + f"?confirm={topic.name}").expect(204)
        if again:
            topic.api.put(topic.path).expect(201)
            topic.group()
        return greet(url)

    monkeypatch.setattr(deps.outbound, "greet", slowly)
    reply = topic.api.put(f"{group.path}/consumers/mail", {"url": "https://hooks.example.com"})
    if again:
        reply.expect(201)
        topic.api.get(f"{group.path}/consumers/mail").expect(200)
    else:
        reply.expect(404)


def test_a_page_of_groups_that_takes_long_to_count_ends_early_and_the_next_goes_on(
    topic: Topic, deps: Deps, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"g{n:02}" for n in range(12)]
    for name in names:
        topic.group(name)
    slow = Deps(replace(deps.adapters, clock=Hasty()))
    monkeypatch.setattr(wiring, "deps", lambda: slow)
    pages, query = list[list[str]](), ""
    while not pages or query:
        page = topic.api.get(f"{topic.path}/groups{query}").expect(200)
        pages.append([group["group"] for group in page["items"] if "backlog" in group])
        query = f"?page_token={page['next_page_token']}" if "next_page_token" in page else ""
    assert [name for page in pages for name in page] == names
    assert 1 < len(pages) < 12
