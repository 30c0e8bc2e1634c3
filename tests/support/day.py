"""A stage whose functions are called through app.py, and a day on which each of them has something to do."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.awsrequest import AWSResponse

import app
from chalicelib import settings, wiring
from chalicelib.adapters import Adapters, dynamo_adapters
from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress
from chalicelib.delivery.functions import GlueJobs, LocalFunctions
from chalicelib.delivery.sender import Sender
from chalicelib.domain.blob_expiry import parse
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.times import DAY_SECONDS
from chalicelib.domain.topic import ConsumerState, cursor_key, lane_of
from chalicelib.store.blobs import S3Blobs
from chalicelib.store.clients import Clients
from chalicelib.store.layout import FRAGMENTS, Tables, record_key, segment_key
from local.functions import functions_of
from local.gateway import Gateway
from local.stream import stream_event
from tests.functional.delivery.receivers import OK, RawReceiver, Receiver, raw_receiver
from tests.support.aws_answers import KEY, Kms, bytes_answer, json_answer
from tests.support.browser import Browser
from tests.support.http import Client, Group, ShiftingClock, Topic
from tests.support.push import Inbox
from tests.support.roles import BUCKET, Guard, guarded


class World:
    """A stage whose functions are called through app.py, when the test says so."""

    def __init__(
        self,
        tables: Tables,
        adapters: Adapters,
        inbox: Inbox,
        clock: ShiftingClock,
        objects: dict[str, bytes],
        kms: Kms,
    ) -> None:
        self.tables, self.inbox, self.clock = tables, inbox, clock
        self.objects, self.kms = objects, kms
        self.adapters = adapters
        self.deps.setup()
        self.functions = functions_of(app.app)
        token = self.deps.tokens.create("all", ("produce", "consume", "admin"))[1]
        self.api = Client(Doors(), token)

    @property
    def deps(self) -> wiring.Deps:
        """A process that has just begun: nothing was read before."""
        return wiring.Deps(self.adapters)

    def call(self, function: str, event: Any = None, seconds: float = 60) -> Any:
        return self.call_with(self.deps, function, event, seconds)

    def call_with(self, deps: wiring.Deps, function: str, event: Any = None, seconds: float = 60) -> Any:
        """In a process that has run before."""
        schedule_event: dict[str, Any] = {
            "source": "aws.events",
            "time": "",
            "account": "",
            "region": "",
            "resources": [],
            "id": "",
        }
        schedule_event |= {"detail": {}, "detail-type": "Scheduled Event", "version": "0"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wiring, "deps", lambda: deps)
            return self.functions[function](schedule_event if event is None else event, Time(seconds))

    def wake(self, topic: Topic) -> None:
        """Deliver the stream's records of new rows in all of a topic's shards and lanes."""
        stored_topic = self.deps.catalog.topic(topic.name)
        shards = [stored_topic.shard_key(n) for n in range(stored_topic.shards)]
        shards += [
            lane_of(stored_topic, group).shard_key(0) for group in self.deps.catalog.groups(stored_topic)
        ]
        keys = [{"s": {"S": str(shard)}, "o": {"N": "0"}} for shard in shards]
        self.call("route", {"Records": [{"eventName": "INSERT", "dynamodb": {"Keys": k}} for k in keys]})
        self.run()

    def run(self) -> None:
        """What was started, and what that starts. One mover will do: those that follow it find what it found."""
        movers = 0
        while self.inbox.asked:
            function, event = self.inbox.asked.popleft()
            movers += function == "mover"
            if function != "mover" or movers == 1:
                self.call(function, event)

    def later(self, topic: Topic, seconds: float) -> None:
        self.clock.advance(seconds)
        self.call("mover")
        self.wake(topic)


def by_url(
    method: str, path: str, headers: Mapping[str, str], body: bytes | None = None, **own: Any
) -> dict[str, Any]:
    """A call by a function URL, as Lambda describes it; `own` is what it says of the caller beside."""
    target, _, query = path.partition("?")
    context = {
        "domainName": "abc.lambda-url.us-east-1.on.aws",
        "http": {"method": method, "path": target, "sourceIp": "198.51.100.7"},
        "requestId": "u",
        "timeEpoch": None,
        **own,
    }
    return {
        "version": "2.0",
        "rawPath": target,
        "rawQueryString": query,
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": context,
        "isBase64Encoded": True,
        **({} if body is None else {"body": base64.b64encode(body).decode()}),
    }


class Doors:
    """The function URLs, and the REST API for what they do not serve."""

    def __init__(self) -> None:
        self._rest = Gateway(app.app)

    def handle(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        function = app.receive_url if path.endswith("/receive") else app.api_url
        answer = function(by_url(method, path, headers, body), Time(30))
        text = base64.b64decode(answer["body"])
        if b'"ROUTE_NOT_FOUND"' in text:
            return self._rest.handle(method, path, headers, body)
        return answer["statusCode"], answer["headers"], text


class Time:
    """The context of an invocation."""

    aws_request_id = "r"

    def __init__(self, seconds: float) -> None:
        self._ms = int(seconds * 1000)

    def get_remaining_time_in_millis(self) -> int:
        return self._ms


class Bucket:
    """S3 as far as bodies, the journal and the archive's proof need it."""

    def __init__(self, client: Any) -> None:
        self.objects: dict[str, bytes] = {"archive/proved.json": b"{}"}
        client.meta.events.register("provide-client-params.s3.PutObject", self._keep)
        client.meta.events.register("provide-client-params.s3.DeleteObject", self._forget)
        client.meta.events.register("before-send.s3", self._answer)

    def _keep(self, params: dict[str, Any], **_: Any) -> None:
        self.objects[params["Key"]] = params["Body"]

    def _forget(self, params: dict[str, Any], **_: Any) -> None:
        self.objects.pop(params["Key"], None)

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        body = b""
        if "list-type=2" in request.url:
            query = parse_qs(urlsplit(request.url).query)
            prefix, after = query["prefix"][0], query.get("start-after", [""])[0]
            names = sorted(name for name in self.objects if name.startswith(prefix) and name > after)
            keys = "".join(f"<Contents><Key>{name}</Key></Contents>" for name in names)
            body = f"<ListBucketResult>{keys}</ListBucketResult>".encode()
        elif request.method == "GET":
            name = urlsplit(request.url).path.removeprefix("/")
            if (body := next((body for key, body in self.objects.items() if name.endswith(key)), b"")) == b"":
                return bytes_answer(request, b"<Error><Code>NoSuchKey</Code></Error>", 404)
        return bytes_answer(request, body)


