"""What Lambda calls beside HTTP: an event in, one service, a report out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import observe
from .domain.errors import Unavailable, unavailable
from .wiring import Deps

if TYPE_CHECKING:
    from .scheduler.walk import Stretch, Trouble
    from .scheduler.watch import Backlog, WatchReport

_MARGIN_MS = 5_000  # of a function's time: for what is under way to end
_ASKING_MS = 15_000  # likewise, where a subscriber is asked, who may take ten seconds
# A job that runs out of time restarts itself at most 20 times: 5 of the 6 hours until its next schedule.
_RUNS = 20
_TOLD = 20  # topics of a run on which its visit failed; the others are only counted
Event = Mapping[str, Any]
# Which counts of reports are metrics.
_METRICS = {
    "moved": "Moved",
    "late_ms": "DelayLateness",
    "stale": "Stale",
    "assigned": "Reassigned",
    "checkpoints": "Checkpoints",
    "findings": "Findings",
    "kept": "Kept",
    "troubles": "Troubles",
    "round_age_ms": "RoundAge",
}

# What reports count although nothing was to do, or all went well.
_ROUTINE = {"DONE", "topics", "groups", "shards", "looks", "round_age_ms", "watched", "read"}


def route(event: Event, deps: Deps) -> dict[str, Any]:
    """New rows of the log (a batch of its stream): wake their deliveries."""
    last = _last_rows(event)
    report = _of_stream("route", event, lambda: {"woken": deps.waker.route(last)})
    deps.marker.note_topics_of(last)
    observe.count(deps.adapters.stage, deps.counters, {})
    return report


def _last_rows(event: Event) -> dict[str, int]:
    """The last of the new rows, by the log's partition key."""
    last: dict[str, int] = {}
    for record in event["Records"]:
        keys = record["dynamodb"]["Keys"]
        if record["eventName"] == "INSERT" and not keys["o"]["N"].startswith("-"):
            last[keys["s"]["S"]] = max(int(keys["o"]["N"]), last.get(keys["s"]["S"], 0))
    return last


def journal(event: Event, deps: Deps) -> dict[str, Any]:
    """What the streams of the log and the traces carry (a batch of one of them): write it down."""
    report = _of_stream("journal", event, lambda: deps.journal.write(event["Records"]))
    if unreadable := report.get("unreadable"):
        observe.metrics(deps.adapters.stage, {"Undecodable": unreadable})
        observe.event("records in quarantine", records=unreadable)
    return report


def _of_stream(function: str, event: Event, work: Callable[[], Mapping[str, int]]) -> dict[str, Any]:
    """Run `work` on a stream's batch and return Lambda's answer. If AWS is unavailable, the whole batch comes again. An
    exception is a bug or an unreadable record: Lambda then splits the batch in two to find it."""
    try:
        return {**work(), "batchItemFailures": []}
    except Unavailable as error:
        observe.event("batch put off", function=function, detail=str(error))
        first = event["Records"][0]["dynamodb"]["SequenceNumber"]
        return {"batchItemFailures": [{"itemIdentifier": first}]}


def deliver(event: Event, context: Any, deps: Deps) -> dict[str, Any]:
    """Deliver one job until it is drained; or send a test event, and return its result."""
    from .services.core.wake import news_of, task_of

    if "ping" in event:
        return deps.outbound.answer_ping(event["ping"])
    task = task_of(event)
    with deps.adapters.units() as units:
        report = deps.dispatcher.deliver(task, _seconds_left(context), news_of(event))
        deps.budgets.note(task.topic, units)
    for trouble in report.troubles:
        observe.event("attempt failed", topic=task.topic, group=task.group, **asdict(trouble))
    return _report("deliver", report.as_dict(), deps)


