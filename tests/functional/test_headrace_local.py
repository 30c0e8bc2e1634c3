"""`headrace-local`: the whole service in one process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import threading
import urllib.error
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from chalicelib.domain.times import HOUR_SECONDS
from tests.support.local_service import ROOT, LocalService, serving
from tests.support.receiver import Receiver, Reply, Visit

_BEFORE_ANY_SWEEP_SECONDS = 10


@pytest.fixture(scope="module")
def service() -> Iterator[LocalService]:
    with serving() as service:
        yield service


@pytest.fixture
def topic(service: LocalService) -> str:
    """The path of a topic with a group `g`."""
    path = f"/topics/t{uuid4().hex[:8]}"
    service.ask("PUT", path)
    service.ask("PUT", f"{path}/groups/g", {"from": "earliest"})
    return path


def test_what_is_sent_is_received_and_settled(service: LocalService, topic: str) -> None:
    message_sent = service.ask("POST", f"{topic}/messages", {"body": {"order": 188}})
    (message,) = service.ask("POST", f"{topic}/groups/g/receive", {"wait_seconds": 5})["messages"]
    assert (message["id"], message["body"]) == (message_sent["id"], {"order": 188})
    service.ask("POST", f"{topic}/groups/g/ack", {"receipts": [message["receipt"]]})
    fate = service.ask("GET", f"{topic}/messages/{message_sent['id']}/fate")
    assert (fate["complete"], fate["groups"]["g"]["status"]) == (True, "SUCCESS")


def test_a_new_message_wakes_its_deliveries_at_once(service: LocalService, topic: str) -> None:
    is_there = threading.Event()

    def answer(visit: Visit) -> Reply:
        is_there.set()
        return Reply()

    with Receiver(answer) as receiver:
        service.ask("PUT", f"{topic}/groups/g/consumers/c", {"url": receiver.url("")})
        service.ask("POST", "/clock", {"advance_seconds": 0})  # what that woke has ended
        service.ask("POST", f"{topic}/messages", {"body": 1})
        assert is_there.wait(_BEFORE_ANY_SWEEP_SECONDS)


def test_the_token_may_be_chosen() -> None:
    token = "hr_me_0123456789abcdef"
    with serving("--token", token) as service:
        assert service.token == token
        assert service.ask("GET", "/topics") == {"items": []}


def test_a_reset_leaves_nothing_but_the_token(service: LocalService, topic: str) -> None:
    service.ask("POST", f"{topic}/messages", {"body": 1, "delay_seconds": 60})
    service.ask("POST", "/clock", {"advance_seconds": HOUR_SECONDS})
    service.ask("POST", "/reset")
    assert service.ask("GET", "/topics") == {"items": []}
    now = datetime.fromisoformat(service.ask("POST", "/clock", {"advance_seconds": 0})["now"])
    assert now - datetime.now(UTC) < timedelta(minutes=1)


def test_only_a_token_for_everything_resets_the_service_or_moves_its_clock(service: LocalService) -> None:
    grant = {"name": "t", "scopes": ["admin"], "topics": ["mine.*"]}
    holder = replace(service, token=service.ask("POST", "/tokens", grant)["token"])
    for path, body in (("/reset", {}), ("/clock", {"advance_seconds": 1})):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            holder.ask("POST", path, body)


def test_with_the_systems_clock_nobody_moves_it() -> None:
    with serving("--clock", "system") as service, pytest.raises(urllib.error.HTTPError, match="404"):
        service.ask("POST", "/clock", {"advance_seconds": 1})


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A folder with the wheel and the sdist."""
    command = [sys.executable, "-m", "build", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return tmp_path / "dist"


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_wheel_and_sdist_serve_from_a_fresh_environment(dist: Path, tmp_path: Path, kind: str) -> None:
    (package,) = dist.glob(kind)
    names = _names(package)
    assert not {name for name in names if name.startswith(("tests", "infra", "bench"))}
    assert any(name.endswith("console/locale/zh/LC_MESSAGES/console.po") for name in names)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    pip = [str(tmp_path / "venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check", str(package)]
    subprocess.run(pip, check=True, timeout=600)
    with serving(command=(str(tmp_path / "venv/bin/headrace-local"),)) as service:
        assert service.ask("PUT", "/topics/orders")["topic"] == "orders"


def _names(package: Path) -> list[str]:
    if package.suffix == ".whl":
        return zipfile.ZipFile(package).namelist()
    with tarfile.open(package) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def _copied() -> list[tuple[list[str], str]]:
    """What the Dockerfile's first stage copies, and where to."""
    stage = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1]
    lines = [line.split()[1:] for line in stage.splitlines() if line.startswith("COPY ")]
    return [(sources, target) for *sources, target in lines]


@pytest.mark.soak
def test_the_containers_steps_make_a_service(tmp_path: Path) -> None:
    source, wheels, venv = tmp_path / "source", tmp_path / "wheels", tmp_path / "venv"
    for sources, target in _copied():
        for each in sources:
            place = source / (each if target == "./" else target)
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / each).is_dir() else shutil.copy)(ROOT / each, place)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    pip = str(venv / "bin/pip")
    subprocess.run([pip, "wheel", "-q", "--wheel-dir", str(wheels), str(source)], check=True, timeout=600)
    offline = [pip, "install", "-q", "--no-index", "--find-links", str(wheels), "headrace-local"]
    subprocess.run(offline, check=True, timeout=600)
    with serving(command=(str(venv / "bin/headrace-local"),), HEADRACE_HOST="127.0.0.1") as service:
        assert service.ask("PUT", "/topics/orders")["topic"] == "orders"
