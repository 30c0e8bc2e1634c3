"""Fetching a body that was too large for the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..domain.errors import unavailable
from ..domain.message import Message

if TYPE_CHECKING:
    from ..ports import Blobs


def with_body(blobs: Blobs, message: Message) -> Message:
    """The message with its body in hand; one fetch where it is kept as a blob."""
    if not message.draft.blob:
        return message
    body = blobs.get(message.draft.blob)
    if body is None:
        raise unavailable("The body of a large message could not be read; try again.")
    return replace(message, draft=replace(message.draft, body=body))
