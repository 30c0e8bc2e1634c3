"""What Lambda calls beside HTTP: an event in, one service, a report out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import observe
from .wiring import Deps

_MARGIN_MS = 5_000  # of a function's time: for what is under way to end
Event = Mapping[str, Any]


def route(event: Event, deps: Deps) -> dict[str, Any]:
    """New rows of the log (a batch of its stream): wake their deliveries."""
    return {"woken": deps.waker.route(_shards(event))}


def _shards(event: Event) -> Iterator[str]:
    for record in event["Records"]:
        keys = record["dynamodb"]["Keys"]
        if record["eventName"] == "INSERT" and not keys["o"]["N"].startswith("-"):
            yield keys["s"]["S"]


def deliver(event: Event, context: Any, deps: Deps) -> dict[str, Any]:
    """Deliver one job until it is drained."""
    from .services.wake import job_of

    return _told("deliver", deps.deliverer.deliver(job_of(event), _seconds_left(context)).as_dict())


def check(event: Event, context: Any, deps: Deps) -> dict[str, Any]:
    """Ask producers about transactions."""
    from .services.checks import Check

    checks = [Check(transaction_id, next_ms) for transaction_id, next_ms in event["checks"]]
    return _told("check", dict(deps.checker.check(checks, _seconds_left(context))))


def mover(event: Event, context: Any, deps: Deps) -> dict[str, Any]:
    """Move what is due: on schedule, or because somebody has just filed a timer in these fragments."""
    fragments = event.get("detail", {}).get("fragments")
    return _told("mover", deps.mover.run_once(_has_time(context), fragments).as_dict())


def sweep(context: Any, deps: Deps) -> dict[str, Any]:
    """Wake what nobody is at work on."""
    return _told("sweep", deps.sweeper.run_once(_has_time(context)).as_dict())


def assign(context: Any, deps: Deps) -> dict[str, Any]:
    """Keep assignments true, and ask again those who have not agreed yet to be called."""
    return _told("assign", deps.assigner.run_once(_has_time(context)).as_dict())


def checkpoint(context: Any, deps: Deps) -> dict[str, Any]:
    """Write down the tails of quiet shards."""
    return _told("checkpoint", deps.checkpointer.run_once(_has_time(context)).as_dict())


def expire(context: Any, deps: Deps) -> dict[str, Any]:
    """Make dead letters of what is still owed when its retention ends."""
    return _told("expire", deps.expirer.run_once(_has_time(context)).as_dict())


def _seconds_left(context: Any) -> Callable[[], float]:
    return lambda: float(context.get_remaining_time_in_millis()) / 1000


def _has_time(context: Any) -> Any:
    return lambda: context.get_remaining_time_in_millis() > _MARGIN_MS


def _told(function: str, report: dict[str, Any]) -> dict[str, Any]:
    """Log what a run did, if it did anything else than all went well."""
    if any(value for name, value in report.items() if name != "DONE" and value is not True):
        observe.report(function, report)
    return report
