"""Access tokens."""

from __future__ import annotations

from ...domain.errors import Forbidden
from .. import parse
from ..http import Context, Response, call
from ..requests import TokenBody
from ..responses import tokens
from ..responses.common import Page, page
from ..responses.tokens import CreatedToken, TokenView

_ADMIN = ("admin",)


@call("POST", "/v1/tokens", scopes=_ADMIN, body=TokenBody, statuses=(201,))
def create_token(context: Context) -> Response[CreatedToken]:
    """Make a token; its text is shown this once."""
    _unlimited(context)
    body = context.body
    scopes = tuple(dict.fromkeys(body.scopes))
    token, text = context.deps.tokens.create(body.name, scopes, tuple(body.topics), body.expires_in_days)
    return Response({**tokens.view(token), "token": text}, 201)


@call("GET", "/v1/tokens", scopes=_ADMIN, query=("limit", "page_token"))
def list_tokens(context: Context) -> Response[Page[TokenView]]:
    """Tokens, without their secrets."""
    _unlimited(context)
    limit = parse.limit(context.query)
    rows = context.deps.tokens.listed(parse.page_start(context, "tokens"), limit)
    following = rows[-1].id if len(rows) == limit else None
    return Response(page(context, "tokens", [tokens.view(token) for token in rows], following))


@call("DELETE", "/v1/tokens/{id}", scopes=_ADMIN, statuses=(204,))
def delete_token(context: Context) -> Response[None]:
    """Revoke a token."""
    _unlimited(context)
    context.deps.tokens.revoke(context.params["id"][:128])
    return Response(None, 204)


def _unlimited(context: Context) -> None:
    """A token for some topics must not make itself one for all."""
    if context.caller is None or "*" not in context.caller.topics:
        raise Forbidden("TOPIC_FORBIDDEN", "Only a token for all topics manages tokens.")