@contextmanager
def a_world(guard: Guard, folder: Path) -> Iterator[World]:
    """A new stage under this guard."""
    with guarded(guard), pytest.MonkeyPatch.context() as patch:
        environment = {"HEADRACE_PREFIX": f"roles{uuid.uuid4().hex[:8]}", "HEADRACE_DATA": str(folder)}
        environment["HEADRACE_KMS_KEY"] = KEY
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "local")
        clock, inbox = ShiftingClock(), Inbox()
        rules = Rules(own_hosts=frozenset({"headrace.local"}), allow_loopback=True)
        egress = Egress(rules=rules, monotonic=time.monotonic)
        sender = Sender(
            egress=egress,
            functions=LocalFunctions(None),
            clock=clock,
            real_clock=clock,
            monotonic=time.monotonic,
            origin="headrace.local",
        )
        kms = Kms()
        adapters = dynamo_adapters(
            settings.read(environment), clock=clock, invoker=inbox, on_client=kms.attach
        )
        s3 = Clients("us-east-1").get("s3")
        bucket = Bucket(s3)
        glue = Clients("us-east-1").get("glue")
        glue.meta.events.register(
            "before-send.glue", lambda request, **_: json_answer(request, {"JobRunId": "j"})
        )
        whole = replace(
            adapters,
            sender=lambda: sender,
            blobs=S3Blobs(s3, BUCKET),
            jobs=GlueJobs(lambda: glue, environment["HEADRACE_PREFIX"]),
            archive=True,
        )
        world = World(Tables(environment["HEADRACE_PREFIX"]), whole, inbox, clock, bucket.objects, kms)
        patch.setattr(wiring, "deps", lambda: world.deps)
        try:
            yield world
        finally:
            egress.close()