def check(event: Event, context: Any, deps: Deps) -> dict[str, Any]:
    """Ask producers about transactions; or the owner of a URL whether it may be called, and answer what it said.

    Raises Unavailable after all other checks, if the store had no answer for one, or there was no time for it: Lambda
    repeats the call."""
    from .services.produce.check_back import Check

    if "greet" in event:
        return deps.outbound.answer_greet(event["greet"])

    checks = [Check(transaction_id, next_ms) for transaction_id, next_ms in event["checks"]]
    outcomes = deps.checker.check(checks, _seconds_left(context))
    report = _report("check", dict(outcomes), deps)
    # The next timer may be a day away; a producer whose answer is stored gets no further check.
    if outcomes["unavailable"]:
        raise unavailable()
    if outcomes["postponed"]:
        raise unavailable("There was no time for some checks.")
    return report


def mover(event: Event, context: Any, deps: Deps) -> dict[str, Any]:
    """Move what is due: on schedule, or for wake-ups (a batch of its queue). What is no wake-up is counted, and is not
    sent again."""
    from .services.core.mover_wakes import read_hints

    if "Records" not in event:
        return _report("mover", deps.mover.tick(_has_time(context)).as_dict(), deps)
    bodies = [record["body"] for record in event["Records"]]
    hints = read_hints(bodies, deps.adapters.timers.fragments(), deps.adapters.clock.now_ms())
    report = deps.mover.run_once(_has_time(context), hints.fragments, hints.until_ms, len(bodies))
    return _report("mover", {**report.as_dict(), "dropped": hints.dropped}, deps)


def sweep(context: Any, deps: Deps) -> dict[str, Any]:
    """Wake groups whose messages no run works on; measure the backlogs that have an alarm; read the meters; report what
    needs a person's attention."""
    stage, began_ms = deps.adapters.stage, deps.adapters.clock.now_ms()
    watch_report = deps.watch.run_once(_has_thirds(context, 1))
    for backlog in watch_report.backlogs:
        observe.metrics(stage, backlog.metrics, backlog.topic)
    for backlog in watch_report.metered:
        observe.metrics(stage, backlog.metrics, backlog.topic, backlog.group)
    for backlog in watch_report.over:
        observe.event("backlog over alarm", **asdict(backlog))
    observe.metrics(stage, _backlog_metrics(watch_report.backlogs))
    _report_attention(watch_report, began_ms, deps)
    sweep_report = deps.sweeper.run_once(_has_thirds(context, 2))
    reading_count = deps.meter_reader.run_once(
        watch_report.moving, _has_time(context), watch_report.troubled, watch_report.attention
    )
    observe.metrics(stage, {"Forgotten": sweep_report.woken} if sweep_report.woken else {})
    _log_troubles("sweep", [*watch_report.stretch.troubles, *sweep_report.stretch.troubles])
    over, watched = len(watch_report.over), watch_report.stretch.topics
    report = sweep_report.as_dict() | {"over": over, "watched": watched, "read": reading_count}
    report["troubles"] += len(watch_report.stretch.troubles)
    report["finished"] = sweep_report.stretch.finished and watch_report.stretch.finished
    return _report("sweep", report, deps)


def _backlog_metrics(backlogs: Sequence[Backlog]) -> dict[str, int]:
    """The stage's backlog metrics: sent while there is a backlog, and once when it is gone."""
    if not backlogs:
        return {}
    return {
        "Backlog": sum(backlog.messages for backlog in backlogs),
        "OldestAge": max(backlog.age_ms for backlog in backlogs) // 1000,
        "BacklogOverAlarm": sum(backlog.is_over for backlog in backlogs),
    }


def _report_attention(watch_report: WatchReport, now_ms: int, deps: Deps) -> None:
    """Count the states that need a person, and send a report of them if it is time; a line for each that it names."""
    states = watch_report.attention
    if not states:
        return
    observe.metrics(deps.adapters.stage, {"Attention": len(states)})
    observe.report("attention", Counter(state.kind.value for state in states))
    numbers = {backlog.topic: backlog.messages for backlog in watch_report.over}
    try:
        named_states = deps.attention_report.run_once(states, now_ms, numbers)
    except Unavailable as error:
        observe.event("attention not reported", detail=str(error))
        return
    for state in named_states[:_TOLD]:
        place = {"topic": state.topic, "group": state.group, "consumer": state.consumer}
        observe.event("needs attention", kind=state.kind, **place)


