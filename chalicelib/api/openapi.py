"""The OpenAPI document, generated from the calls and their types."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from .. import __version__
from ..domain.limits import (
    DEFAULT_PAGE,
    MAX_DELAY_SECONDS,
    MAX_PAGE,
    MAX_RESEND_SECONDS,
    MAX_SHARDS,
    MAX_STEP_SECONDS,
)
from . import problems
from .http import CALLS, Call

_PARAMETER = re.compile(r"{(\w+)}")
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"}
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_OPTIONAL: dict[str, dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE},
    "shard": {"type": "integer", "minimum": 0, "maximum": MAX_SHARDS - 1},
    "from": {"type": "string", "format": "date-time"},
    "to": {"type": "string", "format": "date-time"},
    "base_seconds": {"type": "integer", "minimum": 1, "maximum": MAX_STEP_SECONDS},
    "factor": {"type": "number", "minimum": 1, "maximum": 10},
    "cap_seconds": {"type": "integer", "minimum": 1, "maximum": MAX_STEP_SECONDS},
    "headrace-delay-seconds": {"type": "integer", "minimum": 0, "maximum": MAX_DELAY_SECONDS},
    "headrace-request": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    "headrace-resend": {"type": "integer", "minimum": 0, "maximum": MAX_RESEND_SECONDS},
}
_CREATES = ("put_topic", "put_group", "put_consumer", "create_token", "produce", "publish", "prepare")


@cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1 of every registered call."""
    types = [entry.body for entry in CALLS if entry.body]
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for entry in CALLS:
        paths.setdefault(entry.path, {})[entry.method.lower()] = _operation(entry)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**_portable(schemas), "Problem": _problem_schema()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _portable(schema: Any) -> Any:
    """The schema with patterns that any language reads as Python does."""
    if isinstance(schema, dict):
        return {name: _portable(value) for name, value in schema.items()}
    if isinstance(schema, list):
        return [_portable(value) for value in schema]
    return schema.replace(r"\Z", "$") if isinstance(schema, str) else schema


def _operation(entry: Call) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": entry.handler.__name__,
        "summary": (entry.handler.__doc__ or "").strip().split("\n")[0],
        "parameters": _parameters(entry),
        "responses": _responses(entry),
        "security": [{"token": []}] if entry.scopes else [],
    }
    if entry.body:
        schema = {"$ref": f"#/components/schemas/{entry.body.__name__}"}
        needed = any(field.required for field in msgspec.structs.fields(entry.body))
        operation["requestBody"] = {"required": needed, "content": {"application/json": {"schema": schema}}}
    elif entry.any_media:
        operation["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    return operation


def _parameters(entry: Call) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _NAME if name != "id" else {"type": "string"},
        }
        for name in _PARAMETER.findall(entry.path)
    ]
    optional = [("query", name) for name in entry.query] + [("header", name) for name in entry.headers]
    return in_path + [
        {"name": name, "in": place, "schema": _OPTIONAL.get(name, {"type": "string"})}
        for place, name in optional
    ]


def _responses(entry: Call) -> dict[str, Any]:
    name = entry.handler.__name__
    good = ["204"] if entry.method == "DELETE" else ["200"]
    if name in _CREATES:
        good = ["201"] if name == "create_token" else ["200", "201"]
    if name == "create_replay":
        good = ["202"]
    media = "text/html" if name == "docs" else "application/json"
    content: dict[str, Any] = {} if good == ["204"] else {"content": {media: {"schema": {}}}}
    responses: dict[str, Any] = {status: {"description": "Done", **content} for status in good}
    problem = {"description": "Problem", "content": {problems.MEDIA_TYPE: {"schema": _PROBLEM}}}
    return responses | {str(status): problem for status, _ in problems.STATUS.values()}


def _problem_schema() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "retryable", "request_id"],
        "properties": {
            **dict.fromkeys(("type", "title", "detail", "code", "request_id"), text),
            "status": {"type": "integer"},
            "retryable": {"type": "boolean"},
            "errors": {
                "type": "array",
                "items": {"type": "object", "properties": {"path": text, "issue": text}},
            },
        },
    }
