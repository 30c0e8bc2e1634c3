"""Which headers a message may not have: those with a meaning for proxies or for the receiving server. And which a
request may have only once."""

from __future__ import annotations

_PREFIXES = (
    *("ce-", "headrace-", "svix-", "webhook-"),
    *("x-forwarded-", "x-original-", "x-rewrite-", "x-envoy-", "x-amzn-oidc-", "cf-"),  # what proxies say
)
_NAMES = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),  # of one connection, not of a message
        *("host", "forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip"),
        *("true-client-ip", "fastly-client-ip", "remote-user", "x-remote-user"),
        *("x-http-method", "x-http-method-override", "x-method-override"),  # another request than was sent
        *("authorization", "cookie", "set-cookie", "x-api-key"),
        *("content-encoding", "content-length", "content-type", "accept-encoding", "expect", "user-agent"),
    }
)


def is_reserved(name: str) -> bool:
    """Would a server or proxy take the header for one of the request's own?

    Many servers read `_` as `-`."""
    spelling = name.lower().replace("_", "-")
    return spelling in _NAMES or spelling.startswith(_PREFIXES)


_ONCE = frozenset({"authorization", "content-type", "host"})
_EACH_ONCE = ("ce-", "headrace-")


def is_single(name: str) -> bool:
    """May a request have this header, in lower case, only once? Of two, who reads them may take either, and the other
    would be lost."""
    return name in _ONCE or name.startswith(_EACH_ONCE)
