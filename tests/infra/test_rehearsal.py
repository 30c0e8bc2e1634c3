"""The very template of a stage, deployed to MiniStack, used from outside as on AWS, updated, deleted.

One long test: each part goes on while others wait for their time.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any

import pytest
import trustme

from chalicelib.domain.status import Status
from infra.cli import Aws
from infra.names import TABLES
from infra.package import package
from infra.stack import Deployment
from infra.stages import read
from infra.template import Stack, Wrong
from tests.infra.ministack import Calls, MiniStack, ministack, wait_until
from tests.support.browser import Browser
from tests.support.http import Client, Group, Topic
from tests.support.receiver import Receiver, Reply, Visit
from tests.support.walk import unreached

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif(
        not {"HEADRACE_REHEARSE", "HEADRACE_SOAK"} & os.environ.keys(),
        reason="takes minutes, as many as the machine likes: `make rehearse`",
    ),
]

HOST = "subscriber.example.com"
WORLD = Path(__file__).parent / "world"
_PATIENCE_SECONDS = 180.0  # of a machine that is busy with other things
_A_SCHEDULE_SECONDS = 300.0
STEPS = (
    "package and deploy",
    "delay one, prepare one, pull in three modes",
    "push, retry, bury, redrive",
    "walk over the console's pages",
    "update while somebody produces and consumes",
    "wait for the minute's schedules",
    "read the journal, take a right from a role",
    "deploy two stages side by side",
    "delete both, and deploy one again",
)


@dataclass
class Subscriber:
    """Answers each path in its own way, and keeps all it was sent."""

    mended: bool = False
    seen: list[Visit] = field(default_factory=list)

    def answer(self, visit: Visit) -> Reply:
        if "webhook-request-origin" in visit.headers:
            return Reply(headers={"WebHook-Allowed-Origin": "*"})
        self.seen.append(visit)
        if visit.path == "/check":
            return Reply(body=b'{"state": "commit"}')
        if visit.path == "/falters" and visit.headers["headrace-attempt"] == "1":
            return Reply(503, {"Retry-After": "1"})
        if visit.path == "/broken" and not self.mended:
            return Reply(489)
        return Reply()

    def bodies(self, path: str) -> list[Any]:
        return [json.loads(visit.body) for visit in list(self.seen) if visit.path == path]


@pytest.fixture(scope="module")
def subscriber() -> Subscriber:
    return Subscriber()


@pytest.fixture(scope="module")
def cloud(subscriber: Subscriber, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniStack]:
    folder = tmp_path_factory.mktemp("ministack")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    tls = SSLContext(PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(tls)
    with Receiver(subscriber.answer, tls) as receiver:
        world = {
            "PYTHONPATH": str(WORLD),
            "REHEARSAL_SUBSCRIBER_PORT": str(receiver.port),
            "SSL_CERT_FILE": str(folder / "authority.pem"),
        }
        with ministack(folder, world) as running:
            yield running


def packaged(stack: Stack, build: Path) -> None:
    """The package, without the one kind of condition that MiniStack can't judge, and so refuses: it takes the context
    of an encryption into account, and does not show it to policies."""
    template = package(stack, build)
    text = re.sub(r'"kms:EncryptionContext:\w+": "[^"]*",?\s*', "", template.read_text())
    template.write_text(re.sub(r",(\s*})", r"\1", text))


def deploy(cloud: MiniStack, stack: Stack, build: Path) -> tuple[Deployment, Client]:
    """Package and deploy a stack; its API, as its first admin calls it."""
    packaged(stack, build)
    deployment = Deployment(Aws(cloud.environment), stack, build)
    calls = cloud.gateway(deployment.deploy()["RestAPIId"])
    with contextlib.closing(
        cloud.client("s3")
    ) as s3:  # MiniStack has no TLS, without which the bucket denies all
        s3.delete_bucket_policy(Bucket=bucket_of(s3, f"{stack.prefix}-0"))
    command = [sys.executable, "-m", "local.token", "--prefix", stack.prefix]
    environment = {name: text for name, text in cloud.environment.items() if name != "AWS_DEFAULT_REGION"}
    token = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return deployment, Client(calls, token.stdout.strip())


def test_a_stage_is_deployed_used_and_updated(
    cloud: MiniStack, subscriber: Subscriber, tmp_path: Path
) -> None:
    stack = read("dev", {"prefix": "rehearsal"})
    step("package and deploy")
    deployment, api = deploy(cloud, stack, tmp_path)
    step("delay one, prepare one, pull in three modes")
    delayed = send_delayed(api)
    undecided = prepare(api)
    pulls_in_three_modes(api)
    step("push, retry, bury, redrive")
    is_pushed_retried_buried_and_redriven(api, subscriber)
    step("walk over the console's pages")
    is_shown_behind_its_prefix(api)
    step("update while somebody produces and consumes")
    is_updated_without_losing_a_message(deployment, api, replace(stack, log_days=3), tmp_path)
    step("wait for the minute's schedules")
    is_committed_when_asked(api, subscriber, undecided)
    comes_after_its_time(*delayed)
    step("read the journal, take a right from a role")
    is_journaled(cloud, api)
    roles_are_enforced(cloud, api)


def step(about: str) -> None:
    """Tell whoever waits how far it is; `make rehearse` shows these lines."""
    print(f"\nstep {STEPS.index(about) + 1} of {len(STEPS)}: {about}", flush=True)


def is_shown_behind_its_prefix(api: Client) -> None:
    """Every page of the console, by its links, at the stage's own address; signing in and a deed lead back there."""
    assert isinstance(api.gateway, Calls)
    calls, prefix = Calls(api.gateway.port, ""), api.gateway.root
    topic = api.topic(shards=1)
    group = topic.group("desk")
    api.put(f"{group.path}/consumers/hook", {"url": f"https://{HOST}/falters"}).expect(201)
    topic.produce({"order": 2}, delay_seconds=600)
    pulls = topic.group("pulls")
    topic.produce({"order": 1})
    pulls.nack(*pulls.receive(1), dead_letter=True)
    browser = Browser(calls)
    browser.get(f"{prefix}/console")
    screen = browser.post(f"{prefix}/console/sign-in", {"token": str(api.token), "back": ""})
    assert (screen.status, screen.url) == (200, f"{prefix}/console")
    missed = unreached(browser, prefix, topic.name)
    assert missed <= {"/console/topics/{topic}/places/{shard}/{offset}"}, missed  # a link of each attempt
    screen = browser.get(f"{prefix}/console/topics/{topic.name}")
    screen = browser.submit(screen.form("pause_group"))
    assert screen.url.startswith(f"{prefix}/console/topics/{topic.name}?did=pause_group")


