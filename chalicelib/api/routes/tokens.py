"""Access tokens."""

from __future__ import annotations

from ...domain.errors import Forbidden
from .. import parse, render
from ..http import Context, Response, call
from ..requests import TokenBody

_ADMIN = ("admin",)


@call("POST", "/v1/tokens", scopes=_ADMIN, body=TokenBody)
def create_token(context: Context) -> Response:
    """Make a token; its text is shown this once."""
    _unlimited(context)
    asked = context.body
    scopes = tuple(dict.fromkeys(asked.scopes))
    made, text = context.deps.tokens.create(asked.name, scopes, tuple(asked.topics), asked.expires_in_days)
    return Response({**render.token(made), "token": text}, 201)


@call("GET", "/v1/tokens", scopes=_ADMIN, query=("limit", "page_token"))
def list_tokens(context: Context) -> Response:
    """Tokens, without their secrets."""
    _unlimited(context)
    limit = parse.limit(context.query)
    found = context.deps.tokens.listed(parse.page_start(context, "tokens"), limit)
    following = found[-1].id if len(found) == limit else None
    return Response(parse.page(context, "tokens", [render.token(t) for t in found], following))


@call("DELETE", "/v1/tokens/{id}", scopes=_ADMIN)
def delete_token(context: Context, id: str) -> Response:
    """Revoke a token."""
    _unlimited(context)
    context.deps.tokens.revoke(id[:128])
    return Response(status=204)


def _unlimited(context: Context) -> None:
    """A token for some topics must not make itself one for all."""
    if context.caller is None or "*" not in context.caller.topics:
        raise Forbidden("TOPIC_FORBIDDEN", "Only a token for all topics manages tokens.")
