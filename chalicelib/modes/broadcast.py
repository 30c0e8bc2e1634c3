"""BROADCAST: every registered consumer has its own cursors, from its registration on."""

from __future__ import annotations

from .queue import Queue


class Broadcast(Queue):
    """Within one consumer's cursor a broadcast is a queue."""

    per_consumer = True