def send_delayed(api: Client) -> tuple[Group, float]:
    """A message that only the minute's schedule brings: it is due later than a mover waits."""
    topic = api.topic(shards=1)
    group = topic.group("pulls")
    topic.produce("later", delay_seconds=65)
    return group, time.time() + 65


def prepare(api: Client) -> str:
    topic = api.topic(shards=1)
    half = {"message": {"body": "half"}, "check_url": f"https://{HOST}/check", "check_after_seconds": 15}
    prepared = api.post(f"{topic.path}/transactions", half).expect(201)
    assert prepared["state"] == "PREPARED"
    return str(prepared["transaction_id"])


def pulls_in_three_modes(api: Client) -> None:
    topic = api.topic(shards=2)
    queue, serial = topic.group("queue"), topic.group("serial", mode="serial")
    broadcast = topic.group("broadcast", mode="broadcast")
    for consumer in ("a", "b"):
        broadcast.register(consumer)
    for n in range(3):
        topic.produce(n, ordering_key="k")

    assert sorted(queue.bodies(10, wait_seconds=5)) == [0, 1, 2]
    for n in range(3):
        (message,) = serial.receive(1, wait_seconds=5)
        assert message["body"] == n
        assert serial.ack(message) == ["ok"]
    for consumer in ("a", "b"):
        assert sorted(broadcast.bodies(10, consumer=consumer, wait_seconds=5)) == [0, 1, 2]


def is_pushed_retried_buried_and_redriven(api: Client, subscriber: Subscriber) -> None:
    topic = api.topic(shards=1, retry={"max_attempts": 3, "ladder": [1]})
    groups = {name: topic.group(name) for name in ("good", "falters", "broken")}
    for name, group in groups.items():
        made = api.put(f"{group.path}/consumers/c", {"url": f"https://{HOST}/{name}"}).expect(201)
        assert made["state"] == "ACTIVE", made
    sent = topic.produce({"order": 188}, keys=["order-188"])

    wait_until(lambda: subscriber.bodies("/good") == [{"order": 188}], _PATIENCE_SECONDS)
    wait_until(lambda: len(subscriber.bodies("/falters")) == 2, _PATIENCE_SECONDS)
    wait_until(lambda: topic.counts("broken")["dead"] == 1, _PATIENCE_SECONDS)
    (letter,) = api.get(f"{groups['broken'].path}/dead-letters").expect(200)["items"]
    assert letter["reason"] == "REJECTED"

    subscriber.mended = True
    assert api.post(f"{groups['broken'].path}/dead-letters/redrive").expect(200)["redriven"] == 1
    wait_until(lambda: len(subscriber.bodies("/broken")) == 2, _PATIENCE_SECONDS)
    for group in groups.values():
        wait_until(partial(_has_succeeded, group, sent["id"]), _PATIENCE_SECONDS)
    assert api.get(f"{topic.path}/messages?key=order-188").expect(200)["items"]


