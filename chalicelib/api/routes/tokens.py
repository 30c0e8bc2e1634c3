"""Access tokens."""

from __future__ import annotations

from ...domain.topic import Scope
from .. import list_pages
from ..calls import Context, Reach, Response, call
from ..requests import RotateBody, TokenBody
from ..responses import tokens
from ..responses.common import Page, page
from ..responses.tokens import CreatedToken, TokenView

_ADMIN = (Scope.ADMIN,)


@call("POST", "/v1/tokens", scopes=_ADMIN, body=TokenBody, statuses=(201,))
def create_token(context: Context) -> Response[CreatedToken]:
    """Create a token, with no more rights than your own; its text is shown only once."""
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


@call("GET", "/v1/tokens", scopes=_ADMIN, reach=Reach.SERVICE, query=("limit", "page_token"))
def list_tokens(context: Context) -> Response[Page[TokenView]]:
    """Tokens, without their secrets."""
    limit = list_pages.limit(context.query)
    rows = context.deps.tokens.with_last_use(list_pages.page_start(context, "tokens"), limit)
    next_start = rows[-1][0].id if len(rows) == limit else None
    return Response(page(context, "tokens", [tokens.view(*row) for row in rows], next_start))


@call("POST", "/v1/tokens/{id}/rotate", scopes=_ADMIN, body=RotateBody)
def rotate_token(context: Context) -> Response[CreatedToken]:
    """Give a token a new text, shown only once; the old one stays valid for `overlap_seconds`."""
    id = context.params["id"][:128]
    token, text = context.deps.tokens.rotate(id, context.body.overlap_seconds, context.caller)
    return Response({**tokens.view(token), "token": text})


@call("DELETE", "/v1/tokens/{id}", scopes=_ADMIN, reach=Reach.SERVICE, statuses=(204,))
def delete_token(context: Context) -> Response[None]:
    """Revoke a token."""
    context.deps.tokens.revoke(context.params["id"][:128])
    return Response(None, 204)
