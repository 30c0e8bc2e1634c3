"""The command line: `headrace listen` forwards messages as they would be pushed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from cli_commands import Command
from faulty_proxy import FAIL, PASS, THROTTLE, faulty_proxy
from scripted_service import message
from standardwebhooks import Webhook

from headrace.cli.forward import Forwarder
from headrace.cli.listen import _own_name
from headrace.testing import LocalHeadrace, Push

SECRET = "whsec_" + "AbCd" * 8


def test_what_is_listened_to_comes_as_it_would_be_pushed(command: Command, headrace: LocalHeadrace) -> None:
    options = {"key": "ключ 1%", "tag": "paid", "headers": {"Trace": "a b", "X-Name": "ü"}}
    with headrace.subscriber("orders", "shop") as subscriber:
        headrace.send("orders", {"order": 188, "price": 1.10}, **options)
        headrace.expect("orders", "shop").delivered(1)
        with headrace.subscriber("orders", "unused") as listener:
            command(
                *("listen", "orders", "--forward", listener.url, "--group", "mailer"),
                *("--secret", SECRET, "-n", "1"),
            )
            forwarded = next(push for push in listener.pushes if push.headers["headrace-group"] == "mailer")
    (original,) = subscriber.pushes
    assert forwarded.raw == original.raw
    assert _lasting(forwarded) == _lasting(original)
    assert Webhook(SECRET).verify(forwarded.raw, dict(forwarded.headers)) == {"order": 188, "price": 1.10}
    headrace.expect("orders", "mailer").delivered(1)


def _lasting(push: Push) -> dict[str, str]:
    """The headers that do not say when, by whom or for whom."""
    own = {"host", "connection", "accept", "content-length", "headrace-group"}
    names = own | {"webhook-timestamp", "webhook-signature"}
    return {name: value for name, value in push.headers.items() if name not in names}


@pytest.mark.parametrize(("status", "outcome"), [(500, "retrying"), (489, "dead")])
def test_an_answer_to_what_is_listened_to_counts(
    command: Command, headrace: LocalHeadrace, status: int, outcome: str
) -> None:
    headrace.send("orders", 1)
    with headrace.subscriber("orders", "unused", lambda push: status) as subscriber:
        (result,) = command(
            "listen", "orders", "--forward", subscriber.url, "--group", "mailer", "-n", "1", "--json"
        )
    assert result["status"] == status
    getattr(headrace.expect("orders", "mailer"), outcome)(1)


@contextmanager
def busy(retry_after: str) -> Iterator[str]:
    """The URL of one who is busy now."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(503)
            self.send_header("Retry-After", retry_after)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("7", 7, 7),
        pytest.param(formatdate(time.time() + 400_000, usegmt=True), 399_000, 400_000, id="a date"),
        ("9999999", 2_592_000, 2_592_000),
        ("soon", None, None),
    ],
)
def test_who_is_busy_says_when_to_come_again(asked: str, least: int | None, most: int | None) -> None:
    with busy(asked) as url, Forwarder(url, "orders", "mailer", SECRET, 5) as forwarder:
        wait = forwarder.send(message("x")).retry_after
    assert wait is None if least is None or most is None else wait is not None and least <= wait <= most


def test_a_listener_has_a_group_of_its_own_which_no_signal_leaves_behind(
    command: Command, headrace: LocalHeadrace
) -> None:
    headrace.put_topic("invoices")
    headrace.send("orders", 1)
    ends = {signal.SIGTERM: 143, signal.SIGHUP: 129}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with headrace.subscriber("invoices", "unused") as to:
        listen = ["listen", "orders", "--from", "earliest", "--forward", to.url]
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", *listen], env=environment, stdout=subprocess.PIPE
            )
            for _ in ends
        ]
        for process, number in zip(processes, ends, strict=True):
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"HTTP 204")
            process.send_signal(number)
            process.send_signal(signal.SIGTERM)  # again: a service manager sends several
        for process, number in zip(processes, ends, strict=True):
            process.communicate(timeout=60)
            assert process.returncode in (ends[number], ends[signal.SIGTERM])
        groups = {push.headers["headrace-group"] for push in to.pushes}
    assert sorted(name.partition("-")[0] for name in groups) == ["listen"] * 2
    assert [group.group for group in headrace.list_groups("orders")] == ["mailer"]
    headrace.expect("orders", "mailer").delivered(0)


@pytest.mark.parametrize("plan", [[THROTTLE] * 3, [PASS, *[FAIL] * 3]], ids=["receive", "ack"])
def test_a_listener_goes_on_after_trouble_that_passes(
    command: Command, headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch, plan: list[str]
) -> None:
    """429, and an ack without an answer, ended it."""
    monkeypatch.setattr("headrace._sync.transport.pause", lambda seconds: None)
    monkeypatch.setattr("headrace.cli.listen.time", SimpleNamespace(sleep=lambda seconds: None))
    headrace.send("orders", 1)
    with headrace.subscriber("orders", "unused") as to, faulty_proxy(headrace.transport.urls[0]) as proxy:
        proxy.plan.extend([PASS, *plan])
        command("listen", "orders", "--forward", to.url, "--group", "mailer", "-n", "1", "--url", proxy.url)
    assert not proxy.plan


def test_what_was_answered_at_once_does_not_wait_for_a_slow_answer(
    command: Command, headrace: LocalHeadrace
) -> None:
    """Its lease ended meanwhile, and it was forwarded again."""

    def answer(push: Push) -> int:
        if push.headers["headrace-group"] == "mailer" and push.body == "slow":
            headrace.expect("orders", "mailer").delivered(1)
        return 204

    for body in ("slow", "fast"):
        headrace.send("orders", body, ordering_key="188")
    with headrace.subscriber("orders", "unused", answer) as to:
        command("listen", "orders", "--forward", to.url, "--group", "mailer", "-n", "2")
    headrace.expect("orders", "mailer").delivered(2)


@pytest.mark.parametrize("user", ["SHOP\\Jörg Müller", "x" * 200, None])
def test_a_listener_has_a_name_for_every_user(monkeypatch: pytest.MonkeyPatch, user: str | None) -> None:
    def getuser() -> str:
        if user is None:
            raise KeyError("uid")
        return user

    monkeypatch.setattr("getpass.getuser", getuser)
    assert re.fullmatch(r"listen-[A-Za-z0-9._-]{1,120}", _own_name())
