"""The embedded engine as the store of a local service: its folder, one process at a time, and a disk that is full."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import app
from chalicelib import settings, wiring
from chalicelib.adapters import dynamo_adapters
from local.engine.client import Client as EngineClient
from local.engine.core import Engine
from local.gateway import Gateway
from tests.support.http import Client
from tests.support.local_service import ROOT, refusal, serving

_AS_ON_WINDOWS = """
import pathlib, sys
import asyncio, boto3, chalice, http.server, multiprocessing, socket, sqlite3, subprocess, tarfile, tempfile, uuid
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
sys.platform = "win32"
import local.__main__, local.backup, local.env
from local.data_folder import data_folder
with data_folder(pathlib.Path(sys.argv[1]), "serves"):
    print("taken")
"""
_COMMAND = (sys.executable, "-m", "headrace_local")


def refused(data: Path, *options: str) -> str:
    """What a start on a folder that fails says."""
    environment = {"HEADRACE_DATA": str(data), "AWS_ENDPOINT_URL_DYNAMODB": ""}
    return refusal(*_COMMAND, *options, **environment)


def test_what_was_accepted_is_there_after_a_restart(tmp_path: Path) -> None:
    place = {"HEADRACE_DATA": str(tmp_path), "AWS_ENDPOINT_URL_DYNAMODB": ""}
    with serving(**place) as service:  # type: ignore[arg-type]
        service.ask("PUT", "/topics/orders")
        message = service.ask("POST", "/topics/orders/messages", {"body": 188})
    with serving(**place) as service:  # type: ignore[arg-type]
        assert service.ask("GET", f"/topics/orders/messages/{message['id']}")["body"] == 188
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.is_file()} == {0o600}


def test_a_second_process_on_the_folder_is_told_who_has_it(tmp_path: Path) -> None:
    with serving(HEADRACE_DATA=str(tmp_path), AWS_ENDPOINT_URL_DYNAMODB="") as service:
        complaint = refused(tmp_path)
        assert complaint.startswith(f"{tmp_path} is in use by process ")
        assert f", which serves on {service.url}. " in complaint
        assert refused(tmp_path, "--engine", "dynamodb-local") == complaint
        assert service.ask("GET", "/topics") == {"items": []}


def test_a_folder_of_dynamodb_local_is_named(tmp_path: Path) -> None:
    (tmp_path / "dynamodb").mkdir()
    (tmp_path / "dynamodb" / "shared-local-instance.db").touch()
    complaint = refused(tmp_path)
    assert complaint.startswith(f"{tmp_path} holds what DynamoDB Local stored ")
    assert "Run with --engine dynamodb-local to use it" in complaint


def test_a_folder_of_the_embedded_engine_is_named(tmp_path: Path) -> None:
    (tmp_path / "engine.db").touch()
    complaint = refused(tmp_path, "--engine", "dynamodb-local")
    assert complaint.startswith(
        f"{tmp_path} holds what the embedded engine stored (engine.db). Run without --engine"
    )


def test_an_ephemeral_service_leaves_no_file(tmp_path: Path) -> None:
    """Also where the environment names an engine, which it doesn't use."""
    (tmp_path / "temporary").mkdir()
    process = subprocess.run(
        [*_COMMAND, "--port", "0", "--until-stdin-ends", "--ephemeral", "--json"],
        cwd=tmp_path,
        env=os.environ
        | {
            "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1",
            "HEADRACE_DATA": str(tmp_path / "data"),
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(tmp_path / "temporary"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(process.stdout)["token"]
    assert [*tmp_path.rglob("*")] == [tmp_path / "temporary"]


def test_nothing_is_imported_that_windows_lacks(tmp_path: Path) -> None:
    """The libraries that know Windows themselves are imported before."""
    command = [sys.executable, "-c", _AS_ON_WINDOWS, str(tmp_path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (process.stdout, process.stderr) == ("taken\n", "")


@pytest.fixture
def engine_on_disk(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path / "engine.db")
    yield engine
    engine.close()


@pytest.fixture
def api_on_disk(engine_on_disk: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The HTTP interface on an engine that has a file."""
    environment = settings.read({"HEADRACE_DATA": str(tmp_path)})
    deps = wiring.Deps(dynamo_adapters(environment, client=EngineClient(engine_on_disk)))
    deps.setup()
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    return Client(Gateway(app.app), deps.tokens.ensure_admin(None))


def limit_pages(engine: Engine, more: int) -> None:
    """Let the engine's file grow by so many pages, as a disk that is full then."""
    connection = engine._storage._writer
    (count,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {count + more}")


def test_i1_a_full_disk_is_a_503_and_nothing_is_half_done(
    api_on_disk: Client, engine_on_disk: Engine
) -> None:
    api_on_disk.put("/v1/topics/orders", {"shards": 1}).expect(201)
    message = {"body": secrets.token_hex(10_000), "keys": ["order-188"]}
    limit_pages(engine_on_disk, 40)
    replies = [api_on_disk.post("/v1/topics/orders/messages", message) for _ in range(20)]
    accepted = sum(reply.status == 201 for reply in replies)
    assert 0 < accepted < len(replies)
    for reply in replies[accepted:]:
        assert reply.refused(503)["retryable"] is True
    assert api_on_disk.get("/v1/topics/orders").expect(200)["stats"]["accepted"] == accepted
    limit_pages(engine_on_disk, 10_000)
    api_on_disk.post("/v1/topics/orders/messages", message).expect(201)
    found = api_on_disk.get("/v1/topics/orders/messages?key=order-188").expect(200)["items"]
    assert [each["offset"] for each in found] == [*reversed(range(accepted + 1))]
