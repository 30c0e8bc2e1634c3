"""Where handlers run: in threads, or in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from ..models import Message

Finish = Callable[[Message, BaseException | None], None]


class Runner(Protocol):
    """Runs a handler for a message, `concurrency` at a time, and says how it ended."""

    def submit(self, message: Message) -> None:
        """Soon. Raises RuntimeError where it can run nothing any more."""

    def stop(self) -> None: ...


class ThreadRunner:
    """Handlers in threads."""

    def __init__(self, call: Callable[[Message], Any], concurrency: int, name: str, finish: Finish) -> None:
        self._call = call
        self._finish = finish
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix=f"headrace-{name}")

    def submit(self, message: Message) -> None:
        self._pool.submit(self._run, message)

    def _run(self, message: Message) -> None:
        error: BaseException | None = None
        try:
            self._call(message)
        except BaseException as exception:
            error = exception
        self._finish(message, error)

    def stop(self) -> None:
        """Wait for those that run."""
        self._pool.shutdown(wait=True)


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
        # not in the task: one that is cancelled before its turn has no code that runs
        work.add_done_callback(lambda done: self._finish(message, _error_of(done)))

    async def _run(self, message: Message) -> BaseException | None:
        try:
            async with self._places:
                await self._call(message)
        except BaseException as error:
            return error
        return None

    def stop(self) -> None:
        """End the loop, if it is our own."""
        if self._own and self._thread:
            self._own.call_soon_threadsafe(self._own.stop)
            self._thread.join()
            self._own.close()


def _error_of(done: Future[BaseException | None]) -> BaseException | None:
    return asyncio.CancelledError() if done.cancelled() else done.result()
