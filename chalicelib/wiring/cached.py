"""Properties that are made once, also where threads ask for them at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property
else:
    import functools
    from threading import RLock

    class cached_property(functools.cached_property):
        """That of functools, with a lock, which it has no more from Python 3.12 on: two services would each have a
        third one of their own, and of two caches the one would not hear of what is changed by way of the other."""

        def __init__(self, make):
            super().__init__(make)
            self._making = RLock()

        def __get__(self, instance, owner=None):
            with self._making:
                return super().__get__(instance, owner)


__all__ = ["cached_property"]
