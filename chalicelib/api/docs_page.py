"""The page `/docs`: RapiDoc over the OpenAPI document; without script it is plain text.

RapiDoc (MIT) is in `static` as npm has it, gzipped; nothing is fetched from other hosts. A token typed into the page
stays in the page.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from .calls import ACCEPTED, Call, Context, Response

_SCRIPT = "rapidoc-9.3.8.js"
_FOLDER = Path(__file__).parent
# The element sets styles of its own. It may run only our script, and send requests only to us.
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": _POLICY}


def script(context: Context) -> Response[bytes]:
    """RapiDoc. Its name holds its version, so browsers keep it for good."""
    headers = {
        "Content-Type": "text/javascript; charset=utf-8",
        "Content-Encoding": "gzip",
        "Cache-Control": "public, max-age=31536000, immutable",
    }
    return Response((_FOLDER / "static" / f"{_SCRIPT}.gz").read_bytes(), headers=headers)


def root(context: Context) -> Response[dict[str, str]]:
    """Where `GET /` leads: a browser to the console, a program to the OpenAPI document."""
    paths = {"console": "/console", "docs": "/docs", "openapi": "/v1/openapi.json"}
    links = {name: context.prefix + path for name, path in paths.items()}
    is_browser = "text/html" in context.headers.get(ACCEPTED, "")
    return Response(links, 303, {"Location": links["console" if is_browser else "openapi"]})


# What belongs to the pages: no part of the interface, so not in its document.
FILES = [Call("GET", "/", root, ()), Call("GET", f"/docs/{_SCRIPT}", script, ())]


def of(document: dict[str, Any]) -> bytes:
    """The page as HTML. All texts are escaped, and scripts come from this host only."""
    from jinja2 import Environment, FileSystemLoader  # late, for few calls need it

    pages = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True)
    pages.filters["as_json"] = partial(json.dumps, ensure_ascii=False)
    return pages.get_template("docs.html").render(document=document, script=_SCRIPT).encode()
