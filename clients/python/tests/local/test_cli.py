"""The command line: how commands are written, signed in and ended."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_commands import Command
from tests.support.rarely import rarely

from headrace import _environment, cli
from headrace._sync import transport
from headrace.cli import app
from headrace.cli.app import ordered
from headrace.cli.profiles import Profiles, Unusable, access
from headrace.cli.session import NO_ANSWER, NOT_ALLOWED, NOT_FOUND, REFUSED, USAGE, topic_names
from headrace.testing import LocalHeadrace

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["send", "orders", "{order}"], USAGE, "is no JSON"),
        (["send", "orders", "1", "--delay", "soon"], USAGE, "is no duration"),
        (["show", "orders", "nope"], NOT_FOUND, "MESSAGE_NOT_FOUND"),
        (["topics", "show", "none"], NOT_FOUND, "TOPIC_NOT_FOUND"),
        (
            ["topics", "list", "--token", "hr_no_0123456789"],
            NOT_ALLOWED,
            "UNAUTHORIZED: The service does not accept",
        ),
        (["topics", "list", "--token", "Bearer hr_no_0123456789"], USAGE, "HEADRACE_TOKEN"),
        (["topics", "create", "x", "--set", "shards=0"], REFUSED, "shards"),
        (["topics", "list", "--profile", "none"], USAGE, "There is no profile none"),
        (["receive", "orders", "mailer", "--ack", "--back"], USAGE, "Choose --ack or --back"),
        (["receive", "orders", "mailer", "--wait", "soon"], USAGE, "is no duration"),
        (["tail", "orders", "--from", "2030-01-01"], USAGE, "write 2030-01-01T00:00:00Z"),
        (["send", "orders", "--file", "/no/such.jsonl"], USAGE, "No such file"),
        (["send", "orders", "--file", "/dev/null/x"], USAGE, "Not a directory: /dev/null/x"),
        (["listen", "orders", "--forward", "localhost:3000"], USAGE, "http://localhost:3000"),
        (["listen", "orders", "--forward", "http://localhost:port/"], USAGE, "must be a whole URL"),
        (["listen", "orders", "--forward", "http://"], USAGE, "must be a whole URL"),
        (["find", "orders", "-n", "-1"], USAGE, "greater than or"),
        (["tail", "orders", "-n", "-1"], USAGE, "greater than or"),
        (["find", "orders", "--from", "yesterday"], REFUSED, "VALIDATION: --from: must be a time"),
        (
            ["dead-letters", "redrive", "orders", "mailer", "--since", "x"],
            REFUSED,
            "VALIDATION: --since: must",
        ),
        (
            ["groups", "create", "orders", "x", "--set", "batch_size=0"],
            REFUSED,
            "VALIDATION: --set batch_size:",
        ),
        (["send", "orders", "1", "--dedup-until", "done"], REFUSED, "--dedup-until: goes with --dedup-id"),
        (["receive", "none", "x"], NOT_FOUND, "'none'. Create it: headrace topics create none"),
        (
            ["consumers", "delete", "orders", "mailer", "x", "--yes"],
            NOT_FOUND,
            "headrace consumers list orders mailer",
        ),
        (["groups"], USAGE, "headrace groups list"),
        (["topics", "create", "no name"], REFUSED, "\n  topic: must match"),
    ],
)
def test_an_exit_code_says_what_kind_of_error_it_is(
    command: Command, arguments: list[str], code: int, sentence: str
) -> None:
    assert sentence in command(*arguments, code=code)


def test_no_answer_has_a_code_of_its_own(command: Command) -> None:
    assert "NO_ANSWER" in command("topics", "list", "--url", "http://127.0.0.1:9", code=NO_ANSWER)


def test_a_send_waits_for_a_service_that_is_away_and_says_so(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was tried three times within half a second."""
    waits: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(waits), time=time.time)
    monkeypatch.setattr(transport, "time", clock)
    monkeypatch.setattr(transport.Transport, "pause", lambda _, seconds: waits.append(seconds))
    error = command("send", "orders", "1", "--url", "http://127.0.0.1:9", code=NO_ANSWER)
    assert "POST /v1/topics/orders/messages: NO_ANSWER, again in" in error
    assert 105 < sum(waits) <= 120


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


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"profiles": 5}',
        '{"default": ["a"]}',
        '{"profiles": {"a": "http://here"}, "default": "a"}',
        '{"profiles": {"a": {"url": "http://here"}}, "default": "a"}',
        '{"profiles": {"a": {"url": 5, "token": 6}}, "default": "a"}',
    ],
)
def test_a_file_of_profiles_that_is_damaged_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    file = Profiles.read().path
    file.parent.mkdir(parents=True)
    file.write_text(content)
    monkeypatch.delenv("HEADRACE_URL")
    monkeypatch.delenv("HEADRACE_TOKEN")
    for arguments in (["topics", "list"], ["profile", "list"]):
        assert "profiles.json cannot be read" in command(*arguments, code=USAGE)


