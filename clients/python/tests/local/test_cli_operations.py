"""The command line: groups, dead letters, counts, tokens and subscribers are looked after."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from cli_commands import Command
from faulty_proxy import PASS, REFUSE, faulty_proxy

from headrace import Outgoing, Sent
from headrace.cli.app import run
from headrace.cli.groups import Preview
from headrace.cli.session import INTERRUPTED, NO_ANSWER, NOT_FOUND, PARTLY, REFUSED, USAGE
from headrace.models import Destination
from headrace.testing import LocalHeadrace
from headrace.testing.subscriber import Subscriber


def test_a_dead_letter_is_mended_and_sent_again(
    command: Command, headrace: LocalHeadrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.send("orders", {"order": "13"})
    headrace.nack(
        "orders", "mailer", *headrace.receive("orders", "mailer"), dead_letter=True, reason="no number"
    )
    (letter,) = command("dead-letters", "list", "orders", "mailer", "--json")
    assert (letter["reason"], letter["last_error"]) == ("REJECTED", "no number")
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i \'s/"13"/13/\' "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    command("dead-letters", "edit", "orders", "mailer", letter["id"])
    assert command("dead-letters", "redrive", "orders", "mailer", "--yes", "--json") == [{"redriven": 1}]
    (message,) = headrace.receive("orders", "mailer")
    assert message.body == {"order": 13}


class Terminal(io.StringIO):
    """A person's answers."""

    def isatty(self) -> bool:
        return True


class Interrupted(Terminal):
    """Ctrl-C."""

    def readline(self, *_: object) -> NoReturn:
        raise KeyboardInterrupt


WHERE = ("orders", "mailer")


def bury(headrace: LocalHeadrace, count: int, reason: str) -> list[str]:
    """Makes dead letters; their ids."""
    ids = [each.id for each in headrace.send_many("orders", range(count)) if isinstance(each, Sent)]
    while messages := headrace.receive(*WHERE, max=1_000):
        headrace.nack(*WHERE, *messages, dead_letter=True, reason=reason)
    return ids


