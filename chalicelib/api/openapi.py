"""The OpenAPI document, generated from the calls, the types of their bodies and answers, and examples.json."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from sys import modules
from typing import Any, get_args, get_type_hints

import msgspec

from .. import __version__
from ..domain import limits as lim
from . import problems
from .calls import CALLS, JSON, Call

_REF = "#/components/schemas/{name}"
_PAGE_OF = re.compile(r"\bPage_(\w+?)(?:View)?_(?!\w)")
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"}
_TEXT = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}
_UNITS = "What the call consumed of DynamoDB: write units, read units."
_HEADERS = {"headers": {"Headrace-Units": {"$ref": "#/components/headers/Units"}}}
_TEXTS = (
    *("app", "at", "confirm", "consumer", "dedup_id", "error", "group", "key", "page_token", "prefix"),
    *("reason", "state", "status", "tag", "tenant", "token", "topic", "window"),
    *("headrace-dedup-id", "headrace-key", "headrace-ordering-key", "headrace-tag", "headrace-tenant"),
)
# What a parameter of a query or header holds: of every one that a call takes.
_SCHEMAS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(_TEXTS, _TEXT),
    **dict.fromkeys(("from", "since", "to", "until", "headrace-sent-at"), _TIME),
    "base_seconds": {"type": "integer", "minimum": 1, "maximum": lim.MAX_RETRY_SECONDS},
    "cap_seconds": {"type": "integer", "minimum": 1, "maximum": lim.MAX_RETRY_SECONDS},
    "factor": {"type": "number", "minimum": 1, "maximum": 10},
    "limit": {"type": "integer", "minimum": 1, "maximum": lim.MAX_PAGE, "default": lim.DEFAULT_PAGE},
    "max_attempts": {"type": "integer", "minimum": 1, "maximum": lim.MAX_ATTEMPTS},
    "shard": {"type": "integer", "minimum": 0, "maximum": lim.SHARD_NUMBERS - 1},
    "stop": {"type": "string", "enum": ["true", "false"]},
    "headrace-app": {"type": "string", "pattern": "^[A-Za-z0-9._/-]{1,64}$"},
    "headrace-callback-url": {"type": "string", "maxLength": lim.MAX_URL_CHARS},
    "headrace-dedup-until": {"type": "string", "enum": ["window", "done"]},
    "headrace-delay-seconds": {"type": "integer", "minimum": 0, "maximum": lim.MAX_DELAY_SECONDS},
    "headrace-priority": {"type": "integer", "minimum": 0, "maximum": lim.MAX_PRIORITIES - 1},
    "headrace-request": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    "headrace-resend": {"type": "integer", "minimum": 0, "maximum": lim.MAX_RESEND_SECONDS},
}
# Examples of what stands in paths.
_SHOWN = {
    "topic": "orders",
    "group": "mailer",
    "consumer": "desk",
    "name": "rocketmq",
    "schedule": "daily-report",
    "id": "ggpf5z1w52mh-3-0",
    "job": "order-188",
}
_TITLE = {"title": "Headrace"}
# The beginnings of answers that are too long for an example.
_DOCUMENTS: dict[str, Any] = {
    "openapi_document": {"openapi": "3.1.0", "info": _TITLE, "paths": {}},
    "docs": "<!doctype html>",
}
_NEVER_EMPTY = ("MessageBody", "AmendBody")  # of several optional fields one must be given
_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_LOCAL = {"url": "http://127.0.0.1:8700", "description": "`make run`"}
# 504 is API Gateway's; no operation is answered with 405.
_ERRORS = {*problems.STATUS.values(), (504, "Timed out")} - {(405, "Method not allowed")}


@cache
def document(prefix: str = "") -> dict[str, Any]:
    """OpenAPI 3.1 of every registered call. `prefix` precedes each path where it is served (on AWS, the stage)."""
    types = [*(entry.body for entry in CALLS if entry.body), *map(answer_type, CALLS), problems.Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    for component in components.values():
        component.pop("title", None)
    answers = dict(zip(map(_id, CALLS), schemas[-len(CALLS) - 1 :], strict=False))
    examples = json.loads(Path(__file__).with_name("examples.json").read_text())
    introduction = Path(__file__).with_name("introduction.md").read_text().rstrip()
    paths: dict[str, Any] = {}
    for entry in CALLS:
        operation = _operation(entry, answers[_id(entry)], examples.get(_id(entry), {}))
        paths.setdefault(entry.path, {})[entry.method.lower()] = operation
    contract: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {**_TITLE, "version": __version__, "description": introduction, "license": _LICENSE},
        "servers": [{"url": prefix or "/", "description": "Where this document came from"}, _LOCAL],
        "tags": _tags(),
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {str(status): _problem(title) for status, title in sorted(_ERRORS)},
            "headers": {"Units": {"description": _UNITS, "schema": {**_TEXT, "examples": ["w=1 r=0"]}}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return {name: _readable(part) for name, part in contract.items()}


def answer_type(entry: Call) -> Any:
    """The type of what a call answers with: T of the handler's Response[T]."""
    (answer,) = get_args(get_type_hints(entry.handler)["return"])
    return answer