def work(world: World, receiver: Receiver) -> None:
    """A little of everything."""
    world.api.get("/v1/health").expect(200)
    stranger = world.api.with_token(f"hr_{'0' * 12}_{'a' * 59}")
    for path in ("/v1/topics", "/v1/tokens"):  # by either door
        stranger.get(path).refused(401, "UNAUTHORIZED")
    topic = world.api.topic(
        shards=2,
        rate_limit=1000,
        retry={"max_attempts": 2, "ladder": [5]},
        wake="direct",
        budget_usd=100,
    )
    group = topic.group(rate_limit=1000)
    world.api.put(f"{group.path}/consumers/c", {"url": receiver.url}).expect(201)
    world.api.post(f"{group.path}/consumers/c/test").expect(200)
    produce(world, topic)
    world.api.put(group.path, {"callbacks": {"hosts": ["127.0.0.1"]}}).expect(200)
    topic.produce("called", callback_url=receiver.url)
    world.wake(topic)
    fail(world, topic, group, receiver)
    pull(world, topic)
    loop(world, topic, receiver)
    decide(world, topic, receiver)
    for job in ("sweep", "assign"):
        world.call(job)
    ask_pending(world, receiver)
    remove_while_called(world)
    journal(world, topic)
    age(world)
    restore(world)
    on_schedule(world, topic)
    world.api.get("/v1/audit").expect(200)
    world.api.get(f"{topic.path}/rates").expect(200)


def produce(world: World, topic: Topic) -> None:
    large_id = topic.produce("x" * 250_000, shard=0)["id"]
    world.api.get(f"{topic.path}/messages/{large_id}").expect(200)
    topic.produce("one", keys=["k"], dedup_id="d")
    topic.batch([{"body": n, "keys": ["k", "l"]} for n in range(3)])
    topic.batch([{"body": n, "delay_seconds": 20} for n in range(3)])
    later = topic.produce("later", delay_seconds=DAY_SECONDS)["id"]
    path = f"{topic.path}/messages/{later}"
    world.api.call("PATCH", path, {"body": 2}).expect(200)
    world.api.get(path).expect(200)
    world.api.delete(path).expect(204)
    world.api.get(f"{topic.path}/messages?key=k").expect(200)
    world.later(topic, 20)


def fail(world: World, topic: Topic, group: Group, receiver: Receiver) -> None:
    """Into a dead letter and out of it."""
    receiver.status = 500
    sent_ids = [topic.produce("bad", shard=shard)["id"] for shard in (0, 0, 1, 1)]
    world.call("deliver", {"topic": topic.name, "group": group.name}, seconds=1)
    world.run()
    for _ in range(2):
        world.later(topic, 10)
    letters = f"{group.path}/dead-letters"
    ids = [letter["id"] for letter in world.api.get(letters).expect(200)["items"]]
    assert set(ids) <= set(sent_ids)
    assert len(ids) == 4
    receiver.status = 200
    world.api.call("PATCH", f"{letters}/{ids[0]}", {"body": "good"}).expect(200)
    world.api.post(f"{letters}/redrive", {"ids": [ids[0], *ids[2:]]}).expect(200)
    world.api.delete(f"{letters}/{ids[1]}").expect(204)
    world.api.get(f"{topic.path}/messages/{ids[0]}/trace").expect(200)
    browser = Browser(world.api.gateway)
    assert browser.sign_in(str(world.api.token)).status == 200
    world.later(topic, 300)
    receiver.status = 410
    topic.produce("gone")
    world.run()


def pull(world: World, topic: Topic) -> None:
    group = topic.group("pull")
    messages = group.receive(100, lease_seconds=1000)
    assert len(messages) > 5
    group.ack(*messages[:2])
    world.api.post(f"{group.path}/extend", {"receipts": [messages[2]["receipt"]], "lease_seconds": 20})
    group.nack(*messages[3:5], delay_seconds=30)
    group.settle("nack", messages[5:6], dead_letter=True)
    world.api.post(f"{group.path}/seek", {"to": "latest"}).expect(200)
    edited_id = topic.produce("first", shard=1)["id"]
    world.api.call("PATCH", f"{topic.path}/messages/{edited_id}", {"body": "second"})
    world.api.put(f"{topic.path}/groups/gone", {"mode": "broadcast"}).expect(201)
    world.api.put(f"{topic.path}/groups/gone/consumers/c").expect(201)
    world.api.delete(f"{topic.path}/groups/gone").expect(204)
    buried_group = topic.group("buried")
    buried_group.settle("nack", buried_group.receive(3), dead_letter=True)
    world.api.delete(buried_group.path).expect(204)