def assign(context: Any, deps: Deps) -> dict[str, Any]:
    """Keep assignments true, and ask again those who have not agreed yet to be called."""
    report = deps.assigner.run_once(_has_thirds(context, 2, _ASKING_MS), _has_time(context, _ASKING_MS))
    _log_troubles("assign", report.stretch.troubles)
    return _report("assign", report.as_dict(), deps)


def checkpoint(event: Event, context: Any, deps: Deps) -> dict[str, Any]:
    """Write down the tails of quiet shards; look for what does not fit together."""
    report = deps.checkpointer.run_once(_has_time(context))
    for finding in report.findings[:_TOLD]:
        observe.event("does not fit together", **asdict(finding))
    _restart_unfinished("checkpoint", event, report.stretch, deps)
    return _report("checkpoint", report.as_dict(), deps)


def expire(event: Event, context: Any, deps: Deps) -> dict[str, Any]:
    """Make dead letters of unsettled messages when their retention ends; delete large bodies that are no longer
    needed; store the timers again that schedules have lost."""
    from .scheduler.walk import Trouble

    bodies = deps.body_sweeper.run_once(_has_thirds(context, 1))
    try:
        deps.schedules.restore(_has_thirds(context, 1))
    except Unavailable as error:
        bodies.troubles.append(Trouble.of("", error))
    report = deps.expirer.run_once(_has_time(context))
    if deps.adapters.archive:
        report.stretch.troubles += deps.proof_watch.run_once()
    report.stretch.troubles += bodies.troubles
    report.stretch.finished = report.stretch.finished and bodies.finished
    _restart_unfinished("expire", event, report.stretch, deps)
    counts = {"bodies_deleted": bodies.deleted, "bodies_postponed": bodies.postponed}
    return _report("expire", report.as_dict() | counts, deps)


def _restart_unfinished(function: str, event: Event, stretch: Stretch, deps: Deps) -> None:
    """Tell what failed on the way; start the function again where it left something undone."""
    _log_troubles(function, stretch.troubles)
    run = event.get("detail", {}).get("run", 1)
    if not stretch.finished and run < _RUNS:
        deps.waker.restart(function, run + 1)


def _log_troubles(function: str, troubles: Sequence[Trouble]) -> None:
    for trouble in troubles[:_TOLD]:
        observe.event("topic passed over", function=function, topic=trouble.topic, detail=trouble.detail)


def _seconds_left(context: Any) -> Callable[[], float]:
    return lambda: float(context.get_remaining_time_in_millis()) / 1000


def _has_time(context: Any, margin_ms: int = _MARGIN_MS) -> Any:
    return lambda: context.get_remaining_time_in_millis() > margin_ms


def _has_thirds(context: Any, thirds: int, margin_ms: int = _MARGIN_MS) -> Any:
    """Only so many thirds of the time that is left now: what comes first in a run does not starve what follows."""
    rest_ms = (context.get_remaining_time_in_millis() - margin_ms) * (3 - thirds) // 3
    return _has_time(context, margin_ms + rest_ms)


def _report(function: str, report: dict[str, Any], deps: Deps) -> dict[str, Any]:
    """Tell what a run did: its metrics, and a log line, unless all it did was deliver successfully."""
    counts = {_METRICS[name]: count for name, count in report.items() if name in _METRICS and count}
    if not report.get("finished", True):
        counts["Unfinished"] = 1
    observe.count(deps.adapters.stage, deps.counters, counts)
    if any(value for name, value in report.items() if name not in _ROUTINE and value is not True):
        observe.report(function, report)
    return report
