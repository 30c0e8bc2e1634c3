"""MiniStack: AWS on this machine, with the functions run from what was deployed."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from local import gateway
from local.engine.dynamodb_local import free_port

ROOT = Path(__file__).parents[2]
_COMMANDS = Path(sys.prefix, "ministack", "bin")  # as the Makefile installs it: `make rehearse`
_START_SECONDS = 60.0
_ANSWER_SECONDS = 300.0  # a busy machine takes minutes for a cold function
REGION = "eu-central-1"
# What the template makes API Gateway answer by itself (infra/api.py), and MiniStack does not.
_REFUSALS = {401: gateway.unauthorized, 403: gateway.forbidden}


@dataclass(frozen=True)
class MiniStack:
    """A running one, and how it is spoken to."""

    port: int
    environment: Mapping[str, str]
    """For commands that are to work on it."""

    def client(self, service: str) -> Any:
        """A boto3 client."""
        at = {"endpoint_url": f"http://127.0.0.1:{self.port}", "region_name": REGION}
        return boto3.client(service, aws_access_key_id="test", aws_secret_access_key="test", **at)

    def gateway(self, api_id: str) -> Calls:
        return Calls(self.port, f"/_aws/execute-api/{api_id}/api")


@dataclass(frozen=True)
class Calls:
    """tests.support.http.Gateway over HTTP."""

    port: int
    root: str

    def handle(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, self.root + path, body, {"Accept": "*/*", **headers})
            answer = connection.getresponse()
            data = _decoded(answer.read())
            if answer.status >= 400 and not data.endswith(b"\n"):  # its own, which has no shape of ours
                return _REFUSALS.get(answer.status, gateway.unavailable)().answer()
            return answer.status, dict(answer.headers), data


def _decoded(body: bytes) -> bytes:
    """AWS reads in the API's definition that all media types are binary, and decodes; MiniStack does not."""
    return body if body[:1] in (b"", b"{", b"[") else base64.b64decode(body)


@contextlib.contextmanager
def ministack(folder: Path, extra: Mapping[str, str]) -> Iterator[MiniStack]:
    """Runs in a folder, with roles enforced; its log is printed if what happens inside fails."""
    port = free_port()
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HEADRACE_", "PYTHON"))}
    server = {
        **clean,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "MINISTACK_REGION": REGION,
        "S3_DATA_DIR": str(folder / "s3"),
        "STATE_DIR": str(folder / "state"),
        "TMPDIR": str(folder),
        "AUTH": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
        **extra,
    }
    log = folder / "ministack.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(_COMMANDS / "ministack")],
            env=server,
            stdout=out,
            stderr=out,
            cwd=folder,
            start_new_session=True,  # to be ended with the functions that it runs
        )
    client = {
        **clean,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CLI": str(_COMMANDS / "aws"),
    }
    try:
        wait_until(lambda: _listens(port), _START_SECONDS)
        yield MiniStack(port, client)
    except BaseException:
        print(log.read_text()[-20_000:])
        raise
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_until(is_so: Callable[[], object], seconds: float) -> None:
    """Look again and again until it is so. AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.2)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
