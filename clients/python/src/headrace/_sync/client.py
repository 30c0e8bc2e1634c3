"""The client."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TypeVar

from ..retries import Retries
from .consumes import Consumes
from .groups import Groups
from .many import Many
from .messages import Messages
from .schedules import SyncSchedules
from .sends import Sends
from .topics import Topics
from .transport import Transport

Self = TypeVar("Self", bound="Operations")


class Operations(Topics, Groups, Messages, Many, SyncSchedules, Sends, Consumes):
    """Every operation of one service. Threads may share it; a forked process gets connections of its own."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        retries: Retries | None = None,
        timeout: float = 30.0,
        connections: int = 32,
        app: str = "",
        receive_url: str = "",
    ) -> None:
        """`url` may be several, separated by commas: where one gives no answer the next is asked. `receive_url`:
        receives go there. `timeout` is of one try, in seconds. `app` names your application in traces. ValueError for
        what is no URL or token."""
        transport = Transport(
            url.split(","), token, retries or Retries(), timeout, connections, app, receive_url
        )
        super().__init__(transport)

    @classmethod
    def from_env(
        cls: type[Self],
        *,
        app: str | None = None,
        retries: Retries | None = None,
        timeout: float = 30.0,
        connections: int = 32,
    ) -> Self:
        """The service that HEADRACE_URL and HEADRACE_TOKEN name, and HEADRACE_RECEIVE_URL, if there is an address for
        receives; without `app`, HEADRACE_APP names your application."""
        url = os.environ.get("HEADRACE_URL", "http://127.0.0.1:8700")
        token = os.environ.get("HEADRACE_TOKEN", "")
        names = {"app": os.environ.get("HEADRACE_APP", "") if app is None else app}
        names["receive_url"] = os.environ.get("HEADRACE_RECEIVE_URL", "")
        return cls(url, token, retries=retries, timeout=timeout, connections=connections, **names)

    @property
    def transport(self) -> Transport:
        """Where the service is, and how it is asked."""
        return self._transport

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
