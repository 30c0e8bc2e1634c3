"""The console's pages. Importing this package enters them all; what they need is imported when they are asked for."""

from . import (
    archive,
    audit,
    dead_letters,
    deeds,
    groups,
    many_letters,
    messages,
    overview,
    rates,
    send,
    sign_in,
    subscribers,
    system,
    topics,
    try_it,
    waiting,
)

__all__ = [
    "archive",
    "audit",
    "dead_letters",
    "deeds",
    "groups",
    "many_letters",
    "messages",
    "overview",
    "rates",
    "send",
    "sign_in",
    "subscribers",
    "system",
    "topics",
    "try_it",
    "waiting",
]
