"""Headrace, the message queue with no broker to run: its client for Python.

from headrace import Headrace

hr = Headrace.from_env()  # HEADRACE_URL, HEADRACE_TOKEN
hr.send("orders", {"order": 188}, key="order-188", delay="30m")
"""

from typing import TYPE_CHECKING, Any

from .client import Headrace
from .consume import Bury, ConsumerSettings, Middleware, Retry
from .errors import HeadraceError
from .models import Message, Sent
from .outgoing import Outgoing
from .retries import Retries

if TYPE_CHECKING:
    from .async_client import AsyncHeadrace
    from .producer import Producer

__all__ = [
    "AsyncHeadrace",
    "Bury",
    "ConsumerSettings",
    "Headrace",
    "HeadraceError",
    "Message",
    "Middleware",
    "Outgoing",
    "Producer",
    "Retries",
    "Retry",
    "Sent",
]


def __getattr__(name: str) -> Any:
    """What not everybody needs is loaded when first used: asyncio takes longer than all the rest."""
    if name == "AsyncHeadrace":
        from .async_client import AsyncHeadrace

        return AsyncHeadrace
    if name == "Producer":
        from .producer import Producer

        return Producer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
