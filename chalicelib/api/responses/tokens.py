"""Access tokens."""

from typing import Annotated, TypedDict

from ...domain.topic import Token
from .common import Time, at, one_of


class TokenView(TypedDict):
    """A token without its text: what it may do, with which topics, until when (null: for good)."""

    id: str
    name: str
    scopes: list[Annotated[str, one_of("produce", "consume", "admin")]]
    topics: list[str]
    created_at: Time
    expires_at: Time | None


class CreatedToken(TokenView):
    """A token that was just made; its text is shown this once."""

    token: str


def view(token: Token) -> TokenView:
    """A token without its text."""
    return {
        "id": token.id,
        "name": token.name,
        "scopes": list(token.scopes),
        "topics": list(token.topics),
        "created_at": at(token.created_ms),
        "expires_at": at(token.expires_ms) if token.expires_ms else None,
    }
