"""The OpenAPI document is valid, and the service behaves as documented for every request."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable, Iterable
from html import unescape
from pathlib import Path
from subprocess import run
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from chalicelib.api import openapi, resources
from chalicelib.api.calls import CALLS
from chalicelib.api.resources.consumers import ConsumerBody
from tests.conftest import SOAK
from tests.support import described
from tests.support.http import Client

assert resources, "importing the resources enters their calls"
EXAMPLES = 50 if SOAK else 4
OF_ALL_TOPICS = ("/v1/topics", "/v1/stats")
WORDS = {part for entry in CALLS for part in entry.path.split("/") if "{" not in part}
EXISTING = {"topic": "contract", "group": "g", "consumer": "c", "name": "jmq"}
TARGETS = [
    {"url": "http://127.0.0.1:1/"},  # allowed here, and a closed port
    {"url": "https://example.com/"},  # resolves to nothing
    {"url": "http://10.0.0.1/"},
    {"function": "charge"},
    {"function": "nobody"},
]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


def wsgi(api: Client) -> Callable[[dict[str, Any], StartResponse], Iterable[bytes]]:
    """The in-process gateway as a WSGI application."""

    def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").title(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") or name == "CONTENT_TYPE"
        }
        headers["Authorization"] = f"Bearer {api.token}"  # in place of the generated one
        raw = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        method, path = environ["REQUEST_METHOD"], environ["REQUEST_URI"]
        status, answer_headers, body = api.gateway.handle(method, path, headers, raw or None)
        described.check(method, path, status, answer_headers, body)
        start_response(f"{status} -", list(answer_headers.items()))
        return [body]

    return application


@pytest.fixture(scope="module")
def schema(api: Client) -> Any:
    return schema_of(api)


def schema_of(api: Client) -> Any:
    return schemathesis.openapi.from_wsgi("/v1/openapi.json", wsgi(api))


@pytest.fixture
def called(request: pytest.FixtureRequest, api: Client, schema: Any, entry: Any) -> tuple[Client, Any]:
    """A client for one call, and the description that it was given. Lists of all topics have a stage of their own."""
    if entry.path in OF_ALL_TOPICS:
        client: Client = request.getfixturevalue("empty_api")
        return client, schema_of(client)
    return api, schema


def test_the_document_is_valid_openapi(api: Client, tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(api.with_token(None).get("/v1/openapi.json").expect(200)))
    # Importing it takes two seconds of each process that shares the tests: it has one of its own.
    validator = [sys.executable, "-m", "openapi_spec_validator", "--schema", "3.1", str(file)]
    assert run(validator, capture_output=True, text=True).stdout == f"{file}: OK\n"


def test_the_document_has_every_call_and_no_other() -> None:
    calls = {
        (method.upper(), path) for path, methods in openapi.document()["paths"].items() for method in methods
    }
    assert calls == {(entry.method, entry.path) for entry in CALLS}


def test_every_call_says_what_it_does() -> None:
    for path, methods in openapi.document()["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"].endswith("."), (method, path)
            assert ("401" in operation["responses"]) == bool(operation["security"])
            assert operation["tags"]


def test_every_success_has_a_schema() -> None:
    for operation in described.operations():
        successes = [answer for status, answer in operation["responses"].items() if status < "300"]
        assert successes, operation["operationId"]
        for answer in successes:
            assert all(media["schema"] for media in answer.get("content", {}).values()), operation[
                "operationId"
            ]


def test_the_document_says_where_its_paths_begin(api: Client) -> None:
    assert api.get("/v1/openapi.json").expect(200)["servers"][0]["url"] == "/"
    assert openapi.document("/api")["servers"][0]["url"] == "/api"


def test_the_page_tells_every_call_and_the_fields_of_every_body(api: Client) -> None:
    reply = api.with_token(None).get("/docs")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    page, document = unescape(reply.raw.decode()), openapi.document()
    assert [entry.path for entry in CALLS if f"<code>{entry.method} {entry.path}</code>" not in page] == []
    fields = {
        field
        for schema in document["components"]["schemas"].values()
        for field in schema.get("properties", {})
    }
    assert {field for field in fields if f"<dt><code>{field}</code>" not in page} == set()
    assert "Header: headrace-key, headrace-tag" in page


def test_the_page_runs_one_script_which_is_ours_and_asks_nobody_else(api: Client) -> None:
    page = api.with_token(None).get("/docs")
    (source,) = re.findall(r'<script[^>]* src="([^"]*)"></script>', page.raw.decode())
    assert page.raw.count(b"<script") == 1
    policy = dict(each.split(" ", 1) for each in page.headers["Content-Security-Policy"].split("; "))
    assert (policy["default-src"], policy["script-src"], policy["connect-src"]) == (
        "'none'",
        "'self'",
        "'self'",
    )
    assert policy["style-src"].split() == ["'self'", "'unsafe-inline'"]  # without it, the page has no style
    status, headers, script = api.gateway.handle("GET", f"/{source}", {}, None)
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert "immutable" in headers["Cache-Control"]
    assert b"rapi-doc" in gzip.decompress(script)
    assert len(script) < 256 * 1024  # what it adds to the package that Lambda ships


def test_patterns_are_regular_expressions_in_every_language() -> None:
    assert "\\\\Z" not in json.dumps(openapi.document())


def any_case(operation: Any) -> Any:
    """Requests as described, and requests that are not."""
    good_cases = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    other = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
    return good_cases | other


def set_up(api: Client, path: str) -> str:
    """Make what EXISTING names; the id of a message in it, buried where the path is about dead letters."""
    group = "/v1/topics/contract/groups/g"
    api.put("/v1/topics/contract")
    api.put(group, {"from": "earliest"})
    api.put(f"{group}/consumers/c")
    stored_message = api.post("/v1/topics/contract/messages", {"body": 1}).expect(201)
    if "dead-letters" in path or path.endswith("/retry"):
        messages = api.post(f"{group}/receive", {"max": 1000, "consumer": "c"}).expect(200)["messages"]
        if receipts := [message["receipt"] for message in messages]:
            api.post(f"{group}/nack", {"receipts": receipts, "dead_letter": True}).expect(200)
    return str(stored_message["id"])


@pytest.mark.parametrize("entry", CALLS, ids=lambda entry: f"{entry.method} {entry.path}")
def test_no_request_gets_a_5xx_or_an_undocumented_answer(called: tuple[Client, Any], entry: Any) -> None:
    api, schema = called
    operation = schema[entry.path][entry.method]
    checks = CHECKS.get_by_names(
        [
            "not_a_server_error",
            "status_code_conformance",
            "content_type_conformance",
            "response_schema_conformance",
        ]
    )

    @hypothesis.given(
        case=any_case(operation),
        exists=strategies.booleans(),
        target=strategies.sampled_from([None, *TARGETS]),
    )
    @hypothesis.settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def conforms(case: Any, exists: bool, target: Any) -> None:
        # In the place of an id, `batch` makes the path another call's.
        hypothesis.assume(not WORDS.intersection(map(str, (case.path_parameters or {}).values())))
        if exists and entry.path in OF_ALL_TOPICS:
            set_up(api, entry.path)
        if exists and case.path_parameters:
            case.path_parameters.update({n: v for n, v in EXISTING.items() if n in case.path_parameters})
            message = set_up(api, entry.path)
            if "id" in case.path_parameters and "topic" in case.path_parameters:
                case.path_parameters["id"] = message
        if entry.body is ConsumerBody and target:
            case.media_type, case.body = "application/json", target
        if entry.any_media:  # a type for which schemathesis can send any value
            case.media_type, case.body = "application/octet-stream", repr(case.body).encode()
        case.call_and_validate(checks=checks)

    conforms()
