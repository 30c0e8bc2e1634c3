"""The examples do what they say, against the local server."""

from __future__ import annotations

import base64
import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import app
from chalicelib import adapters, settings, wiring
from local.engine.dynamodb_local import free_port
from local.gateway import Gateway
from local.server import serve
from tests.support.rarely import rarely_sets

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_SECONDS = 120
_COUNT = 100


@pytest.fixture(scope="module")
def server(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL and the admin token of a local server with tables of its own."""
    environment = {
        "HEADRACE_PREFIX": f"examples{uuid.uuid4().hex[:8]}",
        "HEADRACE_DATA": str(tmp_path_factory.mktemp("data")),
    }
    deps = wiring.Deps(adapters.dynamo_adapters(settings.read(environment)))
    deps.setup()
    token = deps.tokens.ensure_admin(None)
    assert token is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: deps)
        http_server = serve(Gateway(app.app))
        http_server.start()
        yield f"http://127.0.0.1:{http_server.port}", token
        http_server.shutdown()


@pytest.fixture(scope="module")
def whole(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """`make run` with tables of its own and the example functions: its URL, and the folder it was started in."""
    folder, port = tmp_path_factory.mktemp("run"), free_port()
    settings = {
        "PYTHONPATH": str(_EXAMPLES.parent),
        "HEADRACE_PORT": str(port),
        "HEADRACE_PREFIX": f"push{uuid.uuid4().hex[:8]}",
        "HEADRACE_FUNCTIONS": str(_EXAMPLES / "functions.py"),
        "AWS_ENDPOINT_URL_DYNAMODB": engine,
    }
    with subprocess.Popen(
        [sys.executable, "-m", "local"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")} | settings,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("Headrace serves on ")
            yield f"http://127.0.0.1:{port}", folder
        finally:
            process.terminate()


def _run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    own_environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    return subprocess.run(
        command,
        cwd=folder,
        env=own_environment | environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def _flights(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return _run([sys.executable, str(_EXAMPLES / "flights.py"), *options], folder, **environment)


def test_flights_come_out_in_all_three_modes(server: tuple[str, str], tmp_path: Path) -> None:
    url, token = server
    run = _flights(tmp_path, "--url", url, "--count", str(_COUNT), HEADRACE_TOKEN=token)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].startswith(f"sent {_COUNT} departures")
    assert [line.split(":")[:2] for line in lines[1:5]] == [
        [name, f" received {_COUNT}"] for name in ("queue", "serial", "broadcast radar", "broadcast tower")
    ]
    assert lines[5] == "all is as it should be"
    assert f"serial {_COUNT}/{_COUNT}" in run.stderr


def test_a_pushed_order_fails_is_mended_and_taken_and_its_trace_tells_so(whole: tuple[str, Path]) -> None:
    url, folder = whole
    run = _run([sys.executable, str(_EXAMPLES / "push.py"), "--url", url], folder)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line.strip() for line in run.stdout.splitlines()]
    assert [line for line in lines if line.startswith("shop:")] == [
        'shop: attempt 1 of {"order":188,"total":19.9}: taken',
        'shop: attempt 1 of {"order":189,"total":"1,50"}: refused: the total is not a number',
        'shop: attempt 2 of {"order":189,"total":"1,50"}: refused: the total is not a number',
        'shop: attempt 3 of {"order":189,"total":1.5}: taken',
    ]
    assert "It is a dead letter: ATTEMPTS_EXHAUSTED after 2 attempts, HTTP 500." in lines
    trace = [line.split()[1:] for line in lines[lines.index("Its trace:") + 1 :]]
    page = (_EXAMPLES / "README.md").read_text()
    assert trace == [line.split() for line in re.findall(r"^    20\S+Z (.+)$", page, re.M)]
    assert trace == [
        ["accepted"],
        ["delivered", "till", "1", "RETRY", "HTTP", "500"],
        ["delivered", "till", "2", "DEAD", "HTTP", "500"],
        ["buried", "2", "DEAD", "HTTP", "500"],
        ["edited"],
        ["redriven"],
        ["delivered", "till", "3", "SUCCESS"],
    ]


@pytest.fixture
def headrace(whole: tuple[str, Path]) -> Iterator[Any]:
    """The examples' own client."""
    url, folder = whole
    client = _module("headrace_client").Headrace(f"{url}/v1", (folder / ".data/token").read_text().strip())
    yield client
    client.close()


def test_the_lines_of_python_in_the_readme_send_and_receive(
    headrace: Any,
    whole: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    headrace.ask("PUT", "/v1/topics/orders")
    headrace.ask("PUT", "/v1/topics/orders/groups/mailer", {"from": "earliest"})
    monkeypatch.setenv("HEADRACE_URL", whole[0])
    monkeypatch.setenv("HEADRACE_TOKEN", (whole[1] / ".data/token").read_text().strip())
    (code,) = re.findall(r"```python\n(.*?)```", (_EXAMPLES.parent / "README.md").read_text(), re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == "{'order': 189} attempt 1\n"


def test_the_receiver_prints_what_is_signed_and_refuses_what_is_not(headrace: Any) -> None:
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    script = str(_EXAMPLES / "webhook_receiver.py")
    with subprocess.Popen(
        [sys.executable, script, "--port", "0", "--secret", secret], stdout=subprocess.PIPE, text=True
    ) as receiver:
        assert receiver.stdout is not None
        try:
            target = receiver.stdout.readline().rpartition(" ")[2].strip()
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(urllib.request.Request(target, b"{}"), timeout=60)
            error.value.close()
            assert error.value.code == 401
            group = "/v1/topics/hooked/groups/g"
            headrace.ask("PUT", "/v1/topics/hooked")
            headrace.ask("PUT", group, {"from": "earliest"})
            headrace.ask("PUT", f"{group}/consumers/me", {"url": target, "secret": secret})
            message = headrace.ask("POST", "/v1/topics/hooked/messages", {"body": {"hello": "world"}})
            assert receiver.stdout.readline() == f'hooked/g {message["id"]} attempt 1: {{"hello": "world"}}\n'
        finally:
            receiver.terminate()


def test_a_local_run_does_not_take_itself_for_a_subscriber(headrace: Any, whole: tuple[str, Path]) -> None:
    headrace.ask("PUT", "/v1/topics/circle")
    headrace.ask("PUT", "/v1/topics/circle/groups/g")
    own = f"http://localhost:{whole[0].rpartition(':')[2]}/v1/publish/circle"
    with pytest.raises(Exception, match="This url is Headrace's own"):
        headrace.ask("PUT", "/v1/topics/circle/groups/g/consumers/me", {"url": own})


def test_the_example_functions_are_called_by_name(headrace: Any) -> None:
    headrace.ask("PUT", "/v1/topics/charged", {"shards": 1})
    group = "/v1/topics/charged/groups/g"
    headrace.ask("PUT", group, {"from": "earliest", "batch_size": 10})
    headrace.ask("PUT", f"{group}/consumers/till", {"function": "charge"})
    bodies = [{"order": 1, "total": 5}, {"order": 2}, {"order": 3, "total": 7}]
    messages = {"messages": [{"body": body} for body in bodies]}
    results = headrace.ask("POST", "/v1/topics/charged/messages/batch", messages)["results"]
    paths = [f"/v1/topics/charged/messages/{result['id']}" for result in results]

    def settled() -> Any:
        statuses = [headrace.ask("GET", path)["deliveries"]["g"]["status"] for path in paths]
        return statuses if not {"NEW", "RUNNING"} & set(statuses) else None

    assert _module("push").wait_for(settled) == ["SUCCESS", "RETRYING", "SUCCESS"]


def _module(name: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(_EXAMPLES))
        return importlib.import_module(name)


def test_a_missing_token_a_missing_server_and_a_bad_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no gzip")
    for options, sentence in (
        ([], "There is no token"),
        (["--token", "hr_a_00000000", "--url", "http://127.0.0.1:1"], "Is the server up?"),
        (["--token", "hr_a_00000000", "--file", "plain"], "plain is not a whole gzip file"),
        (["--token", "hr_a_00000000", "--file", "absent"], "absent cannot be read"),
    ):
        run = _flights(tmp_path, *options)
        assert run.returncode == 2
        assert sentence in run.stderr
        assert "Traceback" not in run.stderr


def test_a_port_that_is_taken_is_named_and_what_to_do(whole: tuple[str, Path], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        settings = {"HEADRACE_PORT": port, "PYTHONPATH": str(_EXAMPLES.parent)}
        run = _run([sys.executable, "-m", "local"], tmp_path, **settings)
        bank = _run([*_bank(whole, tmp_path), "--port", port], tmp_path)
    for process, remedy in ((run, "HEADRACE_PORT"), (bank, "--port")):
        assert process.returncode in (1, 2)
        for text in (port, "Address already in use", remedy):
            assert text in process.stderr


def test_the_first_message_is_sent_received_and_acknowledged(server: tuple[str, str], tmp_path: Path) -> None:
    url, token = server
    script = ["bash", str(_EXAMPLES / "first_message.sh")]
    run = _run(script, tmp_path, HEADRACE_URL=url, HEADRACE_TOKEN=token)
    assert run.returncode == 0, run.stdout + run.stderr
    assert '"ok":true' in run.stdout
    assert "Acknowledged" in run.stdout


def _bank(whole: tuple[str, Path], folder: Path, *options: str) -> list[str]:
    url, run = whole
    token = (run / ".data" / "token").read_text().strip()
    connection_options = ["--url", url, "--token", token, "--topic", f"bank-{uuid.uuid4().hex[:8]}"]
    own_options = [
        "--database",
        str(folder / "bank.sqlite"),
        "--port",
        str(free_port()),
        "--check-after",
        "2",
    ]
    return [sys.executable, str(_EXAMPLES / "bank_transfer.py"), *connection_options, *own_options, *options]


def test_a_bank_pays_and_the_other_bank_receives(whole: tuple[str, Path], tmp_path: Path) -> None:
    run = _run(_bank(whole, tmp_path, "--transfers", "4"), tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines() == [
        *["transfer of 30: committed"] * 3,
        "transfer of 30: rolled back, not enough money",
        "balance 10, paid 90, received by the other bank 90",
        "all is as it should be",
    ]


@pytest.mark.parametrize(
    ("where", "answer", "paid_sum"), [("paid", "commit", 30), *rarely_sets(("prepared", "rollback", 0))]
)
def test_i13_a_bank_that_is_killed_and_started_again_is_asked_and_loses_nothing(
    whole: tuple[str, Path], tmp_path: Path, where: str, answer: str, paid_sum: int
) -> None:
    bank = _bank(whole, tmp_path)
    command = [*bank, "--stop-at", where]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == f"stopped, with the transfer {where}: kill me\n"
        run.kill()
        assert run.wait() == -signal.SIGKILL
    done = _run([*bank, "--transfers", "0"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    check, sums, verdict = done.stdout.splitlines()
    assert check.endswith(f": {answer}")
    assert sums == f"balance {100 - paid_sum}, paid {paid_sum}, received by the other bank {paid_sum}"
    assert verdict == "all is as it should be"
