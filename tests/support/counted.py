"""What a use case asks of a port, counted."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Counted:
    """A port that counts its calls."""

    def __init__(self, port: object) -> None:
        self._port = port
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._port, name)
