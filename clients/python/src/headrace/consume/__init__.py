"""Consumers: functions that are handed messages, and what surrounds them."""

from .outcomes import Bury, Retry
from .settings import ConsumerSettings, Middleware

__all__ = ["Bury", "ConsumerSettings", "Middleware", "Retry"]
