"""Health, statistics, ladders, the interface's own description."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ...domain import ladder
from ...domain.errors import NotFound
from ...domain.limits import DEFAULT_MAX_ATTEMPTS, MAX_ATTEMPTS, MAX_STEP_SECONDS
from .. import openapi, parse, render
from ..http import ANY, Context, Response, call, invalid

_NUMBERS = {"base_seconds": (1, MAX_STEP_SECONDS), "factor": (1, 10), "cap_seconds": (1, MAX_STEP_SECONDS)}
_WHOLE = re.compile(r"[0-9]{1,7}\Z")
_DECIMAL = re.compile(r"[0-9]{1,2}(\.[0-9]{1,9})?\Z")


@call("GET", "/v1/health", scopes=())
def health(context: Context) -> Response:
    """Can every table be read? 503 where one cannot. An answer is up to five seconds old."""
    context.deps.readiness.check()
    return Response({"status": "ok", "store": "ok"})


@call("GET", "/v1/ladders/{name}", scopes=ANY, query=(*_NUMBERS, "max_attempts"))
def preview_ladder(context: Context, name: str) -> Response:
    """The steps of a ladder and their sum; and the waits that so many attempts make of them, and theirs."""
    known = [*ladder.NAMED, ladder.EXPONENTIAL]
    if name not in known:
        raise NotFound("LADDER_NOT_FOUND", f"There is no such ladder. Ladders: {', '.join(known)}.")
    attempts = ladder.ATTEMPTS.get(name, DEFAULT_MAX_ATTEMPTS)
    retry = replace(ladder.Retry(attempts, name), **_given(context))
    steps, waits = ladder.steps(retry), ladder.waits(retry)
    return Response(
        {
            "ladder": name,
            "steps_seconds": list(steps),
            "sum_seconds": sum(steps),
            "max_attempts": retry.max_attempts,
            "waits_seconds": list(waits),
            "waits_sum_seconds": sum(waits),
        }
    )


def _given(context: Context) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, (low, high) in {**_NUMBERS, "max_attempts": (1, MAX_ATTEMPTS)}.items():
        if name not in context.query:
            continue
        text = context.query[name]
        kind = _DECIMAL if name == "factor" else _WHOLE
        if not kind.match(text) or not low <= float(text) <= high:
            raise invalid(name, f"must be a number from {low} to {high}")
        given[name] = float(text) if name == "factor" else int(text)
    return given


@call("GET", "/v1/stats", scopes=ANY, query=("limit", "page_token"))
def stats(context: Context) -> Response:
    """Counts per topic and group."""
    counted, following = parse.counted_topics(context, "stats")
    items = [{"topic": topic.name, **render.stats(each)} for topic, each in counted]
    return Response(parse.page(context, "stats", items, following))


@call("GET", "/v1/openapi.json", scopes=())
def openapi_document(context: Context) -> Response:
    """This interface as OpenAPI 3.1, generated from the code."""
    return Response(openapi.document())


@call("GET", "/docs", scopes=())
def docs(context: Context) -> Response:
    """This interface as a page to read."""
    from .. import page

    return Response(page.of(openapi.document()), headers=page.HEADERS)
