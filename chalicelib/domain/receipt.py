"""A receipt: what a consumer shows to settle one delivery."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote, unquote

from . import ids
from .signing import derived, sign, verified

_MARK_CHARS = 8  # 40 bits: each lease carries them, and each guess is a receive of the group


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """Proof of one delivery: the lease's token, the message and its shard and offset in the topic.

    `last_attempt` is the number of the last attempt that the message has; `claimed_ms` is when it was
    claimed, so when its lease and this attempt began (the trace calls it `started_ms`); `expires_ms`, when the message
    expires. `entry` is its offset in the retry lane, if it was claimed from there; `attempts_before_entry` attempts
    were made before that entry was stored, `attempts_before_redrive` of them before the message was last redriven.
    """

    group_uid: str
    consumer_uid: str
    id: str
    shard: int
    offset: int
    token: str
    last_attempt: int
    claimed_ms: int = 0
    expires_ms: int | None = None
    entry: int | None = None
    attempts_before_entry: int = 0
    attempts_before_redrive: int = 0

    def attempt_since_redrive(self, attempt: int) -> int:
        """The attempt's number, counted from the last redrive: the first one after it is 1."""
        return attempt - self.attempts_before_redrive

    def within_expiry(self, due_ms: int, now_ms: int) -> int:
        """When the message is due if it waits until `due_ms`: then, or when it expires, whichever is earlier."""
        return due_ms if self.expires_ms is None else min(due_ms, max(now_ms, self.expires_ms))

    @property
    def leased_offset(self) -> int:
        """The offset that the lease holds: the message's in its shard, or its entry's in the retry lane."""
        return self.offset if self.entry is None else self.entry


def lease_mark(key: bytes, receive_id: str, *caller: str) -> str:
    """What the tokens of one receive's leases end with, by which a repeat finds them: a MAC over the `receive_id` and
    who made it, so that the same id of another caller is another receive."""
    digest = derived(key, "receive", json.dumps([receive_id, *caller]))
    return ids.base32(int.from_bytes(digest)).zfill(_MARK_CHARS)[-_MARK_CHARS:]


def sign_receipt(key: bytes, r: Receipt) -> str:
    """The receipt as the consumer gets it."""
    location = "" if ids.parse_message_id(r.id) else f"@{r.shard}@{r.offset}"
    id = quote(r.id, safe="")  # a damaged row's may have any characters
    times = f"{r.claimed_ms}|{'' if r.expires_ms is None else r.expires_ms}"
    text = f"{r.group_uid}|{r.consumer_uid}|{id}{location}|{r.token}|{r.last_attempt}|{times}"
    if r.entry is not None:
        text += f"|{r.entry}|{r.attempts_before_entry}|{r.attempts_before_redrive}"
    return sign(key, "receipt", text)


def verify_receipt(key: bytes, text: str) -> Receipt | None:
    """The receipt; None if the signature is wrong."""
    fields = verified(key, "receipt", text)
    if fields is None:
        return None
    group_uid, consumer_uid, id, token, last_attempt, claimed_ms, expires_ms, *lane = fields.split("|")
    _, shard, offset = ids.parse_message_id(id) or id.split("@")
    id = unquote(id.partition("@")[0])
    entry, attempts_before_entry, attempts_before_redrive = map(int, lane) if lane else (None, 0, 0)
    return Receipt(
        group_uid=group_uid,
        consumer_uid=consumer_uid,
        id=id,
        shard=int(shard),
        offset=int(offset),
        token=token,
        last_attempt=int(last_attempt),
        claimed_ms=int(claimed_ms),
        expires_ms=int(expires_ms) if expires_ms else None,
        entry=entry,
        attempts_before_entry=attempts_before_entry,
        attempts_before_redrive=attempts_before_redrive,
    )
