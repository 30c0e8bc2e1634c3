"""The processors of this machine, kept busy a little ahead of who takes what they make."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


class Workers:
    """A thread for each processor; Arrow and NumPy let them work at the same time."""

    def __init__(self) -> None:
        self._count = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._count)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop what is not begun, and end the threads."""
        self._pool.shutdown(cancel_futures=True)

    def map_ahead(self, work: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
        """What comes of the items, in their order, while the next ones are at work: one more than there are
        processors, so that memory stays as it is."""
        under_way: deque[Future[Made]] = deque()
        for item in items:
            under_way.append(self._pool.submit(work, item))
            if len(under_way) > self._count:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
