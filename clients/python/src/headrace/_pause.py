"""Waiting, in both worlds."""

from __future__ import annotations

import time


def pause(seconds: float) -> None:
    """Wait in this thread."""
    time.sleep(seconds)


async def async_pause(seconds: float) -> None:
    """Wait in this task."""
    import asyncio

    await asyncio.sleep(seconds)
