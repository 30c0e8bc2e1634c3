"""Every command of the quickstart and of the how-to pages does what its page says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import ROOT, Command, Shell, agrees, commands_of

QUICKSTART = ROOT / "docs" / "quickstart.md"
HOW_TO = sorted((ROOT / "docs" / "howto").glob("*.md"))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def service(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """`make run` with tables of its own: the folder it was started in, and its port."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "examples").symlink_to(ROOT / "examples")
    port = _free_port()
    environment = {
        "PYTHONPATH": str(ROOT),
        "HEADRACE_PORT": str(port),
        "HEADRACE_PREFIX": f"pages{uuid.uuid4().hex[:8]}",
        "HEADRACE_FUNCTIONS": str(ROOT / "examples" / "functions.py"),
        "AWS_ENDPOINT_URL_DYNAMODB": engine,
    }
    with subprocess.Popen(
        [sys.executable, "-m", "local"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")} | environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline().startswith("Headrace serves on ")
            yield folder, port
        finally:
            running.terminate()


@pytest.fixture
def shell(service: tuple[Path, int]) -> Iterator[Shell]:
    (folder, port), subscriber = service, _free_port()
    addresses = {
        "127.0.0.1:8700": f"127.0.0.1:{port}",
        "127.0.0.1:9000": f"127.0.0.1:{subscriber}",
        "--port 9000": f"--port {subscriber}",
    }
    with Shell(folder, {}, addresses) as running:
        yield running


def test_the_commands_of_the_quickstart_do_what_it_says(shell: Shell) -> None:
    for command in commands_of(QUICKSTART.read_text()):
        shell.follow(command)


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_the_commands_of_a_how_to_page_do_what_it_says(page: Path, shell: Shell) -> None:
    set_up, *_ = commands_of(QUICKSTART.read_text())
    shell.follow(set_up)
    for command in commands_of(page.read_text()):
        shell.follow(command)


def test_a_page_that_promises_something_else_fails(shell: Shell) -> None:
    shell.follow(Command('echo \'{"a": 1, "b": 2}\'\n', '{"a": 1, …}'))
    with pytest.raises(AssertionError, match="printed"):
        shell.follow(Command("cat <(echo 2) &\nwait\n", "3"))
    with pytest.raises(AssertionError, match="failed with 7"):
        shell.follow(Command("(exit 7)\n"))


def test_a_block_of_output_belongs_to_the_commands_right_before_it() -> None:
    page = "```sh\na\n```\n```json\n1\n```\nwords\n```json\n2\n```\n```console\nb\n```\n```sh\nc\n```\n"
    assert commands_of(page) == [Command("a\n", "1\n"), Command("c\n")]
    assert agrees("{…, 1}", '{"x":0,1}')
    assert not agrees("{…, 2, …, 1}", "{1,2}")
