"""Secrets in rows: encrypted, each for its own row, and rotated without a loss of what was signed before."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.delivery.sender import live_secrets
from chalicelib.delivery.webhooks import parse_secret
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.signing import Secret
from chalicelib.domain.topic import Consumer, Group, Topic
from chalicelib.services.core.secrets import encryption_context_of
from chalicelib.store.layout import definitions
from infra import names
from tests.functional.delivery.receivers import Receiver, http_receiver
from tests.support.aws_answers import KEY
from tests.support.browser import Browser
from tests.support.day import World, a_world
from tests.support.http import Group as GroupCalls
from tests.support.receiver import is_signed
from tests.support.roles import Guard, at_work

ROTATE = "/v1/signing-key/rotate"


@pytest.fixture(scope="module")
def world(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(Guard(), tmp_path_factory.mktemp("stage")) as world:
        assert world.deps.signing_key  # made once for a stage
        yield world


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as receiver:
        yield receiver


def subscribed(world: World, url: str = "http://127.0.0.1:9/", **fields: Any) -> tuple[GroupCalls, bytes]:
    """A group with a subscriber `c`, and the secret."""
    group = world.api.topic(shards=1).group()
    registration = world.api.put(f"{group.path}/consumers/c", {"url": url, **fields}).expect(201)
    secret = parse_secret(registration["secret"])
    assert isinstance(secret, bytes)
    return group, secret


def stored(world: World, group: GroupCalls) -> tuple[Topic, Group, Consumer]:
    deps = world.deps
    topic = deps.catalog.topic(group.topic.name)
    consumer_group = deps.catalog.group(topic, group.name)
    return topic, consumer_group, deps.catalog.consumer(topic, consumer_group, "c")


def signing(world: World, group: GroupCalls) -> list[bytes]:
    """What a delivery is signed with."""
    now_ms = world.clock.now_ms()
    return live_secrets(world.deps.secret_cipher.with_plain_secrets(*stored(world, group), now_ms), now_ms)


def all_rows(world: World) -> str:
    client = world.adapters.log._dynamo.client
    tables = [definition["TableName"] for definition in definitions(world.tables)]
    return repr([client.scan(TableName=table, ConsistentRead=True)["Items"] for table in tables])


def forms(secret: bytes) -> list[str]:
    """How a secret might stand in a row."""
    return [secret.hex(), base64.b64encode(secret).decode(), repr(secret)[2:-1]]


def test_no_row_tells_a_secret_or_the_signing_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # What stands in for KMS hides nothing by itself: here its answers are scrambled.
    def scrambled(self: Any, plain: bytes, context: Any) -> bytes:
        blob: bytes = encrypt(self, plain, context)
        return bytes(byte ^ 0x5A for byte in blob)

    cipher = type(world.adapters.cipher)
    encrypt = cipher.encrypt  # type: ignore[union-attr]
    monkeypatch.setattr(cipher, "encrypt", scrambled)
    group, first = subscribed(world)
    rotation = world.api.post(f"{group.path}/consumers/c/rotate-secret").expect(200)
    second = parse_secret(rotation["secret"])
    assert isinstance(second, bytes)
    rows = all_rows(world)
    assert [form for secret in (first, second) for form in forms(secret) if form in rows] == []
    assert "whsec_" not in rows
    monkeypatch.undo()
    rows = all_rows(world)
    assert [form for form in forms(world.deps.signing_key)[:1] if form in rows] == []


def test_a_delivery_is_signed_with_what_was_encrypted(world: World, receiver: Receiver) -> None:
    group, secret = subscribed(world, receiver.url)
    assert signing(world, group) == [secret]
    assert all(each.ciphertext and not each.hex for each in stored(world, group)[2].secrets)


def test_a_ciphertext_is_worth_nothing_in_another_row(world: World, receiver: Receiver) -> None:
    victim, _ = subscribed(world)
    attacker, _ = subscribed(world, receiver.url)
    secrets_of_victim = stored(world, victim)[2].secrets
    topic, group, mine = stored(world, attacker)
    key, *_ = world.adapters.control.key_ring().keys  # type: ignore[union-attr]
    tries = 0
    for secrets in (secrets_of_victim, (key,)):
        assert world.adapters.control.put_consumer(topic, group, replace(mine, secrets=secrets), mine)
        topic, group, mine = stored(world, attacker)
        with pytest.raises(Unavailable):
            signing(world, attacker)
        attacker.topic.produce("x")
        with at_work("deliver"):
            report = world.call("deliver", {"topic": topic.name, "group": group.name})
        assert report["NOT_ATTEMPTED"] >= 1, report
        tries += 1
    assert receiver.seen == []
    print(f"{tries} ciphertexts moved to another row: none signed anything")


HEADER = "Bearer f1rst-and-last"


def test_a_hostile_consumer_never_gets_the_headers_of_a_subscriber(world: World, receiver: Receiver) -> None:
    with http_receiver() as evil:
        group, _ = subscribed(world, receiver.url, headers={"Authorization": HEADER})
        path = f"{group.path}/consumers/c"
        token = world.api.post("/v1/tokens", {"name": "thief", "scopes": ["consume"]}).expect(201)["token"]
        thief = replace(world.api, token=token)
        for url in (evil.url, receiver.url + "&", receiver.url.replace("127.0.0.1", "localhost")):
            thief.put(path, {"url": url}).refused(422, "HEADERS_NEEDED")
        thief.put(path, {"url": receiver.url}).expect(200)
        topic, stored_group, consumer = stored(world, group)
        assert consumer.header_names == ("Authorization",)
        other, _ = subscribed(world, evil.url)
        for place, row in ((group, replace(consumer, target=evil.url)), (other, stored(world, other)[2])):
            theirs_topic, theirs_group, before = stored(world, place)
            hostile = replace(row, headers=consumer.headers)
            assert world.adapters.control.put_consumer(theirs_topic, theirs_group, hostile, before)
            place.topic.produce("x")
            with at_work("deliver"):
                report = world.call("deliver", {"topic": theirs_topic.name, "group": theirs_group.name})
            assert report["NOT_ATTEMPTED"] >= 1, "sealed for the row and the URL"
        assert evil.seen == []
        world.deps.catalog.forget(topic, stored_group)
        row = stored(world, group)[2]
        assert world.adapters.control.put_consumer(
            topic, stored_group, replace(row, target=receiver.url), row
        )
        world.deps.catalog.forget(topic, stored_group)
        for who in (thief, world.api):
            message = {"message": {"body": 1}, "dry_run": True}
            texts = [
                who.get(path).raw,
                who.post(f"{path}/test", {}).raw,
                who.post(f"{path}/test", message).raw,
            ]
            texts += [who.get(f"{path}/attempts").raw]
            assert not any(b"f1rst" in text for text in texts)
        assert b"f1rst" not in world.api.get("/v1/audit").raw
        assert {request.headers.get("authorization") for request in receiver.seen} == {HEADER}
        thief.put(path, {"url": evil.url, "headers": {}}).expect(200)
        thief.put(path, {"url": receiver.url}).expect(200)
        world.api.post(f"{path}/test", {}).expect(200)
        assert "authorization" not in receiver.seen[-1].headers
    assert HEADER not in all_rows(world)


def test_a_producer_gains_nothing_by_a_callback_url(world: World, receiver: Receiver) -> None:
    with http_receiver() as evil:
        url = evil.url.replace("/in", "/s3cret")
        group, secret = subscribed(
            world, receiver.url, headers={"Authorization": HEADER}, transform="{moved: body}"
        )
        topic = group.topic
        grant = {"name": "thief", "scopes": ["produce"], "topics": [topic.name]}
        thief = replace(world.api, token=world.api.post("/v1/tokens", grant).expect(201)["token"])
        hosts = {"callbacks": {"hosts": ["127.0.0.1"]}}
        own = world.api.put(group.path, hosts).expect(200)["callback_secrets"]["127.0.0.1"]
        other = world.api.put(topic.group("other").path, hosts).expect(200)["callback_secrets"]["127.0.0.1"]
        thief.put(group.path, {"callbacks": {"hosts": ["localhost"]}}).refused(403)
        thief.post(f"{group.path}/rotate-secret").refused(403)
        path, port = f"{topic.path}/messages", evil.port
        for host in ("localhost", "127.0.0.1.example.com", "127.1"):
            thief.post(path, {"body": 1, "callback_url": f"http://{host}:{port}/"}).refused(
                422, "CALLBACK_REFUSED"
            )
        for authority in ("127.0.0.1@localhost", "localhost\\@127.0.0.1", "127.0.0.1#@localhost", "[::1]"):
            forged = {"body": 1, "callback_url": f"http://{authority}:{port}/"}
            thief.post(path, forged).refused(400, "VALIDATION")
        sent = thief.post(path, {"body": "?", "callback_url": url, "delay_seconds": 60}).expect(201)
        seen = thief.call("PATCH", f"{path}/{sent['id']}", {"body": "pay me"}).expect(200)
        assert seen["callback_url"] == f"http://127.0.0.1:{port}/…"
        assert world.api.get(f"{path}/{sent['id']}").expect(200)["callback_url"] == url
        world.clock.advance(61)
        world.call("mover", {})
        for name in (group.name, "other"):
            with at_work("deliver"):
                world.call("deliver", {"topic": topic.name, "group": name})
    assert receiver.seen == [], "in place of the consumers"
    assert len(evil.seen) == 2
    for request in evil.seen:
        assert request.body == b'"pay me"'
        assert "authorization" not in request.headers
        assert not is_signed(f"whsec_{base64.b64encode(secret).decode()}", request.headers, request.body)
    signed = [[is_signed(each, r.headers, r.body) for each in (own, other)] for r in evil.seen]
    assert signed == [[True, False], [False, True]]


def test_each_role_decrypts_only_what_it_signs_with(world: World) -> None:
    def holders(action: str, kind: str) -> set[str]:
        guard = Guard()
        return {name for name in names.FUNCTIONS if guard.allowed(name, f"kms:{action}", f"{KEY}#{kind}")}

    calls = {names.API, names.API_URL}
    assert holders("Decrypt", "subscriber") == {"deliver"}
    assert holders("Decrypt", "callback") == {*calls, "deliver"}
    assert holders("Decrypt", "signing-key") == {*calls, names.RECEIVE, names.RECEIVE_URL, "check"}
    assert (
        holders("Encrypt", "signing-key")
        == holders("Encrypt", "subscriber")
        == holders("Encrypt", "callback")
        == calls
    )
    assert holders("CreateGrant", "subscriber") == holders("ScheduleKeyDeletion", "signing-key") == set()
    group, _ = subscribed(world)
    for function in set(names.FUNCTIONS) - {"deliver"}:
        with at_work(function), pytest.raises(Unavailable):
            world.deps.secret_cipher.decrypted(
                stored_as_operator(world, group), encryption_context_of(*stored_ids(world, group), "c")
            )


def stored_as_operator(world: World, group: GroupCalls) -> Secret:
    with at_work(names.API):  # who may read the row
        return stored(world, group)[2].secrets[0]


def stored_ids(world: World, group: GroupCalls) -> tuple[Topic, Group]:
    with at_work(names.API):
        return stored(world, group)[:2]


def test_a_cold_start_asks_kms_for_nothing_before_it_signs(world: World) -> None:
    group = world.api.topic(shards=1).group()
    group.topic.produce("x")
    world.kms.asked.clear()
    deps = world.deps
    group_of = deps.catalog.group(deps.catalog.topic(group.topic.name), group.name)
    assert group_of
    group.topic.produce("y")
    assert world.kms.asked == []
    deps.signing_keys.present()
    deps.signing_keys.present()
    assert world.kms.asked == [("Decrypt", "signing-key")]
    world.clock.advance(10 * 60)
    deps.signing_keys.present()
    assert len(world.kms.asked) == 1, "what was decrypted is kept for some minutes"
    world.clock.advance(16 * 60)
    deps.signing_keys.present()
    assert len(world.kms.asked) == 2, "and not for longer"


def test_a_secret_in_clear_signs_nothing(world: World, receiver: Receiver) -> None:
    group, _ = subscribed(world, receiver.url)
    topic, stored_group, consumer = stored(world, group)
    own = replace(consumer, secrets=(Secret("ab" * 32),))
    assert world.adapters.control.put_consumer(topic, stored_group, own, consumer)
    with pytest.raises(Unavailable, match="not encrypted"):
        signing(world, group)
    group.topic.produce("x")
    with at_work("deliver"):
        report = world.call("deliver", {"topic": topic.name, "group": stored_group.name})
    assert report["NOT_ATTEMPTED"] >= 1, report
    assert receiver.seen == []


# Rotation of the signing key


def test_receipts_page_tokens_and_sessions_survive_a_rotation_until_it_ends(world: World) -> None:
    api = world.api
    group = api.topic(shards=1).group()
    for n in range(4):
        group.topic.produce(n)
        api.post("/v1/tokens", {"name": f"t{n}", "scopes": ["produce"]}).expect(201)
    before = group.receive(1, lease_seconds=6 * 3600)
    messages = group.receive(1, lease_seconds=6 * 3600)
    page = api.get("/v1/tokens?limit=1").expect(200)["next_page_token"]
    browser = Browser(api.gateway)
    browser.sign_in(str(api.token))
    rotation = api.post(ROTATE, {"overlap_seconds": 3600}).expect(200)
    assert len(rotation["former_until"]) >= 1
    after = group.receive(1, lease_seconds=6 * 3600)
    assert group.ack(*before, *after) == ["ok", "ok"]
    assert api.get(f"/v1/tokens?limit=1&page_token={page}").status == 200
    assert browser.get("/console/tokens").status == 200
    world.clock.advance(3601)
    assert group.ack(*messages) == ["RECEIPT_INVALID"]
    api.get(f"/v1/tokens?limit=1&page_token={page}").refused(400, "PAGE_TOKEN_INVALID")
    assert group.ack(*after) == ["already"]


def test_without_overlap_what_was_signed_before_is_void_at_once(world: World) -> None:
    group = world.api.topic(shards=1).group()
    group.topic.produce("x")
    messages = group.receive(1)
    world.api.post(ROTATE, {"overlap_seconds": 604_800}).expect(200)
    rotation = world.api.post(ROTATE, {"overlap_seconds": 0}).expect(200)
    assert rotation["former_until"] == []
    assert group.ack(*messages) == ["RECEIPT_INVALID"]


def test_another_process_learns_of_a_rotation_by_what_it_does_not_know(world: World) -> None:
    slow = world.deps
    slow.signing_keys.present()
    world.clock.advance(30)
    world.deps.signing_keys.rotate(3600)
    token = world.deps.signing_keys.sign("page:x", "here")
    assert slow.signing_keys.verified("page:x", token) == "here"
    assert slow.signing_keys.verified("page:x", f"{token[:-2]}xx") is None
    assert slow.signing_key == world.deps.signing_key


def test_checks_are_signed_for_who_has_the_secret_from_before(world: World) -> None:
    deps = world.deps
    topic = deps.catalog.topic(world.api.topic().name)
    before = deps.transactor.secret(topic)
    deps.signing_keys.rotate(3600)
    assert deps.transactor.secret(topic) != before
    assert deps.transactor.secrets(topic)[0] == deps.transactor.secret(topic)
    assert before in deps.transactor.secrets(topic)


def test_only_an_admin_of_everything_rotates_the_key(world: World) -> None:
    for limits in ({"topics": ["a*"]}, {"groups": ["a*"]}):
        token = world.api.post("/v1/tokens", {"name": "t", "scopes": ["admin"], **limits}).expect(201)
        assert world.api.with_token(token["token"]).post(ROTATE).status == 403
    assert any(entry["path"] == ROTATE for entry in world.api.get("/v1/audit?limit=200").expect(200)["items"])


# On one machine
