"""Every service, made from one set of adapters, once per cold start.

Each module has the services of one kind and builds on the one before: `core`, `messages`, `inspect`, `manage`,
`schedules`.
"""

from __future__ import annotations

from functools import cache

from ..adapters import from_environment
from .schedules import ScheduledServices


class Deps(ScheduledServices):
    """Every service, made from one set of adapters and imported when it is first needed: a cold start pays for what
    it runs."""


@cache
def deps() -> Deps:
    """The process's services, from its environment."""
    return Deps(from_environment())
