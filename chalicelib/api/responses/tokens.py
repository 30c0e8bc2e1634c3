"""Access tokens."""

from typing import Annotated, TypedDict

from ...domain.topic import Token
from .common import Time, at, one_of


class TokenView(TypedDict):
    """A token without its text: what it may do, with which topics and groups, until when (null: for good), and how
    many calls a second (null: as the stage). Its last use
    is known to the hour."""

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
    """A token that was just made or rotated; its text is shown this once."""

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
