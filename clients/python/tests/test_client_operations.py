"""Every operation has its method, its result has a type, its refusal a class."""

from __future__ import annotations

import asyncio
import base64
import inspect
import re
import threading
import typing
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from faulty_proxy import FAIL, HALF, LOSE, PASS, FaultyProxy

from headrace import AsyncHeadrace, Headrace, HeadraceError, Outgoing, Retries, errors
from headrace._async.pager import AsyncPager
from headrace._sync.many import Many
from headrace._sync.pager import Pager
from headrace.calls import Call
from headrace.client import patient
from headrace.errors import kind_of
from headrace.models import Model, Sent

CALLED_OTHERWISE = {"produce": "send", "produce_batch": "send_many", "probe_health": "health"}
OTHER_WORDS = {"from": {"begin", "since"}, "to": {"end", "until"}}
"""Query parameters that have another name in Python."""
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("client", [Headrace, AsyncHeadrace])
def test_every_operation_of_the_interface_is_a_method(hr: Headrace, client: type) -> None:
    paths = hr.openapi_document()["paths"]
    operations = {operation["operationId"] for methods in paths.values() for operation in methods.values()}
    missing_names = [name for name in operations if not hasattr(client, CALLED_OTHERWISE.get(name, name))]
    assert not missing_names, (
        f"clients/python/src/headrace/_async lacks {sorted(missing_names)}; then run tools/make_sync.py"
    )


def test_every_query_parameter_is_a_parameter_of_its_method(hr: Headrace) -> None:
    for methods in hr.openapi_document()["paths"].values():
        for verb, operation in methods.items():
            method = getattr(
                Headrace, CALLED_OTHERWISE.get(operation["operationId"], operation["operationId"])
            )
            names = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
            is_list = typing.get_origin(typing.get_type_hints(method)["return"]) is Pager
            parameters = inspect.signature(method).parameters
            words = {name: ({name} | OTHER_WORDS.get(name, set())) & parameters.keys() for name in names}
            if is_list:
                words.pop("page_token")  # its pager has it
            missing_names = [name for name, found_words in words.items() if not found_words]
            assert not missing_names, f"{method.__name__} lacks {missing_names}"
            if verb == "get" and names:
                optional = {name for name, each in parameters.items() if each.default is not each.empty}
                assert optional <= set().union(*words.values()), method.__name__


def test_every_answers_fields_are_in_its_type(hr: Headrace) -> None:
    document = hr.openapi_document()
    looked_at = 0
    for methods in document["paths"].values():
        for operation in methods.values():
            method = getattr(
                Headrace, CALLED_OTHERWISE.get(operation["operationId"], operation["operationId"])
            )
            kind = typing.get_type_hints(method)["return"]
            fields = fields_of(answer_of(operation), document)
            if typing.get_origin(kind) in (Pager, list):
                (kind,) = typing.get_args(kind)
                items = next(s for s in fields.values() if "items" in s)
                fields = fields_of(items["items"], document)
            if isinstance(kind, type) and issubclass(kind, Model):
                type_fields = {field.encode_name for field in msgspec.structs.fields(kind)}
                assert fields.keys() <= type_fields, (
                    f"{kind.__name__} lacks {sorted(fields.keys() - type_fields)}"
                )
                looked_at += bool(fields)
    assert looked_at > 30


def answer_of(operation: Mapping[str, Any]) -> Any:
    """The schema of a good answer."""
    good = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
    return next(iter(good.get("content", {"": {"schema": {}}}).values()))["schema"]


