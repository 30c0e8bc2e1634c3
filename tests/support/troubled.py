"""Ports whose calls are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.domain.errors import unavailable


class Troubled:
    """A port whose calls may be refused before they are done, or have their answers lost."""

    def __init__(self, of: Any, predicate: Callable[..., bool], *, after: bool = False) -> None:
        self._of = of
        self._refuses = predicate
        self._after = after
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._refuses(name, *args):
                return getattr(self._of, name)(*args, **kwargs)
            self.refused += 1
            if self._after:
                getattr(self._of, name)(*args, **kwargs)
            raise unavailable("throttled")

        return call
