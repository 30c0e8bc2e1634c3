"""Links that sign a browser in."""

from typing import TypedDict

from .common import Time


class SignInLink(TypedDict):
    """A link that signs in whoever opens it first, until it expires. It holds no token."""

    url: str
    expires_at: Time