def _has_succeeded(group: Group, message_id: str) -> bool:
    return bool(group.status_of(message_id)["status"] == Status.SUCCESS)


def is_updated_without_losing_a_message(
    deployment: Deployment, api: Client, changed: Stack, build: Path
) -> None:
    """New code and new settings go out while somebody produces and somebody consumes."""
    topic = api.topic(shards=1)
    group = topic.group("during")
    packaged(changed, build)
    with zipfile.ZipFile(build / "deployment.zip", "a") as code:
        code.writestr("chalicelib/revision.txt", "2")
    sent: set[int] = set()
    got: set[int] = set()
    with a_producer(topic, sent) as first_sent:
        assert first_sent.wait(_PATIENCE_SECONDS)
        deployment.deploy()
        before = len(sent)
        wait_until(lambda: len(sent) > before, _PATIENCE_SECONDS)

    def consumed() -> bool:
        messages = group.receive(100)
        got.update(message["body"] for message in messages)
        if messages:
            group.ack(*messages)
        return got >= sent

    wait_until(consumed, _PATIENCE_SECONDS)
    assert topic.accepted >= len(sent) > 1


@contextlib.contextmanager
def a_producer(topic: Topic, sent: set[int]) -> Iterator[threading.Event]:
    """Sends numbers one after the other, each until it was accepted, as its dedup id allows; `sent` are those that
    were. The event: the first one was."""
    first, stop = threading.Event(), threading.Event()

    def run() -> None:
        n = 1
        while not stop.is_set():
            try:
                answer = topic.api.post(f"{topic.path}/messages", {"body": n, "dedup_id": str(n)})
            except (OSError, HTTPException):  # nobody knows: the same once more
                continue
            if answer.status in (200, 201):
                sent.add(n)
                first.set()
                n += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield first
    finally:
        stop.set()
        thread.join()


def is_committed_when_asked(api: Client, subscriber: Subscriber, transaction: str) -> None:
    def state() -> str:
        return str(api.get(f"/v1/transactions/{transaction}").expect(200)["state"])

    wait_until(lambda: state() == "COMMITTED", _A_SCHEDULE_SECONDS)
    assert subscriber.bodies("/check")[0]["transaction_id"] == transaction


def comes_after_its_time(group: Group, due: float) -> None:
    deadline = max(due, time.time()) + _A_SCHEDULE_SECONDS  # what came before may have taken longer than that
    bodies: list[Any] = []
    while not bodies:
        assert time.time() < deadline, f"the delayed message did not come within {_A_SCHEDULE_SECONDS:g} s"
        bodies = group.bodies(wait_seconds=20)
    assert bodies == ["later"]
    assert time.time() >= due - 1


def is_journaled(cloud: MiniStack, api: Client) -> None:
    """Every message of every topic, and how attempts ended."""
    names = [topic["topic"] for topic in api.get("/v1/topics").expect(200)["items"]]
    accepted = {name: Topic(api, name).accepted for name in names}
    assert sum(accepted.values()) > len(names)

    with contextlib.closing(cloud.client("s3")) as s3:
        bucket = bucket_of(s3, "rehearsal-0")

        def is_whole() -> bool:
            places = {
                (line["topic"], line["shard"], line["offset"]) for line in journal(s3, bucket, "messages")
            }
            return Counter(topic for topic, _, _ in places) == accepted

        wait_until(is_whole, _PATIENCE_SECONDS)
        bodies = [line.get("body") for line in journal(s3, bucket, "messages")]
        assert {'"later"', '"half"', '{"order":188}'} <= set(bodies)

        def outcomes() -> set[str]:
            return {line["outcome"] for line in journal(s3, bucket, "deliveries")}

        wait_until(lambda: outcomes() >= {"SUCCESS", "RETRY", "DEAD"}, _PATIENCE_SECONDS)


def journal(s3: Any, bucket: str, table: str) -> list[dict[str, Any]]:
    """The lines that it holds of a table."""
    found = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"journal/{table}/")
    keys = [each["Key"] for page in found for each in page.get("Contents", [])]
    packed = [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys]
    return [json.loads(line) for each in packed for line in gzip.decompress(each).splitlines()]


