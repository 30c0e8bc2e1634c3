"""If the local service cannot start, it prints the reason in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.local_service import ROOT, refusal, serving
from tests.support.rarely import rarely, rarely_sets

_DURABLE = (sys.executable, "-m", "local")
_IN_MEMORY = (sys.executable, "-m", "headrace_local", "--ephemeral")


@pytest.fixture
def durable(engine: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a service with tables of its own, and a data folder."""
    return {
        "AWS_ENDPOINT_URL_DYNAMODB": engine,
        "HEADRACE_DATA": str(tmp_path),
        "HEADRACE_PREFIX": f"start{uuid4().hex[:8]}",
    }


@pytest.mark.parametrize("name", ["token", *rarely("clock", "engine")])
def test_a_file_that_cannot_be_used_is_named(durable: dict[str, str], tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert f"{tmp_path / name} cannot be used (Is a directory)" in refusal(*_DURABLE, **durable)


def test_a_full_disk_is_told_and_costs_no_token(durable: dict[str, str], tmp_path: Path) -> None:
    """Once the token was valid, its text was shown now or never."""
    (tmp_path / "token.new").symlink_to("/dev/full")
    assert "(No space left on device)" in refusal(*_DURABLE, **durable)
    (tmp_path / "token.new").unlink()
    with serving(command=_DURABLE, **durable) as service:
        assert service.ask("GET", "/topics") == {"items": []}


@pytest.mark.spark
def test_a_job_calls_with_the_token_of_the_command_line(durable: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    with serving("--token", "hr_own_0123456789abcdef", command=_DURABLE, **durable) as service:
        service.ask("PUT", "/topics/t")
        times = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"}
        replay = service.ask("POST", "/topics/t/replays", {**times, "dry_run": True})
        assert replay["started"]
        log = tmp_path / "jobs" / f"replay-{replay['replay_id']}.log"
        pause = threading.Event()
        while not log.read_text().endswith("\n"):
            pause.wait(0.1)
    assert "there is no token" not in log.read_text()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        *rarely_sets(
            ("def f(:", "SyntaxError: invalid syntax"),
            ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
            ("assert False", "AssertionError"),
        ),
    ],
)
def test_functions_that_cannot_be_loaded_are_told_at_the_start(tmp_path: Path, code: str, why: str) -> None:
    file = tmp_path / "functions.py"
    file.write_text(code)
    complaint = refusal(*_IN_MEMORY, "--functions", str(file))
    assert complaint.startswith(f"{file} (--functions, HEADRACE_FUNCTIONS) cannot be run: {why}")


@pytest.mark.parametrize("host", ["host.invalid", *rarely("a..b", "192.0.2.1")])
def test_a_host_that_is_none_of_this_machine_is_named(host: str) -> None:
    assert refusal(*_IN_MEMORY, "--host", host).startswith(f"'{host}' (--host, HEADRACE_HOST)")


@pytest.mark.parametrize(
    ("host", "place"), [("0.0.0.0", "127.0.0.1"), *rarely_sets(("localhost", "localhost"), ("::1", "[::1]"))]
)
def test_it_says_where_it_is_reached(host: str, place: str) -> None:
    if ":" in host and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    with serving("--host", host) as service:
        assert service.url.startswith(f"http://{place}:")
        assert service.ask("GET", "/topics") == {"items": []}


def _in_shell(script: str) -> tuple[str, ...]:
    """The command of a service that a shell starts in this way."""
    return ("sh", "-c", script, "sh", *_IN_MEMORY)


@pytest.mark.parametrize("ending", [">/dev/full", *rarely(">&-")])
def test_what_a_program_is_to_read_and_cannot_is_told(ending: str) -> None:
    complaint = refusal(*_in_shell(f'exec "$@" {ending}'), "--json")
    assert complaint.startswith("Standard output cannot be written, ")


@contextmanager
def heard(number: signal.Signals) -> Iterator[None]:
    """What starts meanwhile does not ignore the signal, though `nohup` may have these tests ignore it."""
    before = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, *rarely(signal.SIGINT, signal.SIGHUP)])
def test_a_signal_ends_it_and_nothing_says_any_more_where_its_engine_is(
    durable: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    command = [*_DURABLE, "--port", "0", "--json"]
    with heard(number):
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | durable, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    with process:
        assert process.stdout
        process.stdout.readline()
        variables = json.loads((tmp_path / "engine").read_text())
        assert variables["AWS_ENDPOINT_URL_DYNAMODB"] == durable["AWS_ENDPOINT_URL_DYNAMODB"]
        process.send_signal(number)
    assert process.returncode == 0
    assert not (tmp_path / "engine").exists()


_TELLS_EARLY = """
import sys
import local.__main__ as service
from chalicelib import observe

triggers = service.triggers

def telling(*arguments):
    observe.event("moved before the service serves")
    return triggers(*arguments)

service.triggers = telling
sys.exit(service.main())
"""


def complaints_beside_json(command: list[str], **environment: str) -> str:
    """Standard error of a service that ends at once; its standard output is the line for programs."""
    process = subprocess.run(
        [*command, "--port", "0", "--json", "--until-stdin-ends"],
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(process.stdout).keys() == {"url", "token"}
    return process.stderr


def test_what_a_schedule_tells_before_the_service_serves_goes_to_standard_error() -> None:
    """It took standard output, which is for what programs read, for all later lines."""
    assert "moved before the service serves" in complaints_beside_json(
        [sys.executable, "-c", _TELLS_EARLY, "--ephemeral"]
    )


def test_what_functions_print_is_not_taken_for_the_line_that_a_program_reads(tmp_path: Path) -> None:
    """The program stops reading after that line: once the pipe was full, a function that prints stood still."""
    functions = tmp_path / "functions.py"
    functions.write_text("print('loaded')")
    assert "loaded" in complaints_beside_json([*_IN_MEMORY, "--functions", str(functions)])
