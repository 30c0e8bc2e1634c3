"""A port for a server that is about to start."""

from __future__ import annotations

import random
import socket

# Below those that systems lend to connections: between choice and start nobody is given the same one.
_CHOICE = range(16_384, 32_768)
_TRIES = 100


def free_port() -> int:
    """A TCP port of this machine that nobody uses. Raises OSError."""
    for port in random.SystemRandom().sample(_CHOICE, _TRIES):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"None of {_TRIES} ports from {_CHOICE.start} to {_CHOICE.stop - 1} is free.")
