"""A service on this machine, started once, and clients of it: directly, or through a proxy that does harm."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_proxy import FaultyProxy, faulty_proxy
from local.engine.dynamodb_local import free_port
from tests.support import environment

from headrace import Headrace, Retries

environment.scrub(os.environ)
ROOT = Path(__file__).parents[3]
TOKEN = "hr_tests_" + "t" * 32
QUICK = Retries(attempts=8, base_seconds=0.02, cap_seconds=0.1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As in the server's own tests: a test that takes long is for the soak."""
    for item in items:
        if item.get_closest_marker("soak") and not os.environ.get("HEADRACE_SOAK"):
            item.add_marker(pytest.mark.skip(reason="takes long: in the soak only"))


@pytest.fixture(autouse=True)
def _level() -> None:
    """The service's app, which tests beside these load, has a logger of the client's name, and sets its level."""
    logging.getLogger("headrace").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service in a process of its own: in memory, or on disk with HEADRACE_TEST_DURABLE=1."""
    folder, port = tmp_path_factory.mktemp("service"), free_port()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "AWS_"))}
    command = [
        sys.executable,
        "-m",
        "headrace_local",
        "--port",
        str(port),
        "--token",
        TOKEN,
    ]
    command += ["--data", str(folder)] if os.environ.get("HEADRACE_TEST_DURABLE") == "1" else ["--ephemeral"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=plain, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, process, folder / "log")
            yield url
        finally:
            process.kill()  # it has nothing to put in order
            process.wait(20)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(2_400):  # two minutes
        try:
            with urllib.request.urlopen(f"{url}/v1/health", timeout=5):
                return
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture
def hr(service: str) -> Iterator[Headrace]:
    with Headrace(service, TOKEN, retries=QUICK) as client:
        yield client


@pytest.fixture
def topic(hr: Headrace) -> str:
    """A topic of the test's own."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    hr.put_topic(name)
    return name


@pytest.fixture
def proxy(service: str) -> Iterator[FaultyProxy]:
    """In front of the service; it does no harm until a test asks for it."""
    with faulty_proxy(service) as proxy:
        yield proxy


@pytest.fixture
def shaky(proxy: FaultyProxy) -> Iterator[Headrace]:
    """A client that goes through the proxy."""
    with Headrace(proxy.url, TOKEN, retries=QUICK) as client:
        yield client
