"""What a command works with: the service that is meant, the output, and the exit codes."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cached_property

import typer

from ..client import Headrace
from ..errors import HeadraceError
from ..retries import Retries
from .output import Output
from .profiles import Access, Unusable, access

REFUSED, USAGE, NO_ANSWER, NOT_FOUND, NOT_ALLOWED, PARTLY, INTERRUPTED = 1, 2, 3, 4, 5, 6, 130
_COMPLETION_SECONDS = 2.0
_TRIES = logging.getLogger("headrace.transport")
_QUIET_SECONDS = 1.0


class _Notes(logging.Handler):
    """Says that a call waits for its next try, where that is long."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and record.args[-1] >= _QUIET_SECONDS:  # type: ignore[operator]
            self._output.say(record.getMessage())


@dataclass
class Session:
    """The global options of one run."""

    profile: str | None
    url: str | None
    token: str | None
    output: Output

    @cached_property
    def access(self) -> Access:
        """The service and the token. Raises Unusable."""
        return access(self.profile, self.url, self.token)

    @cached_property
    def hr(self) -> Headrace:
        """The client: a send is tried for two minutes. Raises Unusable."""
        is_environments = self.access.source == "environment"
        receive_url = os.environ.get("HEADRACE_RECEIVE_URL", "") if is_environments else ""
        try:
            hr = Headrace(
                self.access.url,
                self.access.token,
                retries=Retries(base_seconds=0.1),
                receive_url=receive_url,
            )
        except ValueError as error:
            raise Unusable(str(error)) from None
        self._notes = _Notes(self.output)
        _TRIES.addHandler(self._notes)
        _TRIES.setLevel(logging.DEBUG)
        return hr

    def close(self) -> None:
        """Close the connections, if there are any."""
        if "hr" in self.__dict__:
            _TRIES.removeHandler(self._notes)
            self.hr.close()


def session(context: typer.Context) -> Session:
    """The session of a command."""
    root: Session = context.find_root().obj
    return root


def topic_names(incomplete: str) -> list[str]:
    """For the shell's completion: topics that begin so. None where the service can't be asked quickly."""
    try:
        credentials = access(None, None, None, os.environ)
        with Headrace(
            credentials.url, credentials.token, retries=Retries(attempts=1), timeout=_COMPLETION_SECONDS
        ) as hr:
            return [t.topic for t in hr.list_topics(limit=200).page().items if t.topic.startswith(incomplete)]
    except (HeadraceError, Unusable, ValueError):
        return []
