"""Drafts before they are stored: what a topic takes, which shard they go to, and how many one write can hold; and
the names of those that wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ...domain import ids
from ...domain.append import Promotable
from ...domain.errors import HeadraceError, Refused, TooLarge, TooMany
from ...domain.message import DeadReason, Draft
from ...domain.sharding import order_unit, shard_of
from ...domain.timer import Timer
from ...domain.topic import Mode, Topic
from ...domain.transaction import Transaction
from ...ports.world import Clock, Random

_DEDUPED_PER_SEGMENT = 99  # a transaction takes 100 actions, one is the segment
_DEDUPED_PER_TIMER_BATCH = 49  # each is two actions
_BYTES_PER_TIMER_BATCH = 2_000_000  # a transaction takes 4 MB
_MOVED_PER_SEGMENT = 98  # actions of a transaction: a timer is one, a dead letter two
_PER_MS = 1 << 15  # names


def check_size(topic: Topic, body: bytes) -> None:
    """Raises TooLarge for a body that the topic does not take."""
    if len(body) > topic.max_body_bytes:
        words = f"The body has {len(body)} bytes; topic {topic.name!r} takes {topic.max_body_bytes}."
        raise TooLarge("BODY_TOO_LARGE", words)


def refusal(topic: Topic, draft: Draft) -> HeadraceError | None:
    """Why the topic does not take this message; None: it does."""
    try:
        check_size(topic, draft.body)
    except TooLarge as error:
        return error
    if refusal := topic.lacks(draft.shard):
        return refusal
    numbers = topic.class_of(draft.priority)
    if draft.priority is not None and draft.priority >= topic.priorities:
        words = f"Topic {topic.name!r} has priorities 0 to {topic.priorities - 1}."
        return Refused("NO_SUCH_PRIORITY", words)
    if draft.shard is not None and draft.shard not in numbers:
        words = f"This priority has shards {numbers[0]} to {numbers[-1]}: give another `shard`, or none."
        return Refused("NO_SUCH_SHARD", words)
    if topic.mode is Mode.SERIAL and draft.ordering_key is not None and draft.priority is not None:
        words = f"Topic {topic.name!r} is serial: give a message an `ordering_key` or a `priority`."
        return Refused("WRONG_MODE", words)
    return None


def dead_by_limit(draft: Draft) -> Draft:
    """The draft as a dead letter for every group, since it is over the topic's rate limit."""
    return replace(draft, dead_reason=DeadReason.RATE_LIMITED)


def too_many(topic: Topic) -> TooMany:
    """The error of a message over the topic's rate limit."""
    return TooMany(
        "RATE_LIMITED",
        f"Topic {topic.name!r} takes {topic.rate_limit} messages a second; this call did not store this one.",
        retry_after_seconds=1,  # brings a permit at any limit
    )


def takes_all(drafts: Sequence[Draft]) -> Callable[[Topic], bool]:
    """Returns a function that checks whether a topic takes all of these messages."""
    return lambda topic: not any(refusal(topic, draft) for draft in drafts)


def without_time(draft: Draft) -> Draft:
    """The draft as it goes into the log at once, where its row says when it was accepted."""
    return draft if draft.accepted_ms is None else replace(draft, accepted_ms=None)


def log_shard_of(topic: Topic, draft: Draft) -> int | None:
    """The shard that the draft must go to; None: any."""
    if draft.shard is not None:
        return draft.shard
    numbers = topic.class_of(draft.priority)
    if len(numbers) == 1:  # a batch with and without keys stays one segment, in its order
        return numbers[0]
    # All of a tenant goes to one shard, and delays no other's there.
    name = draft.tenant or draft.ordering_key
    if name is None:
        return None
    count = topic.shards_of_keys if numbers[0] == 0 else max(1, topic.shards_of_keys // 4)
    return numbers[shard_of(name, count)]


def place_of(topic: Topic, draft: Draft) -> int | range:
    """The shard that the draft must go to, or those of which any will do."""
    shard = log_shard_of(topic, draft)
    return topic.class_of(draft.priority) if shard is None else shard


def unit_of(topic: Topic, draft: Draft) -> str | None:
    """What the draft keeps its order with; None: it has none to keep."""
    return order_unit(draft.ordering_key, log_shard_of(topic, draft))


def count_that_can_move(promotables: Sequence[Promotable]) -> int:
    """How many of them one transaction can hold."""
    actions = 0
    for n, each in enumerate(promotables):
        actions += 1 if isinstance(each, Timer | Transaction) else 2
        if actions > _MOVED_PER_SEGMENT:
            return n
    return len(promotables)


def runs_of(members: Sequence[tuple[int, Draft]]) -> Iterable[Sequence[tuple[int, Draft]]]:
    """Cut so that the dedup ids of one run fit one transaction."""
    run: list[tuple[int, Draft]] = []
    dedup_count = 0
    for member in members:
        if member[1].dedup_id and dedup_count == _DEDUPED_PER_SEGMENT:
            yield run
            run, dedup_count = [], 0
        run.append(member)
        dedup_count += member[1].dedup_id is not None
    yield run


def timer_batches(members: Sequence[tuple[int, Draft]]) -> Iterable[Sequence[tuple[int, Draft]]]:
    """Drafts whose timers can be stored together: all without a dedup id, and of the others as many as fit a
    transaction."""
    plain = [member for member in members if not member[1].dedup_id]
    if plain:
        yield plain
    run: list[tuple[int, Draft]] = []
    size = 0
    for member in members:
        if not member[1].dedup_id:
            continue
        size += member[1].weight
        if run and (len(run) == _DEDUPED_PER_TIMER_BATCH or size > _BYTES_PER_TIMER_BATCH):
            yield run
            run, size = [], member[1].weight
        run.append(member)
    if run:
        yield run


class UnitNames:
    """Names of delayed messages that keep their order, by its unit: one ordering key, or one shard. One fragment has
    all timers of a unit, and their names rise with each call; those of several processes sort by their clocks. The
    fragment of a timer is computed from its id, so a name is chosen that falls into that fragment (docs/adr/0021)."""

    def __init__(self, clock: Clock, random: Random, fragment_of: Callable[[str], int]) -> None:
        """`fragment_of`: the fragment of a timer's id, or of a unit."""
        self._fragment_of = fragment_of
        self._clock = clock
        self._random = random
        self._sequence = 0
        self._lock = threading.Lock()

    def name(self, topic: Topic, unit: str, id_of: Callable[[str], str]) -> str:
        """The next name in a unit; `id_of` makes the timer's id from it, which falls into the unit's fragment."""
        sequence, ending = self._next(), self._random.id(ids.REQUEST_ID_CHARS)
        fragment = self._fragment_of(f"{topic.uid}/{unit}")
        names = (ids.sequence_name(sequence, end) for end in ids.endings(ending))
        return next(name for name in names if self._fragment_of(id_of(name)) == fragment)

    def _next(self) -> int:
        with self._lock:
            self._sequence = max(self._sequence + 1, self._clock.now_ms() * _PER_MS)
            return self._sequence
