"""A job's arguments, from the command line and the service, and which of them it refuses."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from glue_jobs import replay
from glue_jobs.common import access
from glue_jobs.common.arguments import FAILED
from glue_jobs.common.failures import JobError
from glue_jobs.common.service import Refused, Service
from tests.support.receiver import Receiver, Reply

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.archiving.options import of_archive
from glue_jobs.common import arguments
from glue_jobs.common.arguments import BAD_ARGUMENTS
from glue_jobs.replaying.options import of_replay
from glue_jobs.reporting.options import of_asof, of_compare, of_report

Read = Callable[[str | None, list[str]], argparse.Namespace]
ASOF = ["--topic", "orders", "--at", "2026-11-20T09:30:00Z"]
COMPARE = ["--topic", "orders", "--group", "g", "--shadow", "shade"]
REPLAY = ["--topic", "orders", "--from", "2026-11-20", "--to", "2026-11-21"]


@pytest.mark.parametrize(
    ("job", "read_options", "argv", "sentence"),
    [
        ("archive", of_archive, ["--window", "2026-02-30"], "no day such as"),
        ("archive", of_archive, ["--window", "0001-01-01"], "no day such as"),
        ("archive", of_archive, ["--look-back-days", "99999999"], "no whole number from 1 to 36,500"),
        ("archive", of_archive, ["--lateness-minutes", "9999999999"], "no whole number from 0 to 525,600"),
        ("archive", of_archive, ["--file-mb", "9" * 5000], "no whole number from 1 to 2,147,483,647"),
        ("archive", of_archive, ["--backfill-edits", "1"], "'1' is neither yes nor no"),
        ("archive", of_archive, ["--backfill", "no", "--backfill-edits", "yes"], "it needs --backfill yes"),
        ("report", of_report, ["--topic", "ünïcode"], "'ünïcode' is no name"),
        ("report", of_report, ["--to", "9999-12-31"], "no day such as"),
        ("asof", of_asof, [], "--topic, --at"),
        ("asof", of_asof, [*ASOF, "--at", "0001-01-01T00:00:00Z"], "no time such as"),
        ("asof", of_asof, [*ASOF, "--at", "0001-01-01T00:00:00+14:00"], "no time such as"),
        ("asof", of_asof, [*ASOF, "--list", "99999999999999999999"], "no whole number"),
        ("asof", of_asof, [*ASOF, "--group", "a b"], "'a b' is no name"),
        ("compare", of_compare, [*COMPARE, "--shadow-group", "../../../g"], "is no name"),
        ("replay", of_replay, [*REPLAY, "--into", "a/b"], "is no name"),
        ("replay", of_replay, [*REPLAY, "--rate", "-1"], "no whole number"),
        ("replay", of_replay, [*REPLAY, "--url", "localhost:8700"], "one is like http://127.0.0.1:8700"),
        ("replay", of_replay, [*REPLAY, "--url", "http://localhost:port"], "Port could not be cast"),
        ("replay", of_replay, [*REPLAY, "--url", "http://localhost:99999"], "Port out of range"),
    ],
)
def test_what_a_job_refuses_is_one_sentence_a_summary_and_exit_code_2(
    job: str,
    read_options: Read,
    argv: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        read_options(None, ["--folder", str(tmp_path), *argv])
    assert exit_info.value.code == BAD_ARGUMENTS
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert summary["job"] == job
    assert sentence in summary["error"]
    assert err.splitlines()[-1] == f"python -m glue_jobs.{job}: error: {summary['error']}"


@given(st.text(max_size=30) | st.datetimes().map(str) | st.dates().map(str) | st.integers().map(str))
def test_a_value_is_taken_or_refused(text: str) -> None:
    kinds: list[Callable[[str], Any]] = [
        *(arguments.day, arguments.instant, arguments.name),
        *(arguments.positive, arguments.days, arguments.minutes, arguments.yes_no),
    ]
    for kind in kinds:
        with suppress(argparse.ArgumentTypeError):
            kind(text)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_a_redirection_is_refused_and_takes_the_token_nowhere(method: str, status: int) -> None:
    with Receiver() as elsewhere:
        place = elsewhere.url("elsewhere")
        with Receiver(lambda _: Reply(status, {"Location": place})) as receiver:
            url = receiver.url("").rstrip("/")
            with pytest.raises(Refused) as refusal:
                Service(url, "hr_secret").ask(method, "/v1/topics", None if method == "GET" else {})
    assert (len(receiver.visits), elsewhere.visits) == (1, [])
    assert str(refusal.value) == (
        f"REDIRECTED: {url} redirects to {place}, and no redirection is followed: --url (HEADRACE_URL) must be that "
        "of the service itself."
    )


def test_what_is_no_redirection_is_answered_as_ever() -> None:
    replies = [Reply(200, {}, b'{"items": []}'), Reply(403, {}, b'{"code": "FORBIDDEN", "detail": "No."}')]
    with Receiver(lambda _: replies.pop(0)) as receiver:
        service = Service(receiver.url("").rstrip("/"), "hr_secret")
        assert service.ask("GET", "/v1/topics") == {"items": []}
        with pytest.raises(Refused, match="FORBIDDEN"):
            service.ask("GET", "/v1/topics")


@pytest.fixture(params=["environment", "secret"])
def given_token(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], str]]:
    """The token with which a job calls the service, where it was given this text."""
    name = "replay-token" if request.param == "secret" else None

    def token_of(text: str) -> str:
        if name:
            boto3.client("secretsmanager").create_secret(Name=name, SecretString=text)
        else:
            monkeypatch.setenv("HEADRACE_TOKEN", text)
        return access.service(argparse.Namespace(url="http://127.0.0.1:9", token_secret=name)).token

    with mock_aws():
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        yield token_of


def test_the_newline_behind_a_token_in_a_file_is_none_of_it(given_token: Callable[[str], str]) -> None:
    assert given_token("hr_a_b\n") == "hr_a_b"


@pytest.mark.parametrize("text", ['{"token": "hr_a_secret"}', "hr_a_secret\nhr_c_secret", "sécret"])
def test_what_is_no_token_is_neither_sent_nor_shown(given_token: Callable[[str], str], text: str) -> None:
    with pytest.raises(JobError, match="no token") as refusal:
        given_token(text)
    assert "cret" not in str(refusal.value).replace("The secret", "")


def test_a_token_file_that_cannot_be_read_ends_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").mkdir()
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path))
    assert replay.main(["--folder", str(tmp_path), "--replay", "r"]) == FAILED
    assert str(tmp_path / "token") in json.loads(capsys.readouterr().out)["error"]
