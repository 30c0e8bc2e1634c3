"""What every call goes through: authentication, scopes, parsing of the body, the handler, the answer or the
problem."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from chalice.app import AuthRequest, AuthResponse, Chalice, Request
from chalice.app import Response as ChaliceResponse

from .. import observe, wiring
from ..domain import errors, ids, strict_json
from ..domain.errors import Forbidden, HeadraceError, Issue, Malformed, Refused, TooLarge, TooMany
from ..domain.limits import MAX_REQUEST_BYTES
from ..domain.message import TRACEPARENT
from ..domain.topic import Caller, Scope
from ..ports.world import Clock, Units
from . import audit, problems
from .calls import CALLS, JSON, Call, Context, Reach, Response

T = TypeVar("T")
_HOP = "headrace-hop"
_SOME_TOPICS = "TOPIC_FORBIDDEN", "Only a token for all topics may do this."
_OTHER_TOPICS = "TOPIC_FORBIDDEN", "The token is limited to other topics."
_SOME_GROUPS = "GROUP_FORBIDDEN", "This concerns all groups: it needs a token for all groups."
_OTHER_GROUPS = "GROUP_FORBIDDEN", "The token is limited to other groups."
_OTHER_JOBS = "JOB_FORBIDDEN", "The token is limited to other jobs."
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Unauthenticated(errors.Unauthorized):
    """API Gateway answers 401 to an authorizer that fails with exactly the word Unauthorized."""

    def __init__(self) -> None:
        super().__init__("UNAUTHORIZED", "A valid token is needed: Authorization: Bearer hr_…")

    def __str__(self) -> str:
        return "Unauthorized"


def register(app: Chalice, authorizer: Any, calls: Sequence[Call] = CALLS) -> None:
    """Give every call a route in the Chalice app."""
    for entry in calls:
        how = {"methods": [entry.method], "content_types": ["*/*"], "name": entry.handler.__name__}
        how |= {"authorizer": authorizer} if entry.scopes else {}
        app.route(entry.path, **how)(_view(app, entry))


def _view(app: Chalice, entry: Call) -> Callable[..., ChaliceResponse]:
    def view(**params: str) -> ChaliceResponse:
        request = app.current_request
        assert request is not None, "Chalice sets it before it calls a view"
        with wiring.deps().adapters.units() as units:
            response = serve(entry, request, params, units)
        response.headers["Headrace-Units"] = f"w={units.writes:g} r={units.reads:g}"
        return response

    return view


def serve(entry: Call, request: Request, params: Mapping[str, str], units: Units) -> ChaliceResponse:
    """Answer one request. Nothing a caller sends makes this raise. `units` counts what it costs."""
    request_id = request_id_of(request)
    try:
        context = _context(entry, request, params, request_id)
        answer = _call_handler(entry, context)
        app = context.headers.get("headrace-app", "")
        observe.count(context.deps.adapters.stage, context.deps.counters, {}, token=context.by, app=app)
        if name := params.get("topic") or (isinstance(answer.body, dict) and answer.body.get("topic")):
            context.deps.budgets.note(str(name), units, calls=1)
        return _response(answer, request_id)
    except Exception as error:
        answer_error = errors.ours(error)
        if isinstance(answer_error, errors.Unavailable):
            observe.failed(error, request_id, entry.handler.__name__, trace_of(request.headers))
            observe.metrics(wiring.deps().adapters.stage, {"Unavailable": 1})
        return refusal(answer_error, request_id)


def request_id_of(request: Request) -> str:
    """The id of a request, as the gateway or Lambda gave it."""
    context_id = request.context.get("requestId") or getattr(request.lambda_context, "aws_request_id", "")
    return str(context_id)


def _response(answer: Response[Any], request_id: str) -> ChaliceResponse:
    body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
    if answer.status == 204:
        body = b""
    elif "Content-Encoding" not in answer.headers:
        body += b"\n"  # a shell's prompt stands below an answer, not behind it
    return _sent(body, answer.status, request_id, {"Content-Type": JSON, **answer.headers})


def refusal(error: HeadraceError, request_id: str) -> ChaliceResponse:
    """An error as a response."""
    status, _ = problems.status_of(error)
    body = strict_json.dump(problems.problem(error, request_id)) + b"\n"
    return _sent(body, status, request_id, problems.headers(error))


def _sent(body: bytes, status: int, request_id: str, headers: Mapping[str, str]) -> ChaliceResponse:
    lines: dict[str, str | list[str]] = {"X-Request-Id": request_id, **problems.EVERYWHERE, **headers}
    return ChaliceResponse(body, headers=lines, status_code=status)


def _context(entry: Call, request: Request, params: Mapping[str, str], request_id: str) -> Context:
    if _HOP in request.headers:
        raise Refused("LOOP", "A delivery of Headrace must not call Headrace: messages would go in circles.")
    deps, origin = wiring.deps(), request.context
    caller = _caller(request, deps.adapters.iam) if entry.scopes else None
    about = {
        "prefix": str(origin.get("path", "")).removesuffix(request.path),
        "source": str((origin.get("identity") or {}).get("sourceIp") or ""),
        "may_wait": origin.get("may_wait", True),
        "received_ms": received_ms(request, deps.adapters.clock),
    }
    context = Context(deps, caller, request_id, request.headers, params, **about)
    try:
        check_rate(deps, caller)
        _check(entry, caller, params, request.query_params or {})
    except (Forbidden, TooMany) as error:
        audit.note_denied(entry, context, error.code)
        raise
    raw = request.raw_body
    raw = _decoded(request.headers, raw.encode() if isinstance(raw, str) else raw)
    return _with_body(entry, msgspec.structs.replace(context, query=_query(entry, request), raw=raw))


def trace_of(headers: Mapping[str, str]) -> str | None:
    """The request's `traceparent`; None where there is none, or it is malformed."""
    parent = headers.get(TRACEPARENT)
    return parent if parent is not None and _TRACEPARENT.fullmatch(parent) else None