def loop(world: World, topic: Topic, receiver: Receiver) -> None:
    """Receives that acknowledge, beside a subscriber; that take over; that find leases ended and messages expired."""
    limited_token, text = world.deps.tokens.create("limited", ("consume",), rate_limit=100)
    group = topic.group("loop", mode="serial", max_in_flight=20, rate_limit=1000)
    topic.batch([{"body": n, "shard": 0, "expires_in_seconds": 2000} for n in range(8)])
    world.api.put(f"{group.path}/consumers/c", {"url": receiver.url}).expect(201)
    group.register("w")
    mine = {"consumer": "w", "lease_seconds": 1000}
    first = group.receive(1, instance="one", **mine)
    second = group.receive(1, instance="two", ack=[each["receipt"] for each in first], **mine)
    receipts = [each["receipt"] for each in (*first, *second)]
    for _ in range(2):  # the second time, what has been acknowledged
        world.api.with_token(text).post(f"{group.path}/receive", {"max": 0, "ack": receipts}).expect(200)
    group.receive(5, **mine)
    world.clock.advance(1001)
    group.receive(5, **mine)
    world.clock.advance(1001)
    group.receive(5, **mine)
    world.api.delete(f"/v1/tokens/{limited_token.id}").expect(204)
    world.api.delete(group.path).expect(204)


def decide(world: World, topic: Topic, receiver: Receiver) -> None:
    """By commit, rollback, and answers to checks."""
    path = f"{topic.path}/transactions"
    for how, fields in (("commit", {}), ("commit", {"delay_seconds": 60}), ("rollback", {})):
        message: dict[str, Any] = {"message": {"body": 1, "keys": ["k"], **fields}}
        transaction_id = world.api.post(path, message).expect(201)["transaction_id"]
        world.api.post(f"/v1/transactions/{transaction_id}/{how}").expect(200)
    world.api.get(f"{path}?state=PREPARED").expect(200)
    receiver.status = 200
    world.api.put(f"{topic.path}/groups/g/consumers/c", {"url": receiver.url}).expect(200)
    for answer, fields in (("commit", {}), ("commit", {"delay_seconds": 30}), ("rollback", {})):
        receiver.body = b'{"state": "%s"}' % answer.encode()
        for together in ([["m"]], [["m", "n"]] * (FRAGMENTS + 1)):  # one alone; two at least in one fragment
            for keys in together:
                message = {"body": 1, "keys": keys, **fields}
                replay = {
                    "message": message,
                    "check_url": receiver.url,
                    "check_after_seconds": 60,
                }
                world.api.post(path, replay).expect(201)
            world.later(topic, 70)
    assert world.api.get(f"{path}?state=PREPARED").expect(200)["items"] == []
    receiver.body = b""


def ask_pending(world: World, receiver: Receiver) -> None:
    """Subscribers that agree only when they are asked again; the one of a broadcast begins at the end then."""
    topic = world.api.topic()
    stored_topic = world.deps.catalog.topic(topic.name)
    for group in (topic.group(max_in_flight=1), topic.group("b", mode="broadcast", offline="skip")):
        consumer_group = world.deps.catalog.group(stored_topic, group.name)
        world.api.put(f"{group.path}/consumers/c", {"url": receiver.url}).expect(201)
        consumer = world.deps.catalog.consumer(stored_topic, consumer_group, "c")
        pending_consumer = replace(consumer, state=ConsumerState.PENDING)
        assert world.deps.adapters.control.put_consumer(
            stored_topic, consumer_group, pending_consumer, consumer
        )
    topic.produce("x")
    for _ in range(4):
        world.call("assign")
    for _ in range(3):
        world.call("sweep")
    world.run()


def remove_while_called(world: World) -> None:
    """A subscriber is removed while it is called, and another one stays."""

    def act(_: RawReceiver, sock: Any) -> None:
        admin = world.deps
        stored_topic = admin.catalog.topic(topic.name)
        stored_group = admin.catalog.group(stored_topic, group.name)
        admin.registry.unregister(
            stored_topic, stored_group, admin.catalog.consumer(stored_topic, stored_group, "c")
        )
        world.clock.advance(5)  # no process has it in its cache any more
        sock.sendall(OK)

    topic = world.api.topic(shards=1)
    group = topic.group(mode="serial")
    with raw_receiver(act) as receiver:
        for name in ("c", "d"):
            world.api.put(f"{group.path}/consumers/{name}", {"url": receiver.url}).expect(201)
        topic.produce("x")
        world.wake(topic)