def test_many_are_counted_and_shown_before_the_command_asks(
    command: Command,
    headrace: LocalHeadrace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bury(headrace, 2, "no number")
    headrace.send_many("orders", [1, 2, 3])
    headrace.nack(*WHERE, *headrace.receive(*WHERE, max=1), delay=3_600)
    (seen,) = command("dead-letters", "redrive", *WHERE, "--error", "number", "--preview", "--json")
    assert (seen["count"], seen["sample"][0]["error"]) == (2, "no number")
    assert seen.keys() == {"count", "sample", "plan"}  # as the service answers
    assert command("transactions", "recheck", "--json") == [{"rechecked": 0}]  # nothing to ask about
    monkeypatch.setattr(sys, "stdin", Interrupted())
    command("dead-letters", "redrive", *WHERE, code=INTERRUPTED)
    for arguments, question, result in [
        (["dead-letters", "redrive", *WHERE, "--rate", "10"], "At 10 a second redrive 2 dead letters?", None),
        (["dead-letters", "delete", *WHERE], "Delete for good 2 dead letters?", {"deleted": 2}),
        (["groups", "retry", *WHERE], "Retry now 1 waiting delivery?", {"retried": 1}),
        (["groups", "set", *WHERE, "--filter", "paid"], "which has 2 waiting messages?", None),
        (["groups", "delete", *WHERE], "(2 waiting, 1 retrying)?", None),
        (["topics", "delete", "orders"], "its 1 group and all messages (2 waiting, 1 retrying)?", None),
        (["groups", "purge", *WHERE], "(2 waiting, 1 retrying)?", {"purged": 3}),
        (["topics", "purge", "orders"], "(nothing)?", {"purged": 0}),
    ]:
        monkeypatch.setattr(sys, "stdin", None)
        err = command(*arguments, code=USAGE)
        assert question in err
        assert "is no terminal" in err
        assert "add --yes" in err
        monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
        assert command(*arguments, code=REFUSED).count("no number") == (arguments[0] == "dead-letters") * 2
        if result:
            monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
            assert command(*arguments, "--json") == [result]


def test_a_command_on_many_says_what_it_did_not_do(
    command: Command,
    headrace: LocalHeadrace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = bury(headrace, 1_002, "no number")[0]
    delete, redrive = (
        ["dead-letters", "delete", *WHERE, "--yes"],
        ["dead-letters", "redrive", *WHERE, "--yes"],
    )
    assert "no such dead letter: nope" in command(*redrive, "nope", code=NOT_FOUND)
    assert "no such waiting delivery" in command("groups", "retry", *WHERE, known, "--yes", code=NOT_FOUND)
    assert "no such dead letter: nope" in command(*delete, known, "nope", code=PARTLY)
    monkeypatch.setattr("headrace._sync.transport.pause", lambda seconds: None)
    with faulty_proxy(headrace.transport.urls[0]) as proxy:
        proxy.plan.extend([PASS, PASS, PASS, *[REFUSE] * 3])
        assert run([*redrive, "--json", "--url", proxy.url]) == NO_ANSWER
    out, err = capsys.readouterr()
    assert json.loads(out) == {"redriven": 1_000}
    assert "1000 of 1001, and perhaps" in err
    assert command(*redrive, "--json") == [{"redriven": 1}]


def test_another_filter_says_what_becomes_of_waiting_messages(
    command: Command, headrace: LocalHeadrace, capsys: pytest.CaptureFixture[str]
) -> None:
    headrace.send_many("orders", [Outgoing(1, tag="paid"), Outgoing(2, tag="refunded")])
    assert run(["groups", "set", *WHERE, "--filter", "paid", "--yes"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split(maxsplit=1) == ["filter", "* → paid"]
    assert "also about the 2 that wait" in " ".join(err.split())
    assert [message.body for message in headrace.receive(*WHERE)] == [1]
    assert run(["groups", "create", *WHERE, "--filter", "refunded", "--yes"]) == 0
    assert "'paid' has excluded so far stay excluded" in " ".join(capsys.readouterr().err.split())
    assert headrace.receive(*WHERE) == []
    assert "groups create orders none" in command(
        "groups", "set", "orders", "none", "--filter", "x", code=NOT_FOUND
    )


def test_a_pause_has_an_end(command: Command, headrace: LocalHeadrace) -> None:
    (group,) = command("groups", "pause", "orders", "mailer", "--until", "2100-01-01T00:00:00Z", "--json")
    assert group["paused_until"] == "2100-01-01T00:00:00.000Z"
    assert headrace.get_group("orders", "mailer").paused_until is not None


def test_deliveries_are_changed_settled_and_purged(
    command: Command, headrace: LocalHeadrace, capsys: pytest.CaptureFixture[str]
) -> None:
    id = headrace.send("orders", {"order": 1}).id
    headrace.nack("orders", "mailer", *headrace.receive("orders", "mailer"), delay=60)
    command(
        "messages", "edit", "orders", id, "mailer", "--body", '{"order": 2}', "--at", "2020-01-01T00:00:00Z"
    )
    assert run(["messages", "edit", "orders", id, "mailer"]) == USAGE
    assert run(["messages", "settle", "orders", id, "mailer", "lost", "--yes"]) == USAGE
    (delivery,) = command(
        "messages", "settle", "orders", id, "mailer", "dead", "--reason", "no", "--yes", "--json"
    )
    assert (delivery["status"], delivery["last_error"]) == ("DEAD", "no")
    (letter,) = command("dead-letters", "list", "orders", "mailer", "--json")
    assert letter["body"] == {"order": 2}
    headrace.send_many("orders", [1, 2, 3])
    assert command("groups", "purge", "orders", "mailer", "--yes", "--json") == [{"purged": 3}]
    assert command("topics", "purge", "orders", "--yes", "--json") == [{"purged": 0}]


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
    previews = command("seek", "orders", "mailer", "earliest", "--preview", "--json")
    assert previews == [{"waiting": 3, "would_wait": 3, "bound": "exactly"}]


def test_a_consumer_of_a_broadcast_is_moved_alone_and_deleted(
    command: Command, headrace: LocalHeadrace, capsys: pytest.CaptureFixture[str]
) -> None:
    headrace.put_group("orders", "screens", mode="broadcast")
    for name in ("north", "south"):
        headrace.put_consumer("orders", "screens", name, expires_after_seconds=3600)
    headrace.send("orders", 1)
    assert run(["seek", "orders", "screens", "latest", "--consumer", "north", "--yes"]) == 0
    assert "north would skip 1 message" in capsys.readouterr().err
    assert headrace.receive("orders", "screens", consumer="north") == []
    assert len(headrace.receive("orders", "screens", consumer="south")) == 1
    command("consumers", "delete", "orders", "screens", "south", "--yes")
    (north,) = command("consumers", "list", "orders", "screens", "--json")
    assert (north["consumer"], north["expires_after_seconds"]) == ("north", 3600)


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
    assert "headrace dead-letters list orders mailer" in findings["orders/mailer"]["detail"]
    assert headrace.transport.token not in json.dumps(findings)


def test_what_waits_for_a_person_is_listed_and_fails_the_doctor(
    command: Command, headrace: LocalHeadrace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("attention", "--json") == []
    headrace.send("orders", 1)
    for _ in range(2):
        headrace.clock.advance(minutes=11)
    assert run(["attention", "--json"]) == REFUSED
    (state,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (state["kind"], state["topic"], state["group"]) == ("NO_CONSUMERS", "orders", "mailer")
    assert run(["attention"]) == REFUSED
    assert "no consumer" in " ".join(capsys.readouterr().out.split())
    assert run(["doctor", "--json"]) == REFUSED
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (failure,) = [finding for finding in findings if finding["ok"] is False]
    assert failure["check"] == "orders/mailer"
    assert state["to_do"] in failure["detail"]


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


def test_a_subscriber_is_looked_at_tested_and_given_a_secret(
    command: Command, headrace: LocalHeadrace
) -> None:
    subscriber = Subscriber()
    try:
        shop_is = ("consumers", "put", "orders", "mailer", "shop", "--endpoint", subscriber.url)
        assert "whsec_" in command(*shop_is, "--header", "X-Api-Key: k-1", "--timeout", "90")
        command(*shop_is, "--reject-status", "404", "--transform", "{n: body.n}")
        (shop,) = command("consumers", "list", "orders", "mailer", "--json")
        assert (shop["consumer"], shop["state"]) == ("shop", "ACTIVE")
        assert (shop["headers"], shop["reject_statuses"]) == ({"X-Api-Key": "•••"}, [404])
        preview = ("consumers", "test", "orders", "mailer", "shop", "--body", '{"n": 1, "m": 2}', "--dry-run")
        assert command(*preview, "--json")[0]["request"]["body"] == '{"n":1}'
        assert command(*preview, "--transform", "body.m", "--json")[0]["request"]["body"] == "2"
        assert subscriber.pushes == []
        (result,) = command("consumers", "test", "orders", "mailer", "shop", "--json")
        assert (result["ok"], result["answer"]["status"]) == (True, 204)
        assert subscriber.pushes[0].headers["ce-type"] == "headrace.test"
        subscriber.answer = lambda push: 500
        command("consumers", "test", "orders", "mailer", "shop", code=REFUSED)
        assert command("consumers", "rotate-secret", "orders", "mailer", "shop").startswith("whsec_")
        assert "whsec_" in command("groups", "set", *WHERE, "--callback-host", "a.example.com")
        sent = command("send", "orders", "1", "--callback-url", "https://a.example.com/x", "--json")
        assert headrace.get_message("orders", sent[0]["id"]).callback_url == "https://a.example.com/x"
        assert "a.example.com" in command("groups", "rotate-secret", *WHERE)
        put = ("jobs", "put", "orders", "j", "1", "--callback-url", "https://a.example.com/j")
        assert command(*put, "--json")[0]["job"] == "j"
        assert "https://a.example.com/j" in command("jobs", "get", "orders", "j")
        assert "→ none" in command("groups", "set", *WHERE, "--callback-host", "")
        assert command("consumers", "attempts", "orders", "mailer", "shop", "--json") == []
    finally:
        subscriber.close()


def test_a_token_is_rotated_a_link_signs_in_and_the_archive_is_told(
    command: Command, headrace: LocalHeadrace
) -> None:
    token = headrace.create_token("shop", ["produce"])
    (new_token,) = command("tokens", "rotate", token.id, "--overlap-seconds", "0", "--json")
    assert new_token["token"] != token.token
    assert "/console/sign-in?ticket=" in command("console")
    (day,) = command("archive", "--to", "2020-01-01", "--days", "1", "--json")
    assert (day["day"], day["topics"]) == ("2020-01-01", [])


def test_destinations_and_events_are_set_shown_and_taken_away(
    command: Command, headrace: LocalHeadrace
) -> None:
    headrace.put_topic("alerts")
    command("groups", "set", "orders", "mailer", "--on-dead", "alerts", "--include-body")
    assert headrace.get_group("orders", "mailer").on_dead == Destination(topic="alerts", include_body=True)
    command("groups", "set", "orders", "mailer", "--on-dead", "")
    assert headrace.get_group("orders", "mailer").on_dead is None
    command("events", "set", "alerts", "--type", "headrace.message.dead")
    [shown] = command("events", "get", "--json")
    assert shown == {"topic": "alerts", "types": ["headrace.message.dead"]}
    command("events", "delete")
    assert headrace.get_events().topic is None
