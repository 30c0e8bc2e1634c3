"""The HTTP interface: a file for each resource, with its requests, answers and calls. Importing this package enters all
calls."""

from . import (
    archive,
    audit,
    by_hand,
    consumers,
    dead_letters,
    delayed,
    groups,
    messages,
    produce,
    publish,
    receive,
    replays,
    schedules,
    sign_in_links,
    signing_key,
    subscribers,
    system,
    tokens,
    topics,
    transactions,
)

__all__ = [
    "archive", "audit", "by_hand", "consumers", "dead_letters", "delayed", "groups",
    "messages", "produce", "publish", "receive", "replays", "schedules", "sign_in_links",
    "signing_key", "subscribers", "system", "tokens", "topics", "transactions",
]  # fmt: skip
