"""What `make run` tells while it serves."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib import observe
from local.functions import Context, attempt
from local.gateway import Answer
from local.log import Lines, LoggedGateway, Unheard, logger
from local.options import HUMAN, JSON
from tests.functional.raw_http import talk
from tests.support.local_service import serving

_FAILED = {
    "topic": "orders",
    "group": "shop",
    "consumer": "hook",
    "message_id": "m-1",
    "shard": 0,
    "offset": 7,
    "attempt": 2,
    "verdict": "RETRY",
    "detail": "HTTP 500",
    "traceparent": None,
}


class Teapot:
    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        return 418, {}, b""


@pytest.fixture(autouse=True)
def fresh_logger() -> Iterator[None]:
    """As in a process that has just begun; afterwards the logger is as it was."""
    log = logging.getLogger("Headrace")
    before, handlers = dict(vars(log)), list(log.handlers)
    for name in ("init", "powertools_handler"):
        vars(log).pop(name, None)
    log.handlers.clear()
    observe._logger.cache_clear()
    yield
    observe._logger.cache_clear()
    vars(log).clear()
    vars(log).update(before)
    log.handlers[:] = handlers


def _use(form: str) -> None:
    log = logger(form)
    times = iter([1.0, 1.014])
    LoggedGateway(Teapot(), log, lambda: next(times)).handle(
        "POST", "/v1/topics/x\x1b[31m?ticket=secret", {"authorization": "Bearer hr_a_secret"}, b"body"
    )
    observe.event("attempt failed", **_FAILED)
    observe.report("deliver", {"SUCCESS": 3})
    observe.event("backlog over alarm", topic="orders", messages=12)


def test_people_read_a_line_for_each_request_and_each_failed_push(capsys: pytest.CaptureFixture[str]) -> None:
    _use(HUMAN)
    output = capsys.readouterr()
    assert output.out == ""
    assert [line.split("  ", 1)[1] for line in output.err.splitlines()] == [
        "POST   /v1/topics/x?[31m  418  14 ms",
        "push failed: orders/shop to hook, attempt 2 of message m-1: HTTP 500 (RETRY)",
        "backlog over alarm  topic=orders  messages=12",
    ]
    assert all(len(line.split("  ")[0]) == len("12:00:00") for line in output.err.splitlines())


def test_programs_read_an_object_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    _use(JSON)
    output = capsys.readouterr()
    assert output.out == ""
    request, push, report, alarm = (json.loads(line) for line in output.err.splitlines())
    assert (request["message"], request["method"], request["status"], request["ms"]) == (
        "request",
        "POST",
        418,
        14,
    )
    assert (push["message"], push["detail"]) == ("attempt failed", "HTTP 500")
    assert (report["message"], report["SUCCESS"]) == ("deliver", 3)
    assert alarm["messages"] == 12
    assert "secret" not in output.err


def test_what_is_no_request_that_can_be_answered_has_a_line_too(tmp_path: Path) -> None:
    """Without its query, and with what could be read of it."""
    log = tmp_path / "log"
    command = ("sh", "-c", f'exec "$@" 2>{log}', "sh", sys.executable, "-m", "headrace_local")
    with serving("--log", "json", command=command) as service:
        port = int(service.url.rpartition(":")[2])
        for request in (
            b"nonsense secret\r\n",
            b"GET ftp://me:secret@host/ HTTP/1.1\r\n",
            b"GET /v1/" + b"secret" * 2000 + b" HTTP/1.1\r\n",
            b"GET /v1/topics?key=secret HTTP/1.1\r\n\r\n",
            b"GET /v1/groups HTTP/1.1\r\nX-A: " + b"secret" * 2000 + b"\r\n\r\n",
            b"POST /v1/topics HTTP/1.1\r\nHost: here\r\nContent-Length: 99999999\r\n\r\n",
        ):
            talk(port, request)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines if "ms" in line] == [
        ("-", "-", 400),
        ("-", "-", 400),
        ("-", "-", 414),
        ("GET", "/v1/topics", 400),
        ("GET", "/v1/groups", 431),
        ("POST", "/v1/topics", 413),
    ]
    assert "secret" not in log.read_text()


def test_the_form_follows_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert isinstance(logger().handlers[0].formatter, Lines)


def test_a_bug_of_ours_shows_its_traceback_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    logger(HUMAN)
    observe.stuck("fragment 3", ValueError("no shard"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("  stuck  place=fragment 3")
    assert lines[-1] == "ValueError: no shard"


def _fails(event: object, context: object) -> None:
    raise ValueError


def test_a_failure_that_nobody_hears_of_ends_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True) as stream:
        monkeypatch.setattr(sys, "stderr", Unheard(stream))
        context = Context(function_name="deliver", request_id="r", stop=threading.Event())
        assert attempt(_fails, {}, context) is False
