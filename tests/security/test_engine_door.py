"""The served engine, as other users of the machine and pages in a browser try it: it answers the holder of its keys."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local.engine.core import Engine
from local.engine.server import serving

_TARGET = "DynamoDB_20120810.ListTables"


@dataclass(frozen=True)
class Door:
    """A served engine."""

    variables: Mapping[str, str]

    @property
    def place(self) -> str:
        return urlsplit(self.variables["AWS_ENDPOINT_URL_DYNAMODB"]).netloc

    def signed(
        self,
        target: str = _TARGET,
        body: str = "{}",
        *,
        keys: Credentials | None = None,
        service: str = "dynamodb",
        **headers: str,
    ) -> dict[str, str]:
        """The headers of a request, signed as botocore does."""
        variables = self.variables
        own = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
        request = AWSRequest(
            "POST", f"http://{self.place}/", data=body, headers={"X-Amz-Target": target, **headers}
        )
        botocore.auth.SigV4Auth(keys or own, service, "eu-west-1").add_auth(request)
        return dict(request.headers)

    def ask(
        self, headers: Mapping[str, str], body: str = "{}", method: str = "POST", path: str = "/"
    ) -> tuple[int, str]:
        """The status of the answer, and its error code or its text."""
        connection = http.client.HTTPConnection(self.place, timeout=20)
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, json.loads(text).get("__type", text).rpartition("#")[2]


_UNSIGNED = (400, "UnrecognizedClientException")
_FOREIGN = (403, "AccessDeniedException")
_TABLES = (200, '{"TableNames": []}')


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    engine = Engine()
    with serving(engine) as variables:
        yield Door(variables)
    engine.close()


def test_a_signed_request_is_answered(door: Door) -> None:
    assert door.ask(door.signed()) == _TABLES
    assert door.ask(door.signed(**{"X-Amz-Security-Token": "left over from elsewhere"})) == _TABLES


def test_the_host_may_be_localhost(door: Door) -> None:
    assert door.ask(door.signed(Host=door.place.replace("127.0.0.1", "localhost"))) == _TABLES


def test_it_listens_on_this_machines_own_address_only(door: Door) -> None:
    assert door.place.startswith("127.0.0.1:")


@pytest.mark.parametrize("value", [None, "", "AWS4-HMAC-SHA256", "Bearer x"])
def test_without_a_signature_nothing_is_answered(door: Door, value: str | None) -> None:
    headers = {**door.signed(), "Authorization": value}
    assert door.ask({name: text for name, text in headers.items() if text is not None}) == _UNSIGNED


def test_the_body_is_not_parsed_before_the_signature_is_checked(door: Door) -> None:
    assert door.ask({"X-Amz-Target": _TARGET}, body="no JSON") == _UNSIGNED


@pytest.mark.parametrize("known", ["id", "secret", "nothing"])
def test_another_users_keys_are_refused(door: Door, known: str) -> None:
    key_id = door.variables["AWS_ACCESS_KEY_ID"] if known == "id" else "local"
    secret = door.variables["AWS_SECRET_ACCESS_KEY"] if known == "secret" else "local"
    assert door.ask(door.signed(keys=Credentials(key_id, secret))) == _UNSIGNED


def test_a_changed_request_is_refused(door: Door) -> None:
    headers = door.signed()
    assert door.ask(headers, body='{"Limit": 1}') == _UNSIGNED
    assert door.ask(headers, method="PUT") == _UNSIGNED
    assert door.ask(headers, path="/?x=1") == _UNSIGNED
    assert door.ask({**headers, "X-Amz-Target": "DynamoDB_20120810.DeleteTable"}) == _UNSIGNED
    assert door.ask({**headers, "X-Amz-Added": "x"}) == _UNSIGNED


@pytest.mark.parametrize("unsigned", ["host", "x-amz-date", "x-amz-target"])
def test_a_signature_without_a_header_that_counts_is_refused(
    door: Door, monkeypatch: pytest.MonkeyPatch, unsigned: str
) -> None:
    """As a holder of the keys would make it, so that the rest of the request is right."""
    select = botocore.auth.SigV4Auth.headers_to_sign

    def without_one(signer: Any, request: Any) -> Any:
        headers = select(signer, request)
        del headers[unsigned]
        return headers

    monkeypatch.setattr(botocore.auth.SigV4Auth, "headers_to_sign", without_one)
    headers = door.signed()
    assert unsigned not in headers["Authorization"]
    assert door.ask(headers) == _UNSIGNED


def test_a_body_that_is_not_part_of_the_signature_is_refused(door: Door) -> None:
    assert door.ask(door.signed(**{"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})) == _UNSIGNED


def test_a_signature_for_another_service_is_refused(door: Door) -> None:
    assert door.ask(door.signed(service="sqs")) == _UNSIGNED


@pytest.mark.parametrize(
    ("minutes", "answer"), [(-16, _UNSIGNED), (-14, _TABLES), (14, _TABLES), (16, _UNSIGNED)]
)
def test_a_signature_is_valid_for_fifteen_minutes(
    door: Door, monkeypatch: pytest.MonkeyPatch, minutes: int, answer: tuple[int, str]
) -> None:
    at = (datetime.now(UTC) + timedelta(minutes=minutes)).replace(tzinfo=None)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: at)
    assert door.ask(door.signed()) == answer


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "[::1]:8000", "localhost"])
def test_another_host_is_refused_though_the_signature_is_right(door: Door, host: str) -> None:
    assert door.ask(door.signed(Host=host)) == _FOREIGN


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1"])
def test_a_page_whose_name_leads_here_is_refused(door: Door, origin: str) -> None:
    """DNS rebinding: no preflight is asked, as the browser takes the engine for the page's own server."""
    assert door.ask({**door.signed(), "Origin": origin}) == _FOREIGN


def test_no_preflight_is_answered(door: Door) -> None:
    assert door.ask({"Access-Control-Request-Method": "POST"}, method="OPTIONS") == _FOREIGN
