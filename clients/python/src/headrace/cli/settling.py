"""Settling messages for a command that waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .._pause import pause
from ..errors import HeadraceError, of_problem
from ..models import Message, Settled

_PAUSES = (1.0, 2.0, 4.0)


def refusals(
    messages: Sequence[Message], settle: Callable[..., list[Settled]]
) -> Iterator[tuple[Message, HeadraceError]]:
    """What could not be settled, and why, each as soon as it is known. A busy shard is asked again, for seven seconds.
    Raises what `settle` raises."""
    for seconds in (*_PAUSES, None):
        again: list[Message] = []
        for message, answer in zip(messages, settle(*messages), strict=True):
            error = of_problem(answer.error) if answer.error else None
            if error and error.retryable and seconds is not None:
                again.append(message)
            elif error:
                yield message, error
        if not again or seconds is None:
            return
        pause(seconds)
        messages = again
