"""Runs work for several keys in threads, so that slow work for one key delays only that key."""

from __future__ import annotations

import queue
from collections.abc import Callable, Hashable, Mapping, Set
from concurrent.futures import Executor, Future
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Beside(Generic[K, T]):
    """Runs at most one piece of work for each key at a time."""

    def __init__(self, threads: Executor, patience_seconds: float | None) -> None:
        """`patience_seconds` of real time is waited for work while none ends; None: until all has ended."""
        self._threads = threads
        self._patience_seconds = patience_seconds
        self._under_way: set[K] = set()
        self._ends: queue.SimpleQueue[tuple[K, Future[T]]] = queue.SimpleQueue()

    @property
    def under_way(self) -> Set[K]:
        """The keys whose work has not ended yet."""
        return self._under_way

    def do(self, tasks: Mapping[K, Callable[[], T]]) -> dict[K, Future[T]]:
        """Start the work of each key that has none under way. Returns what has ended after a moment, also of earlier
        calls."""
        new_keys = tasks.keys() - self._under_way
        for key in (key for key in tasks if key in new_keys):
            self._under_way.add(key)
            self._threads.submit(tasks[key]).add_done_callback(partial(self._note, key))
        futures: dict[K, Future[T]] = {}
        while new_keys & self._under_way or not self._ends.empty():
            try:
                self._collect(futures, self._patience_seconds)
            except queue.Empty:
                break
        return futures

    def _note(self, key: K, future: Future[T]) -> None:
        self._ends.put((key, future))

    def _collect(self, futures: dict[K, Future[T]], seconds: float | None) -> None:
        key, future = self._ends.get(timeout=seconds) if seconds else self._ends.get()
        self._under_way.discard(key)
        futures[key] = future
