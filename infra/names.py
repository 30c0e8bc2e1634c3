"""Names are made of the stage's prefix alone, so that resources may name one another without circles."""

from __future__ import annotations

API = "api"
AUTHORIZE = "authorize"
EACH_MINUTE = ("mover", "sweep", "assign")
SELDOM = ("checkpoint", "expire")  # every six hours
TIMED = (*EACH_MINUTE, *SELDOM)
API_URL, RECEIVE, RECEIVE_URL = "api_url", "receive", "receive_url"
URLS = (API_URL, RECEIVE_URL)
"""Those of a stage with function URLs: for calls, and for receives."""
ANSWERING = (API, RECEIVE, AUTHORIZE, *URLS)
"""Those whose callers wait for the answer: they hear of a failure."""
FUNCTIONS = (API, RECEIVE, AUTHORIZE, "route", "deliver", "check", *TIMED, "journal", *URLS)
SLOW = "deliver_slow"
"""The same as `deliver`, with its role and its log, and room of its own: it calls consumers that may take minutes."""
ALL = (*FUNCTIONS, SLOW)
"""The functions of app.py; FUNCTIONS are those with a role of their own. API is the handler of all HTTP routes but
receive."""

FAILED, ARCHIVED = "job-failed", "archived"

TABLES = (
    "log",
    "cursors",
    "records",
    "timers",
    "transactions",
    "traces",
    "dedup",
    "keys",
    "rates",
    "rounds",
    "audit",
    "control",
)


def twin(name: str) -> str:
    """The function whose role and log a function has."""
    return "deliver" if name == SLOW else name


def function(prefix: str, name: str) -> str:
    """The deployed name of a function of app.py."""
    return f"{prefix}-{name}"


def table(prefix: str, noun: str) -> str:
    return f"{prefix}-{noun}"


def iam_api(prefix: str) -> str:
    """The API for callers who sign with SigV4; the other has the prefix alone."""
    return f"{prefix}-iam"


def failures(prefix: str) -> str:
    """The queue of invocations that were given up."""
    return f"{prefix}-failures"


def mover_rule(prefix: str) -> str:
    """The rule that starts the mover each minute."""
    return f"{prefix}-mover"


def wakes(prefix: str) -> str:
    """The queue of the mover's wake-ups."""
    return f"{prefix}-wakes"


def failed_wakes(prefix: str) -> str:
    """The queue of wake-ups with which the mover failed again and again."""
    return f"{prefix}-failed-wakes"


def alarms(prefix: str) -> str:
    """The SNS topic of the alarms and of the reports of what needs attention."""
    return f"{prefix}-alarms"


def end_rule(prefix: str, outcome: str) -> str:
    """The rule that a job of the archive meets by its end: FAILED (any of them) or ARCHIVED."""
    return f"{prefix}-{outcome}"


def logical(name: str) -> str:
    """A logical id out of a name: letters and digits."""
    return "".join(part.capitalize() for part in name.replace("_", "-").split("-"))


def arn(service: str, resource: str) -> str:
    """An ARN of the stage's account and region, as text for Fn::Sub."""
    return f"arn:${{AWS::Partition}}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{resource}"


def dashboard_url(prefix: str, region: str = "${AWS::Region}") -> str:
    """The page of the stage's dashboard in AWS's console; without a region, as text for Fn::Sub."""
    home = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
    return f"{home}#dashboards/dashboard/{prefix}"
