"""The command line: groups, dead letters, counts, tokens and subscribers are looked after."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cli_commands import Command

from headrace import Outgoing
from headrace.cli.app import NOT_FOUND, REFUSED, USAGE, run
from headrace.cli.doctor import clock_finding
from headrace.cli.groups import Preview
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


def test_many_are_counted_before_they_are_redriven_deleted_and_retried(
    command: Command, headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("orders", "mailer")
    for tag, count in (("old", 1_001), ("new", 2)):
        headrace.send_many("orders", [Outgoing(n, tag=tag) for n in range(count)])
        while messages := headrace.receive(*where, max=1_000):
            headrace.nack(*where, *messages, dead_letter=True, reason=f"{tag} failed")
    (seen,) = command("dead-letters", "redrive", *where, "--error", "old", "--preview", "--json")
    assert (seen["count"], seen["sample"][0]["error"]) == (1_001, "old failed")
    assert command("dead-letters", "redrive", *where, "--error", "old", "--yes", "--json") == [
        {"redriven": 1_001}
    ]
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question))
    asked: list[str] = []
    assert command("dead-letters", "delete", *where, "--json") == [{"deleted": 2}]
    assert command("dead-letters", "delete", *where, "--json") == [{"deleted": 0}]
    headrace.nack(*where, *headrace.receive(*where, max=3), delay=3_600)
    assert command("groups", "retry", *where, "--json") == [{"retried": 3}]
    assert command("transactions", "recheck", "--json") == [{"rechecked": 0}]
    assert asked == ["Delete for good 2 dead letters?", "Retry now 3 deliveries?"]


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
    assert run(["topics", "purge", "orders"]) != 0  # it asks first, and there is no terminal


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
    service_time = datetime(2026, 11, 22, 9, 0, tzinfo=timezone.utc)
    finding = clock_finding(service_time + timedelta(seconds=ahead), service_time)
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


def test_a_subscriber_is_looked_at_tested_and_given_a_secret(
    command: Command, headrace: LocalHeadrace
) -> None:
    subscriber = Subscriber()
    try:
        headrace.put_consumer("orders", "mailer", "shop", url=subscriber.url)
        (shop,) = command("consumers", "list", "orders", "mailer", "--json")
        assert (shop["consumer"], shop["state"]) == ("shop", "ACTIVE")
        (result,) = command("consumers", "test", "orders", "mailer", "shop", "--json")
        assert (result["ok"], result["answer"]["status"]) == (True, 204)
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
    (new_token,) = command("tokens", "rotate", token.id, "--overlap-seconds", "0", "--json")
    assert new_token["token"] != token.token
    assert "/console/sign-in?ticket=" in command("console")
    (day,) = command("archive", "--to", "2020-01-01", "--days", "1", "--json")
    assert (day["day"], day["topics"]) == ("2020-01-01", [])