def test_a_profile_that_finds_no_place_says_where_and_asks_for_no_token_that_is_given(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    arguments = ["profile", "add", "here", "--url", "http://here", "--token", "hr_x_1"]
    command(*arguments)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null/x")
    monkeypatch.setattr(Profiles, "read", lambda: Profiles(Path("/dev/null/x/profiles.json")))
    assert "Not a directory: /dev/null/x" in command(*arguments, code=USAGE)


def test_certificates_that_are_not_there_are_looked_for_by_their_variable(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such.pem")
    _environment._context.cache_clear()
    assert "SSL_CERT_FILE" in command("topics", "list", "--url", "https://127.0.0.1:9", code=USAGE)


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


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in group.commands.items():
        yield from commands(each, *names, name) if hasattr(each, "commands") else [((*names, name), each)]


def test_every_noun_lists_and_every_command_shows_an_example_that_is_one() -> None:
    root = app._command()
    nouns = [each for each in root.commands.values() if hasattr(each, "commands")]
    assert all(each.commands.keys() & {"list", "get"} for each in nouns)
    for names, each in commands(root):
        assert "." in each.help, names
        word, *arguments = shlex.split(each.epilog.removeprefix("Example: "))
        assert (word, *arguments[: len(names)]) == ("headrace", *names)
        words = ordered(arguments)
        own = words[words.index(names[0]) + len(names) :]
        each.make_context(names[-1], own, resilient_parsing="spool" in names).close()  # there is no such file


def test_without_a_verb_a_noun_lists(command: Command) -> None:
    assert command("topics", "--json") == command("topics", "list", "--json")
    assert app._command().commands["topics"].make_context("topics", [], resilient_parsing=True).args == []
    assert command("--version").startswith("headrace ")


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, app.__name__)
    monkeypatch.delattr(cli, "app")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    names = shlex.split(capsys.readouterr().err.partition("pip install")[2])
    assert f"cli = {json.dumps(names)}\n" in (ROOT / "clients/python/pyproject.toml").read_text()


def test_the_tour_on_the_page_works(command: Command, headrace: LocalHeadrace) -> None:
    page = (ROOT / "docs/cli.md").read_text()
    tour = re.findall(r"^    headrace (.*?)(?:  +#.*)?$", page[: page.index("\n## ")], re.MULTILINE)
    assert len(tour) > 8
    for line in tour:
        command(*shlex.split(line))


@pytest.mark.parametrize(
    "arguments", [("topics", "list"), *rarely(("topics", "list", "--json"), ("--help",))]
)
def test_a_reader_that_has_seen_enough_ends_it_in_peace(
    headrace: LocalHeadrace, arguments: tuple[str, ...]
) -> None:
    headrace.put_topic("orders")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        process = subprocess.run(
            [sys.executable, "-m", "headrace.cli", *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=pipe,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert (process.returncode, process.stderr) == (0, b"")
