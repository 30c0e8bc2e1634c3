"""Dead letters over HTTP: listed, edited, patched, redriven, deleted; and waiting messages, retried now."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.record import DeadLetter
from chalicelib.domain.times import DAY_SECONDS
from tests.support.background import Background
from tests.support.dead_letters import (
    bodies,
    bury,
    edit,
    letter,
    letters,
    produce_and_bury,
    receive_again,
    redrive,
    retry_now,
)
from tests.support.http import Client, Group, ShiftingClock


def test_a_dead_letter_is_whole_and_says_why(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    fields = {"keys": ["k"], "tag": "t", "ordering_key": "o", "headers": {"h": "v"}}
    message = topic.produce({"x": 1}, **fields)
    assert letters(group) == []
    bury(group, "not ours")
    [entry] = letters(group)
    expected = {**fields, "body": {"x": 1}, "reason": "REJECTED", "last_error": "not ours", "attempts": 1}
    assert entry.items() >= {**expected, "edited": False}.items()
    assert entry.items() >= {name: message[name] for name in ("id", "shard", "offset", "accepted_at")}.items()
    assert entry["dead_at"] >= message["accepted_at"]
    assert letter(group, message["id"]) == entry
    assert topic.counts().items() >= {"dead": 1, "backlog": 0, "retrying": 0}.items()


def test_dead_letters_are_found_by_reason_tag_and_key(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(shards=1, retry={"max_attempts": 1})
    group = topic.group()
    topic.produce("late", expires_in_seconds=1, tag="t")
    clock.advance(2)
    for body, fields in (("no", {"tag": "t", "keys": ["k", "l"]}), ("bad", {"keys": ["k"]}), ("tired", {})):
        topic.produce(body, **fields)
    messages = group.receive()
    group.nack(*messages[:2], dead_letter=True)
    group.nack(messages[2], reason="failed")
    for query, expected in (
        ("", ["late", "no", "bad", "tired"]),
        ("reason=REJECTED", ["no", "bad"]),
        ("reason=EXPIRED", ["late"]),
        ("reason=ATTEMPTS_EXHAUSTED", ["tired"]),
        ("reason=RATE_LIMITED", []),
        ("tag=t", ["late", "no"]),
        ("key=k", ["no", "bad"]),
        ("key=l&tag=t&reason=REJECTED", ["no"]),
        ("key=l&reason=EXPIRED", []),
    ):
        assert [entry["body"] for entry in letters(group, query)] == expected, query


def test_an_edited_dead_letter_comes_again_with_its_new_body_and_its_old_name(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    [message] = produce_and_bury(topic, group, {"total": "1,5"}, keys=["k"], tag="t", headers={"h": "v"})
    before = letter(group, message["id"])
    view = edit(group, message["id"], {"total": 1.50, "big": 12345678901234567890}).expect(200)
    assert view == {
        **before,
        "body": {"total": 1.5, "big": 12345678901234567890},
        "size": 40,
        "edited": True,
    }
    assert letter(group, message["id"]) == view
    assert redrive(group, ids=[message["id"]]) == 1
    [second] = receive_again(group)
    same = ("id", "shard", "offset", "accepted_at", "keys", "tag", "headers")
    assert {name: second[name] for name in same} == {name: before[name] for name in same}
    assert (second["body"], second["attempt"]) == (view["body"], 2)
    assert group.ack(second) == ["ok"]
    assert group.status_of(message["id"]).items() >= {"status": "SUCCESS", "attempts": 2}.items()
    assert api.get(f"{topic.path}/messages/{message['id']}").expect(200)["body"] == {"total": "1,5"}


def test_redriving_twice_sends_once(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    results = produce_and_bury(topic, group, 1, 2, 3)
    ids = [result["id"] for result in results]
    assert redrive(group, ids=[ids[0], ids[0], ids[2]]) == 2
    assert redrive(group, ids=ids[:1]) == 0
    assert topic.counts().items() >= {"dead": 1, "retrying": 2}.items()
    assert sorted(bodies(group)) == [1, 3]
    assert group.receive() == []


def test_dead_letters_are_redriven_by_filter_all_or_so_many(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    produce_and_bury(topic, group, "a", "b", tag="t")
    produce_and_bury(topic, group, "c", "d", "e", keys=["k"])
    assert redrive(group, filter={"tag": "t", "reason": "REJECTED"}, limit=1) == 1
    assert redrive(group, filter={"tag": "t"}) == 1
    assert redrive(group, filter={"tag": "t"}) == 0
    assert sorted(bodies(group)) == ["a", "b"]
    assert redrive(group, filter={"key": "k"}, limit=2) == 2
    assert redrive(group, limit=1) == 1
    assert redrive(group) == 0
    assert sorted(bodies(group)) == ["c", "d", "e"]
    assert letters(group) == []


def test_a_dead_letter_shows_its_message_when_the_log_has_it_no_more(
    api: Client, background: Background
) -> None:
    topic = api.topic(retention_days=1)
    group, other = topic.group(), topic.group("other")
    message, path = topic.produce("late", keys=["k"]), f"{topic.path}/messages"
    other.ack(*other.receive())
    background.clock.advance(DAY_SECONDS + 60)
    assert group.receive() == []  # which buries it
    background.clock.advance(9 * DAY_SECONDS)
    view = api.get(f"{path}/{message['id']}").expect(200)
    assert (view["body"], view["status"]) == ("late", "DEAD")
    assert {name: each["status"] for name, each in view["deliveries"].items()} == {
        group.name: "DEAD",
        other.name: "SUCCESS",
    }
    events = api.get(f"{path}/{message['id']}/trace").expect(200)["events"]
    assert [each["event"] for each in events if each["group"] in (None, group.name)] == ["accepted", "buried"]
    fate = api.get(f"{path}/{message['id']}/fate").expect(200)
    assert (fate["groups"][group.name]["places"], fate["complete"]) == (["dead letter"], True)
    assert fate["adds_up"]
    assert (
        api.post(f"{path}/{message['id']}/retry", {"group": group.name}).expect(200)["status"] == "RETRYING"
    )
    assert bodies(group) == ["late"]
    for call in ("", "/trace", "/fate"):
        api.get(f"{path}/{message['id']}{call}").refused(404, "MESSAGE_NOT_FOUND")


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("deed", ["edited", "redriven", "deleted"])
@pytest.mark.parametrize("call", ["PATCH", "DELETE"])
def test_i20_a_change_of_a_broadcasts_letters_goes_on_past_one_that_somebody_else_changed(
    api: Client, background: Background, monkeypatch: pytest.MonkeyPatch, call: str, deed: str, place: int
) -> None:
    topic = api.topic(mode="broadcast", shards=1)
    group = topic.group()
    for name in ("a", "b", "c"):
        group.register(name)
    id = topic.produce("x")["id"]
    for name in ("a", "b", "c"):
        bury(group, consumer=name)
    dead_letters, letter_lookup = background.deps.dead_letters, background.deps.letter_lookup
    find = letter_lookup.find

    def find_before_somebody_else(*where: Any) -> list[DeadLetter]:
        monkeypatch.undo()
        letters_before = find(*where)
        if deed == "edited":
            dead_letters.edit(where[0], where[1], letters_before[place], b'"theirs"')
        elif deed == "redriven":
            dead_letters.redrive(where[0], where[1], [letters_before[place]])
        else:
            dead_letters.discard(where[0], where[1], letters_before[place])
        return letters_before

    monkeypatch.setattr(type(letter_lookup), "find", lambda _, *where: find_before_somebody_else(*where))
    path = f"{group.path}/dead-letters/{id}"
    reply = api.call(call, path, {"body": "mine"} if call == "PATCH" else None)
    theirs = ["theirs"] if deed == "edited" else []
    if call == "PATCH":
        view = reply.expect(200)
        assert (view["body"], view["consumer"]) == ("mine", "abc"[place == 0])
        assert sorted(entry["body"] for entry in letters(group)) == ["mine", "mine", *theirs]
    elif theirs:
        reply.refused(503, "UNAVAILABLE")
        assert [entry["body"] for entry in letters(group)] == theirs, "so it was not all done"
        api.delete(path).expect(204)
        assert letters(group) == []
    else:
        reply.expect(204)
        assert letters(group) == []


def test_a_deleted_dead_letter_is_gone_for_good(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    [message] = produce_and_bury(topic, group, 1)
    api.delete(f"{group.path}/dead-letters/{message['id']}").expect(204)
    assert redrive(group) == 0
    assert topic.counts()["dead"] == 0
    assert "deleted" in retry_now(group, message["id"]).refused(409, "DEAD_LETTER_GONE")["detail"]
    assert redrive(group, ids=[message["id"]]) == 0
    assert group.status_of(message["id"])["status"] == "DEAD"


@pytest.mark.parametrize("after", ["never dead", "redriven", "deleted", "unknown"])
def test_what_is_no_dead_letter_is_not_found(api: Client, after: str) -> None:
    topic = api.topic()
    group = topic.group()
    id = "nobody" if after == "unknown" else topic.produce(1)["id"]
    if after in ("redriven", "deleted"):
        bury(group)
    if after == "redriven":
        assert redrive(group) == 1
    if after == "deleted":
        api.delete(f"{group.path}/dead-letters/{id}").expect(204)
    path = f"{group.path}/dead-letters/{id}"
    for method in ("GET", "DELETE"):
        api.call(method, path).refused(404, "DEAD_LETTER_NOT_FOUND")
    edit(group, id, 1).refused(404, "DEAD_LETTER_NOT_FOUND")


def test_dead_letters_of_another_group_are_out_of_reach(api: Client) -> None:
    topic = api.topic()
    group, other = topic.group(), topic.group("other")
    [message] = produce_and_bury(topic, group, 1)
    api.get(f"{other.path}/dead-letters/{message['id']}").refused(404, "DEAD_LETTER_NOT_FOUND")
    api.get(f"{topic.path}/groups/nobody/dead-letters").refused(404, "GROUP_NOT_FOUND")
    assert (redrive(other), len(letters(group))) == (0, 1)


@pytest.fixture
def group(api: Client) -> Group:
    """Four dead letters; one of them holds no JSON."""
    group = api.topic(shards=1, max_body_bytes=200).group("mailer")
    for n in range(3):
        group.topic.produce({"n": n, "to": {"mail": "x", "name": "y"}}, tag="paid" if n else "refunded")
    api.post(f"{group.topic.path}/messages", {"body_base64": "AAE="}).expect(201)
    group.nack(*group.receive(4), dead_letter=True)
    return group


def merge(group: Group, patch: Any, query: str = "", **more: Any) -> Any:
    return group.api.call("PATCH", f"{group.path}/dead-letters{query}", {"patch": patch, **more})


def stored_bodies(group: Group) -> list[Any]:
    letters = group.api.get(f"{group.path}/dead-letters").expect(200)["items"]
    return [letter.get("body") for letter in letters]


def test_it_is_told_before_it_is_done(group: Group) -> None:
    before = stored_bodies(group)
    preview = merge(group, {"to": {"mail": "a@b.example", "name": None}}, dry_run=True).expect(200)["items"]
    assert stored_bodies(group) == before, "nothing has happened"
    assert [item.get("changed") for item in preview] == [True, True, True, None]
    assert preview[3]["error"]["code"] == "NO_JSON"
    items = merge(group, {"to": {"mail": "a@b.example", "name": None}}).expect(200)["items"]
    assert items[:3] == preview[:3]
    assert stored_bodies(group)[:3] == [{"n": n, "to": {"mail": "a@b.example"}} for n in range(3)]
    again = merge(group, {"to": {"mail": "a@b.example", "name": None}}).expect(200)["items"]
    assert [item.get("changed") for item in again] == [False, False, False, None]


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_would_be_too_large_stays_as_it_is(group: Group, dry_run: bool) -> None:
    items = merge(group, {"text": "x" * 300}, "?tag=paid", dry_run=dry_run).expect(200)["items"]
    assert {item["error"]["code"] for item in items} == {"BODY_TOO_LARGE"}
    assert all("text" not in body for body in stored_bodies(group)[:3])


def test_what_was_mended_is_redriven_as_it_stands(group: Group) -> None:
    merge(group, {"mended": True}, "?tag=refunded").expect(200)
    group.api.post(f"{group.path}/dead-letters/redrive", {"filter": {"tag": "refunded"}}).expect(200)
    (message,) = group.receive(1, wait_seconds=1)
    assert message["body"]["mended"] is True
