"""The command line, against a service of its own: what it does, prints, and ends with."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from headrace import cli
from headrace.cli import app
from headrace.cli.app import NO_ANSWER, NOT_ALLOWED, NOT_FOUND, REFUSED, USAGE, ordered, run
from headrace.cli.doctor import clock_finding
from headrace.cli.groups import Preview
from headrace.cli.profiles import Profiles, Unusable, access
from headrace.cli.session import topic_names
from headrace.spool import Spool
from headrace.testing import LocalHeadrace, Push
from headrace.testing.subscriber import Subscriber

ROOT = Path(__file__).parents[4]
SECRET = "whsec_" + "AbCd" * 8
Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def command(headrace: LocalHeadrace, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command that must end with `code`; what it printed, with --json as the documents."""
    headrace.put_topic("orders", retry={"max_attempts": 2, "ladder": [60]})
    headrace.put_group("orders", "mailer", begin="earliest")

    def done(*arguments: str, code: int = 0) -> Any:
        exit_code = run(arguments)
        out, err = capsys.readouterr()
        assert exit_code == code, out + err
        if code:
            return err
        return [json.loads(line) for line in out.splitlines()] if "--json" in arguments else out

    return done


def test_a_message_is_sent_found_received_and_traced(command: Command) -> None:
    (sent,) = command("send", "orders", '{"order": 188}', "--key", "order-188", "--tag", "paid", "--json")
    (match,) = command("find", "orders", "--key", "order-188", "--json")
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z", sent["accepted_at"]), "as the service writes it"
    assert match["accepted_at"] == sent["accepted_at"]
    assert (match["id"], match["body"], match["tag"]) == (sent["id"], {"order": 188}, "paid")
    (message,) = command("receive", "orders", "mailer", "--wait", "5s", "--ack", "--json")
    assert message["id"] == sent["id"]
    events = command("trace", "orders", sent["id"], "--json")
    assert [(event["event"], event["outcome"]) for event in events][-1] == ("delivered", "SUCCESS")
    assert "SUCCESS, 1 attempt" in command("show", "orders", sent["id"])


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


def test_what_is_refused_is_told_by_its_number(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    large = json.dumps("x" * 300_000)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"1\n{large}\n3\n"))
    err = command("send", "orders", code=REFUSED)
    assert "message 2: BODY_TOO_LARGE" in err
    assert "2 sent, 1 refused" in err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["send", "orders", "{order}"], USAGE, "is no JSON"),
        (["send", "orders", "1", "--delay", "soon"], USAGE, "is no duration"),
        (["show", "orders", "nope"], NOT_FOUND, "MESSAGE_NOT_FOUND"),
        (["topics", "show", "none"], NOT_FOUND, "TOPIC_NOT_FOUND"),
        (["topics", "list", "--token", "hr_no_0123456789"], NOT_ALLOWED, "UNAUTHORIZED"),
        (["topics", "list", "--token", "Bearer hr_no_0123456789"], USAGE, "HEADRACE_TOKEN"),
        (["topics", "create", "x", "--set", "shards=0"], REFUSED, "shards"),
        (["topics", "list", "--profile", "none"], USAGE, "There is no profile none"),
        (["receive", "orders", "mailer", "--ack", "--back"], USAGE, "Choose --ack or --back"),
        (["receive", "orders", "mailer", "--wait", "soon"], USAGE, "is no duration"),
        (["tail", "orders", "--from", "2030-01-01"], USAGE, "write 2030-01-01T00:00:00Z"),
        (["send", "orders", "--file", "/no/such.jsonl"], USAGE, "No such file"),
        (["listen", "orders", "--forward", "localhost:3000"], USAGE, "http://localhost:3000"),
        (["find", "orders", "--from", "yesterday"], REFUSED, "VALIDATION"),
    ],
)
def test_an_exit_code_says_what_kind_of_error_it_is(
    command: Command, arguments: list[str], code: int, sentence: str
) -> None:
    assert sentence in command(*arguments, code=code)


def test_no_answer_has_a_code_of_its_own(command: Command) -> None:
    assert "NO_ANSWER" in command("topics", "list", "--url", "http://127.0.0.1:9", code=NO_ANSWER)


