"""One event loop beside the threads of this process: it runs the async handlers that synchronous servers call.

All of them share it, so a client with a pool of connections works in each: its connections belong to their loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

THREAD_NAME = "headrace-handlers"
_END_SECONDS = 5.0
_T = TypeVar("_T")
_loops: dict[int, asyncio.AbstractEventLoop] = {}  # by process: a fork has no thread of its parent's


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run it in the loop, with this thread's context, and wait. Returns what it returns, raises what it raises."""
    outcome = asyncio.run_coroutine_threadsafe(_caught(work), _loop())
    try:
        result, error = outcome.result()
    except BaseException:  # of this thread, which waits no more
        outcome.cancel()
        raise
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # no error: it is there


async def _caught(work: Coroutine[Any, Any, _T]) -> tuple[_T | None, BaseException | None]:
    """A SystemExit is the caller's: it does not end the loop."""
    try:
        return await work, None
    except BaseException as error:  # noqa: BLE001  the caller raises it
        return None, error


def _loop() -> asyncio.AbstractEventLoop:
    if (loop := _loops.get(os.getpid())) is not None:
        return loop
    new = asyncio.new_event_loop()
    loop = _loops.setdefault(os.getpid(), new)
    if loop is not new:  # another thread was first
        new.close()
        return loop
    thread = threading.Thread(target=_serve, args=(loop,), name=THREAD_NAME, daemon=True)
    thread.start()
    atexit.register(_end, loop, thread, os.getpid())
    return loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, process: int) -> None:
    if process == os.getpid():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_END_SECONDS)
