"""How jobs call the service: what it answers, and what they do not follow."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from glue_jobs import replay
from glue_jobs.common import access
from glue_jobs.common.arguments import FAILED
from glue_jobs.common.failures import JobError
from glue_jobs.common.service import Refused, Service
from tests.support.receiver import Receiver, Reply


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
