"""The examples do what they say, against the local server."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import app
from chalicelib import settings, wiring
from local.gateway import Gateway
from local.server import serve

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_SECONDS = 120
_COUNT = 300


@pytest.fixture(scope="module")
def server(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL and the admin token of a local server with tables of its own."""
    environment = {
        "HEADRACE_PREFIX": f"examples{uuid.uuid4().hex[:8]}",
        "HEADRACE_DATA": str(tmp_path_factory.mktemp("data")),
    }
    deps = wiring.Deps(wiring.dynamo_adapters(settings.read(environment)))
    deps.setup()
    token = deps.tokens.ensure_admin(None)
    assert token is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: deps)
        running = serve(Gateway(app.app))
        running.start()
        yield f"http://127.0.0.1:{running.port}", token
        running.shutdown()


def _run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    return subprocess.run(
        command,
        cwd=folder,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def _flights(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return _run([sys.executable, str(_EXAMPLES / "flights.py"), *options], folder, **environment)


def test_flights_come_out_in_all_three_modes_again_and_again(server: tuple[str, str], tmp_path: Path) -> None:
    url, token = server
    for _ in range(2):
        done = _flights(tmp_path, "--url", url, "--count", str(_COUNT), HEADRACE_TOKEN=token)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert lines[0].startswith(f"sent {_COUNT} departures")
        assert [line.split(":")[:2] for line in lines[1:5]] == [
            [name, f" received {_COUNT}"]
            for name in ("queue", "serial", "broadcast radar", "broadcast tower")
        ]
        assert lines[5] == "all is as it should be"
        assert f"serial {_COUNT}/{_COUNT}" in done.stderr


def test_a_wrong_token_is_told_and_nothing_is_tried(server: tuple[str, str], tmp_path: Path) -> None:
    done = _flights(tmp_path, "--url", server[0], "--token", "hr_nobody_00000000")
    assert done.returncode == 2
    assert "does not know this token (401)" in done.stderr
    assert done.stdout == ""


def test_a_missing_token_a_missing_server_and_a_bad_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no gzip")
    for options, told in (
        ([], "There is no token"),
        (["--token", "hr_a_00000000", "--url", "http://127.0.0.1:1"], "Is the server up?"),
        (["--token", "hr_a_00000000", "--file", "plain"], "plain is not a whole gzip file"),
        (["--token", "hr_a_00000000", "--file", "absent"], "absent cannot be read"),
    ):
        done = _flights(tmp_path, *options)
        assert done.returncode == 2
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_the_first_message_is_sent_received_and_acknowledged(server: tuple[str, str], tmp_path: Path) -> None:
    url, token = server
    script = ["bash", str(_EXAMPLES / "first_message.sh")]
    done = _run(script, tmp_path, HEADRACE_URL=url, HEADRACE_TOKEN=token)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"ok":true' in done.stdout
    assert "Acknowledged" in done.stdout


@pytest.mark.parametrize(
    ("name", "numbers", "overlaps", "told"),
    [
        ("queue", [0, 1, 2], 0, []),
        ("queue", [0, 2], 0, ["1 missing"]),
        ("queue", [0, 1, 2, 1], 0, ["1 came more than once"]),
        ("serial", [1, 0, 2], 0, []),
        ("serial", [2, 1, 0], 0, ["1 before an earlier departure of their aircraft"]),
        ("serial", [0, 1, 2], 1, ["1 before the last of their aircraft was acknowledged"]),
        ("broadcast tower", [0, 1], 0, ["1 missing"]),
    ],
)
def test_the_check_of_flights_finds_what_is_wrong(
    name: str, numbers: list[int], overlaps: int, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(_EXAMPLES))
    checks: Any = importlib.import_module("flights_check")
    events = [{"tail_number": "N1"}, {"tail_number": "N2"}, {"tail_number": "N1"}]
    seen = checks.Seen(name, len(events), numbers, overlaps)
    assert checks.check(seen, events) == told
