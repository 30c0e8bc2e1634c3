"""The audit trail: who did what to which object, and what was answered."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.api.audit import TRAFFIC, is_audited
from chalicelib.api.calls import CALLS
from chalicelib.domain.errors import Unauthorized, unavailable
from chalicelib.wiring import Deps
from tests.functional.front_door.test_api_access import acting, token
from tests.support.background import Background
from tests.support.damage import Damage
from tests.support.http import Client, ShiftingClock


def trail(api: Client, query: str = "") -> list[Any]:
    entries: list[Any] = api.get(f"/v1/audit?limit=200{query}").expect(200)["items"]
    return entries


def test_each_change_leaves_an_entry_with_its_result(api: Client) -> None:
    topic = api.topic()
    name = topic.name
    api.put(f"{topic.path}/groups/g", {"from": "earliest"}).expect(201)
    api.put(f"{topic.path}/groups/g/consumers/c").expect(201)
    api.put(topic.path, {"shards": 1}).refused(409, "SHARDS_CANNOT_SHRINK")
    api.post(f"{topic.path}/groups/g/pause").expect(200)
    api.delete(f"{topic.path}/groups/g/consumers/c").expect(204)
    entries = [(e["method"], e["object"], e["result"]) for e in trail(api, f"&topic={name}")]
    assert entries[::-1] == [
        ("PUT", f"topic {name}", "OK"),
        ("PUT", f"group {name}/g", "OK"),
        ("PUT", f"consumer {name}/g/c", "OK"),
        ("PUT", f"topic {name}", "SHARDS_CANNOT_SHRINK"),
        ("POST", f"group {name}/g", "OK"),
        ("DELETE", f"consumer {name}/g/c", "OK"),
    ]


def test_an_entry_names_the_token_the_request_and_the_time(api: Client, clock: ShiftingClock) -> None:
    new_token = token(api, "admin", name="shop ü")
    reply = api.with_token(new_token["token"]).put("/v1/topics/of-the-shop")
    reply.expect(201)
    [entry] = trail(api, f"&token={new_token['id']}")
    assert entry["token"] == {"id": new_token["id"], "name": "shop ü"}
    assert (entry["path"], entry["request_id"]) == ("/v1/topics/{topic}", reply.headers["X-Request-Id"])
    assert trail(api, f"&token={new_token['id']}&to={entry['at']}") == []
    assert trail(api, f"&token={new_token['id']}&from={entry['at']}") == [entry]
    clock.advance(91 * 86_400)
    assert trail(api, f"&token={new_token['id']}") == []


def test_what_cannot_be_a_topic_is_no_filter(api: Client) -> None:
    for name in ("%C3%A9", "a%20b", "%FF", ""):
        api.get(f"/v1/audit?topic={name}").refused(400, "INVALID_NAME")


def test_making_and_revoking_a_token_is_told_without_its_text(api: Client) -> None:
    new_token = token(api, "produce")
    api.delete(f"/v1/tokens/{new_token['id']}").expect(204)
    api.delete(f"/v1/tokens/{new_token['token']}").refused(404, "TOKEN_NOT_FOUND")
    mistake, revocation, creation = trail(api)[:3]
    assert (creation["object"], revocation["object"]) == (
        f"token {new_token['id']}",
        f"token {new_token['id']}",
    )
    assert (mistake["object"], mistake["result"]) == ("token", "TOKEN_NOT_FOUND")


def test_a_list_goes_on_where_filters_found_nothing(api: Client) -> None:
    topic = api.topic()
    for _ in range(3):
        api.post(f"{topic.path}/groups/nobody/pause").refused(404, "GROUP_NOT_FOUND")
    pages = api.pages(f"/v1/audit?topic={topic.name}", 2)
    assert [len(page) for page in pages][:2] == [2, 2]
    assert [entry["result"] for page in pages for entry in page] == ["GROUP_NOT_FOUND"] * 3 + ["OK"]


def test_only_an_unlimited_admin_sees_the_trail(api: Client) -> None:
    acting(api, "consume", "produce").get("/v1/audit").refused(403, "SCOPE_MISSING")
    acting(api, "admin", topics=["a*"]).get("/v1/audit").refused(403, "TOPIC_FORBIDDEN")
    acting(api, "admin", groups=["a*"]).get("/v1/audit").refused(403, "GROUP_FORBIDDEN")


def test_a_trail_that_cannot_be_written_refuses_nothing(
    api: Client, services: Background, monkeypatch: Any
) -> None:
    def lost(*_: object) -> None:
        raise unavailable()

    monkeypatch.setattr(services.deps.adapters.audit, "add", lost)
    api.topic()


def test_every_call_that_changes_something_is_traffic_or_audited() -> None:
    calls_that_change = {entry.handler.__name__ for entry in CALLS if entry.method not in ("GET", "HEAD")}
    assert calls_that_change >= TRAFFIC, "a name that no call has"
    audited_calls = {entry.handler.__name__ for entry in CALLS if is_audited(entry)}
    assert audited_calls == calls_that_change - TRAFFIC


def test_what_was_revoked_after_the_backup_of_the_control_data_is_revoked_again(
    empty_api: Client, clock: ShiftingClock
) -> None:
    api, deps = empty_api, wiring.deps()
    stored = Damage(deps)
    topic = api.topic()
    consumers = f"{topic.path}/groups/g/consumers"
    api.put(f"{topic.path}/groups/g", {"from": "earliest"}).expect(201)
    for name in ("leaver", "again"):
        api.put(f"{consumers}/{name}").expect(201)
    leaked, turned = token(api, "admin"), token(api, "admin")
    receipt_key = deps.signing_keys.present()
    clock.advance(1)
    backup, since_ms = stored.rows("control"), clock.now_ms()

    clock.advance(1)
    api.delete(f"/v1/tokens/{leaked['id']}").expect(204)
    api.post(f"/v1/tokens/{turned['id']}/rotate", {"overlap_seconds": 0}).expect(200)
    api.delete(f"{consumers}/leaver").expect(204)
    api.post("/v1/signing-key/rotate", {"overlap_seconds": 0}).expect(200)
    api.put(topic.path, {"shards": 8}).expect(200)
    stored.rewind("control", backup)
    deps = Deps(deps.adapters)

    looked = list(deps.audit_replay.since(since_ms, dry=True))
    assert list(deps.audit_replay.since(since_ms, dry=False)) == looked, "to look changes nothing"
    assert [(each.entry.object, each.done, bool(each.advice)) for each in looked] == [
        (f"token {leaked['id']}", True, False),
        (f"token {turned['id']}", True, True),
        (f"consumer {topic.name}/g/leaver", True, False),
        ("rotate", True, False),
        (f"topic {topic.name}", False, True),
    ]
    for old in (leaked, turned):
        with pytest.raises(Unauthorized):
            Deps(deps.adapters).tokens.authenticate(old["token"])
    assert [each["consumer"] for each in api.get(consumers).expect(200)["items"]] == ["again"]
    assert receipt_key not in deps.signing_keys.live()

    api.put(f"{consumers}/leaver").expect(201)
    key = deps.signing_key
    again = list(Deps(deps.adapters).audit_replay.since(since_ms, dry=False))
    assert [each.done for each in again] == [False] * 6, "what was made again since stays"
    assert Deps(deps.adapters).signing_key == key
    stored.rewind("control", backup)
    once_more = list(Deps(deps.adapters).audit_replay.since(since_ms, dry=False))
    assert sum(each.done for each in once_more) == 4, "after a second restore it is done again"
