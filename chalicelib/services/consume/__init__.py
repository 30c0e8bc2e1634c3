"""Claiming messages, settling them, and the queue of those that are tried again."""