def fields_of(schema: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object, with those of its parts."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    fields = dict(schema.get("properties", {}))
    for part in (each for keyword in ("anyOf", "allOf", "oneOf") for each in schema.get(keyword, [])):
        fields |= fields_of(part, document)
    return fields


def test_every_documented_code_has_an_error_of_its_status() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| ([^|]+) \|", (ROOT / "docs" / "errors.md").read_text(), re.M)
    assert rows
    for statuses, codes in rows:
        status = int(statuses.split(",")[0])
        for code in re.findall(r"`([A-Z_]+)`", codes):
            kind = kind_of(code, status)
            assert kind is not HeadraceError
            family = errors.Unavailable if status >= 500 else kind_of("OTHER", status)
            assert issubclass(kind, family), f"{code} is a {kind.__name__}"


def test_both_twins_have_the_same_methods() -> None:
    def shapes(kind: type) -> dict[str, list[str]]:
        names = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}
        return {
            names.get(name, name): list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(kind, callable)
            if (not name.startswith("_") or name in {*names, *names.values()}) and name != "discover"
        }

    assert shapes(AsyncHeadrace) == shapes(Headrace)


def test_topics_groups_and_consumers_are_set_up_seen_and_removed(hr: Headrace, topic: str) -> None:
    assert hr.put_topic(topic, lease_seconds=40, retry={"max_attempts": 3}).lease_seconds == 40
    group = hr.put_group(topic, "mailer", begin="earliest", mode="serial", filter="paid || refunded")
    assert (group.begin, group.mode, group.filter) == ("earliest", "serial", "paid || refunded")
    member = hr.put_consumer(topic, "mailer", "one")
    assert (member.rank, member.total, member.kind) == (0, 1, "pull")
    assert hr.heartbeat(topic, "mailer", "one").total == 1
    assert hr.get_assignment(topic, "mailer").strategy == "mod"
    assert [c.consumer for c in hr.list_consumers(topic, "mailer")] == ["one"]
    assert hr.pause_group(topic, "mailer").paused
    assert not hr.resume_group(topic, "mailer").paused
    assert hr.seek_group(topic, "mailer", datetime.now(timezone.utc)).backlog == 0
    hr.send(topic, {"order": 1}, tag="paid")
    assert hr.purge_group(topic, "mailer", confirm="mailer").purged == 1
    assert hr.purge_topic(topic, confirm=topic).purged == 0
    hr.delete_consumer(topic, "mailer", "one")
    with pytest.raises(errors.ConsumerNotFound):
        hr.get_consumer(topic, "mailer", "one")
    stats = hr.get_topic(topic).stats
    assert stats is not None
    assert stats.groups["mailer"].backlog == 0


def test_a_delivery_is_changed_and_settled_by_hand(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "mailer", begin="earliest")
    id = hr.send(topic, {"order": 1}).id
    hr.nack(topic, "mailer", *hr.receive(topic, "mailer"), delay=60)
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    message = hr.amend_message(topic, id, group="mailer", next_attempt_at=due, attempts_left=3)
    assert message.deliveries["mailer"].retries_left == 3
    delivery = hr.settle_message(topic, id, "mailer", "dead", reason="by hand")
    assert (delivery.status, delivery.last_error) == ("DEAD", "by hand")
    with pytest.raises(errors.Conflict):
        hr.settle_message(topic, id, "mailer", "success")


def test_pagers_walk_all_pages(hr: Headrace, topic: str) -> None:
    for n in range(5):
        hr.put_group(topic, f"g{n}")
    pager = hr.list_groups(topic, limit=2)
    page = pager.page()
    assert [g.group for g in page.items] == ["g0", "g1"]
    assert page.next_page_token
    assert [g.group for g in pager] == [f"g{n}" for n in range(5)]


