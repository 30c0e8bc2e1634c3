"""Ids that say where to look, so that looking a message up needs no index.

A message's id holds its shard and offset. A delayed message has no offset when its id is given out: its id holds the
time it was first due (behind a "u", which is no digit of the alphabet), and the shard if the producer chose it; if it
has an ordering key or a chosen shard, the id begins with its sequence number. The id of a message in a transaction is
the transaction's, cut in two. A replay's id holds a hash of its topic's name and the time of its creation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
REQUEST_ID_CHARS = 12  # 60 random bits
TRANSACTION_ID_CHARS = 24
_PYTHONS_DIGITS = str.maketrans(ALPHABET, "0123456789abcdefghijklmnopqrstuv")  # in int(text, 32)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
TRANSACTION_ID = re.compile(r"[0-9a-z]{24}\Z")
REPLAY_ID = re.compile(r"[0-9a-z]{12}-[0-9a-z]{9,13}-[0-9a-z]{6}\Z")
_HALF_ID = re.compile(r"([0-9a-z]{12})-x([0-9a-z]{12})\Z")
_TIMED_ID = re.compile(r"(?:[0-9a-z]{12}){1,2}(?:-([0-9a-z]{1,4}))?-u([0-9a-z]{1,13})\Z")
_MESSAGE_ID = re.compile(r"([0-9a-z]{12})-([0-9a-z]{1,4})-([0-9a-z]{1,13})\Z")


def base32(number: int) -> str:
    """A non-negative number in lower-case Crockford base 32."""
    digits = ALPHABET[number & 31]
    while number := number >> 5:
        digits = ALPHABET[number & 31] + digits
    return digits


def from_base32(text: str) -> int:
    """The number that `base32` wrote. ValueError for anything it could not have written."""
    number = int(text.translate(_PYTHONS_DIGITS), 32)
    if base32(number) != text:
        raise ValueError("not canonical")
    return number


def message_id(request_id: str, shard: int, offset: int) -> str:
    """The id of the message at this shard and offset, written by this append."""
    return f"{request_id}-{base32(shard)}-{base32(offset)}"


def parse_message_id(text: str) -> tuple[str, int, int] | None:
    """Request id, shard and offset; None where the text is no message id."""
    if match := _MESSAGE_ID.match(text):
        with suppress(ValueError):
            return match[1], from_base32(match[2]), from_base32(match[3])
    return None


@dataclass(frozen=True, slots=True)
class Timed:
    """The contents of a delayed message's id: when it was first due, and its shard if the producer chose it."""

    due_ms: int
    shard: int | None


def timed_id(random: str, shard: int | None, due_ms: int) -> str:
    """The id of a delayed message. `random` has REQUEST_ID_CHARS characters, or is a `sequence_name`."""
    shard_part = "" if shard is None else f"-{base32(shard)}"
    return f"{random}{shard_part}-u{base32(due_ms)}"


def sequence_name(sequence: int, random: str) -> str:
    """A name of TRANSACTION_ID_CHARS characters; names sort by `sequence`, a number of up to 60 bits."""
    return base32(sequence).zfill(REQUEST_ID_CHARS) + random


def endings(random: str) -> Iterator[str]:
    """The text with every other pair of last characters: for each fragment of the timers some of these ids belong to
    it."""
    return (f"{random[:-2]}{first}{last}" for last in ALPHABET for first in ALPHABET)


def parse_timed_id(text: str) -> Timed | None:
    """What `timed_id` put in; None if the text is not such an id."""
    if match := _TIMED_ID.match(text):
        with suppress(ValueError):
            return Timed(from_base32(match[2]), None if match[1] is None else from_base32(match[1]))
    return None


def half_id(transaction_id: str) -> str:
    """The id of a half message (a transaction's message); it stays the same after the commit."""
    return f"{transaction_id[:REQUEST_ID_CHARS]}-x{transaction_id[REQUEST_ID_CHARS:]}"


def parse_half_id(text: str) -> str | None:
    """The transaction's id that `half_id` put in; None if the text is not such an id."""
    match = _HALF_ID.match(text)
    return match[1] + match[2] if match else None


def replay_id(topic: str, now_ms: int, random: str) -> str:
    """The id of a replay of a topic's messages: those of one topic sort by time (until the year 3084)."""
    return f"{replay_home(topic)}-{base32(now_ms)}-{random}"


def replay_home(topic: str) -> str:
    """The partition of a topic's replays: 60 bits of a hash of its name."""
    digest = hashlib.sha256(topic.encode()).digest()
    return base32(int.from_bytes(digest[:8]) >> 4).zfill(12)


def home_of(replay_id: str) -> str:
    """The partition that `replay_id` put in."""
    return replay_id.partition("-")[0]
