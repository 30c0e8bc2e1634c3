"""Is an answer what openapi.json says? A field that is missing there, or here, is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import jsonschema_rs

from chalicelib.api import openapi, resources

assert resources, "importing the resources enters their calls"
_PROBLEM = "application/problem+json"
_OF_NO_CALL = (
    404,
    405,
    413,
)  # the gateway's own: no such path, no such method; a body that is too long for any


def check(method: str, path: str, status: int, headers: Mapping[str, str], raw: bytes) -> None:
    """Fails for a status, a media type or a JSON value that the document doesn't have for this call."""
    if (method, path, status) == ("GET", "/", 303):  # it leads to a page or to the document
        return
    description = operation(method, path.partition("?")[0])
    media = {name.lower(): value for name, value in headers.items()}.get("content-type", "")
    media = media.partition(";")[0]
    if description is None or str(status) not in description["responses"]:
        assert description is None or status == 413, f"{method} {path}: {status} is not in openapi.json"
        assert status in _OF_NO_CALL, (method, path, status)
        assert media == _PROBLEM, (method, path, media)
        conforms({"$ref": "#/components/schemas/Problem"}, json.loads(raw), f"{method} {path}")
        return
    response = description["responses"][str(status)]
    if "$ref" in response:
        response = _closed_document()["components"]["responses"][str(status)]
    if "content" not in response:
        assert raw == b"", f"{method} {path}: {status} has a body, and not in openapi.json"
        return
    assert media in response["content"], f"{method} {path}: {media} is not in openapi.json"
    if media != "text/html":
        conforms(response["content"][media]["schema"], json.loads(raw), f"{method} {path}: {status}")


def conforms(schema: Mapping[str, Any], value: Any, place: str) -> None:
    """Fails where a JSON value is not of a schema of the document, or has a field that stands nowhere."""
    errors = list(_validator(json.dumps(schema)).iter_errors(value))
    assert not errors, f"{place}: " + "; ".join(
        f"{'.'.join(map(str, error.instance_path))}: {error.message[:300]}" for error in errors
    )


def operations() -> list[dict[str, Any]]:
    """Every call, as the document describes it."""
    return [each for methods in _closed_document()["paths"].values() for each in methods.values()]


@cache
def _validator(schema: str) -> Any:
    return jsonschema_rs.Draft202012Validator(
        {**json.loads(schema), "components": _closed_document()["components"]}
    )


@cache
def _closed_document() -> dict[str, Any]:
    """The document with each object closed: clients must bear new fields, we must not forget to describe them."""
    document: dict[str, Any] = json.loads(json.dumps(openapi.document()))
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return document


def forget() -> None:
    """Read the document again: its examples have changed."""
    for function in (_closed_document, _validator, _patterns):
        function.cache_clear()


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Paths as patterns, those with the fewest parameters first: what is fixed wins."""
    paths = sorted(_closed_document()["paths"], key=lambda path: path.count("{"))
    return [(re.compile(re.sub(r"{\w+}", "[^/]+", path) + r"/?\Z"), path) for path in paths]


def operation(method: str, path: str) -> dict[str, Any] | None:
    """The call that a request is, if it is one; `path` without its query."""
    templates = (template for pattern, template in _patterns() if pattern.match(path))
    template = next(templates, None)
    return (
        _closed_document()["paths"][template].get(method.lower()) if template and method.isupper() else None
    )
