"""Every environment variable and its meaning. In this package `adapters` is the only reader."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a deployed stage, or of a local run."""

    # HEADRACE_PREFIX (headrace): table names begin with it; several stages may share an account.
    prefix: str = "headrace"

    # AWS_REGION or AWS_DEFAULT_REGION (us-east-1).
    region: str = "us-east-1"

    # HEADRACE_BUCKET: where large bodies are kept. Without it, HEADRACE_DATA/bucket.
    bucket: str | None = None

    # HEADRACE_DATA (.data): the local run's folder.
    data: Path = Path(".data")

    # HEADRACE_ORIGIN (headrace.local): our host name, as subscribers are asked to agree to it; it is never called.
    origin: str = "headrace.local"

    # HEADRACE_PORTS (443): the ports that subscriber URLs may name, with commas.
    ports: tuple[int, ...] = (443,)

    # HEADRACE_ALLOW_LOOPBACK (0; 1 under `make run`): subscriber URLs may be http on this machine, unasked.
    allow_loopback: bool = False

    # HEADRACE_PORT (8700 under `make run`): where a local run serves; no subscriber on this machine may have it.
    port: int | None = None

    # HEADRACE_ACCOUNT: the AWS account whose Lambda functions may be consumers.
    account: str = ""

    # HEADRACE_FUNCTIONS: a Python file whose functions may be consumers, by name; local runs only.
    functions: Path | None = None

    # HEADRACE_DELIVER: the deployed name of the function `deliver`.
    deliver: str | None = None

    # HEADRACE_WAKES: the URL of the queue whose messages start the function `mover`.
    wakes: str | None = None

    # HEADRACE_CHECK: the deployed name of the function `check`.
    check: str | None = None

    # HEADRACE_CHECKPOINT: the deployed name of the function `checkpoint`.
    checkpoint: str | None = None

    # HEADRACE_EXPIRE: the deployed name of the function `expire`.
    expire: str | None = None

    # HEADRACE_FRAGMENTS (8): how many fragments of timers there are, and with commas how many there were before.
    fragments: tuple[int, ...] = (8,)

    # HEADRACE_FIRINGS (100,1000): how many messages a second the schedules of one topic may send, and all.
    firings: tuple[int, ...] = (100, 1000)

    # HEADRACE_ALARM_TOPIC: the ARN of the SNS topic that reports of states which need attention go to.
    alarm_topic: str | None = None

    # HEADRACE_KMS_KEY: the ARN of the KMS key that secrets are encrypted with; a deployed stage must have one.
    kms_key: str | None = None

    # HEADRACE_IAM (0): 1 where an API of the stage takes calls that are signed with SigV4.
    iam: bool = False

    # HEADRACE_CORS_ORIGINS: the exact origins, with commas, of pages whose scripts may call the API.
    cors_origins: frozenset[str] = frozenset()

    # AWS_LAMBDA_FUNCTION_NAME, which Lambda sets: metrics are told.
    deployed: bool = False

    # HEADRACE_JOBS (0): 1 where the archive's jobs are deployed to Glue, named `<prefix>-<job>`.
    jobs: bool = False

    # HEADRACE_ARCHIVE (0): 1 keeps messages in the log until the archive has proved that it has them.
    archive: bool = False

    archive_days: int | None = None
    """HEADRACE_ARCHIVE_DAYS: after how many days a deployed stage deletes an archived day."""

    @property
    def folder(self) -> Path:
        """The folder that is the bucket of a local run."""
        return self.data / "bucket"


# What is made of a variable's text, by the type of its setting; the others are text.
_KINDS: Mapping[str, Callable[[str], Any]] = {
    "bool": lambda text: text == "1",
    "int | None": int,
    "tuple[int, ...]": lambda text: tuple(map(int, text.split(","))),
    "frozenset[str]": lambda text: frozenset(text.split(",")) - {"", "*", "null"},
    "Path": Path,
    "Path | None": Path,
}


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this process. ValueError, with what to change, for what a deployed stage must not have."""
    get = environment.get
    is_deployed = bool(get("AWS_LAMBDA_FUNCTION_NAME"))
    for name in ("HEADRACE_ALLOW_LOOPBACK", "HEADRACE_FUNCTIONS"):
        if is_deployed and get(name, "0") not in ("", "0"):
            raise ValueError(f"{name} is for local runs only: remove it from the stage's environment.")
    if is_deployed and not get("HEADRACE_KMS_KEY"):
        text = "HEADRACE_KMS_KEY is missing: the stage must name the key that encrypts its secrets."
        raise ValueError(text)
    texts = {each: get(f"HEADRACE_{each.name.upper()}") for each in fields(Settings)}
    values = {each.name: _KINDS.get(str(each.type), str)(text) for each, text in texts.items() if text}
    if "origin" in values:
        values["origin"] = values["origin"].lower()
    values["region"] = get("AWS_REGION") or get("AWS_DEFAULT_REGION") or "us-east-1"
    return Settings(**{**values, "deployed": is_deployed})