def journal(world: World, topic: Topic) -> None:
    """What is written goes into the journal; what is archived is sent again."""
    shard = world.deps.catalog.topic(topic.name).shard_key(0)
    client = Clients("us-east-1").get("dynamodb")
    page = client.query(
        TableName=world.tables.log,
        KeyConditionExpression="s = :s AND o >= :o",
        ExpressionAttributeValues={":s": {"S": str(shard)}, ":o": {"N": "0"}},
    )
    rows = [
        {"eventName": "INSERT", "dynamodb": {"NewImage": item, "SequenceNumber": str(n)}}
        for n, item in enumerate(page["Items"])
    ]
    world.call("journal", stream_event(rows, "arn:aws:dynamodb:::table/log/stream/2026-11-21T00:00:00.000"))
    days = {"from": "2026-11-20T00:00:00Z", "to": "2026-11-21T00:00:00Z"}
    world.api.post(f"{topic.path}/replays", days).expect(202)
    world.api.get(f"{topic.path}/messages?status=DELAYED").expect(200)


def age(world: World) -> None:
    """A topic without readers."""
    topic = world.api.topic(shards=1, retention_days=1, dead_letter_days=10)
    group = topic.group()
    [topic.produce(n) for n in range(3)]
    group.receive(1, lease_seconds=1)
    topic.group("late")
    broadcast = topic.group("all", mode="broadcast")
    broadcast.register("c")
    topic.produce("x")
    for _ in range(5):
        world.clock.advance(DAY_SECONDS / 4)
        assert not world.call("checkpoint")["troubles"]
    world.clock.advance(DAY_SECONDS / 4)
    assert not world.call("expire")["troubles"]
    assert topic.counts()["dead"] == 4, "and the role allows it"
    large_bodies(world)
    assert topic.counts()["dead"] == 0


def on_schedule(world: World, topic: Topic) -> None:
    """One schedule, then many together; times that were missed are told."""
    world.api.put("/v1/events", {"topic": topic.name}).expect(200)
    timing = {"topic": topic.name, "every_seconds": 60, "overlap": "skip"}
    topic.group("slow")
    for n in range(2):
        message = {"body": n, "keys": ["k", "l"][: n + 1]}
        each = {**timing, "every_seconds": 60 * (n + 1), "message": message}
        world.api.put(f"/v1/schedules/s{n}", each).expect(201)
    for _ in range(3):
        world.later(topic, 60)
    for n in range(40):
        world.api.put(f"/v1/schedules/m{n}", {**timing, "message": {"body": n}}).expect(201)
    world.later(topic, DAY_SECONDS)
    world.call("expire")
    world.api.delete("/v1/schedules/s0").expect(204)
    world.api.delete("/v1/events").expect(204)


def restore(world: World) -> None:
    """The log and the records of a topic are from an older backup than its cursor and its timer."""
    topic = world.api.topic(shards=1)
    group = topic.group()
    topic.batch([{"body": n} for n in range(2)])
    group.settle("nack", group.receive(2), delay_seconds=20 * DAY_SECONDS)
    stored_topic = world.deps.catalog.topic(topic.name)
    key = cursor_key(stored_topic, world.deps.catalog.group(stored_topic, group.name), 0)
    client = Clients("us-east-1").get("dynamodb")
    for offset in range(2):
        client.delete_item(TableName=world.tables.records, Key=record_key(key, offset))
    client.delete_item(TableName=world.tables.log, Key=segment_key(key.shard, 0))
    world.deps.adapters.marks.note_moving(topic.name)
    assert not world.call("sweep")["troubles"]
    findings = 0
    for _ in range(FRAGMENTS):
        world.clock.advance(DAY_SECONDS / 4)
        report = world.call("checkpoint")
        assert not report["troubles"]
        findings += report["findings"]
    assert findings


def large_bodies(world: World) -> None:
    """The archive has one whose row is gone, and not yet one of a topic that is gone."""
    (body,) = (name_parts for name in world.objects if (name_parts := parse(name)))
    orphan = replace(body, shard=ShardKey("gone", "u1", 0), offset=10)
    world.objects |= {orphan.body: b"large", orphan.name: b""}
    proof = {"ranges": {str(each.shard): [[0, 9]] for each in (body, orphan)}, "lost": {}}
    world.objects["archive/proved.json"] = json.dumps(proof).encode()
    key = {"s": {"S": str(body.shard)}, "o": {"N": str(body.offset)}}
    Clients("us-east-1").get("dynamodb").delete_item(TableName=world.tables.log, Key=key)
    world.clock.advance(20 * DAY_SECONDS)
    report = world.call("expire")
    assert not report["troubles"]
    assert (report["bodies_deleted"], report["bodies_postponed"]) == (1, 1)
    assert [name for name in world.objects if name.startswith("bodies/")] == [orphan.body]
