"""A port for a server that is about to start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LENT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _LAST = 16_384, 65_535
_USUAL = range(_FIRST, 32_768)
_TRIES = 100


def port_range(path: Path = _LENT) -> range:
    """Ports that this machine does not lend to connections, so that a port stays free between choice and start. `path`
    is the file in which Linux says which it lends."""
    try:
        first, last = map(int, path.read_text().split())
    except (OSError, ValueError):
        return _USUAL
    if first - _FIRST >= _TRIES:
        return range(_FIRST, first)
    return range(last + 1, _LAST + 1) if _LAST - last >= _TRIES else _USUAL


def free_port() -> int:
    """A free TCP port of this machine. Raises OSError."""
    ports = port_range()
    for port in random.SystemRandom().sample(ports, _TRIES):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"None of {_TRIES} ports from {ports.start} to {ports.stop - 1} is free.")