def roles_are_enforced(cloud: MiniStack, api: Client) -> None:
    """What has been seen above was seen under the roles: with one action less, a function fails."""
    made = api.post("/v1/tokens", {"name": "another", "scopes": ["admin"]}).expect(201)
    with contextlib.closing(cloud.client("lambda")) as functions:
        role = functions.get_function(FunctionName="rehearsal-authorize")["Configuration"]["Role"]
    with contextlib.closing(cloud.client("iam")) as iam:
        named = {"RoleName": role.split("/")[-1], "PolicyName": "own"}
        policy = json.dumps(iam.get_role_policy(**named)["PolicyDocument"])
        iam.put_role_policy(**named, PolicyDocument=policy.replace("dynamodb:GetItem", "dynamodb:DeleteItem"))
        refused = api.with_token(made["token"]).get("/v1/topics")
        iam.put_role_policy(**named, PolicyDocument=policy)
    assert refused.status >= 500, refused
    api.with_token(made["token"]).get("/v1/topics").expect(200)


def test_a_deleted_stack_leaves_its_data_for_the_next_and_nothing_else(
    cloud: MiniStack, tmp_path: Path
) -> None:
    step("deploy two stages side by side")
    deployment, api = deploy(cloud, read("dev", {"prefix": "first"}), tmp_path / "first")
    topic = api.topic(shards=1)
    topic.group("patient")
    topic.produce("still here")
    with contextlib.closing(cloud.client("s3")) as s3:  # or its bucket gets it later
        wait_until(lambda: journaled(s3, bucket_of(s3, "first-0")), _PATIENCE_SECONDS)

    other, its = deploy(cloud, read("dev", {"prefix": "first-two"}), tmp_path / "two")
    assert its.get("/v1/topics").expect(200)["items"] == []
    assert api.with_token(its.token).get("/v1/topics").status == 401

    step("delete both, and deploy one again")
    began_ms = time.time() * 1000
    left = [*other.destroy(with_data=False), *deployment.destroy(with_data=False)]
    assert len(left) == 2 * (len(TABLES) + 1)  # and a bucket
    assert sorted(traces_of(cloud, "first", began_ms)) == sorted(name.split(" ")[1] for name in left)
    with pytest.raises(Wrong, match="There is no stack"):
        deployment.destroy(with_data=False)
    with contextlib.closing(cloud.client("s3")) as s3:
        bucket = bucket_of(s3, "first-0")  # AWS takes it in again; MiniStack only tables
        for found in s3.list_object_versions(Bucket=bucket)["Versions"]:
            s3.delete_object(Bucket=bucket, Key=found["Key"], VersionId=found["VersionId"])
        s3.delete_bucket(Bucket=bucket)
    again = Client(cloud.gateway(deployment.deploy()["RestAPIId"]), api.token)
    group = Group(again, Topic(again, topic.name), "patient")
    assert group.bodies(wait_seconds=10) == ["still here"]

    began_ms = time.time() * 1000
    assert deployment.destroy(with_data=True) == []
    assert [name for name in traces_of(cloud, "first", began_ms) if "first-two" not in name] == []


def bucket_of(s3: Any, prefix: str) -> str:
    """The bucket whose name begins so."""
    (name,) = [b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith(prefix)]
    return str(name)


def journaled(s3: Any, bucket: str) -> bool:
    return bool(s3.list_objects_v2(Bucket=bucket, Prefix="journal/").get("KeyCount"))


def traces_of(cloud: MiniStack, prefix: str, gone_ms: float) -> list[str]:
    """What is in the account whose name holds the prefix. A function that was at work when its log went makes it anew,
    which on AWS its role forbids: logs that are younger than that do not count."""

    def listed(service: str, operation: str, answer: str, name: str = "") -> list[str]:
        with contextlib.closing(cloud.client(service)) as client:
            found = getattr(client, operation)().get(answer, [])
        old = (each for each in found if service != "logs" or each["creationTime"] < gone_ms)
        return [each[name] if name else each for each in old]

    everything = [
        *listed("dynamodb", "list_tables", "TableNames"),
        *listed("lambda", "list_functions", "Functions", "FunctionName"),
        *listed("lambda", "list_layers", "Layers", "LayerName"),
        *listed("lambda", "list_event_source_mappings", "EventSourceMappings", "FunctionArn"),
        *listed("logs", "describe_log_groups", "logGroups", "logGroupName"),
        *listed("iam", "list_roles", "Roles", "RoleName"),
        *listed("events", "list_rules", "Rules", "Name"),
        *listed("sns", "list_topics", "Topics", "TopicArn"),
        *listed("sqs", "list_queues", "QueueUrls"),
        *listed("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
        *listed("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
        *listed("glue", "get_jobs", "Jobs", "Name"),
        *listed("apigateway", "get_rest_apis", "items", "name"),
        *listed("s3", "list_buckets", "Buckets", "Name"),
    ]
    return [name for name in everything if prefix in name]
