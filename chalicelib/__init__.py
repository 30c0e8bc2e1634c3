"""Headrace: a message queue with no broker to run."""

__version__ = "0.1.0"
