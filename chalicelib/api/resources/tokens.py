"""Access tokens, links that sign a browser in with one, and the key that signs receipts, page tokens and sessions."""

from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta, Struct, field

from ...domain import limits as lim
from ...domain.errors import NotFound
from ...domain.topic import Token
from .. import fields, lists
from ..calls import ADMIN, ANY, PAGED, Context, Reach, Response, call
from ..http import invalid

_Patterns = Annotated[list[fields.TopicPattern], Meta(min_length=1, max_length=lim.MAX_TOPIC_PATTERNS)]
_JobPattern = Annotated[str, Meta(pattern=fields.JOB_PATTERN)]
_JobPatterns = Annotated[list[_JobPattern], Meta(min_length=1, max_length=lim.MAX_TOPIC_PATTERNS)]


class TokenBody(Struct, forbid_unknown_fields=True):
    """A token to create: its scopes, and the topics, groups and jobs that it may use (patterns with `*`)."""

    name: Annotated[str, Meta(min_length=1, max_length=128, pattern=fields.TEXT)]
    scopes: Annotated[list[Literal["produce", "consume", "admin"]], Meta(min_length=1, max_length=3)]
    topics: _Patterns = field(default_factory=lambda: ["*"])
    groups: _Patterns = field(default_factory=lambda: ["*"])
    jobs: _JobPatterns = field(default_factory=lambda: ["*"])
    expires_in_days: Annotated[int, Meta(ge=1, le=lim.MAX_TOKEN_DAYS)] | None = None
    rate_limit: Annotated[int, Meta(ge=1, le=lim.MAX_RATE_LIMIT)] | None = None
    most_urgent: fields.Priority | None = None
    tenant: fields.Tenant | None = None


class TokenView(TypedDict):
    """A token without its text: its scopes, its topics, groups and jobs, its expiry (null: none), its limit of
    calls a second (null: the deployment's), the most urgent priority of what it sends and the tenant that it sends for
    (null: any). Its last use is known to the hour."""

    id: str
    name: str
    scopes: list[Annotated[str, fields.one_of("produce", "consume", "admin")]]
    topics: list[str]
    groups: list[str]
    jobs: list[str]
    created_at: fields.Time
    expires_at: fields.Time | None
    rate_limit: int | None
    most_urgent: int | None
    tenant: str | None
    last_used_at: fields.Time | None


class CreatedToken(TokenView):
    """A token that was just created or rotated; its text is shown only once."""

    token: str


class MadeView(TypedDict):
    """What a token has made that goes on without it: the names of schedules, and push consumers, each as
    `topic/group/consumer`."""

    schedules: list[str]
    consumers: list[str]


class SignInLink(TypedDict):
    """A link that signs in the first browser that opens it, until it expires. It contains no token."""

    url: str
    expires_at: fields.Time


class SigningKeyView(TypedDict):
    """When the present key was made, and when each earlier key becomes invalid."""

    rotated_at: fields.Time
    former_until: list[fields.Time]


@call("POST", "/v1/tokens", scopes=ADMIN, body=TokenBody, statuses=(201,))
def create_token(context: Context) -> Response[CreatedToken]:
    """Create a token, with no more rights than your own; its text is shown only once."""
    body = context.body
    scopes = tuple(dict.fromkeys(body.scopes))
    limits: dict[str, Any] = {kind: tuple(getattr(body, kind)) for kind in ("topics", "groups", "jobs")}
    limits |= fields.taken(body, "expires_in_days", "rate_limit", "most_urgent", "tenant")
    token, text = context.deps.tokens.create(body.name, scopes, **limits, maker=context.caller)
    return Response({**token_view(token), "token": text}, 201)


@call("GET", "/v1/tokens", scopes=ADMIN, reach=Reach.SERVICE, query=PAGED)
def list_tokens(context: Context) -> Response[lists.Page[TokenView]]:
    """Tokens, without their secrets."""
    limit = lists.limit(context.query)
    rows = context.deps.tokens.with_last_use(lists.page_start(context, "tokens"), limit)
    next_start = rows[-1][0].id if len(rows) == limit else None
    return lists.page(context, "tokens", [token_view(*row) for row in rows], next_start)


@call("POST", "/v1/tokens/{id}/rotate", scopes=ADMIN, body=fields.RotateBody)
def rotate_token(context: Context) -> Response[CreatedToken]:
    """Give a token a new text, shown only once; the old one stays valid for `overlap_seconds`."""
    id = context.params["id"][:128]
    token, text = context.deps.tokens.rotate(id, context.body.overlap_seconds, context.caller)
    return Response({**token_view(token), "token": text})


@call("DELETE", "/v1/tokens/{id}", scopes=ADMIN, reach=Reach.SERVICE, query=("stop",), statuses=(204,))
def delete_token(context: Context) -> Response[None]:
    """Revoke a token.

    With `stop=true`, also after it was revoked: pause the schedules and remove the push consumers that it made."""
    id, stop = context.params["id"][:128], context.query.get("stop", "false")
    if stop not in ("true", "false"):
        raise invalid("stop", "must be true or false")
    try:
        context.deps.tokens.revoke(id)
    except NotFound:
        if stop == "false":
            raise
    if stop == "true":
        context.deps.made.stop(id)
    return Response(None, 204)


@call("GET", "/v1/tokens/{id}/made", scopes=ADMIN, reach=Reach.SERVICE)
def get_made(context: Context) -> Response[MadeView]:
    """What a token has made that goes on without it, also after it was revoked."""
    names, consumers = context.deps.made.by(context.params["id"][:128])
    places = [f"{each.topic}/{each.group}/{each.name}" for each in consumers]
    return Response({"schedules": names, "consumers": places})


@call("POST", "/v1/sign-in-links", scopes=ANY, body=fields.NoBody, statuses=(201,))
def create_sign_in_link(context: Context) -> Response[SignInLink]:
    """A link that signs a browser in to the console with this token, once, within a minute."""
    caller = context.caller
    assert caller is not None, "a call with scopes has a caller"
    headers = {name.lower(): value for name, value in context.headers.items()}
    text = headers.get("authorization", "").partition(" ")[2].strip()
    # of this text: after a rotation, a link made with the former one no longer works
    fingerprint = context.deps.tokens.fingerprint_of(text)
    ticket, ends_ms = context.deps.sign_in_links.ticket(caller.token_id, fingerprint)
    is_tls = bool(context.deps.adapters.stage) or headers.get("x-forwarded-proto") == "https"
    origin = f"{'https' if is_tls else 'http'}://{headers.get('host', 'localhost')}"
    url = f"{origin}{context.prefix}/console/sign-in?ticket={ticket}"
    return Response({"url": url, "expires_at": fields.at(ends_ms)}, 201)


@call("POST", "/v1/signing-key/rotate", scopes=ADMIN, body=fields.RotateBody, reach=Reach.SERVICE)
def rotate_signing_key(context: Context) -> Response[SigningKeyView]:
    """Sign with a new key from now on; what the previous key has signed stays valid for `overlap_seconds`."""
    ring = context.deps.signing_keys.rotate(context.body.overlap_seconds)
    ends = [fields.at(key.until_ms) for key in ring.keys[1:] if key.until_ms is not None]
    return Response({"rotated_at": fields.at(context.now_ms), "former_until": ends})


def token_view(token: Token, used_ms: int | None = None) -> TokenView:
    """A token without its text."""
    return fields.shown(TokenView, token, last_used_at=fields.at(used_ms) if used_ms else None)
