"""The page `/docs`: RapiDoc over the OpenAPI document; without script it is plain text.

RapiDoc (MIT) is in `static` as npm has it, gzipped; nothing is fetched from other hosts. A token typed into the page
stays in the page.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from .calls import ACCEPTED, Call, Context, Response

_SCRIPT = "rapidoc-9.3.8.js"
_FILE = Path(__file__).parent / "static" / f"{_SCRIPT}.gz"
# The element sets styles of its own. It may run only our script, and send requests only to us.
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "connect-src": "'self'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data:",
    **dict.fromkeys(("base-uri", "form-action", "frame-ancestors"), "'none'"),
}
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
}
_OFF = (
    *("show-header", "load-fonts", "persist-auth"),
    *("allow-server-selection", "allow-spec-url-load", "allow-spec-file-load"),
)
_LOOK = {
    "spec-url": "v1/openapi.json",
    "render-style": "focused",
    "theme": "light",
    "primary-color": "#0b6e6e",
    "schema-description-expanded": "true",
    **dict.fromkeys(_OFF, "false"),
    "use-path-in-nav-bar": "true",
    "show-method-in-nav-bar": "as-colored-text",
    "nav-bg-color": "#10302f",
    "sort-endpoints-by": "none",
}


def script(context: Context) -> Response[bytes]:
    """RapiDoc. Its name holds its version, so browsers keep it for good."""
    headers = {
        "Content-Type": "text/javascript; charset=utf-8",
        "Content-Encoding": "gzip",
        "Cache-Control": "public, max-age=31536000, immutable",
    }
    return Response(_FILE.read_bytes(), headers=headers)


def root(context: Context) -> Response[dict[str, str]]:
    """Where `GET /` leads: a browser to the console, a program to the OpenAPI document."""
    paths = {"console": "/console", "docs": "/docs", "openapi": "/v1/openapi.json"}
    links = {name: context.prefix + path for name, path in paths.items()}
    is_browser = "text/html" in context.headers.get(ACCEPTED, "")
    return Response(links, 303, {"Location": links["console" if is_browser else "openapi"]})


# What belongs to the pages: no part of the interface, so not in its document.
FILES = [
    Call("GET", "/", root, ()),
    Call("GET", f"/docs/{_SCRIPT}", script, ()),
]


def of(document: dict[str, Any]) -> bytes:
    """The page as HTML. All texts are escaped, and scripts come from this host only."""
    calls = [
        _call(method.upper(), path, operation)
        for path, methods in sorted(document["paths"].items())
        for method, operation in methods.items()
    ]
    types = [_type(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    look = " ".join(f'{name}="{value}"' for name, value in _LOOK.items())
    content = "".join(["<h2>Calls</h2>", *calls, "<h2>Bodies and answers</h2>", *types])
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Headrace</title>'
        '<meta name="viewport" content="width=device-width">'
        f'<script type="module" src="docs/{_SCRIPT}"></script></head><body><rapi-doc {look}></rapi-doc>'
        f"<noscript><h1>Headrace {escape(document['info']['version'])}</h1>"
        '<p>The same for programs: <a href="v1/openapi.json">openapi.json</a>.</p>'
        f"{content}</noscript></body></html>"
    ).encode()


def _call(method: str, path: str, operation: dict[str, Any]) -> str:
    notes = [operation["summary"]]
    for place in ("query", "header"):
        names = [p["name"] for p in operation["parameters"] if p["in"] == place]
        notes += [f"{place.capitalize()}: {', '.join(names)}."] if names else []
    notes += [] if operation["security"] else ["No token needed."]
    request_body = operation.get("requestBody", {})
    answers = [answer for status, answer in operation["responses"].items() if status < "300"]
    links = _links("Body", [request_body]) + _links("Answer", answers[:1])
    return f"<h3><code>{escape(f'{method} {path}')}</code></h3><p>{escape(' '.join(notes))}{links}</p>"


def _links(what: str, parts: list[dict[str, Any]]) -> str:
    """Links to the types of a body or an answer, where they have a name."""
    schemas = [media["schema"] for part in parts for media in part.get("content", {}).values()]
    names = [schema["$ref"].rpartition("/")[2] for schema in schemas if "$ref" in schema]
    return "".join(f' {what}: <a href="#{escape(name)}">{escape(name)}</a>.' for name in names)


def _type(name: str, schema: dict[str, Any]) -> str:
    required_names = schema.get("required", [])
    fields = "".join(
        f"<dt><code>{escape(field)}</code>{', always there' if field in required_names else ''}</dt>"
        f"<dd><code>{escape(json.dumps(kind, ensure_ascii=False))}</code></dd>"
        for field, kind in schema.get("properties", {}).items()
    )
    about = escape(" ".join([schema.get("description", ""), ", ".join(schema.get("enum", []))]).strip())
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{about}</p><dl>{fields}</dl>'
