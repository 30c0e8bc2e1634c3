"""The interface as a page for people: the OpenAPI document without the braces."""

from __future__ import annotations

import json
from html import escape
from typing import Any

HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def of(document: dict[str, Any]) -> bytes:
    """The page. Everything in it is escaped, nothing is fetched, nothing runs."""
    calls = [
        _call(method.upper(), path, operation)
        for path, methods in sorted(document["paths"].items())
        for method, operation in methods.items()
    ]
    types = [_type(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    content = "".join(["<h2>Calls</h2>", *calls, "<h2>Bodies and answers</h2>", *types])
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Headrace</title>'
        '<meta name="viewport" content="width=device-width"></head>'
        f"<body><h1>Headrace {escape(document['info']['version'])}</h1>"
        f'<p>The same for programs: <a href="v1/openapi.json">openapi.json</a>.</p>{content}</body></html>'
    ).encode()


def _call(method: str, path: str, operation: dict[str, Any]) -> str:
    notes = [operation["summary"]]
    for place in ("query", "header"):
        names = [p["name"] for p in operation["parameters"] if p["in"] == place]
        notes += [f"{place.capitalize()}: {', '.join(names)}."] if names else []
    notes += [] if operation["security"] else ["No token needed."]
    taken = operation.get("requestBody", {})
    answers = [answer for status, answer in operation["responses"].items() if status < "300"]
    links = _links("Body", [taken]) + _links("Answer", answers[:1])
    return f"<h3><code>{escape(f'{method} {path}')}</code></h3><p>{escape(' '.join(notes))}{links}</p>"


def _links(what: str, parts: list[dict[str, Any]]) -> str:
    """Links to the types of a body or an answer, where they have a name."""
    schemas = [media["schema"] for part in parts for media in part.get("content", {}).values()]
    names = [schema["$ref"].rpartition("/")[2] for schema in schemas if "$ref" in schema]
    return "".join(f' {what}: <a href="#{escape(name)}">{escape(name)}</a>.' for name in names)


def _type(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    fields = "".join(
        f"<dt><code>{escape(field)}</code>{', always there' if field in required else ''}</dt>"
        f"<dd><code>{escape(json.dumps(kind, ensure_ascii=False))}</code></dd>"
        for field, kind in schema.get("properties", {}).items()
    )
    about = escape(" ".join([schema.get("description", ""), ", ".join(schema.get("enum", []))]).strip())
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{about}</p><dl>{fields}</dl>'