def test_delayed_messages_are_listed_moved_and_cancelled(command: Command) -> None:
    (first,) = command("send", "orders", "1", "--delay", "1h", "--dedup-id", "job-1", "--json")
    assert [m["id"] for m in command("find", "orders", "--dedup-id", "job-1", "--json")] == [first["id"]]
    (second,) = command("send", "orders", "2", "--delay", "2h", "--json")
    assert [m["id"] for m in command("delayed", "list", "orders", "--json")] == [first["id"], second["id"]]
    command("delayed", "move", "orders", second["id"], "--delay", "30m")
    assert [m["id"] for m in command("delayed", "list", "orders", "--json")] == [second["id"], first["id"]]
    command("delayed", "cancel", "orders", first["id"])
    assert len(command("delayed", "list", "orders", "--json")) == 1


def test_a_dead_letter_is_mended_and_sent_again(
    command: Command, headrace: LocalHeadrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.send("orders", {"order": "13"})
    headrace.nack(
        "orders", "mailer", *headrace.receive("orders", "mailer"), dead_letter=True, reason="no number"
    )
    (letter,) = command("dead", "list", "orders", "mailer", "--json")
    assert (letter["reason"], letter["last_error"]) == ("REJECTED", "no number")
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i \'s/"13"/13/\' "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    command("dead", "edit", "orders", "mailer", letter["id"])
    assert command("dead", "redrive", "orders", "mailer", "--yes", "--json") == [{"redriven": 1}]
    (message,) = headrace.receive("orders", "mailer")
    assert message.body == {"order": 13}


def test_a_message_as_a_dict_is_what_the_service_answers(command: Command, headrace: LocalHeadrace) -> None:
    headrace.send("orders", {"order": 188}, key="order-188")
    (message,) = headrace.receive("orders", "mailer")
    values = message.as_dict()
    assert (values["body"], values["keys"], values["attempt"]) == ({"order": 188}, ["order-188"], 1)
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z", values["accepted_at"])


def test_a_seek_is_previewed(command: Command, headrace: LocalHeadrace) -> None:
    headrace.send_many("orders", [1, 2, 3])
    headrace.ack("orders", "mailer", *headrace.receive("orders", "mailer"))
    assert run(["seek", "orders", "mailer", "earliest", "--preview"]) == 0
    headrace.expect("orders").empty()
    command("seek", "orders", "mailer", "earliest", "--yes")
    assert len(headrace.receive("orders", "mailer")) == 3


def test_a_seek_to_no_place_says_which_there_are(
    headrace: LocalHeadrace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["seek", "orders", "mailer", "yesterday", "--preview"]) == 2
    assert "neither earliest, latest, a time" in " ".join(capsys.readouterr().err.split())


def test_a_preview_counts(
    headrace: LocalHeadrace, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    headrace.send_many("orders", [1, 2, 3])
    for to, sentence in (("earliest", "would have 3 messages"), ("latest", "would skip 3 messages")):
        assert run(["groups", "seek", "orders", "mailer", to, "--preview"]) == 0
        assert sentence in capsys.readouterr().err
    assert Preview(1, 0).sentence("mailer") == "mailer would skip 1 message."
    assert Preview(0, 1).sentence("mailer") == "mailer would have 1 message before it; now it has 0."
    foreseen = command("seek", "orders", "mailer", "earliest", "--preview", "--json")
    assert foreseen == [{"waiting": 3, "would_wait": 3, "bound": "exactly"}]


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


def test_stats_count_by_group(command: Command, headrace: LocalHeadrace) -> None:
    headrace.send("orders", 1)
    first, second = command("stats", "--watch", "--times", "2", "--every", "0", "--json")
    assert first["topic"] == second["topic"] == "orders"
    assert first["groups"]["mailer"]["backlog"] == 1
    assert command("stats", "orders").splitlines()[1].split()[:5] == ["orders", "1", "0", "mailer", "1"]


def test_stats_of_a_moment_that_nobody_counted_say_who_counts_it(command: Command) -> None:
    error = command("stats", "orders", "--at", "2026-11-21T10:00:00Z", code=NOT_FOUND)
    assert "make asof" in error
    assert "name it" in command("stats", "--at", "2026-11-21T10:00:00Z", code=USAGE)


def test_the_doctor_finds_what_needs_attention(command: Command, headrace: LocalHeadrace) -> None:
    headrace.send("orders", 1)
    headrace.nack("orders", "mailer", *headrace.receive("orders", "mailer"), dead_letter=True)
    findings = {each["check"]: each for each in command("doctor", "--json")}
    assert findings["store"]["ok"] is findings["token"]["ok"] is True
    assert "headrace dead list orders mailer" in findings["orders/mailer"]["detail"]
    assert headrace.transport.token not in json.dumps(findings)


@pytest.mark.parametrize(
    ("ahead", "ok", "detail"),
    [
        (0.0, True, "within a second of the service's"),
        (1.9, True, "within a second of the service's"),
        (-0.9, True, "within a second of the service's"),
        (3.2, True, "2 s ahead of the service's"),
        (-90, None, "90 s behind the service's"),
    ],
)
def test_the_doctor_reads_a_clock_of_whole_seconds(ahead: float, ok: bool | None, detail: str) -> None:
    there = datetime(2026, 11, 22, 9, 0, tzinfo=timezone.utc)
    finding = clock_finding(there + timedelta(seconds=ahead), there)
    assert (finding.ok, finding.detail) == (ok, detail)


def test_the_doctor_says_where_nobody_answers(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--url", "http://127.0.0.1:9", "--json"]) == REFUSED
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["check"], last["ok"]) == ("reached", False)
    assert "Is the URL right" in last["detail"]


def test_tokens_are_made_and_revoked(command: Command) -> None:
    (token,) = command("tokens", "create", "me", "--scope", "produce", "--topic", "orders", "--json")
    assert token["token"].startswith("hr_")
    assert token["token"] not in command("tokens", "list")
    command("tokens", "delete", token["id"], "--yes")
    assert token["id"] not in command("tokens", "list")


def test_profiles_keep_tokens_to_themselves(
    command: Command, headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(headrace.transport.token + "\n"))
    command("profile", "add", "here", "--url", headrace.transport.urls[0])
    monkeypatch.delenv("HEADRACE_URL")
    monkeypatch.delenv("HEADRACE_TOKEN")
    assert Profiles.read().path.stat().st_mode & 0o777 == 0o600
    listing = command("profile", "list")
    assert "here" in listing
    assert headrace.transport.token.rpartition("_")[2] not in listing
    assert command("topics", "list", "--json")[0]["topic"] == "orders"
    command("profile", "remove", "here")
    assert "No token" in command("topics", "list", code=USAGE)


def test_what_is_named_goes_before_what_is_set() -> None:
    environment = {"HEADRACE_URL": "http://env", "HEADRACE_TOKEN": "hr_e_1", "XDG_CONFIG_HOME": "/none"}
    assert access(None, None, None, environment).url == "http://env"
    assert access(None, "http://option", None, environment).url == "http://option"
    with pytest.raises(Unusable, match="no profile p"):
        access("p", None, None, environment)


def test_the_options_of_every_command_may_stand_anywhere() -> None:
    assert ordered(["topics", "list", "--json"]) == ["--json", "topics", "list"]
    assert ordered(["send", "t", "--url=u", "--", "--json"]) == ["--url=u", "send", "t", "--", "--json"]
    assert ordered(["show", "--token", "x", "t"]) == ["--token", "x", "show", "t"]


def test_topics_complete(headrace: LocalHeadrace, command: Command) -> None:
    headrace.put_topic("invoices")
    assert topic_names("or") == ["orders"]
    assert sorted(topic_names("")) == ["invoices", "orders"]


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, app.__name__)
    monkeypatch.delattr(cli, "app")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert "pip install 'headrace[cli]'" in capsys.readouterr().err


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
            came = next(push for push in listener.pushes if push.headers["headrace-group"] == "mailer")
    (original,) = subscriber.pushes
    assert came.raw == original.raw
    assert _lasting(came) == _lasting(original)
    assert Webhook(SECRET).verify(came.raw, dict(came.headers)) == {"order": 188, "price": 1.10}
    headrace.expect("orders", "mailer").delivered(1)


def _lasting(push: Push) -> dict[str, str]:
    """The headers that do not say when, by whom or for whom."""
    own = {"host", "connection", "accept", "content-length", "headrace-group"}
    passing = own | {"webhook-timestamp", "webhook-signature"}
    return {name: value for name, value in push.headers.items() if name not in passing}


@pytest.mark.parametrize(("status", "becomes"), [(500, "retrying"), (489, "dead")])
def test_an_answer_to_what_is_listened_to_counts(
    command: Command, headrace: LocalHeadrace, status: int, becomes: str
) -> None:
    headrace.send("orders", 1)
    with headrace.subscriber("orders", "unused", lambda push: status) as here:
        (result,) = command(
            "listen", "orders", "--forward", here.url, "--group", "mailer", "-n", "1", "--json"
        )
    assert result["status"] == status
    getattr(headrace.expect("orders", "mailer"), becomes)(1)


def test_a_listener_has_a_group_of_its_own_and_leaves_none(command: Command, headrace: LocalHeadrace) -> None:
    headrace.send("orders", 1)
    headrace.put_topic("invoices")
    with headrace.subscriber("invoices", "unused") as here:
        command("listen", "orders", "--forward", here.url, "--from", "earliest", "-n", "1")
        assert [push.headers["headrace-group"].partition("-")[0] for push in here.pushes] == ["listen"]
    assert [group.group for group in headrace.list_groups("orders")] == ["mailer"]
    headrace.expect("orders", "mailer").delivered(0)


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
    assert "1 sent, 1 refused and kept" in command("spool", "send", file, code=REFUSED)
    assert [message.body for message in headrace.list_messages("orders")] == [{"order": 188}]
    (entry,) = command("spool", "list", file, "--json")
    assert (entry["message"]["body"], entry["refused"].partition(":")[0]) == (2, "NO_SUCH_SHARD")


def test_the_tour_on_the_page_works(command: Command, headrace: LocalHeadrace) -> None:
    page = (ROOT / "docs/cli.md").read_text()
    tour = re.findall(r"^    headrace (.*?)(?:  +#.*)?$", page[: page.index("\n## ")], re.MULTILINE)
    assert len(tour) > 8
    for line in tour:
        command(*shlex.split(line))


def test_a_subscriber_is_looked_at_tested_and_given_a_secret(
    command: Command, headrace: LocalHeadrace
) -> None:
    subscriber = Subscriber()
    try:
        headrace.put_consumer("orders", "mailer", "shop", url=subscriber.url)
        (shop,) = command("consumers", "list", "orders", "mailer", "--json")
        assert (shop["consumer"], shop["state"]) == ("shop", "ACTIVE")
        (tested,) = command("consumers", "test", "orders", "mailer", "shop", "--json")
        assert (tested["ok"], tested["answer"]["status"]) == (True, 204)
        assert subscriber.pushes[0].headers["ce-type"] == "headrace.test"
        subscriber.answer = lambda push: 500
        command("consumers", "test", "orders", "mailer", "shop", code=REFUSED)
        assert command("consumers", "rotate-secret", "orders", "mailer", "shop").startswith("whsec_")
        assert command("consumers", "attempts", "orders", "mailer", "shop", "--json") == []
    finally:
        subscriber.close()


def test_a_token_is_rotated_a_link_signs_in_and_the_archive_is_told(
    command: Command, headrace: LocalHeadrace
) -> None:
    token = headrace.create_token("shop", ["produce"])
    (rotated,) = command("tokens", "rotate", token.id, "--overlap-seconds", "0", "--json")
    assert rotated["token"] != token.token
    assert "/console/sign-in?ticket=" in command("console")
    (day,) = command("archive", "--to", "2020-01-01", "--days", "1", "--json")
    assert (day["day"], day["topics"]) == ("2020-01-01", [])
