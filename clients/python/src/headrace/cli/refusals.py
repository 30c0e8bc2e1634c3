"""Errors of the service in the words of the command line: options in place of fields, commands in place of calls."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..errors import HeadraceError, Unavailable

_ALIASES = {
    "deliver_at": "--at",
    "next_attempt_at": "--at",
    "delay_seconds": "--delay",
    "wait_seconds": "--wait",
    "expires_in_days": "--days",
    "limit": "--days",
    "keys": "--key",
    "headers": "--header",
    "scopes": "--scope",
    "topics": "--topic",
}
_CALL = re.compile(
    r"(?:Create|Register) it with PUT /v1/(?P<kind>topics|schedules)/(?P<topic>[^/\s]+)"
    r"(?:/groups/(?P<group>[^/\s]+))?(?P<rest>/\S+)?\.$"
)
_FIELD = re.compile(r"`(\w+)`|\b(\w+_\w+)\b")
_INSTEAD = {
    "PLAN_INVALID": "The question was open for more than ten minutes. Run the command again.",
    "UNAUTHORIZED": "The service does not accept this token. Set HEADRACE_TOKEN or --token, or use another profile.",
}
_NAMES = {"topic", "group", "consumer"}  # arguments of commands


def sentence(error: HeadraceError, options: Collection[str]) -> str:
    """What the service refuses, for a user of a command with these options."""
    detail = _CALL.sub(_command, _INSTEAD.get(error.code, error.detail))
    issues = [
        f"{_option(each.path, options) or each.path}: {_worded(each.issue, options)}" for each in error.issues
    ]
    if error.code == "VALIDATION" and issues:  # its detail repeats the first
        detail = issues.pop(0)
    lines = [f"{error.code}: {_worded(detail, options)}", *issues]
    request = f" (request {error.request_id})" if error.request_id and isinstance(error, Unavailable) else ""
    return "\n  ".join(lines) + request


def _command(call: re.Match[str]) -> str:
    topic, group, rest = call.group("topic", "group", "rest")
    if rest:
        return f"See which there are: headrace consumers list {topic} {group}"
    noun = "schedules set" if call.group("kind") == "schedules" else "topics create"
    return f"Create it: headrace {f'groups create {topic} {group}' if group else f'{noun} {topic}'}"


def _option(path: str, options: Collection[str]) -> str | None:
    """The option of a field: that of its name, or `--set`."""
    path = path.removeprefix("filter.") if path != "filter" else path
    name = re.split(r"[.\[]", path)[0]
    for option in (f"--{name.replace('_', '-')}", _ALIASES.get(name)):
        if option in options:
            return option
    return f"--set {path}" if "--set" in options and path not in _NAMES else None


def _worded(text: str, options: Collection[str]) -> str:
    """A text with options for the fields that it names."""

    def worded(match: re.Match[str]) -> str:
        option = _option(match[1] or match[2], options)
        return option if option and option in options else match[0]

    return _FIELD.sub(worded, text)
