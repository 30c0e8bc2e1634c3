"""Messages that are sent when a block has ended well."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..calls import encode, path
from ..errors import HeadraceError
from ..models import Sent
from ..outgoing import Outgoing, SendOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .sends import Sends


class AfterBlock:
    """A block that notes what it would send; an exception forgets it."""

    def __init__(self, sends: Sends) -> None:
        self.results: list[Sent | HeadraceError] = []
        self._sends = sends
        self._messages: dict[str, list[Outgoing]] = {}
        self._is_open = False

    def send(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> None:
        """Note a message for the block's end. TypeError and ValueError for what cannot be sent, RuntimeError outside
        the block."""
        if not self._is_open:
            raise RuntimeError("Send inside the block: what is noted outside it would never be sent.")
        path("topics", topic)
        message = Outgoing(body=body, **options)
        encode(message.fields())
        self._messages.setdefault(topic, []).append(message)

    def __enter__(self) -> AfterBlock:
        self.results, self._messages, self._is_open = [], {}, True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if error is not None:
            return
        for topic, messages in self._messages.items():
            try:
                self.results += self._sends.send_many(topic, messages)
            except HeadraceError as refusal:  # of the whole topic: the others' messages are still sent
                self.results += [refusal] * len(messages)
        for result in self.results:
            if isinstance(result, HeadraceError):
                raise result
