"""Which event loop connections belong to, in both worlds: a closed one takes its connections with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def loop() -> asyncio.AbstractEventLoop | None:
    """None: threads share connections."""
    return None


def async_loop() -> asyncio.AbstractEventLoop | None:
    """The one that runs."""
    import asyncio

    return asyncio.get_running_loop()
