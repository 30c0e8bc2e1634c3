"""Headrace on one machine: `make run`, `headrace-local`, and the commands beside it. Never shipped to Lambda."""


class Unusable(Exception):
    """A command of this folder cannot work as it is asked: the text says what to change."""
