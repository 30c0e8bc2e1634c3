"""Waiting, in both worlds."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
_LEFT: set[asyncio.Task[None]] = set()  # a loop keeps no task alive


def pause(seconds: float) -> None:
    """Wait in this thread."""
    time.sleep(seconds)


async def async_pause(seconds: float) -> None:
    """Wait in this task."""
    import asyncio

    await asyncio.sleep(seconds)


def to_its_end(result: T, undo: Callable[[T], object]) -> T:
    """The result: a thread is not cancelled."""
    return result


async def async_to_its_end(
    work: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, object]]
) -> T:
    """The result of the work. If this task is cancelled meanwhile, the work continues without it, and its result is
    undone."""
    import asyncio

    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        left = asyncio.ensure_future(_undone(task, undo))
        _LEFT.add(left)
        left.add_done_callback(_LEFT.discard)
        raise


async def _undone(task: asyncio.Task[T], undo: Callable[[T], Coroutine[Any, Any, object]]) -> None:
    with suppress(Exception):  # the service undoes it when its lease ends
        await undo(await task)
