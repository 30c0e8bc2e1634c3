"""Where a local service keeps everything: what the engines have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from chalicelib.adapters import Adapters
from chalicelib.ports.world import Clock, Invoker
from chalicelib.settings import Settings
from local.functions import Function
from local.token_file import TokenFile


class Poller(Protocol):
    """A thread's work beside the service."""

    def run(self) -> None:
        """Go on until `stop`."""

    def stop(self) -> None:
        """End `run`."""

    def wait_until_ready(self, seconds: float) -> bool:
        """Wait until what happens from now on is seen. False: that took longer."""


@dataclass(frozen=True)
class Store:
    """An engine that is open."""

    adapters: Callable[[Settings, Clock, Invoker], Adapters]
    pollers: Callable[[Mapping[str, Function]], list[Poller]]
    """What carries the engine's changes to the functions."""

    forget: Callable[[], object]
    """Drop what has expired, where the engine does not by itself."""

    tokens: TokenFile | None
    """Where the first token is kept; None: nowhere, it is a new one each time."""

    ending: str
    """What becomes of the messages when the service ends."""

    clear: Callable[[], None] | None = None
    """Removes everything, where that may be asked for."""
