"""A clock that a test sets, chance from a seed, and work that is done at once instead of by a thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from chalicelib.domain.ids import ALPHABET
from chalicelib.domain.times import SECOND_MS

# The year 2100: the engine removes rows whose time is past by its own clock within seconds, and ours never are.
START_MS = 4_102_444_800_000


class ManualClock:
    """ports.Clock that stands still until it is set, advanced or slept on."""

    def __init__(self, at_ms: int = START_MS) -> None:
        self.at_ms = at_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms

    def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def advance(self, by_ms: int) -> None:
        with self._lock:
            self.at_ms += by_ms


class Hasty(ManualClock):
    """Each look at it takes a second."""

    def now_ms(self) -> int:
        self.advance(SECOND_MS)
        return super().now_ms()


class SeededRandom:
    """ports.Random from one seed: same seed, same ids."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def below(self, n: int) -> int:
        with self._lock:
            return self._random.randrange(n)

    def id(self, chars: int) -> str:
        with self._lock:
            return "".join(self._random.choices(ALPHABET, k=chars))

    def secret(self) -> bytes:
        with self._lock:
            return self._random.randbytes(32)


class Inline(Executor):
    """Runs at once, in the caller's thread."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as executors do
            future.set_exception(error)
        return future
