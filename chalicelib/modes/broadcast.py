"""BROADCAST: every registered consumer has a cursor of its own, from its registration on."""

from __future__ import annotations

from .queue import Queue


class Broadcast(Queue):
    """Within one consumer's cursor a broadcast is a queue."""

    per_consumer = True