def _id(entry: Call) -> str:
    return entry.handler.__name__


def _tag(entry: Call) -> str:
    return entry.handler.__module__.rpartition(".")[2].replace("_", " ")


def _tags() -> list[dict[str, str]]:
    """One for each file of calls, which says what they are about."""
    files = {_tag(entry): modules[entry.handler.__module__] for entry in CALLS}
    return [{"name": name, "description": file.__doc__ or ""} for name, file in files.items()]


def _readable(value: Any) -> Any:
    """The document with patterns that any language reads as Python does, and pages named by what is on them."""
    if isinstance(value, dict):
        return {_PAGE_OF.sub(r"\1Page", name): _readable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_readable(each) for each in value]
    return _PAGE_OF.sub(r"\1Page", value).replace(r"\Z", "$") if isinstance(value, str) else value


def _operation(entry: Call, answer: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    summary, _, more = (entry.handler.__doc__ or "").strip().partition("\n")
    operation: dict[str, Any] = {
        "operationId": _id(entry),
        "tags": [_tag(entry)],
        "summary": summary,
        **({"description": " ".join(more.split())} if more else {}),
        "parameters": _parameters(entry),
        "responses": _responses(entry, answer, example.get("responses", {})),
        "security": [{"token": []}] if entry.scopes else [],
    }
    if entry.body:
        media: dict[str, Any] = {"schema": {"$ref": _REF.format(name=entry.body.__name__)}}
        if "request" in example:
            media["examples"] = {"example": {"value": example["request"]}}
        needs = [field for field in msgspec.structs.fields(entry.body) if field.required]
        is_required = bool(needs) or entry.body.__name__ in _NEVER_EMPTY
        operation["requestBody"] = {"required": is_required, "content": {JSON: media}}
    elif entry.any_media:
        operation["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    return operation


def _parameters(entry: Call) -> list[dict[str, Any]]:
    schemas = {name: _TEXT if name in ("id", "job") else _NAME for name in entry.params}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": schema, "example": _SHOWN[name]}
        for name, schema in schemas.items()
    ]
    optional = [("query", name) for name in entry.query] + [("header", name) for name in entry.headers]
    return in_path + [{"name": name, "in": place, "schema": _SCHEMAS[name]} for place, name in optional]


def _responses(entry: Call, answer: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    successes = {str(status): _success(entry, status, answer, examples) for status in entry.statuses}
    refusals = {str(status): {"$ref": f"#/components/responses/{status}"} for status in _refusals(entry)}
    return successes | refusals


def _success(entry: Call, status: int, answer: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    if status == 204:
        return {"description": "Done"} | _HEADERS
    media = {"schema": answer if entry.media == JSON else {"type": "string"}}
    if (example := examples.get(str(status), _DOCUMENTS.get(_id(entry)))) is not None:
        media["examples"] = {"example": {"value": example}}
    words = {201: "Created", 202: "Accepted"}
    return {"description": words.get(status, "Done"), "content": {entry.media: media}} | _HEADERS


def _refusals(entry: Call) -> list[int]:
    """The errors that a call may answer with: those of its method, and of what it takes."""
    statuses = {400, 422, 429, 503, 504}  # 422: everywhere for a delivery that calls Headrace
    statuses |= {401, 403} if entry.scopes else set()
    names_a_topic = "topic" in getattr(entry.body, "__struct_fields__", ())
    statuses |= {404, 409} if "{" in entry.path or names_a_topic else set()
    statuses |= {409} if entry.method != "GET" else set()
    statuses |= {413, 415} if entry.body or entry.any_media else set()
    return sorted(statuses)


def _problem(title: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Problem")}
    return {"description": title, "content": {problems.MEDIA_TYPE: {"schema": schema}}}
