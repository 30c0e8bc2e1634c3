"""Parcels for delivery's tests."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.call_result import Attempt, PushBatch
from chalicelib.domain.message import Draft, Message
from tests.support.clock import START_MS


def attempt(draft: Draft, offset: int = 7, number: int = 2) -> Attempt:
    return Attempt(Message(f"0123456789ab-3-{offset}", 3, offset, START_MS + 5, draft), number)


def push_batch(*drafts: Draft, payload: str = "binary", **settings: Any) -> PushBatch:
    attempts = tuple(attempt(draft, offset) for offset, draft in enumerate(drafts, 7))
    return PushBatch(settings.pop("topic", "orders"), settings.pop("group", "billing"), payload, attempts)


def raw(body: bytes, content_type: str = "application/octet-stream", **settings: Any) -> Draft:
    """A message that is no JSON value of ours."""
    return Draft(body, is_json=False, content_type=content_type, **settings)
