"""Where handlers run: in threads, or in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime  # another class in Python 3.10
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol

from ..models import Message

Finish = Callable[[Message, BaseException | None], None]
_CANCEL_SECONDS = 0.5  # for what handlers do when they are cancelled


class Runner(Protocol):
    """Runs a handler for a message, `concurrency` at a time, and says how it ended."""

    def submit(self, message: Message) -> None:
        """Soon. Raises RuntimeError where it can run nothing any more."""

    def stop(self) -> None:
        """Begin no more. What runs is cancelled where that is possible."""


class ThreadRunner:
    """Handlers in threads, which do not keep a process from its end."""

    def __init__(self, call: Callable[[Message], Any], concurrency: int, name: str, finish: Finish) -> None:
        self._call = call
        self._finish = finish
        self._concurrency = concurrency
        self._name = f"headrace-{name}"
        self._count = 0
        self._queue: SimpleQueue[Message | None] = SimpleQueue()

    def submit(self, message: Message) -> None:
        self._queue.put(message)
        if self._count < self._concurrency:
            threading.Thread(target=self._work, name=f"{self._name}_{self._count}", daemon=True).start()
            self._count += 1

    def _work(self) -> None:
        while (message := self._queue.get()) is not None:
            error: BaseException | None = None
            try:
                self._call(message)
            except BaseException as exception:
                error = exception
            self._finish(message, error)

    def stop(self) -> None:
        for _ in range(self._count):
            self._queue.put(None)


class LoopRunner:
    """Handlers as tasks of an event loop: the one given, or one in a thread of its own."""

    def __init__(
        self,
        call: Callable[[Message], Any],
        concurrency: int,
        name: str,
        finish: Finish,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._call = call
        self._finish = finish
        self._places = asyncio.Semaphore(concurrency)
        self._own = None if loop else asyncio.new_event_loop()
        self._loop = loop or self._own
        self._works: set[Future[BaseException | None]] = set()
        self._thread: threading.Thread | None = None
        if self._own:
            self._thread = threading.Thread(
                target=self._own.run_forever, name=f"headrace-{name}", daemon=True
            )
            self._thread.start()

    def submit(self, message: Message) -> None:
        assert self._loop is not None
        run = self._run(message)
        try:
            work = asyncio.run_coroutine_threadsafe(run, self._loop)
        except RuntimeError:
            run.close()
            raise
        self._works.add(work)
        # not in the task: one that is cancelled before its turn has no code that runs
        work.add_done_callback(lambda done: self._end(message, done))

    async def _run(self, message: Message) -> BaseException | None:
        try:
            async with self._places:
                await self._call(message)
        except BaseException as error:
            return error
        return None

    def _end(self, message: Message, done: Future[BaseException | None]) -> None:
        self._works.discard(done)
        self._finish(message, _error_of(done))

    def stop(self) -> None:
        """Cancel what runs, and end the loop, if it is our own."""
        for work in [*self._works]:
            work.cancel()
        if self._own and self._thread:
            with suppress(NotInTime):  # a handler that blocks its loop
                asyncio.run_coroutine_threadsafe(_quiet(), self._own).result(_CANCEL_SECONDS)
            self._own.call_soon_threadsafe(self._own.stop)
            self._thread.join(_CANCEL_SECONDS)
            if not self._thread.is_alive():
                self._own.close()


async def _quiet() -> None:
    """Until all other tasks of this loop have ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        await asyncio.wait(tasks)


def _error_of(done: Future[BaseException | None]) -> BaseException | None:
    return asyncio.CancelledError() if done.cancelled() else done.result()
