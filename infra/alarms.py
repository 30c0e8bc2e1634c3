"""The alarms, sent to the stage's SNS topic, with the address of its dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import names
from .resources import resource

NAMESPACE = "Headrace"
_MINUTE = 60
_FIVE = 300
_HOUR = 3600
_STARTED = (*names.ANSWERING, "route", "deliver", names.SLOW)  # the timed ones have a bound of their own
_STILL = {
    "mover": "what is delayed for more than 15 minutes, or was left by a lost wake-up, does not come",
    "sweep": "wake-ups that were lost stay lost, and no backlog is told",
    "assign": "subscribers that have not agreed are not asked again",
    "checkpoint": "logs may forget their tails, and begin again at 0",
    "expire": "what is still owed goes with its row, without a dead letter",
}
"""What it means that a scheduled function does not run."""

FEW = ("Attention", "DeadLetters", "CallsFail", "FailureQueue", "MoverStopped", "SweepStopped")
"""Those of a stage that is no one's production: work waits for a person, or does not go on."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One metric over a threshold in so many periods in a row."""

    name: str
    why: str
    metric: tuple[str, str, dict[str, str]]
    """Namespace, name, dimensions."""
    over: float
    statistic: str = "Maximum"
    period: int = _FIVE
    periods: int = 1
    missing: str = "notBreaching"
    """What no data means. "missing": nothing until there were some, and then an alarm; the state has another name."""
    below: bool = False


def alarms(
    prefix: str,
    functions: Iterable[str] = names.ALL,
    topic: str = "AlarmTopic",
    **parts: bool,
) -> dict[str, Any]:
    """The alarms as CloudFormation resources; `topic` is the logical id of the SNS topic, the rest as for
    `all_alarms`."""
    every = all_alarms(prefix, functions, **parts)
    return {f"{alarm.name}Alarm": _resource(prefix, alarm, topic) for alarm in every}


def alarm_names(prefix: str, functions: Iterable[str] = names.ALL, **parts: bool) -> list[str]:
    """The deployed names of the alarms."""
    return [_deployed_name(prefix, alarm) for alarm in all_alarms(prefix, functions, **parts)]


def all_alarms(
    prefix: str, functions: Iterable[str], archives: bool = True, iam: bool = False, few: bool = False
) -> list[Alarm]:
    """The alarms of a stage. `functions` are those of app.py; `archives`: the archive is made each night; `iam`: there
    is an API for callers who sign with SigV4, too; `few`: those of FEW alone."""
    function_names = list(functions)
    service = {"service": prefix}
    own = [
        Alarm(name, _WHY[name], (NAMESPACE, metric, service), over, statistic, period, periods)
        for name, metric, over, statistic, period, periods in _OWN
    ]
    # Of `authorize` each refused token is an error, which API Gateway wants for its 401; its failures are callers' 5xx.
    errors = [_errors(prefix, name) for name in function_names if name != names.AUTHORIZE]
    throttles = [_throttles(prefix, name) for name in _STARTED if name in function_names]
    journal = [_journal(prefix)] if "journal" in function_names else []
    stops = [_stopped_alarm(prefix, name) for name in names.TIMED if name in function_names]
    lambdas = [*stops, _route(prefix), *journal, *errors, *throttles]
    every = [*own, *_calls(prefix, iam), *lambdas, *_queues(prefix), *_archive(prefix, archives)]
    return [alarm for alarm in every if alarm.name in FEW] if few else every


_WHY = {
    "BacklogOver": "A topic's backlog is larger than its alarm allows: a report to this topic names it.",
    "OldestAge": "A message of a watched topic waits for an hour.",
    "Attention": "Work waits for a person: `headrace attention` lists it, and a report to this topic names topic and "
    "group.",
    "DeadLetters": "Messages became dead letters.",
    "Undecodable": "Stored rows cannot be read: messages became dead letters, or lists and jobs skip the rows.",
    "LogBehind": "A log ends below a group's cursor: what is produced there is never delivered. Was a table restored?",
    "Findings": "The daily check found cursors, records, timers or dead letters that do not fit together.",
    "DelaysLate": "Delayed messages or retries come late.",
    "NotArchived": "Messages near their end are kept, for the archive lacks them.",
    "RoundLate": "A job did not come by all topics for 18 hours: rows outlive their retention by a day.",
    "TopicPassedOver": "A job's visit of a topic fails.",
    "Unavailable": "Requests are answered with 503.",
}
_SELDOM = 6 * _HOUR  # as often as an operator looks
_OWN: tuple[tuple[str, str, float, str, int, int], ...] = (
    ("BacklogOver", "BacklogOverAlarm", 0, "Maximum", _MINUTE, 3),
    ("OldestAge", "OldestAge", 3600, "Maximum", _MINUTE, 3),
    ("Attention", "Attention", 0, "Maximum", _FIVE, 1),
    ("DeadLetters", "Dead", 0, "Sum", _FIVE, 1),
    ("Undecodable", "Undecodable", 0, "Sum", _FIVE, 1),
    ("LogBehind", "LogBehind", 0, "Sum", _FIVE, 1),
    ("Findings", "Findings", 0, "Sum", _SELDOM, 1),
    ("DelaysLate", "DelayLateness", 30_000, "Maximum", _FIVE, 1),
    ("NotArchived", "Kept", 0, "Maximum", _SELDOM, 1),
    ("RoundLate", "RoundAge", 18 * _HOUR * 1000, "Maximum", _SELDOM, 1),
    ("TopicPassedOver", "Troubles", 0, "Sum", _SELDOM, 1),
    ("Unavailable", "Unavailable", 5, "Sum", _FIVE, 1),
)
"""Name, metric of the service's own, threshold, statistic, period in seconds, periods."""


