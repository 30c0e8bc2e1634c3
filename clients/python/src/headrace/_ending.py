"""Producers that are open: what they hold is sent before their client closes, and before the process ends."""

from __future__ import annotations

import atexit
import os
import sys
import time
from typing import Any, Protocol

_EXIT_SECONDS = 5.0


class Ending(Protocol):
    """What has messages to send."""

    def sends_by(self, hr: Any) -> bool: ...

    def close(self, timeout: float | None = None) -> None: ...

    def hurry(self) -> None: ...

    def end(self, timeout: float) -> None: ...


_OPEN: set[Ending] = set()
_hooked_pid = 0


def add(producer: Ending) -> None:
    """It has begun, in this process."""
    global _hooked_pid
    _OPEN.add(producer)
    if _hooked_pid == os.getpid():
        return
    if not _hooked_pid:
        atexit.register(_end_all)
    _hooked_pid = os.getpid()
    if util := sys.modules.get("multiprocessing.util"):  # its children end without `atexit`
        util.Finalize(None, _end_all, exitpriority=0)


def discard(producer: Ending) -> None:
    """Its thread has ended."""
    _OPEN.discard(producer)


def close_all_of(hr: Any) -> None:
    """Close the producers that send by this client."""
    for producer in [*_OPEN]:
        if producer.sends_by(hr):
            producer.close()


def _end_all() -> None:
    until = time.monotonic() + _EXIT_SECONDS
    producers = [*_OPEN]
    _OPEN.clear()  # the hooks may both run
    for producer in producers:
        producer.hurry()  # each sends while another is waited for
    for producer in producers:
        producer.end(max(0.0, until - time.monotonic()))
