"""Access tokens."""

from typing import Annotated, TypedDict

from ...domain.topic import Token
from .common import Time, at, one_of


class TokenView(TypedDict):
    """A token without its text: its scopes, its topics and groups, its expiry (null: none), and its limit of calls a
    second (null: the deployment's). Its last use is known to the hour."""

    id: str
    name: str
    scopes: list[Annotated[str, one_of("produce", "consume", "admin")]]
    topics: list[str]
    groups: list[str]
    created_at: Time
    expires_at: Time | None
    rate_limit: int | None
    last_used_at: Time | None


class CreatedToken(TokenView):
    """A token that was just created or rotated; its text is shown only once."""

    token: str


def view(token: Token, used_ms: int | None = None) -> TokenView:
    """A token without its text."""
    return {
        "id": token.id,
        "name": token.name,
        "scopes": list(token.scopes),
        "topics": list(token.topics),
        "groups": list(token.groups),
        "created_at": at(token.created_ms),
        "expires_at": at(token.expires_ms) if token.expires_ms else None,
        "rate_limit": token.rate_limit,
        "last_used_at": at(used_ms) if used_ms else None,
    }
