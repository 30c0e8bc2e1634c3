"""Headrace on one machine: `make run`, `headrace-local`, and the commands beside it. Never shipped to Lambda."""


class Unusable(SystemExit):
    """A command of this folder cannot work as it is asked: the text says what to change. It ends the process, which
    prints the text on standard error."""
