"""Links that sign a browser in."""

from typing import TypedDict

from .common import Time


class SignInLink(TypedDict):
    """A link that signs in the first browser that opens it, until it expires. It contains no token."""

    url: str
    expires_at: Time