def received_ms(request: Request, clock: Clock) -> int:
    """When API Gateway received a request; a cold start may lie between then and now."""
    return int(request.context.get("requestTimeEpoch") or clock.now_ms())


def check_rate(deps: wiring.Deps, caller: Caller | None) -> None:
    """TooMany where a token that has a limit makes more calls."""
    limit = caller.rate_limit if caller else None
    if caller and limit and not deps.rate_limits.take(f"token#{caller.token_id}", limit):
        words = f"The token makes {limit} calls a second at most; this one did nothing."
        raise TooMany("RATE_LIMITED", words, retry_after_seconds=1)


def _call_handler(entry: Call, context: Context) -> Response[Any]:
    """Run the handler and return its answer. The audit trail gets an entry for every outcome."""
    if not audit.is_audited(entry):
        return entry.handler(context)
    try:
        answer = entry.handler(context)
    except HeadraceError as error:
        audit.note(entry, context, error.code)
        raise
    created_id = answer.body.get("id", "") if isinstance(answer.body, dict) and not context.params else ""
    audit.note(entry, context, "OK", str(created_id))
    return answer


def perform(entry: Call, context: Context) -> Response[Any]:
    """Make a call from within, for `context.caller`: same checks, same handler, no HTTP. Raises what the handler
    raises."""
    try:
        _check(entry, context.caller, context.params, context.query)
    except Forbidden as error:
        audit.note_denied(entry, context, error.code)
        raise
    return _call_handler(entry, _with_body(entry, context))


def _check(entry: Call, caller: Caller | None, params: Mapping[str, str], query: Mapping[str, str]) -> None:
    refusal = why_not(entry, caller, params, query) if caller else None
    if refusal:
        raise refusal
    for kind, name in params.items():
        check_name(kind, name)


def _with_body(entry: Call, context: Context) -> Context:
    body = _body(entry.body, context.headers, context.raw) if entry.body else context.body
    return msgspec.structs.replace(context, body=body)


def authorize(request: AuthRequest, deps: wiring.Deps) -> AuthResponse:
    """The policy for a token. It covers every path: API Gateway keeps it for the token's next calls too, and
    which of them the token may make is checked at each call by its scopes."""
    scheme, _, text = request.token.strip().partition(" ")
    try:
        if scheme.lower() != "bearer":
            raise Unauthenticated
        caller = deps.tokens.authenticate(text.strip())
    except errors.Unauthorized:
        # arn:aws:execute-api:<region>:<account>:<api>/<stage>/<method>/<path>
        _, _, method, path = f"{request.method_arn}///".split("/", 3)
        deps.refusals.note(deps.tokens.claimed_id(text.strip()), method, f"/{path.rstrip('/')}")
        raise Unauthenticated from None
    return AuthResponse(["*"], caller.token_id, {"caller": msgspec.json.encode(caller).decode()})


def _caller(request: Request, iam: bool) -> Caller:
    context = request.context.get("authorizer") or {}
    signer = (request.context.get("identity") or {}).get("userArn")
    if iam and signer and not context:
        return Caller.of_iam(str(signer))
    return strict_json.decoded(context["caller"], Caller) if "caller" in context else Caller("", frozenset())


def why_not(
    entry: Call, caller: Caller, params: Mapping[str, str], query: Mapping[str, str]
) -> Forbidden | None:
    """Why the caller may not make the call; None: it may."""
    if entry.scopes_of_group and "group" in query:
        entry = msgspec.structs.replace(entry, scopes=entry.scopes_of_group, reach=Reach.PATH)
        params = {**params, "group": query["group"]}
    if not caller.scopes.intersection(entry.scopes):
        scopes = " or ".join(f"'{scope}'" for scope in entry.scopes)
        return Forbidden("SCOPE_MISSING", f"This call needs a token with the scope {scopes}.")
    topic, group, job = (params.get(kind) for kind in ("topic", "group", "job"))
    is_producers = Scope.PRODUCE in entry.scopes and Scope.PRODUCE in caller.scopes
    of_all_groups = entry.reach is not Reach.PATH and not is_producers
    needs = (
        (topic is None or caller.may_use(topic), _OTHER_TOPICS),
        (group is None or caller.may_use_group(group), _OTHER_GROUPS),
        (caller.may_use_job(job and unquote(job)), _OTHER_JOBS),
        (entry.reach is not Reach.SERVICE or "*" in caller.topics, _SOME_TOPICS),
        (not of_all_groups or "*" in caller.groups, _SOME_GROUPS),
    )
    return next((Forbidden(*words) for is_met, words in needs if not is_met), None)


