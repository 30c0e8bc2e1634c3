"""Headrace: a message queue with no broker to run."""
