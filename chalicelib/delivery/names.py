"""Names to addresses, under a deadline."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

Resolve = Callable[[str], tuple[str, ...]]


def system_resolve(host: str) -> tuple[str, ...]:
    """All addresses the machine's resolver gives; none if it gives none. May take as long as it likes."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in infos))


class Lookups:
    """Look-ups that may be waited for a while. A look-up can't be broken off, so each runs in a thread of its
    own, one for a host at a time: a host whose name servers hang holds one thread, and no other host."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._running: dict[str, _Lookup] = {}

    def addresses(self, host: str, seconds: float) -> tuple[str, ...]:
        """What the host resolves to now. TimeoutError after so many seconds."""
        with self._lock:
            lookup = self._running.get(host)
            if lookup is None:
                lookup = self._running[host] = _Lookup(host, self._resolve, self._forget)
                lookup.start()
        lookup.join(seconds)
        if lookup.is_alive():
            raise TimeoutError
        return lookup.addresses

    def _forget(self, host: str) -> None:
        with self._lock:
            del self._running[host]


class _Lookup(threading.Thread):
    def __init__(self, host: str, resolve: Resolve, done: Callable[[str], None]) -> None:
        super().__init__(name=f"resolve {host}", daemon=True)
        self.addresses: tuple[str, ...] = ()
        self._host, self._resolve, self._done = host, resolve, done

    def run(self) -> None:
        try:
            self.addresses = self._resolve(self._host)
        finally:
            self._done(self._host)
