"""Resolves host names within a deadline."""

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
    """DNS look-ups with a time limit. A look-up cannot be cancelled, so each runs in its own thread, one per host: a
    host whose name servers hang occupies one thread only."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._running: dict[str, _Lookup] = {}

    def addresses(self, host: str, seconds: float) -> tuple[str, ...]:
        """The host's addresses now. Raises TimeoutError after so many seconds."""
        with self._lock:
            lookup = self._running.get(host)
            if lookup is None:
                lookup = _Lookup(host, self._resolve, self._forget)
                lookup.start()  # first: one that finds no thread is waited for by nobody else
                self._running[host] = lookup
        lookup.join(seconds)
        if lookup.is_alive():
            raise TimeoutError
        return lookup.addresses

    def _forget(self, host: str) -> None:
        with self._lock:
            del self._running[host]


class _Lookup(threading.Thread):
    def __init__(self, host: str, resolve: Resolve, on_done: Callable[[str], None]) -> None:
        super().__init__(name=f"resolve {host}", daemon=True)
        self.addresses: tuple[str, ...] = ()
        self._host, self._resolve, self._on_done = host, resolve, on_done

    def run(self) -> None:
        try:
            self.addresses = self._resolve(self._host)
        finally:
            self._on_done(self._host)