def check_topic(caller: Caller | None, topic: str | None) -> None:
    """Raises Forbidden if the token is limited to other topics; None: all topics are concerned."""
    if caller and (not caller.may_use(topic) if topic else "*" not in caller.topics):
        raise Forbidden(*(_OTHER_TOPICS if topic else _SOME_TOPICS))


def check_group(caller: Caller | None, group: str | None) -> None:
    """Raises Forbidden if the token is limited to other groups. None: no group is named."""
    if caller and group is not None and not caller.may_use_group(group):
        raise Forbidden(*_OTHER_GROUPS)


def check_job(caller: Caller | None, job: str | None) -> None:
    """Raises Forbidden if the token is limited to other jobs. None: the message is no job."""
    if caller and not caller.may_use_job(job):
        raise Forbidden(*_OTHER_JOBS)


def check_priority(caller: Caller | None, priority: int | None) -> None:
    """Raises Forbidden if the token is for less urgent messages. None: the last priority, which every token may use."""
    if caller and priority is not None and priority < (caller.most_urgent or 0):
        words = f"Your token sends no message of a lower `priority` than {caller.most_urgent}."
        raise Forbidden("PRIORITY_FORBIDDEN", words)


def check_every_group(caller: Caller | None) -> None:
    """Raises Forbidden if the token is limited to some groups: for calls that concern all groups of a topic."""
    if caller and "*" not in caller.groups:
        raise Forbidden(*_SOME_GROUPS)


def check_name(kind: str, name: str) -> None:
    """Malformed for what is no name of a topic, group, consumer or schedule."""
    if kind in ("topic", "group", "consumer", "schedule") and not ids.NAME.match(name):
        issue = Issue(kind, "must match [A-Za-z0-9][A-Za-z0-9._-]{0,127}")
        raise Malformed("INVALID_NAME", f"The name of a {kind} {issue.issue}.", issues=(issue,))


def _query(entry: Call, request: Request) -> dict[str, str]:
    query = request.query_params
    if query is None:
        return {}
    unknown_names = [name for name in query if name not in entry.query]
    if unknown_names:
        words = f"This call's query parameters are: {', '.join(entry.query) or 'none'}."
        issues = tuple(Issue(name[:64], "unknown query parameter") for name in unknown_names)
        raise Malformed("UNKNOWN_PARAMETER", words, issues=issues)
    repetitions = [name for name in query if len(query.getlist(name)) > 1]
    if repetitions:
        raise invalid(repetitions[0], "is given more than once")
    return {name: query[name] for name in query}


def _decoded(headers: Mapping[str, str], raw: bytes) -> bytes:
    """The body without its Content-Encoding, which may be gzip. No more of it is unpacked than a request may have."""
    codings = [coding.strip().lower() for coding in headers.get("content-encoding", "").split(",")]
    codings = [coding for coding in codings if coding not in ("", "identity")]
    if not raw or not codings:
        return raw
    if codings != ["gzip"]:
        words = "The only Content-Encoding of a body is gzip, applied once."
        raise errors.UnsupportedMedia("UNSUPPORTED_MEDIA_TYPE", words)
    unpacking = zlib.decompressobj(zlib.MAX_WBITS + 16)  # with gzip's header
    try:
        body = unpacking.decompress(raw, MAX_REQUEST_BYTES + 1)
    except zlib.error:
        body = b""
    if len(body) > MAX_REQUEST_BYTES:
        words = f"A request body may have at most {MAX_REQUEST_BYTES} bytes, unpacked."
        raise TooLarge("BODY_TOO_LARGE", words)
    if not unpacking.eof or unpacking.unused_data:
        raise invalid("content-encoding", "says gzip, but the body is not one whole gzip stream")
    return body


def _body(kind: type[T], headers: Mapping[str, str], raw: bytes) -> T:
    media = headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if media != JSON:
        raise errors.UnsupportedMedia("UNSUPPORTED_MEDIA_TYPE", "Send the body as application/json.")
    return convert(strict_json.parse(raw or b"{}"), kind)


def convert(value: Any, kind: type[T], at: str = "") -> T:
    """A parsed JSON value as a request type. Raises Malformed with the path of the wrong field."""
    try:
        return strict_json.converted(value, kind)
    except msgspec.ValidationError as error:
        issue = problems.issue_of(str(error), kind, at)
        raise invalid(issue.path, issue.issue) from None


def invalid(path: str, issue: str) -> Malformed:
    """The error for one field that is wrong."""
    return Malformed("VALIDATION", f"{path or 'body'}: {issue}", issues=(Issue(path, issue),))
