"""The very template of a stage, deployed to MiniStack, used from outside as on AWS, updated, deleted.

One long test: each part goes on while others wait for their time.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest
import trustme

from infra.names import TABLES
from infra.stack import Deployment
from infra.stages import read
from infra.template import Stack, StackError
from tests.infra.ministack import MiniStack, ministack, wait_until
from tests.infra.rehearse import STEPS
from tests.infra.rehearsed_stage import (
    HOST,
    PATIENCE_SECONDS,
    WORLD,
    Subscriber,
    bucket_of,
    deploy,
    journal,
    journaled,
    packaged,
    traces_of,
)
from tests.infra.rehearsed_uses import (
    a_producer,
    comes_after_its_time,
    is_committed_when_asked,
    is_pushed_retried_buried_and_redriven,
    is_shown_behind_its_prefix,
    prepare,
    pulls_in_three_modes,
    send_delayed,
)
from tests.support.http import Client, Group, Topic
from tests.support.receiver import Receiver

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif(
        not {"HEADRACE_REHEARSE", "HEADRACE_SOAK"} & os.environ.keys(),
        reason="takes minutes, as many as the machine likes: `make rehearse`",
    ),
]


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
        with ministack(folder, world) as cloud_service:
            yield cloud_service


def test_a_stage_is_deployed_used_and_updated(
    cloud: MiniStack, subscriber: Subscriber, tmp_path: Path
) -> None:
    stack = read("dev", {"prefix": "rehearsal"})
    step("package and deploy")
    deployment, api = deploy(cloud, stack, tmp_path)
    step("delay one, prepare one, pull in three modes")
    group_and_time = send_delayed(api)
    transaction_id = prepare(api)
    pulls_in_three_modes(api)
    step("push, retry, bury, redrive")
    is_pushed_retried_buried_and_redriven(api, subscriber)
    step("walk over the console's pages")
    is_shown_behind_its_prefix(api)
    step("update while somebody produces and consumes")
    is_updated_without_losing_a_message(deployment, api, replace(stack, log_days=3), tmp_path)
    step("wait for the minute's schedules")
    is_committed_when_asked(api, subscriber, transaction_id)
    comes_after_its_time(*group_and_time)
    step("read the journal, take a right from a role")
    is_journaled(cloud, api)
    roles_are_enforced(cloud, api)


def step(about: str) -> None:
    """Report a step; `make rehearse` shows these lines."""
    steps = [*chain(*STEPS.values())]
    print(f"\nstep {steps.index(about) + 1} of {len(steps)}: {about}", flush=True)


def is_updated_without_losing_a_message(
    deployment: Deployment, api: Client, new_stack: Stack, build: Path
) -> None:
    """New code and new settings go out while messages are produced and consumed."""
    topic = api.topic(shards=1)
    group = topic.group("during")
    packaged(new_stack, build)
    with zipfile.ZipFile(build / "deployment.zip", "a") as code:
        code.writestr("chalicelib/revision.txt", "2")
    sent_numbers: set[int] = set()
    received_numbers: set[int] = set()
    with a_producer(topic, sent_numbers) as first_sent:
        assert first_sent.wait(PATIENCE_SECONDS)
        deployment.deploy()
        before = len(sent_numbers)
        wait_until(lambda: len(sent_numbers) > before, PATIENCE_SECONDS)

    def consumed() -> bool:
        messages = group.receive(100)
        received_numbers.update(message["body"] for message in messages)
        if messages:
            group.ack(*messages)
        return received_numbers >= sent_numbers

    wait_until(consumed, PATIENCE_SECONDS)
    assert topic.accepted >= len(sent_numbers) > 1


def is_journaled(cloud: MiniStack, api: Client) -> None:
    """Every message of every topic, and how attempts ended."""
    names = [topic["topic"] for topic in api.get("/v1/topics").expect(200)["items"]]
    accepted_counts = {name: Topic(api, name).accepted for name in names}
    assert sum(accepted_counts.values()) > len(names)

    with contextlib.closing(cloud.client("s3")) as s3:
        bucket = bucket_of(s3, "rehearsal-0")

        def is_whole() -> bool:
            places = {
                (line["topic"], line["shard"], line["offset"]) for line in journal(s3, bucket, "messages")
            }
            return Counter(topic for topic, _, _ in places) == accepted_counts

        wait_until(is_whole, PATIENCE_SECONDS)
        bodies = [line.get("body") for line in journal(s3, bucket, "messages")]
        assert {'"later"', '"half"', '{"order":188}'} <= set(bodies)

        def outcomes() -> set[str]:
            return {line["outcome"] for line in journal(s3, bucket, "deliveries")}

        wait_until(lambda: outcomes() >= {"SUCCESS", "RETRY", "DEAD"}, PATIENCE_SECONDS)


def roles_are_enforced(cloud: MiniStack, api: Client) -> None:
    """What has been seen above was seen under the roles: with one action less, a function fails."""
    token = api.post("/v1/tokens", {"name": "another", "scopes": ["admin"]}).expect(201)
    with contextlib.closing(cloud.client("lambda")) as functions:
        role = functions.get_function(FunctionName="rehearsal-authorize")["Configuration"]["Role"]
    with contextlib.closing(cloud.client("iam")) as iam:
        policy_key = {"RoleName": role.split("/")[-1], "PolicyName": "own"}
        policy = json.dumps(iam.get_role_policy(**policy_key)["PolicyDocument"])
        iam.put_role_policy(
            **policy_key, PolicyDocument=policy.replace("dynamodb:GetItem", "dynamodb:DeleteItem")
        )
        refusal = api.with_token(token["token"]).get("/v1/topics")
        iam.put_role_policy(**policy_key, PolicyDocument=policy)
    assert refusal.status >= 500, refusal
    api.with_token(token["token"]).get("/v1/topics").expect(200)


def test_a_deleted_stack_leaves_its_data_for_the_next_and_nothing_else(
    cloud: MiniStack, tmp_path: Path
) -> None:
    step("deploy two stages side by side")
    deployment, api = deploy(cloud, read("dev", {"prefix": "first"}), tmp_path / "first")
    topic = api.topic(shards=1)
    topic.group("patient")
    topic.produce("still here")
    with contextlib.closing(cloud.client("s3")) as s3:  # or its bucket gets it later
        wait_until(lambda: journaled(s3, bucket_of(s3, "first-0")), PATIENCE_SECONDS)

    other_deployment, its = deploy(cloud, read("dev", {"prefix": "first-two"}), tmp_path / "two")
    assert its.get("/v1/topics").expect(200)["items"] == []
    assert api.with_token(its.token).get("/v1/topics").status == 401

    step("delete both, and deploy one again")
    began_ms = time.time() * 1000
    remaining_names = [*other_deployment.destroy(with_data=False), *deployment.destroy(with_data=False)]
    assert len(remaining_names) == 2 * (len(TABLES) + 1)  # and a bucket
    assert sorted(traces_of(cloud, "first", began_ms)) == sorted(
        name.split(" ")[1] for name in remaining_names
    )
    with pytest.raises(StackError, match="There is no stack"):
        deployment.destroy(with_data=False)
    with contextlib.closing(cloud.client("s3")) as s3:
        bucket = bucket_of(s3, "first-0")  # AWS takes it in again; MiniStack only tables
        for version in s3.list_object_versions(Bucket=bucket)["Versions"]:
            s3.delete_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])
        s3.delete_bucket(Bucket=bucket)
    new_client = Client(cloud.gateway(deployment.deploy()["RestAPIId"]), api.token)
    group = Group(new_client, Topic(new_client, topic.name), "patient")
    assert group.bodies(wait_seconds=10) == ["still here"]

    began_ms = time.time() * 1000
    assert deployment.destroy(with_data=True) == []
    assert [name for name in traces_of(cloud, "first", began_ms) if "first-two" not in name] == []
