"""The schedules of an application: registered when it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ..durations import Duration
from ..outgoing import MessageFields, Missed, Overlap

if TYPE_CHECKING:
    from datetime import datetime

    from .._sync.client import Operations

H = TypeVar("H", bound=Callable[..., Any])


class ScheduleOptions(MessageFields, total=False):
    """What `@hr.schedule` takes beside `cron` and `topic`, as `put_schedule` does."""

    body: Any
    every: Duration | None
    timezone: str | None
    begin: datetime | str | None
    until: datetime | str | None
    jitter: Duration | None
    missed: Missed | None
    overlap: Overlap | None


@dataclass
class Schedules:
    """Those that were declared with `@hr.schedule`: their options, by name. One that begins with a dot is a function's,
    before which the application's name belongs."""

    wanted: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, function: H, name: str | None, options: dict[str, Any]) -> H:
        name = name or f".{function.__name__}"
        if name in self.wanted:
            raise ValueError(f"There are two schedules {name!r}: give one of them a name=….")
        self.wanted[name] = options
        return function

    def register(self, hr: Operations) -> None:
        """Store them under the application's name, and delete those that it had before and has no more: of the same
        application and token alone."""
        if not self.wanted:
            return
        app = hr.transport.app
        if not app:
            raise ValueError("Schedules need the application's name: Headrace(…, app=…), or HEADRACE_APP.")
        prefix = app.replace("/", "-")
        wanted = {prefix + name if name[0] == "." else name: options for name, options in self.wanted.items()}
        for name, options in wanted.items():
            hr.put_schedule(name, app=app, **options)
        token_id = hr.transport.token.split("_")[1]
        for each in list(hr.list_schedules(app=app)):
            if each.made_by == token_id and each.name not in wanted:
                hr.delete_schedule(each.name)
