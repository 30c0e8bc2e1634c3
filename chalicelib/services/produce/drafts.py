"""Drafts before they are stored: what a topic takes, which shard they go to, and how many one write can hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ...domain.append import Promotable
from ...domain.errors import HeadraceError, Refused, TooLarge, TooMany
from ...domain.message import DeadReason, Draft
from ...domain.sharding import order_unit, shard_of
from ...domain.timer import Timer
from ...domain.topic import Topic

_DEDUPED_PER_SEGMENT = 99  # a transaction takes 100 actions, one is the segment
_DEDUPED_PER_TIMER_BATCH = 49  # each is two actions
_BYTES_PER_TIMER_BATCH = 2_000_000  # a transaction takes 4 MB
_MOVED_PER_SEGMENT = 98  # actions of a transaction: a timer is one, a dead letter two


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
    if draft.shard is not None and draft.shard >= topic.shards:
        return Refused("NO_SUCH_SHARD", f"Topic {topic.name!r} has shards 0 to {topic.shards - 1}.")
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
    if topic.shards == 1:  # a batch with and without keys stays one segment, in its order
        return 0
    name = (
        draft.tenant or draft.ordering_key
    )  # all of a tenant goes to one shard, and delays no other's there
    return None if name is None else shard_of(name, topic.shards_of_keys)


def unit_of(topic: Topic, draft: Draft) -> str | None:
    """What the draft keeps its order with; None: it has none to keep."""
    return order_unit(draft.ordering_key, log_shard_of(topic, draft))


def count_that_can_move(promotables: Sequence[Promotable]) -> int:
    """How many of them one transaction can hold."""
    actions = 0
    for n, each in enumerate(promotables):
        actions += 1 if isinstance(each, Timer) else 2
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
