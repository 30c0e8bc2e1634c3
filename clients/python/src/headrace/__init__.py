"""Headrace, the message queue with no broker to run: its client for Python.

from headrace import Headrace

hr = Headrace.from_env()  # HEADRACE_URL, HEADRACE_TOKEN
hr.send("orders", {"order": 188}, key="order-188", delay="30m")
"""

from .client import AsyncHeadrace, Headrace
from .consume import Bury, ConsumerSettings, Middleware, Retry
from .errors import HeadraceError
from .models import Message, Sent
from .outgoing import Outgoing
from .producer import Producer
from .retries import Retries

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
