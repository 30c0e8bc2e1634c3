"""The calls of the HTTP interface, one file per part of docs/api. Importing this package enters them all."""

from . import (
    audit,
    consumers,
    dead_letters,
    groups,
    messages,
    produce,
    publish,
    receive,
    replays,
    sign_in_links,
    signing_key,
    subscribers,
    system,
    tokens,
    topics,
    transactions,
)

__all__ = [
    "audit",
    "consumers",
    "dead_letters",
    "groups",
    "messages",
    "produce",
    "publish",
    "receive",
    "replays",
    "sign_in_links",
    "signing_key",
    "subscribers",
    "system",
    "tokens",
    "topics",
    "transactions",
]
