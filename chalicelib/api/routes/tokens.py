"""Access tokens."""

from __future__ import annotations

from ...domain.errors import Forbidden
from ...domain.topic import Caller, Scope
from .. import parse
from ..http import Context, Response, call
from ..requests import RotateBody, TokenBody
from ..responses import tokens
from ..responses.common import Page, page
from ..responses.tokens import CreatedToken, TokenView

_ADMIN = (Scope.ADMIN,)


@call("POST", "/v1/tokens", scopes=_ADMIN, body=TokenBody, statuses=(201,))
def create_token(context: Context) -> Response[CreatedToken]:
    """Create a token; its text is shown only once."""
    unlimited(context)
    body = context.body
    scopes = tuple(dict.fromkeys(body.scopes))
    token, text = context.deps.tokens.create(
        body.name,
        scopes,
        tuple(body.topics),
        body.expires_in_days,
        groups=tuple(body.groups),
        rate_limit=body.rate_limit,
        maker=context.caller,
    )
    return Response({**tokens.view(token), "token": text}, 201)


@call("GET", "/v1/tokens", scopes=_ADMIN, query=("limit", "page_token"))
def list_tokens(context: Context) -> Response[Page[TokenView]]:
    """Tokens, without their secrets."""
    unlimited(context)
    limit = parse.limit(context.query)
    rows = context.deps.tokens.listed(parse.page_start(context, "tokens"), limit)
    following = rows[-1][0].id if len(rows) == limit else None
    return Response(page(context, "tokens", [tokens.view(*row) for row in rows], following))


@call("POST", "/v1/tokens/{id}/rotate", scopes=_ADMIN, body=RotateBody)
def rotate_token(context: Context) -> Response[CreatedToken]:
    """Give a token a new text, shown only once; the old one stays valid for `overlap_seconds`."""
    maker = unlimited(context)
    id = context.params["id"][:128]
    token, text = context.deps.tokens.rotate(id, context.body.overlap_seconds, maker)
    return Response({**tokens.view(token), "token": text})


@call("DELETE", "/v1/tokens/{id}", scopes=_ADMIN, statuses=(204,))
def delete_token(context: Context) -> Response[None]:
    """Revoke a token."""
    unlimited(context)
    context.deps.tokens.revoke(context.params["id"][:128])
    return Response(None, 204)


def unlimited(context: Context) -> Caller:
    """The caller. A token for some topics or groups must not make itself one for all."""
    return check_unlimited(context.caller)


def check_unlimited(caller: Caller | None) -> Caller:
    """The caller; Forbidden where its token is for some topics or groups."""
    if caller is None or "*" not in caller.topics:
        raise Forbidden("TOPIC_FORBIDDEN", "Only a token for all topics may do this.")
    if "*" not in caller.groups:
        raise Forbidden("GROUP_FORBIDDEN", "Only a token for all groups may do this.")
    return caller
