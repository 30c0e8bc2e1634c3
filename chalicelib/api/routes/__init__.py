"""The calls of the HTTP interface, one file per part of docs/api. Importing this package enters them all."""

from . import consumers, groups, messages, produce, publish, receive, system, tokens, topics

__all__ = ["consumers", "groups", "messages", "produce", "publish", "receive", "system", "tokens", "topics"]