def _stopped_alarm(prefix: str, name: str) -> Alarm:
    """Missing data breaches, so it holds for a schedule that is gone, too. Runs every six hours may fall on either side
    of an hour's beginning: thirteen hours without one are one too few. (More than a day needs periods of an hour.)"""
    period, periods = (_HOUR, 13) if name in names.SELDOM else (_FIVE, 1)
    of_rule = "AWS/Events", "Invocations", {"RuleName": names.mover_rule(prefix)}
    metric = of_rule if name == "mover" else _function_metric(prefix, name, "Invocations")
    name, why = f"{names.logical(name)}Stopped", f"{name} does not run: {_STILL[name]}."
    return Alarm(name, why, metric, 1, "Sum", period, periods, missing="breaching", below=True)


def _route(prefix: str) -> Alarm:
    behind = "New messages wake nobody for five minutes: the log's stream is read late."
    metric = _function_metric(prefix, "route", "IteratorAge")
    return Alarm("RouteLate", behind, metric, 60_000, period=_MINUTE, periods=5)


def _journal(prefix: str) -> Alarm:
    why = (
        "The journal is an hour behind: it gives up what is six hours old, and edits and cancellations in that do not "
        "come to the archive by themselves."
    )
    return Alarm("JournalLate", why, _function_metric(prefix, "journal", "IteratorAge"), 3_600_000)


def _calls(prefix: str, iam: bool) -> list[Alarm]:
    why = "Calls are answered with 5xx, also by API Gateway: the authorizer or the API fails, or takes too long."
    signed = "Signed calls are answered with 5xx, also by API Gateway: the API fails, or takes too long."
    apis = [("CallsFail", why, prefix), *([("IamCallsFail", signed, names.iam_api(prefix))] if iam else [])]
    return [
        Alarm(name, text, ("AWS/ApiGateway", "5XXError", {"ApiName": api}), 5, "Sum")
        for name, text, api in apis
    ]


def _errors(prefix: str, name: str) -> Alarm:
    """Twice in a row; but of a function that runs every six hours, each time."""
    period, periods = (_HOUR, 1) if name in names.SELDOM else (_FIVE, 2)
    metric = _function_metric(prefix, name, "Errors")
    return Alarm(f"{names.logical(name)}Errors", f"{name} fails.", metric, 0, "Sum", period, periods)


def _throttles(prefix: str, name: str) -> Alarm:
    why = f"{name} may not run as often as it is called: the account's concurrency is used up."
    metric = _function_metric(prefix, name, "Throttles")
    return Alarm(f"{names.logical(name)}Throttles", why, metric, 0, "Sum", periods=2)


def _queues(prefix: str) -> list[Alarm]:
    """What was given up is counted when it comes, so that the alarm ends by itself though the queue keeps it for two
    weeks. SQS does not count so what its redrive moves: that queue keeps its messages for two hours."""
    given_up = (
        "Invocations or stream batches were given up; look at the queue, which keeps them for two weeks."
    )
    failed = (
        "The mover failed again and again with wake-ups: look at its log. Its schedule moves what is due."
    )
    sent = "AWS/SQS", "NumberOfMessagesSent", {"QueueName": names.failures(prefix)}
    visible = "AWS/SQS", "ApproximateNumberOfMessagesVisible", {"QueueName": names.failed_wakes(prefix)}
    return [Alarm("FailureQueue", given_up, sent, 0, "Sum"), Alarm("FailedWakes", failed, visible, 0)]


def _archive(prefix: str, archives: bool) -> list[Alarm]:
    reason = "A job of the archive failed, or was incomplete: a mail names it, its log says why."
    text = "No archive was made for 26 hours; the state is then INSUFFICIENT_DATA, as before the first night."
    alarms = [Alarm("JobFailed", reason, _rule_metric(prefix, names.FAILED), 0, "Sum", _HOUR)]
    if archives:
        metric = _rule_metric(prefix, names.ARCHIVED)
        alarms.append(Alarm("ArchiveLate", text, metric, 1, "Sum", _HOUR, 26, missing="missing", below=True))
    return alarms


def _rule_metric(prefix: str, outcome: str) -> tuple[str, str, dict[str, str]]:
    return "AWS/Events", "TriggeredRules", {"RuleName": names.end_rule(prefix, outcome)}


def _function_metric(prefix: str, function: str, metric: str) -> tuple[str, str, dict[str, str]]:
    return "AWS/Lambda", metric, {"FunctionName": names.function(prefix, function)}


def _deployed_name(prefix: str, alarm: Alarm) -> str:
    return f"{prefix}-{alarm.name}"


def _resource(prefix: str, alarm: Alarm, topic: str) -> dict[str, Any]:
    namespace, metric, dimensions = alarm.metric
    lost = {"InsufficientDataActions": [{"Ref": topic}]} if alarm.missing == "missing" else {}
    return resource(
        "AWS::CloudWatch::Alarm",
        AlarmName=_deployed_name(prefix, alarm),
        AlarmDescription={"Fn::Sub": f"{alarm.why} {names.dashboard_url(prefix)}"},
        Namespace=namespace,
        MetricName=metric,
        Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
        Statistic=alarm.statistic,
        Period=alarm.period,
        EvaluationPeriods=alarm.periods,
        ComparisonOperator="LessThanThreshold" if alarm.below else "GreaterThanThreshold",
        Threshold=alarm.over,
        TreatMissingData=alarm.missing,
        AlarmActions=[{"Ref": topic}],
        OKActions=[{"Ref": topic}],
        **lost,
    )
