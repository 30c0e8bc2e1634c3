"""Which headers a message may not have: those that mean something to whoever passes it on or gets it."""

from __future__ import annotations

_PREFIXES = ("ce-", "headrace-", "svix-", "webhook-", "x-forwarded-")
_NAMES = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),  # of one connection, not of a message
        *("host", "forwarded", "via", "x-real-ip"),
        *("authorization", "cookie", "set-cookie", "x-api-key"),
        *("content-encoding", "content-length", "content-type", "accept-encoding", "expect", "user-agent"),
    }
)


def is_reserved(name: str) -> bool:
    """Would the header be taken for one of the request's own, or of somebody on its way?"""
    return name.lower() in _NAMES or name.lower().startswith(_PREFIXES)
