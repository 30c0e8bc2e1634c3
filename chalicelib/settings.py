"""Every environment variable and its meaning. In this package `adapters` is the only reader."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a deployed stage, or of a local run."""

    prefix: str
    """HEADRACE_PREFIX (headrace): table names begin with it; several stages may share an account."""

    region: str
    """AWS_REGION or AWS_DEFAULT_REGION (us-east-1)."""

    bucket: str | None
    """HEADRACE_BUCKET: where large bodies are kept. Without it, HEADRACE_DATA/bucket."""

    data: Path
    """HEADRACE_DATA (.data): the local run's folder."""

    origin: str = "headrace.local"
    """HEADRACE_ORIGIN (headrace.local): our host name, as subscribers are asked to agree to it; it is never called."""

    ports: tuple[int, ...] = (443,)
    """HEADRACE_PORTS (443): the ports that subscriber URLs may name, with commas."""

    allow_loopback: bool = False
    """HEADRACE_ALLOW_LOOPBACK (0; 1 under `make run`): subscriber URLs may be http on this machine, unasked."""

    port: int | None = None
    """HEADRACE_PORT (8700 under `make run`): where a local run serves; no subscriber on this machine may have it."""

    account: str = ""
    """HEADRACE_ACCOUNT: the AWS account whose Lambda functions may be consumers."""

    functions: Path | None = None
    """HEADRACE_FUNCTIONS: a Python file whose functions may be consumers, by name; local runs only."""

    deliver: str | None = None
    """HEADRACE_DELIVER: the deployed name of the function `deliver`."""

    wakes: str | None = None
    """HEADRACE_WAKES: the URL of the queue whose messages start the function `mover`."""

    check: str | None = None
    """HEADRACE_CHECK: the deployed name of the function `check`."""

    checkpoint: str | None = None
    """HEADRACE_CHECKPOINT: the deployed name of the function `checkpoint`."""

    expire: str | None = None
    """HEADRACE_EXPIRE: the deployed name of the function `expire`."""

    fragments: tuple[int, ...] = (8,)
    """HEADRACE_FRAGMENTS (8): how many fragments of timers there are, and with commas how many there were before."""

    alarm_topic: str | None = None
    """HEADRACE_ALARM_TOPIC: the ARN of the SNS topic that reports of states which need attention go to."""

    kms_key: str | None = None
    """HEADRACE_KMS_KEY: the ARN of the KMS key that secrets are encrypted with; a deployed stage must have one."""

    iam: bool = False
    """HEADRACE_IAM (0): 1 where an API of the stage takes calls that are signed with SigV4."""

    cors_origins: frozenset[str] = frozenset()
    """HEADRACE_CORS_ORIGINS: the exact origins, with commas, of pages whose scripts may call the API."""

    deployed: bool = False
    """AWS_LAMBDA_FUNCTION_NAME, which Lambda sets: metrics are told."""

    jobs: bool = False
    """HEADRACE_JOBS (0): 1 where the archive's jobs are deployed to Glue, named `<prefix>-<job>`."""

    archive: bool = False
    """HEADRACE_ARCHIVE (0): 1 keeps messages in the log until the archive has proved that it has them."""

    @property
    def folder(self) -> Path:
        """The folder that is the bucket of a local run."""
        return self.data / "bucket"


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this process. ValueError, with what to change, for what a deployed stage must not have."""
    get = environment.get
    is_deployed = bool(get("AWS_LAMBDA_FUNCTION_NAME"))
    for name in ("HEADRACE_ALLOW_LOOPBACK", "HEADRACE_FUNCTIONS"):
        if is_deployed and get(name, "0") not in ("", "0"):
            raise ValueError(f"{name} is for local runs only: remove it from the stage's environment.")
    if is_deployed and not get("HEADRACE_KMS_KEY"):
        raise ValueError(
            "HEADRACE_KMS_KEY is missing: the stage must name the key that encrypts its secrets."
        )
    return Settings(
        prefix=get("HEADRACE_PREFIX", "headrace"),
        region=get("AWS_REGION") or get("AWS_DEFAULT_REGION") or "us-east-1",
        bucket=get("HEADRACE_BUCKET") or None,
        data=Path(get("HEADRACE_DATA", ".data")),
        origin=(get("HEADRACE_ORIGIN") or "headrace.local").lower(),
        ports=tuple(int(port) for port in get("HEADRACE_PORTS", "443").split(",")),
        allow_loopback=get("HEADRACE_ALLOW_LOOPBACK", "0") == "1",
        port=int(port) if (port := get("HEADRACE_PORT")) else None,
        account=get("HEADRACE_ACCOUNT", ""),
        functions=Path(path) if (path := get("HEADRACE_FUNCTIONS")) else None,
        deliver=get("HEADRACE_DELIVER") or None,
        wakes=get("HEADRACE_WAKES") or None,
        fragments=tuple(int(count) for count in get("HEADRACE_FRAGMENTS", "8").split(",")),
        check=get("HEADRACE_CHECK") or None,
        checkpoint=get("HEADRACE_CHECKPOINT") or None,
        expire=get("HEADRACE_EXPIRE") or None,
        alarm_topic=get("HEADRACE_ALARM_TOPIC") or None,
        kms_key=get("HEADRACE_KMS_KEY") or None,
        iam=get("HEADRACE_IAM", "0") == "1",
        cors_origins=frozenset(get("HEADRACE_CORS_ORIGINS", "").split(",")) - {"", "*", "null"},
        deployed=is_deployed,
        jobs=get("HEADRACE_JOBS", "0") == "1",
        archive=get("HEADRACE_ARCHIVE", "0") == "1",
    )
