"""A stage that the rehearsal deploys: its stack on MiniStack, its subscriber, and what it leaves in the account."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra import package
from infra.cli import Aws
from infra.stack import Deployment
from infra.template import Stack
from tests.infra.ministack import MiniStack
from tests.support.http import Client
from tests.support.receiver import Reply, Visit

HOST = "subscriber.example.com"
WORLD = Path(__file__).parent / "world"
PATIENCE_SECONDS = 180.0  # of a machine that is busy with other things
SCHEDULE_SECONDS = 300.0


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


_CHALICE_HERE = """
import platform, sys
from chalice.config import Config
from infra.wheels import main
Config.lambda_architecture = "x86_64" if platform.machine() in ("x86_64", "AMD64") else "arm64"
sys.exit(main(sys.argv[1:]))
"""


def packaged(stack: Stack, build: Path) -> None:
    """The package for this machine's processor, without what MiniStack does not know: saved queries, and the one kind
    of condition that it can't judge, and so refuses (it takes the context of an encryption into account, and does not
    show it to policies)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "_CHALICE", (sys.executable, "-c", _CHALICE_HERE))
        template = package.package(stack, build)
    document = json.loads(template.read_text())
    all_resources = document["Resources"].items()
    known = {name: each for name, each in all_resources if each["Type"] != "AWS::Logs::QueryDefinition"}
    template.write_text(json.dumps({**document, "Resources": known}))
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


def journal(s3: Any, bucket: str, table: str) -> list[dict[str, Any]]:
    """The lines that it holds of a table."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"journal/{table}/")
    keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
    objects = [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys]
    return [json.loads(line) for each in objects for line in gzip.decompress(each).splitlines()]


def bucket_of(s3: Any, prefix: str) -> str:
    """The bucket whose name begins so."""
    (name,) = [b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith(prefix)]
    return str(name)


def journaled(s3: Any, bucket: str) -> bool:
    return bool(s3.list_objects_v2(Bucket=bucket, Prefix="journal/").get("KeyCount"))


def traces_of(cloud: MiniStack, prefix: str, gone_ms: float) -> list[str]:
    """What is in the account whose name holds the prefix. A function that was at work when its log went opens it again,
    which on AWS its role forbids: logs that are younger than that do not count."""

    def listed(service: str, operation: str, answer: str, name: str = "") -> list[str]:
        with contextlib.closing(cloud.client(service)) as client:
            items = getattr(client, operation)().get(answer, [])
        old = (each for each in items if service != "logs" or each["creationTime"] < gone_ms)
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
