"""Tokens, scopes and topic patterns, through the authorizer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.http import Client, ShiftingClock

ANYBODYS = "/v1/topics?limit=1"
"""A call that every token may make. All topics would be counted, and other tests have made hundreds."""


def token(api: Client, *scopes: str, **fields: Any) -> Any:
    return api.post("/v1/tokens", {"name": "t", "scopes": list(scopes), **fields}).expect(201)


def acting(api: Client, *scopes: str, **fields: Any) -> Client:
    return api.with_token(token(api, *scopes, **fields)["token"])


def test_a_token_is_shown_once_and_never_listed(api: Client) -> None:
    new_token = token(api, "produce", "consume", topics=["orders.*"], expires_in_days=30, name="shop ü")
    assert new_token.keys() == {
        *("id", "name", "scopes", "topics", "groups", "jobs", "rate_limit", "most_urgent", "tenant"),
        *("created_at", "expires_at", "last_used_at", "token"),
    }
    assert (new_token["name"], new_token["scopes"], new_token["topics"]) == (
        "shop ü",
        ["produce", "consume"],
        ["orders.*"],
    )
    assert new_token["token"].startswith(f"hr_{new_token['id']}_")
    pages = api.pages("/v1/tokens", 3)
    tokens = {t["id"]: t for page in pages for t in page}
    assert tokens[new_token["id"]] == {name: value for name, value in new_token.items() if name != "token"}
    secret = new_token["token"].removeprefix(f"hr_{new_token['id']}_")
    assert secret not in json.dumps(pages)


def test_every_reason_not_to_know_a_caller_gets_the_same_401(api: Client, clock: ShiftingClock) -> None:
    revoked_token, expired_token = token(api, "admin"), token(api, "admin", expires_in_days=1)
    api.with_token(revoked_token["token"]).get(ANYBODYS).expect(200)
    api.delete(f"/v1/tokens/{revoked_token['id']}").expect(204)
    api.with_token(expired_token["token"]).get(ANYBODYS).expect(200)
    clock.advance(86_401)
    good = token(api, "admin")["token"]
    wrong_text = good[:-1] + ("0" if good[-1] != "0" else "1")
    unknown = "hr_000000000000_" + "0" * 59
    wrong: list[dict[str, str]] = [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": good},
        {"Authorization": f"Basic {good}"},
        {"Authorization": f"Bearer {good} {good}"},
        {"Authorization": f"Bearer {good}\x00"},
        {"Authorization": "Bearer ü"},
        {"Authorization": "Bearer " + "x" * 10_000},
        {"Authorization": "Bearer hr__"},
        *(
            {"Authorization": f"Bearer {t}"}
            for t in (wrong_text, unknown, revoked_token["token"], expired_token["token"])
        ),
    ]
    answers = set()
    for headers in wrong:
        reply = api.with_token(None).call("GET", ANYBODYS, headers=headers)
        problem = reply.refused(401, "UNAUTHORIZED")
        assert good not in reply.raw.decode()
        answers.add(json.dumps({**problem, "request_id": None}))
    assert len(answers) == 1


CALLS = [
    ("PUT", "", "admin"),
    ("DELETE", "?confirm={topic}", "admin"),
    ("PUT", "/groups/g", "admin"),
    ("DELETE", "/groups/g", "admin"),
    ("POST", "/groups/g/pause", "admin"),
    ("POST", "/groups/g/resume", "admin"),
    ("POST", "/groups/g/seek", "admin"),
    ("POST", "/groups/g/purge", "admin"),
    ("POST", "/purge", "admin"),
    ("POST", "/messages/x/settle", "consume admin"),
    ("POST", "/messages", "produce"),
    ("POST", "/messages/batch", "produce"),
    ("POST", "/groups/g/receive", "consume"),
    ("POST", "/groups/g/ack", "consume"),
    ("POST", "/groups/g/nack", "consume"),
    ("POST", "/groups/g/extend", "consume"),
    ("PUT", "/groups/g/consumers/c", "consume admin"),
    ("DELETE", "/groups/g/consumers/c", "consume admin"),
    ("POST", "/groups/g/consumers/c/heartbeat", "consume admin"),
    ("GET", "/messages", "consume admin"),
    ("GET", "/messages/x", "consume admin"),
    ("GET", "/messages/x/trace", "consume admin"),
    ("GET", "/messages/x/fate", "consume admin"),
    ("POST", "/messages/x/retry", "consume admin"),
    ("POST", "/groups/g/consumers/c/rotate-secret", "consume admin"),
    ("POST", "/groups/g/rotate-secret", "admin"),
    ("GET", "/groups/g/dead-letters", "consume admin"),
    ("PATCH", "/groups/g/dead-letters", "consume admin"),
    ("GET", "/groups/g/dead-letters/x", "consume admin"),
    ("PATCH", "/groups/g/dead-letters/x", "consume admin"),
    ("DELETE", "/groups/g/dead-letters/x", "consume admin"),
    ("POST", "/groups/g/dead-letters/redrive", "consume admin"),
    ("POST", "/groups/g/dead-letters/delete", "consume admin"),
    ("POST", "/groups/g/retry", "consume admin"),
]


@pytest.mark.parametrize(("method", "path", "scopes"), CALLS)
def test_a_missing_scope_is_a_403_that_names_it(api: Client, method: str, path: str, scopes: str) -> None:
    topic = api.topic()
    topic.group()
    for scope in {"produce", "consume", "admin"} - set(scopes.split()):
        holder = acting(api, scope)
        problem = holder.call(method, topic.path + path.format(topic=topic.name), {}).refused(
            403, "SCOPE_MISSING"
        )
        assert all(f"'{name}'" in problem["detail"] for name in scopes.split())
    assert topic.accepted == 0


def test_a_token_works_for_the_topics_its_patterns_match(api: Client) -> None:
    for name in ("arcade.orders", "arcade.", "arcadex", "bank", "bank2"):
        api.put(f"/v1/topics/{name}").expect(201)
    holder = acting(api, "produce", "consume", "admin", topics=["arcade.*", "bank"])
    for name in ("arcade.orders", "arcade.", "bank"):
        holder.post(f"/v1/topics/{name}/messages", {"body": 1}).expect(201)
    for name in ("arcadex", "bank2", "arcade", "no-such-topic", "ARCADE.orders"):
        for method, path in (
            ("POST", "/messages"),
            ("GET", ""),
            ("PUT", ""),
            ("GET", "/messages"),
            ("GET", "/groups"),
        ):
            holder.call(method, f"/v1/topics/{name}{path}", {}).refused(403, "TOPIC_FORBIDDEN")
        holder.call("POST", f"/v1/publish/{name}", raw=b"x").refused(403, "TOPIC_FORBIDDEN")
    names = [t["topic"] for page in holder_pages(holder, "/v1/topics") for t in page]
    assert names == ["arcade.", "arcade.orders", "bank"]
    assert [t["topic"] for page in holder_pages(holder, "/v1/stats") for t in page] == names


def holder_pages(holder: Client, path: str) -> list[list[Any]]:
    return holder.pages(path, 50)


@pytest.mark.parametrize("topics", [["orders.*"], ["a*"], ["**x"], ["orders", "b"]])
def test_an_admin_for_some_topics_touches_no_other_tokens(api: Client, topics: list[str]) -> None:
    holder = acting(api, "admin", topics=topics)
    other = token(api, "admin")
    holder.post("/v1/tokens", {"name": "x", "scopes": ["admin"]}).refused(403, "TOO_MUCH")
    holder.post(f"/v1/tokens/{other['id']}/rotate").refused(403, "TOO_MUCH")
    holder.get("/v1/tokens").refused(403, "TOPIC_FORBIDDEN")
    holder.delete(f"/v1/tokens/{other['id']}").refused(403, "TOPIC_FORBIDDEN")
    acting(api, "produce").get(ANYBODYS).expect(200)


@pytest.mark.parametrize(
    "topics", [["[a-z]*"], ["a?"], ["a/b"], [""], [" "], ["x" * 129], [], ["*"] * 33, "a", [1]]
)
def test_a_pattern_that_is_none_is_refused(api: Client, topics: Any) -> None:
    api.post("/v1/tokens", {"name": "x", "scopes": ["produce"], "topics": topics}).refused(400, "VALIDATION")


def test_a_secret_in_the_place_of_an_id_is_not_repeated(api: Client) -> None:
    secret = token(api, "admin")["token"]
    for method, path in (("DELETE", f"/v1/tokens/{secret}"), ("GET", f"/v1/topics/x/messages/{secret}")):
        api.put("/v1/topics/x")
        reply = api.call(method, path)
        reply.refused(404)
        assert secret not in reply.raw.decode()


def test_health_and_the_description_need_no_token(api: Client) -> None:
    nobody = api.with_token(None)
    nobody.get("/v1/health").expect(200)
    nobody.get("/v1/openapi.json").expect(200)


def test_a_token_makes_none_that_is_more_than_itself(api: Client) -> None:
    holder = acting(api, "admin", "consume", expires_in_days=2)
    for scopes, days in ((["produce"], 1), (["admin", "produce"], 1), (["admin"], 3), (["consume"], None)):
        fields = {"expires_in_days": days} if days else {}
        holder.post("/v1/tokens", {"name": "x", "scopes": scopes, **fields}).refused(403, "TOO_MUCH")
    holder.post("/v1/tokens", {"name": "x", "scopes": ["admin", "consume"], "expires_in_days": 1}).expect(201)


def test_an_admin_for_some_topics_and_groups_makes_tokens_for_fewer(api: Client) -> None:
    mine = {"topics": ["shop.*", "bank"], "groups": ["mail.*"]}
    holder = acting(api, "admin", **mine)
    for wider in ({"topics": ["shop*"]}, {"topics": ["bank", "*"]}, {"groups": ["mail*"]}, {"groups": ["*"]}):
        body = {"name": "x", "scopes": ["admin"], **mine, **wider}
        holder.post("/v1/tokens", body).refused(403, "TOO_MUCH")
    fewer = {"name": "x", "scopes": ["admin"], "topics": ["shop.a*"], "groups": ["mail.b"]}
    token = holder.post("/v1/tokens", fewer).expect(201)
    api.with_token(token["token"]).put("/v1/topics/shop.b").refused(403, "TOPIC_FORBIDDEN")
    assert holder.post(f"/v1/tokens/{token['id']}/rotate").expect(200)["topics"] == ["shop.a*"]


def test_a_token_for_some_groups_is_refused_at_the_others(api: Client) -> None:
    topic = api.topic()
    for group in ("mail.a", "bank"):
        api.put(f"{topic.path}/groups/{group}", {"from": "earliest"}).expect(201)
    message_id = api.post(f"{topic.path}/messages", {"body": 1}).expect(201)["id"]
    holder = acting(api, "consume", "admin", groups=["mail.*"])
    holder.post(f"{topic.path}/groups/mail.a/receive").expect(200)
    for method, path in (
        ("POST", "/groups/bank/receive"),
        ("GET", "/groups/bank"),
        ("PUT", "/groups/bank"),
        ("PUT", "/groups/bank/consumers/c"),
        ("POST", "/groups/bank/consumers/c/rotate-secret"),
        ("POST", "/groups/bank/dead-letters/redrive"),
        ("POST", "/groups/bank/dead-letters/delete"),
        ("POST", "/groups/bank/retry"),
        ("GET", "/messages?group=bank"),
    ):
        holder.call(method, topic.path + path, None if method == "GET" else {}).refused(
            403, "GROUP_FORBIDDEN"
        )
    holder.post(f"{topic.path}/messages/{message_id}/retry", {"group": "bank"}).refused(
        403, "GROUP_FORBIDDEN"
    )
    assert [g["group"] for g in holder.get(f"{topic.path}/groups").expect(200)["items"]] == ["mail.a"]
    holder.post("/v1/tokens", {"name": "x", "scopes": ["admin"]}).refused(403, "TOO_MUCH")


def test_who_may_less_does_not_get_the_text_of_who_may_more(api: Client) -> None:
    strong = token(api, "admin", "produce")
    for weak in (acting(api, "admin"), acting(api, "admin", "produce", expires_in_days=1)):
        weak.post(f"/v1/tokens/{strong['id']}/rotate", {}).refused(403, "TOO_MUCH")


def test_a_token_shows_when_it_was_last_used(api: Client) -> None:
    new_token = token(api, "produce")
    assert new_token["last_used_at"] is None
    api.with_token(new_token["token"]).get(ANYBODYS).expect(200)
    [entry] = [t for page in api.pages("/v1/tokens", 200) for t in page if t["id"] == new_token["id"]]
    assert entry["last_used_at"] >= new_token["created_at"]
