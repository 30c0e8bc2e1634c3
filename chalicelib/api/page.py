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
    bodies = [_body(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    told = "".join(["<h2>Calls</h2>", *calls, "<h2>Bodies</h2>", *bodies])
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Headrace</title>'
        '<meta name="viewport" content="width=device-width"></head>'
        f"<body><h1>Headrace {escape(document['info']['version'])}</h1>"
        f'<p>The same for programs: <a href="v1/openapi.json">openapi.json</a>.</p>{told}</body></html>'
    ).encode()


def _call(method: str, path: str, operation: dict[str, Any]) -> str:
    notes = [operation["summary"]]
    for place in ("query", "header"):
        names = [p["name"] for p in operation["parameters"] if p["in"] == place]
        notes += [f"{place.capitalize()}: {', '.join(names)}."] if names else []
    notes += [] if operation["security"] else ["No token needed."]
    content = operation.get("requestBody", {}).get("content", {})
    bodies = [media["schema"].get("$ref", "").rpartition("/")[2] for media in content.values()]
    links = "".join(f' Body: <a href="#{escape(name)}">{escape(name)}</a>.' for name in bodies if name)
    return f"<h3><code>{escape(f'{method} {path}')}</code></h3><p>{escape(' '.join(notes))}{links}</p>"


def _body(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    fields = "".join(
        f"<dt><code>{escape(field)}</code>{', needed' if field in required else ''}</dt>"
        f"<dd><code>{escape(json.dumps(told, ensure_ascii=False))}</code></dd>"
        for field, told in schema.get("properties", {}).items()
    )
    about = escape(schema.get("description", ""))
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{about}</p><dl>{fields}</dl>'
