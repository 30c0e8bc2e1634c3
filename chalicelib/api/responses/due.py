"""How much is due when."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from .common import Count, Time, at, at_or_none

if TYPE_CHECKING:
    from ...services.inspect.due_hours import DueHour


class DueHourView(TypedDict):
    """Delayed messages and retries that are due in the hour from `at` on. (Retries of SERIAL groups wait in their
    shards, and are not counted here.)"""

    at: Time
    delayed: Count
    retries: Count


class DueView(TypedDict):
    """The hours with due messages. `until`: the end of what was read (continue with it as `from`); null: all was
    read."""

    hours: list[DueHourView]
    until: Time | None


def view(hours: "Sequence[DueHour]", until_ms: int | None) -> DueView:
    """The hours, and how far they are known."""
    return {
        "hours": [{"at": at(hour.at_ms), "delayed": hour.delayed, "retries": hour.retries} for hour in hours],
        "until": at_or_none(until_ms),
    }
