"""From a request to an answer: who is signed in, the page's handler, whole HTML or a fragment, or a problem."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl

from chalice.app import Request
from chalice.app import Response as ChaliceResponse

from .. import observe, wiring
from ..api import audit, problems
from ..api.calls import Context
from ..api.http import check_group, check_name, check_rate, check_topic, request_id_of
from ..domain.errors import Forbidden, HeadraceError, Malformed, Unauthorized, Unavailable, ours
from ..ports.world import Units
from . import corrections, session
from .pages import Entry
from .templating import render
from .visit import ROOT, File, Links, Page, SeeOther, Shown, Visit

_MOST_FIELDS = 64
_ZIPPED_BYTES = 1_000
HEADERS: Mapping[str, str] = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Vary": "HX-Request, Cookie, Accept-Language, Accept-Encoding",
    **problems.EVERYWHERE,
}


def serve(entry: Entry, request: Request, params: Mapping[str, str]) -> ChaliceResponse:
    """Answer one request. Nothing a visitor sends makes this raise."""
    deps = wiring.deps()
    with deps.adapters.units() as units:
        visit = _visit(entry, request, params, units)
        try:
            visit = replace(visit, form=_form(request))
            visit = _with_session(entry, visit)
            _check(entry, visit)
            result = entry.handler(visit)
            observe.count(deps.adapters.stage, deps.counters, {})
            return _response(visit, result)
        except Exception as error:
            if isinstance(ours(error), Unavailable):
                observe.failed(error, visit.request_id, entry.handler.__name__)
            return _response(visit, _problem(visit, ours(error)))


def _with_session(entry: Entry, visit: Visit) -> Visit:
    """The visit with its session, where the page needs one. Raises Unauthorized, or Forbidden for another site."""
    if entry.method == "POST":
        session.check_origin(visit.headers)
    if entry.open:
        return visit
    return replace(visit, signed_in=session.of(visit.deps, visit.headers, secure=visit.secure))


def _check(entry: Entry, visit: Visit) -> None:
    """Raises Throttled or Forbidden for what this session may not do now."""
    if entry.open:
        return
    check_rate(visit.deps, visit.caller)
    if entry.method == "POST":
        session.check_csrf(visit.session, visit.form.get("csrf", ""))
    try:
        for kind, name in visit.params.items():
            check_name(kind, name)
        if "topic" in visit.params:
            check_topic(visit.caller, visit.params["topic"])
        check_group(visit.caller, visit.params.get("group"))
    except Forbidden as error:
        context = Context(visit.deps, visit.caller, visit.request_id, {}, visit.params, source=visit.source)
        audit.note_denied(entry, context, error.code)
        raise
    if entry.bodies:
        visit.check_may_read()


def _visit(entry: Entry, request: Request, params: Mapping[str, str], units: Units) -> Visit:
    deps = wiring.deps()
    headers = {name.lower(): value for name, value in request.headers.items()}
    path = entry.path.format(**params)
    secure = session.is_secure(deps, headers)
    prefix = str(request.context.get("path", path)).removesuffix(path)
    return Visit(
        deps=deps,
        method=entry.method,
        links=Links(_shown_at(headers, prefix) or path),
        base=f"{'https' if secure else 'http'}://{headers.get('host', 'localhost')}{prefix}",
        headers=headers,
        params=params,
        query=dict(request.query_params or {}),
        form={},
        units=units,
        request_id=request_id_of(request),
        secure=secure,
        source=str((request.context.get("identity") or {}).get("sourceIp") or ""),
    )


def _shown_at(headers: Mapping[str, str], prefix: str) -> str | None:
    """The path of the page that shows a fragment, where that says so: its links begin there."""
    if headers.get("hx-request") != "true":
        return None
    _, _, current_path = headers.get("hx-current-url", "").partition("//")
    path = f"/{current_path.partition('/')[2]}".partition("?")[0].partition("#")[0].removeprefix(prefix)
    return path if path.startswith(f"/{ROOT}/") or path == f"/{ROOT}" else None


def _form(request: Request) -> dict[str, str]:
    """The fields of a form; of those given twice, the last."""
    if request.method != "POST":
        return {}
    raw = request.raw_body
    raw = raw if isinstance(raw, bytes) else str(raw).encode()
    try:
        return dict(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise Malformed("FORM_UNREADABLE", "This form cannot be read.") from None


def _problem(visit: Visit, error: HeadraceError) -> Page:
    """An error as a page; who is not signed in is asked to."""
    status, title = problems.status_of(error)
    if isinstance(error, Unauthorized):
        asks_sign_in = visit.method == "GET" and not visit.wants_fragment
        stale_link = "ticket" in visit.query or "ticket" in visit.form
        refusal, typed = "token" in visit.form, corrections.encoded_form(visit.form)
        model = {"refusal": refusal, "stale_link": stale_link, "ticket": None, "typed": typed}
        return Page("sign_in.html", model, 200 if asks_sign_in and not stale_link else status)
    correction = corrections.of(visit, error)
    problem = {"status": status, "title": title, "error": error, "correction": correction}
    return Page("problem.html", problem, status)


def _response(visit: Visit, result: Shown) -> ChaliceResponse:
    header_lines: dict[str, str | list[str]] = {**HEADERS, "X-Request-Id": visit.request_id}
    if isinstance(result, SeeOther):
        header_lines |= {"Location": result.to, **({"Set-Cookie": result.cookie} if result.cookie else {})}
        return ChaliceResponse(b"", headers=header_lines, status_code=303)
    if isinstance(result, File):
        body, status = result.body, 200
        header_lines |= {"Content-Type": result.media_type, **result.headers}
    else:
        if result.begun:
            visit = replace(visit, signed_in=result.begun[0])
            header_lines["Set-Cookie"] = result.begun[1]
        body, status = render(visit, result) + b"\n", result.status
    if len(body) > _ZIPPED_BYTES and "gzip" in visit.headers.get("accept-encoding", ""):
        body = gzip.compress(body, 6, mtime=0)
        header_lines["Content-Encoding"] = "gzip"
    return ChaliceResponse(body, headers=header_lines, status_code=status)