class Pages:
    """A transport that answers with these pages, one after the other."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self._pages = list(pages)
        self.queries: list[Mapping[str, Any]] = []
        self.bodies: list[Any] = []

    def ask(self, call: Call, kind: Any) -> Any:
        self.bodies.append(call.body)
        self.queries.append({name: value for name, value in call.query.items() if value is not None})
        return msgspec.convert(self._pages.pop(0), kind)


class AsyncPages(Pages):
    """The same for the asyncio twin."""

    async def ask(self, call: Call, kind: Any) -> Any:
        return super().ask(call, kind)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_pager_goes_on_past_an_empty_page_and_asks_for_the_same_list(is_async: bool) -> None:
    pages = (
        {"items": [1], "next_page_token": "t1"},
        {"items": [], "next_page_token": "t2"},
        {"items": [2, 3], "next_page_token": None},
    )
    transport = (AsyncPages if is_async else Pages)(*pages)
    call = Call("GET", "/v1/topics/orders/messages", query={"tag": "paid", "limit": 2})

    async def walk() -> list[int]:
        return [item async for item in AsyncPager(cast(Any, transport), call, int)]

    items = asyncio.run(walk()) if is_async else [*Pager(cast(Any, transport), call, int)]
    assert items == [1, 2, 3]
    same = {"tag": "paid", "limit": 2}
    assert transport.queries == [same, same | {"page_token": "t1"}, same | {"page_token": "t2"}]


def test_a_message_is_sent_received_settled_and_traced(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest")
    sent = hr.send(topic, {"order": 188}, key="order-188", tag="paid", headers={"k": "v"})
    (message,) = hr.receive(topic, "g", wait=5)
    assert (message.id, message.body, message.key, message.tag) == (
        sent.id,
        {"order": 188},
        "order-188",
        "paid",
    )
    assert message.attempt == 1
    assert hr.extend(topic, "g", message, lease="1m")[0].ok
    again = hr.receive(topic, "g", wait=25, ack=[message, message.receipt], max=0)
    assert (again, [each.ok for each in again.acked]) == ([], [True, True])
    assert hr.ack(topic, "g", message)[0].already
    assert hr.get_message(topic, sent.id).deliveries["g"].status == "SUCCESS"
    assert hr.get_fate(topic, sent.id).complete
    assert [m.id for m in hr.list_messages(topic, key="order-188")] == [sent.id]
    assert "accepted" in {event.event for event in hr.get_trace(topic, sent.id)}


def test_a_producer_may_wait_until_the_work_is_done(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "quick", begin="earliest")
    hr.put_group(topic, "slow", begin="earliest")
    sent = hr.send(topic, {"order": 188})
    assert not hr.wait_until_complete(topic, sent.id, group="quick", within=0.1).is_complete("quick")
    worker = threading.Thread(target=lambda: hr.ack(topic, "quick", *hr.receive(topic, "quick")))
    worker.start()
    fate = hr.wait_until_complete(topic, sent.id, group="quick", within=30)
    worker.join()
    assert (fate.groups["quick"].status, fate.groups["slow"].status) == ("SUCCESS", "NEW")
    hr.nack(topic, "slow", *hr.receive(topic, "slow"), dead_letter=True)
    assert hr.wait_until_complete(topic, sent.id, within=30).complete


def test_who_waits_for_an_unknown_group_is_told_also_where_the_others_skipped_the_message(
    proxy: FaultyProxy, shaky: Headrace, topic: str
) -> None:
    sent = shaky.send(topic, {"order": 188})
    shaky.put_group(topic, "late", begin="latest")
    proxy.requests.clear()
    assert shaky.wait_until_complete(topic, sent.id, group="late").skipped == ["late"]
    assert [path.rpartition("/")[2] for path, _ in proxy.requests] == ["fate"]
    with pytest.raises(errors.GroupNotFound):
        shaky.wait_until_complete(topic, sent.id, group="nobody")


def test_receives_alone_go_to_their_own_address(
    proxy: FaultyProxy, service: str, hr: Headrace, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {
        "HEADRACE_URL": service,
        "HEADRACE_RECEIVE_URL": f"{proxy.url}/v1/",
        "HEADRACE_TOKEN": hr.transport.token,
    }
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    with Headrace.from_env(retries=Retries(base_seconds=0.02)) as client:
        client.put_group(topic, "g")
        client.send(topic, 1)
        proxy.plan.append(FAIL)
        [message] = patient(client).receive(topic, "g", wait=5)
        assert client.ack(topic, "g", message)[0].ok
    assert {path.rpartition("/")[2] for path, _ in proxy.requests} == {"receive"}
    assert len(proxy.requests) == 2, "once more at the same address"


def test_a_long_wait_is_several_long_polls(hr: Headrace, proxy: FaultyProxy, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest")
    hr.send(topic, "at last")
    proxy.plan.extend([b'{"messages": []}', b'{"messages": []}'])
    with Headrace(proxy.url, hr.transport.token) as client:
        (message,) = client.receive(topic, "g", wait="60s")
        assert message.body == "at last"
        proxy.plan.extend([b'{"messages": []}'] * 3)
        assert client.receive(topic, "g", wait=60) == []
    assert len(proxy.requests) == 6


def test_bytes_come_back_as_they_went(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest")
    hr.send(topic, b"\x00\xff", content_type="image/x-tiny")
    hr.publish(topic, b"raw \xfe", content_type="application/x-raw", key="k")
    bodies = {m.content_type: m.body for m in hr.receive(topic, "g", wait=5)}
    bodies |= {m.content_type: m.body for m in hr.receive(topic, "g")}
    assert bodies == {"image/x-tiny": b"\x00\xff", "application/x-raw": b"raw \xfe"}


def test_a_buried_message_is_mended_and_redriven(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest")
    hr.send(topic, "bad")
    (message,) = hr.receive(topic, "g", wait=5)
    hr.nack(topic, "g", message, dead_letter=True, reason="no such customer")
    (letter,) = hr.list_dead_letters(topic, "g")
    assert (letter.body, letter.reason, letter.last_error) == ("bad", "REJECTED", "no such customer")
    assert hr.edit_dead_letter(topic, "g", letter.id, "good").edited
    assert hr.redrive(topic, "g", ids=[letter.id]) == 1
    (again,) = hr.receive(topic, "g", wait=5)
    assert again.body == "good"


def test_a_delayed_message_waits_and_can_be_moved_and_cancelled(hr: Headrace, topic: str) -> None:
    sent = hr.send(topic, {"n": 1}, delay="30m")
    assert sent.status == "DELAYED"
    assert sent.deliver_at is not None
    wait = sent.deliver_at - datetime.now(timezone.utc)
    assert timedelta(minutes=29) < wait <= timedelta(minutes=30)
    later = datetime.now(timezone.utc) + timedelta(hours=2)
    message = hr.amend_message(topic, sent.id, deliver_at=later, body={"n": 2})
    assert message.body == {"n": 2}
    (change,) = hr.change_delayed(topic, postpone="1h", dry_run=True).items
    assert (change.id, change.changed) == (sent.id, True)
    assert change.deliver_at is not None
    assert abs(change.deliver_at - later - timedelta(hours=1)) < timedelta(milliseconds=1)
    assert hr.change_delayed(topic, deliver_at=later, ids=[sent.id]).items[0].changed is False
    hr.cancel_message(topic, sent.id)
    assert hr.get_message(topic, sent.id).status == "CANCELLED"


def test_a_job_that_is_put_again_waits_again(hr: Headrace, topic: str) -> None:
    job = "search index/é"
    first = hr.put_job(topic, job, {"n": 1}, delay="30s", keys=["k"])
    again = hr.put_job(topic, job, {"n": 2}, delay="1h")
    assert (again.id, again.status) == (first.id, "DELAYED")
    assert [(each.job, each.body) for each in hr.list_jobs(topic, prefix="search")] == [(job, {"n": 2})]
    hr.delete_job(topic, job)
    assert hr.get_job(topic, job).status == "CANCELLED"
    with pytest.raises(errors.JobNotFound):
        hr.delete_job(topic, job)
    with pytest.raises(ValueError, match=r"\.\."):
        hr.delete_job(topic, "..")


@pytest.mark.parametrize("limit", [None, 12])
def test_a_redrive_goes_on_where_the_services_time_ended(limit: int | None) -> None:
    transport = Pages(
        {"redriven": 10, "next_page_token": "t1"}, {"redriven": 0, "next_page_token": "t2"}, {"redriven": 2}
    )
    which = {"tag": "paid"}
    assert Many(cast(Any, transport)).redrive("orders", "mailer", filter=which, limit=limit) == 12
    first, *others = transport.bodies
    assert first == {"filter": which} | ({"limit": limit} if limit else {})
    left = {"limit": 2} if limit else {}
    assert others == [{"filter": which, **left, "page_token": token} for token in ("t1", "t2")]


def test_a_batch_answers_for_each_message(hr: Headrace, topic: str) -> None:
    progress: list[int] = []
    messages = [{"n": 0}, Outgoing(body={"n": 1}, shard=99), Outgoing(body={"n": 2}, key="two")]
    good, bad, third = hr.send_many(topic, messages, chunk=2, on_progress=progress.append)
    assert isinstance(good, Sent)
    assert isinstance(bad, errors.Refused)
    assert bad.code == "NO_SUCH_SHARD"
    assert isinstance(third, Sent)
    assert progress == [2, 3]


def test_a_batch_of_megabytes_is_cut(hr: Headrace, topic: str) -> None:
    results = hr.send_many(topic, ["x" * 200_000] * 25)
    assert all(isinstance(result, Sent) for result in results)


def test_errors_say_what_to_do(hr: Headrace, service: str, topic: str) -> None:
    with pytest.raises(errors.TopicNotFound, match="PUT /v1/topics") as refusal:
        hr.send("nowhere-at-all", {})
    assert refusal.value.request_id
    assert not refusal.value.retryable
    with pytest.raises(errors.ValidationFailed) as invalid:
        hr.put_topic(topic, shards=0)
    assert invalid.value.issues[0].path == "shards"
    with Headrace(service, "hr_wrong") as stranger, pytest.raises(errors.Unauthorized):
        stranger.get_topic(topic)
    with pytest.raises(ValueError, match="no duration"):
        hr.send(topic, {}, delay="soon")
    with pytest.raises(ValueError, match="HEADRACE_TOKEN"):
        Headrace(service, "")


def test_tokens_and_the_service_itself(hr: Headrace, service: str, topic: str) -> None:
    token = hr.create_token("shop", ["produce"], topics=[topic], rate_limit=1000)
    assert token.rate_limit == 1000
    assert token.token is not None
    with Headrace(service, token.token) as shop:
        assert shop.send(topic, 1).status == "NEW"
        with pytest.raises(errors.ScopeMissing):
            shop.put_topic(topic)
    assert token.id in {each.id for each in hr.list_tokens()}
    hr.delete_token(token.id)
    assert len(hr.rotate_signing_key().former_until) <= 1
    assert hr.health().status == "ok"
    assert hr.preview_ladder("jmq", max_attempts=3).waits_seconds == [1, 3]
    assert topic in {each.topic for each in hr.stats()}
    assert "<html" in hr.docs()


def test_transactions_commit_roll_back_and_are_listed(hr: Headrace, topic: str) -> None:
    with hr.transaction(topic, {"paid": 30}, check_url="http://127.0.0.1:9/check") as tx:
        assert hr.get_transaction(tx.transaction_id).state == "PREPARED"
        assert [t.transaction_id for t in hr.list_transactions(topic)] == [tx.transaction_id]
    assert hr.get_transaction(tx.transaction_id).state == "COMMITTED"
    with pytest.raises(ZeroDivisionError), hr.transaction(topic, {"paid": 31}) as other_block:
        1 / 0  # noqa: B018
    assert hr.get_transaction(other_block.transaction_id).state == "ROLLED_BACK"
    with pytest.raises(errors.TransactionDecided):
        hr.commit(other_block.transaction_id)


def test_the_asyncio_twin_does_the_same(hr: Headrace, service: str, topic: str) -> None:
    token = hr.transport.token

    async def main() -> None:
        async with AsyncHeadrace(service, token) as hr:
            await hr.put_group(topic, "g", begin="earliest")
            sent = await asyncio.gather(*(hr.send(topic, n) for n in range(5)))
            async with hr.transaction(topic, 5):
                pass
            groups = [g.group async for g in hr.list_groups(topic)]
            assert groups == ["g"]
            bodies: list[object] = []
            while len(bodies) < 6:
                messages = await hr.receive(topic, "g", wait=5)
                bodies += [m.body for m in messages]
                await hr.ack(topic, "g", *messages)
            assert sorted(map(str, bodies)) == list("012345")
            assert len({s.id for s in sent}) == 5

    asyncio.run(main())


def test_a_receive_whose_answer_was_lost_is_answered_with_the_same_messages(
    hr: Headrace, proxy: FaultyProxy, topic: str
) -> None:
    hr.put_group(topic, "g", begin="earliest")
    assert hr.receive(topic, "g").because == "empty"
    hr.send_many(topic, [Outgoing(n) for n in range(40)])
    proxy.plan.extend([LOSE, FAIL, HALF, PASS])
    with Headrace(proxy.url, hr.transport.token, retries=Retries(base_seconds=0.01)) as client:
        messages = client.receive(topic, "g", max=5)
    assert len(messages) == 5
    resends = [{name.lower(): value for name, value in headers.items()} for _, headers in proxy.requests]
    assert [each["headrace-resend"] == "0" for each in resends] == [True, False, False, False]
    others = hr.receive(topic, "g", max=100)
    assert {each.body for each in (*messages, *others)} == set(range(40)), "nothing else was leased"


def test_an_async_receive_that_is_cancelled_gives_back_untried_what_comes(
    hr: Headrace, proxy: FaultyProxy, topic: str
) -> None:
    hr.put_group(topic, "g", begin="earliest")

    async def main() -> None:
        async with AsyncHeadrace(proxy.url, hr.transport.token) as client:
            proxy.plan.append(PASS)
            receive = asyncio.create_task(client.receive(topic, "g", wait=20))
            assert await asyncio.to_thread(proxy.plan_done.wait, 20)
            receive.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receive
            proxy.plan_done.clear()
            proxy.plan.append(PASS)
            await asyncio.to_thread(hr.send, topic, "x")
            assert await asyncio.to_thread(proxy.plan_done.wait, 20)
            assert proxy.requests[-1][0].endswith("/nack")
            (message,) = await asyncio.to_thread(lambda: hr.receive(topic, "g", wait=20))
            assert (message.body, message.attempt) == ("x", 1)

    asyncio.run(main())


def test_a_registration_whose_answer_shows_a_secret_once_is_not_sent_again(
    hr: Headrace, proxy: FaultyProxy, topic: str
) -> None:
    """The second answer had none, and the call passed for a success."""
    hr.put_group(topic, "g")
    url = "http://127.0.0.1:9/"
    secret = "whsec_" + base64.b64encode(bytes(range(24))).decode()
    with Headrace(proxy.url, hr.transport.token, retries=Retries(base_seconds=0.01)) as client:
        proxy.plan.append(LOSE)
        with pytest.raises(errors.NoAnswer):
            client.put_consumer(topic, "g", "hook", url=url)
        assert client.put_consumer(topic, "g", "hook", url=url).secret is None
        assert client.rotate_secret(topic, "g", "hook").startswith("whsec_")
        for name, fields in (("own", {"url": url, "secret": secret}), ("pull", {})):
            proxy.plan.append(LOSE)
            assert client.put_consumer(topic, "g", name, **fields).consumer == name
