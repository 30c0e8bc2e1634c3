"""What users meet is documented: error codes, settings, limits."""

from __future__ import annotations

import ast
import inspect
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from chalicelib import settings
from chalicelib.api import docs_page, openapi
from chalicelib.api.calls import CALLS, Call
from chalicelib.api.parse import MessageBody
from chalicelib.api.resources.receive import ReceiveBody
from chalicelib.api.resources.tokens import TokenBody
from chalicelib.api.settings import Retry
from chalicelib.delivery import webhooks
from chalicelib.domain import errors, limits
from local.log import HELLO
from tests.functional.delivery.receivers import http_receiver

ROOT = Path(__file__).parents[3]
ERRORS = {
    name
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.HeadraceError)
}
# Limits of the storage layout, which no caller meets.
INTERNAL = {
    "BLOB_THRESHOLD_BYTES", "MAX_SEGMENT_BYTES", "COMPRESS_ABOVE_BYTES", "HOLE_AGE", "MAX_HOLE", "TAIL_TRUST",
    "LOSSES_BEFORE_RESERVING", "LATE_WRITER",
}  # fmt: skip


def codes_in_the_code() -> dict[str, str]:
    """Every error code that chalicelib raises, and where."""
    place_of = {}
    for path in sorted((ROOT / "chalicelib").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and _name(node.func) in ERRORS:
                code = node.args[0]
                if isinstance(code, ast.Constant) and isinstance(code.value, str):
                    place_of[code.value] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return place_of


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def documented_codes() -> set[str]:
    rows = [line for line in (ROOT / "docs/errors.md").read_text().splitlines() if line.startswith("| ")]
    return {code for row in rows for code in re.findall(r"`([A-Z][A-Z_]+)`", row.split("|")[2])}


def environment_in_the_code() -> set[str]:
    """Every variable that settings.py or the local runtime reads."""
    sources = [inspect.getsource(settings), *(p.read_text() for p in sorted((ROOT / "local").rglob("*.py")))]
    return set(re.findall(r"\"((?:HEADRACE|AWS|DYNAMODB)_[A-Z_]+)\"", "\n".join(sources))) - {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    }


def numbers_of(name: str) -> set[str]:
    """The ways in which a limit may be written."""
    value = getattr(limits, name)
    seconds = value.total_seconds() if hasattr(value, "total_seconds") else value
    return ways_to_write(int(seconds) // (1000 if name.endswith("_MS") else 1))


def ways_to_write(seconds: int) -> set[str]:
    """A number, perhaps of seconds or bytes, in the ways in which it may be written."""
    texts = {f"{seconds:,}", str(seconds)}
    for size, unit in (
        (1024 * 1024, "MB"),
        (1024, "KB"),
        (86_400, "day"),
        (3600, "hour"),
        (365 * 86_400, "year"),
    ):
        if seconds % size == 0 and seconds >= size:
            texts.add(f"{seconds // size:,} {unit}")
    return texts


def test_every_error_code_is_documented() -> None:
    place_of = codes_in_the_code()
    assert {code: place_of[code] for code in place_of.keys() - documented_codes()} == {}


def test_every_gateway_error_code_is_documented() -> None:
    source = "".join((ROOT / "local" / name).read_text() for name in ("gateway.py", "wire.py"))
    codes = set(re.findall(r"Refusal[(,]\s*\d+, \"([A-Z_]+)\"", source))
    assert {"ROUTE_NOT_FOUND", "BAD_REQUEST"} <= codes
    assert codes - documented_codes() == set()


def test_make_run_prints_the_lines_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text().replace("hr_…            # as printed", "{token}")
    begin = readme.index("    export HEADRACE_TOKEN")
    text = HELLO.format(url="http://127.0.0.1:8700", token="{token}")
    lines = text[text.index("    export") : text.index("\n\nEvery call")]
    assert readme[begin:].startswith(lines + "\n\n")
    assert lines.count("curl") == 5
    assert "http://127.0.0.1:8700/docs" in text


def test_the_version_that_is_shown_is_the_newest_in_the_changelog() -> None:
    releases = re.findall(
        r"^## (\d+\.\d+\.\d+) \((\d{4}-\d{2}-\d{2})\)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    version = openapi.document()["info"]["version"]
    assert releases[0][0] == version
    assert f"<h1>Headrace {version}</h1>" in docs_page.of(openapi.document()).decode()


def test_every_code_is_upper_snake_case() -> None:
    assert [code for code in codes_in_the_code() if not re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code)] == []


def test_every_environment_variable_is_documented() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    assert "HEADRACE_PREFIX" in environment_in_the_code()
    assert {name for name in environment_in_the_code() if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("body", [ReceiveBody, MessageBody, Retry, TokenBody])
def test_every_setting_and_field_is_documented(body: type[Struct]) -> None:
    text = (ROOT / "docs/settings.md").read_text()
    assert [name for name in body.__struct_encode_fields__ if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", sorted({n for n in vars(limits) if n.isupper()} - INTERNAL))
def test_every_limit_is_documented(name: str) -> None:
    text = (ROOT / "docs/limits.md").read_text()
    assert any(
        re.search(rf"(?<![\d,]){re.escape(number)}(?![\d,]*\d)", text) for number in numbers_of(name)
    ), (
        name,
        sorted(numbers_of(name)),
    )


PAGES = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/howto").glob("*.md")]
OF_ANY_LIST = {"limit", "page_token"}


def names_in(page: Path) -> set[str]:
    """The names that a page writes as code, in a query, or as JSON does."""
    names = re.findall(r"`([a-z_0-9]+)`|[?&]([a-z_]+)=|\"([a-z_0-9]+)\\?\"", page.read_text())
    return {name for groups in names for name in groups if name}


def is_told_of(call: Call, page: Path) -> bool:
    """Does a page write the end of this call's path?"""
    *_, last = (part for part in call.path.split("/") if not part.startswith("{"))
    return re.search(rf"/{last}\b", page.read_text()) is not None


@pytest.mark.parametrize(
    "call", [call for call in CALLS if call.query], ids=lambda call: call.handler.__name__
)
def test_the_parameters_of_a_call_are_documented_where_the_call_is(call: Call) -> None:
    names = set().union(*(names_in(page) for page in PAGES if is_told_of(call, page)))
    assert set(call.query) - OF_ANY_LIST - names == set()


def test_the_parameters_of_any_list_are_documented() -> None:
    assert names_in(ROOT / "docs/inspect.md") >= OF_ANY_LIST


def test_every_field_of_every_body_is_documented() -> None:
    bodies = {call.body for call in CALLS if call.body}
    schemas = [schema for body in bodies for schema in msgspec.json.schema(body)["$defs"].values()]
    fields = {name for schema in schemas for name in schema.get("properties", ())}
    assert len(fields) > 60
    assert fields - set().union(*map(names_in, PAGES)) == set()


def test_the_filters_of_the_list_of_messages_have_a_row_each() -> None:
    text = (ROOT / "docs/inspect.md").read_text()
    table = text[text.index("| parameter | lists |") :].partition("\n\n")[0]
    rows = [name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    (list_messages,) = (entry for entry in CALLS if entry.handler.__name__ == "list_messages")
    assert sorted(rows) == sorted(list_messages.query)


def test_every_parameter_has_a_schema_and_every_schema_a_parameter() -> None:
    names = {name for entry in CALLS for name in (*entry.query, *entry.headers)}
    assert names == openapi._SCHEMAS.keys()


def test_the_documented_way_to_verify_a_signature_works(capsys: pytest.CaptureFixture[str]) -> None:
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto/push.md").read_text(), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(block, namespace)
    key, body = bytes(range(32)), b'{"order":188}'
    headers = webhooks.sign([bytes(32), key], "m-1", int(time.time()), body)
    assert namespace["handle"](webhooks.format_secret(key), headers, body) == 204
    assert capsys.readouterr().out == "{'order': 188}\n"
    assert namespace["handle"](webhooks.format_secret(key), headers, body + b" ") == 401
    assert namespace["handle"](webhooks.format_secret(key[::-1]), headers, body) == 401


def test_the_documented_program_posts_dead_letters_and_events_to_a_chat() -> None:
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto/destinations.md").read_text(), re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(block, namespace)
    about = {
        "topic": "tickets",
        "group": "printer",
        "outcome": "DEAD",
        "last_error": None,
        "reason": "EXPIRED",
    }
    with http_receiver() as receiver:
        namespace["post"]({}, about, receiver.url)
        namespace["post"]({"ce-type": "headrace.message.dead"}, about, receiver.url)
        texts = [json.loads(request.body)["text"] for request in receiver.seen]
    assert texts == ["tickets/printer: DEAD, EXPIRED", "tickets/printer: headrace.message.dead"]
