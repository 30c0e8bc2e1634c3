"""The command line: messages are sent, found, delayed, followed and kept on disk."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_commands import Command
from faulty_proxy import FAIL, PASS, FaultyProxy, faulty_proxy
from scripted_service import BUSY

from headrace import Retries
from headrace.cli.app import run
from headrace.cli.output import Output
from headrace.cli.session import INTERRUPTED, NO_ANSWER, PARTLY, REFUSED, USAGE
from headrace.spool import Spool
from headrace.testing import LocalHeadrace

PAUSES = "headrace.cli.settling._PAUSES"
THREE_TRIES = Retries(attempts=3, base_seconds=0)


def test_a_message_is_sent_found_received_and_traced(command: Command) -> None:
    options = ("--key", "order-188", "--tag", "paid", "--priority", "0")
    (sent_message,) = command("send", "orders", '{"order": 188}', *options, "--json")
    (match,) = command("find", "orders", "--key", "order-188", "--json")
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z", sent_message["accepted_at"]), (
        "as the service writes it"
    )
    assert match["accepted_at"] == sent_message["accepted_at"]
    assert (match["id"], match["body"], match["tag"]) == (sent_message["id"], {"order": 188}, "paid")
    assert match["priority"] == 0
    (message,) = command("receive", "orders", "mailer", "--wait", "5s", "--ack", "--json")
    assert message["id"] == sent_message["id"]
    events = command("trace", "orders", sent_message["id"], "--json")
    assert [(event["event"], event["outcome"]) for event in events][-1] == ("delivered", "SUCCESS")
    assert "SUCCESS, 1 attempt" in command("show", "orders", sent_message["id"])


def test_what_was_not_acknowledged_is_told(
    command: Command, headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.send("orders", 1)

    class Slow(Output):
        """Takes longer than the lease, after which another consumer has the message."""

        def many(self, *arguments: Any) -> None:
            super().many(*arguments)
            headrace.clock.advance(hours=1)
            assert headrace.receive("orders", "mailer")

    monkeypatch.setattr("headrace.cli.app.Output", Slow)
    assert "RECEIPT_STALE" in command("receive", "orders", "mailer", "--wait", "5s", "--ack", code=REFUSED)


@pytest.mark.parametrize(("option", "action"), [("--ack", "ack"), ("--back", "nack")])
@pytest.mark.parametrize(("busy", "code"), [(2, 0), (3, 1)])
def test_what_a_busy_shard_did_not_settle_is_tried_again(
    command: Command,
    headrace: LocalHeadrace,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    action: str,
    busy: int,
    code: int,
) -> None:
    monkeypatch.setattr(PAUSES, (0.0, 0.0))
    answer = json.dumps({"results": [{"receipt": "r", "error": BUSY}]}).encode()
    headrace.send("orders", 1)
    with faulty_proxy(headrace.transport.urls[0]) as proxy:
        proxy.plan.extend([PASS] + [answer] * busy)
        command("receive", "orders", "mailer", "--wait", "5s", option, "--url", proxy.url, code=code)
    assert [path.rpartition("/")[2] for path, _ in proxy.requests] == ["receive"] + [action] * 3


def test_lines_files_and_raw_texts_are_sent(
    command: Command, headrace: LocalHeadrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"n": 1}\n\n{"n": 2}\n'))
    command("send", "orders")
    (tmp_path / "whole.jsonl").write_text('{"body": [3], "keys": ["k"], "tag": "t"}\n')
    command("send", "orders", "--messages", "--file", str(tmp_path / "whole.jsonl"))
    command("send", "orders", "no {JSON}", "--raw")
    bodies = {
        json.dumps(m.body) if not isinstance(m.body, bytes) else m.body
        for m in headrace.list_messages("orders")
    }
    assert bodies == {'{"n": 1}', '{"n": 2}', "[3]", b"no {JSON}"}


def test_options_are_for_all_messages_and_what_a_line_says_counts_first(
    command: Command, headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ['{"body": 1, "tag": "own", "keys": ["k"]}', '{"body": null, "headers": {"a": "b"}}']
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    command("send", "orders", "--messages", "--delay", "15m", "--tag", "paid", "--header", "x=y")
    found = {m.body: m for m in headrace.list_messages("orders", status="DELAYED")}
    assert [(found[body].tag, found[body].keys) for body in (1, None)] == [("own", ["k"]), ("paid", [])]
    assert [found[body].headers for body in (1, None)] == [{"x": "y"}, {"a": "b"}]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--messages"], '{"body": 1, "keys": "order-188"}'),
        (["--messages"], '{"body": 1, "key": "order-188"}'),
        (["--messages", '{"body": 1}'], ""),
        (["--messages", "--raw"], '{"body": 1}'),
        (["--content-type", "text/csv"], "1"),
        (["1", "--file", "orders.jsonl"], ""),
    ],
)
def test_what_would_be_passed_over_is_refused(
    command: Command,
    headrace: LocalHeadrace,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(line))
    command("send", "orders", *arguments, code=USAGE)
    assert list(headrace.list_messages("orders")) == []


def test_what_is_refused_is_told_by_its_number(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    large = json.dumps("x" * 300_000)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"1\n{large}\n3\n"))
    err = command("send", "orders", code=PARTLY)
    assert "message 2: BODY_TOO_LARGE" in err
    assert "2 sent, 1 refused" in err


def test_a_service_that_goes_away_leaves_word_of_what_was_sent(
    command: Command, headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.session.Retries", lambda **_: THREE_TRIES)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n" + "1\n" * 250))
    with faulty_proxy(headrace.transport.urls[0]) as proxy:
        proxy.plan.extend([PASS, *[FAIL] * 3])
        err = command("send", "orders", "--url", proxy.url, code=NO_ANSWER)
    assert "100 sent, up to standard input, line 101: go on behind it." in err
    assert "The next 100 may be stored: sent again, only a dedup id" in err


def test_a_reader_that_goes_away_changes_nothing_in_what_was_sent(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Head(io.StringIO):
        """Reads no more than a line."""

        def write(self, text: str) -> int:
            if "\n" in self.getvalue():
                raise BrokenPipeError
            return super().write(text)

        def fileno(self) -> int:
            return os.open(os.devnull, os.O_WRONLY)

    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n" * 100))
    monkeypatch.setattr(sys, "stdout", Head())
    assert run(["send", "orders", "--json"]) == 0
    assert "100 sent, up to standard input, line 100: go on behind it." in capsys.readouterr().err


def test_a_line_that_is_no_json_leaves_word_of_what_was_sent(
    command: Command, headrace: LocalHeadrace, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text("1\n" * 149 + "oops\n")
    err = command("send", "orders", "--file", str(file), code=USAGE)
    assert f"100 sent, up to {file}, line 100: go on behind it." in err
    assert "may be stored" not in err
    assert sum(1 for _ in headrace.list_messages("orders")) == 100


def test_delayed_messages_are_listed_moved_and_cancelled(command: Command) -> None:
    (first,) = command("send", "orders", "1", "--delay", "1h", "--dedup-id", "job-1", "--json")
    assert [m["id"] for m in command("find", "orders", "--dedup-id", "job-1", "--json")] == [first["id"]]
    (second,) = command("send", "orders", "2", "--delay", "2h", "--json")
    assert [m["id"] for m in command("delayed", "list", "orders", "--json")] == [first["id"], second["id"]]
    command("delayed", "move", "orders", second["id"], "--delay", "30m")
    assert [m["id"] for m in command("delayed", "list", "orders", "--json")] == [second["id"], first["id"]]
    command("delayed", "cancel", "orders", first["id"])
    assert len(command("delayed", "list", "orders", "--json")) == 1


def test_jobs_are_put_listed_shown_and_deleted(command: Command) -> None:
    (first,) = command("jobs", "put", "orders", "a/1", "1", "--delay", "1h", "--json")
    (again,) = command("jobs", "put", "orders", "a/1", '{"n": 2}', "--delay", "2h", "--json")
    assert again["id"] == first["id"]
    command("jobs", "put", "orders", "b", "3", "--delay", "1h")
    assert [m["job"] for m in command("jobs", "list", "orders", "--prefix", "a/", "--json")] == ["a/1"]
    (shown,) = command("jobs", "get", "orders", "a/1", "--json")
    assert (shown["job"], shown["body"]) == ("a/1", {"n": 2})
    assert "None" not in command("jobs", "get", "orders", "a/1")
    command("jobs", "delete", "orders", "a/1")
    assert [m["job"] for m in command("jobs", "list", "orders", "--json")] == ["b"]


def test_a_message_as_a_dict_is_what_the_service_answers(command: Command, headrace: LocalHeadrace) -> None:
    headrace.send("orders", {"order": 188}, key="order-188")
    (message,) = headrace.receive("orders", "mailer")
    values = message.as_dict()
    assert (values["body"], values["keys"], values["attempt"]) == ({"order": 188}, ["order-188"], 1)
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z", values["accepted_at"])


def test_tail_shows_what_is_accepted_once_each(command: Command, headrace: LocalHeadrace) -> None:
    headrace.send_many("orders", [{"n": 1}, {"n": 2}, {"other": 3}])
    documents = command(
        *(
            "tail",
            "orders",
            "--from",
            "2020-01-01T00:00:00Z",
            "--grep",
            '"n"',
            "-n",
            "2",
            "--every",
            "0",
            "--json",
        )
    )
    assert sorted(m["body"]["n"] for m in documents) == [1, 2]


_ALL = ("tail", "orders", "--from", "2020-01-01T00:00:00Z", "--every", "0", "--json")


class Looks:
    """The time between looks: it passes at once, and the user ends it behind so many looks. `calls`: of each look."""

    def __init__(self, proxy: FaultyProxy, most: int) -> None:
        self._proxy, self._most = proxy, most
        self.calls: list[int] = []

    def sleep(self, seconds: float) -> None:
        self.calls.append(len(self._proxy.requests) - sum(self.calls))
        if len(self.calls) == self._most:
            raise KeyboardInterrupt


@pytest.mark.parametrize("bound", ["_MOST_AT_ONCE", "_MOST_BYTES"])
def test_tail_says_once_what_it_passes_over_and_looks_behind_it(
    command: Command,
    headrace: LocalHeadrace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bound: str,
) -> None:
    headrace.send_many("orders", ["x" * 98] * 500)
    monkeypatch.setattr(f"headrace.cli.messages.{bound}", 300 if bound == "_MOST_AT_ONCE" else 30_000)
    with faulty_proxy(headrace.transport.urls[0]) as proxy:
        looks = Looks(proxy, 3)
        monkeypatch.setattr("headrace.cli.messages.time", looks)
        assert run([*_ALL, "--url", proxy.url]) == INTERRUPTED
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err.count("more than 300 new ones")) == (300, 1)
    assert looks.calls == [2, 1, 1]


def test_what_a_producer_left_on_disk_is_listed_and_sent(
    command: Command, headrace: LocalHeadrace, tmp_path: Path
) -> None:
    spool, file = Spool(tmp_path / "left"), str(tmp_path / "left")
    spool.add("orders", b'{"body": {"order": 188}, "keys": ["order-188"]}')
    spool.add("orders", b'{"body": 2, "shard": 99}')
    assert "in use" in command("spool", "list", file, code=USAGE)
    spool.close()
    assert [each["message"]["body"] for each in command("spool", "list", file, "--json")] == [
        {"order": 188},
        2,
    ]
    assert "1 refused and kept" in command("spool", "send", file, code=PARTLY)
    assert [message.body for message in headrace.list_messages("orders")] == [{"order": 188}]
    (entry,) = command("spool", "list", file, "--json")
    assert (entry["message"]["body"], entry["refused"].partition(":")[0]) == (2, "NO_SUCH_SHARD")
    spool = Spool(tmp_path / "left")
    spool.add("orders", b'{"body": 3}')
    spool.close()
    nowhere = ("--url", "http://127.0.0.1:9", "--timeout", "0.1")
    assert "1 of 1 message still in" in command("spool", "send", file, *nowhere, code=NO_ANSWER)
    command("spool", "send", file)  # code 0: what was refused earlier is no failure of this run
    assert 3 in [message.body for message in headrace.list_messages("orders")]
