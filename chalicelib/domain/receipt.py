"""A receipt: what a consumer shows to settle one delivery."""

from __future__ import annotations

from dataclasses import dataclass

from . import ids
from .signing import open_sealed, seal

_NUMBERS = (
    "last_attempt",
    "claimed_ms",
    "entry",
    "before",
    "spent",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """Proof of one delivery: the lease's token, the message and its shard and offset in the topic.

    `last_attempt` is the number of the last attempt that the message has; `claimed_ms` is when the lease began.
    `entry` is its offset in the retry lane, if it was leased from there; then `before` attempts were made before that
    entry was stored, `spent` of them before the message was last redriven.
    """

    group_uid: str
    consumer_uid: str
    id: str
    shard: int
    offset: int
    token: str
    last_attempt: int
    claimed_ms: int = 0
    entry: int | None = None
    before: int = 0
    spent: int = 0

    @property
    def leased(self) -> int:
        """The offset that the lease holds."""
        return self.offset if self.entry is None else self.entry


def seal_receipt(key: bytes, r: Receipt) -> str:
    """The receipt as the consumer gets it."""
    place = "" if ids.parse_message_id(r.id) else f"@{r.shard}@{r.offset}"
    text = f"{r.group_uid}|{r.consumer_uid}|{r.id}{place}|{r.token}|{r.last_attempt}|{r.claimed_ms}"
    return seal(key, "receipt", text if r.entry is None else f"{text}|{r.entry}|{r.before}|{r.spent}")


def open_receipt(key: bytes, text: str) -> Receipt | None:
    """The receipt; None if the signature is wrong."""
    fields = open_sealed(key, "receipt", text)
    if fields is None:
        return None
    group_uid, consumer_uid, id, token, last_attempt, claimed_ms, *lane = fields.split("|")
    _, shard, offset = ids.parse_message_id(id) or id.split("@")
    id = id.partition("@")[0]
    numbers = map(int, (last_attempt, claimed_ms, *lane))
    return Receipt(
        group_uid=group_uid,
        consumer_uid=consumer_uid,
        id=id,
        shard=int(shard),
        offset=int(offset),
        token=token,
        **dict(zip(_NUMBERS, numbers, strict=False)),
    )
