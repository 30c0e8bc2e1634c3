"""Producing: checked drafts become segments in the log. A 2xx follows the write, never precedes it."""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from ..domain import ids
from ..domain.errors import Conflict, HeadraceError, Refused, TooLarge
from ..domain.limits import BLOB_THRESHOLD_BYTES, LOSSES_BEFORE_RESERVING, TAIL_TRUST
from ..domain.message import TRACEPARENT, Draft
from ..domain.segment import Segment, ShardKey, Tail, Way
from ..domain.sharding import shard_of
from ..domain.timer import ANY, Timer, TimerKind
from ..domain.topic import Topic
from ..ports import (
    Blobs,
    Chance,
    Clock,
    DedupEntry,
    Gone,
    KeyEntry,
    Keys,
    Known,
    Log,
    Movable,
    Pack,
    Stored,
    Taken,
    Timers,
)
from .cache import Aging
from .keys import entries_of

_DEDUPED_PER_SEGMENT = 99  # a transaction takes 100 actions, one is the segment
_DEDUPED_PER_FILING = 49  # each is two actions
_BYTES_PER_FILING = 2_000_000  # a transaction takes 4 MB
_MOVED_PER_SEGMENT = 98  # actions of a transaction: a timer is one, a dead letter two
_LOOK_AROUND = 16  # one append in so many on a reserved shard tries another, which may cost half


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a draft came to stand. One that waits until `due_ms` has no offset yet."""

    id: str
    shard: int | None
    offset: int | None
    accepted_ms: int
    duplicate: bool = False
    due_ms: int | None = None


class Producer:
    """Appends to the log. One per process: it remembers tails and keeps to a shard while it wins."""

    def __init__(
        self,
        log: Log,
        timers: Timers,
        keys: Keys,
        blobs: Blobs,
        clock: Clock,
        chance: Chance,
        filed: Callable[[Sequence[Timer]], None],
    ) -> None:
        """`filed` is told of new timers."""
        self._log = log
        self._timers = timers
        self._keys = keys
        self._filed = filed
        self._blobs = blobs
        self._clock = clock
        self._chance = chance
        self._tails: Aging[ShardKey, Tail] = Aging(clock, TAIL_TRUST // timedelta(milliseconds=1))
        self._favourite: dict[str, int] = {}
        self._turns: defaultdict[ShardKey, threading.Lock] = defaultdict(threading.Lock)

    def produce(self, topic: Topic, drafts: Sequence[Draft]) -> list[Placed | HeadraceError]:
        """Store drafts, all of one shard in as few rows as possible; per draft its place or why not.

        A fault below turns the drafts it concerns into UNAVAILABLE (unknown, safe to repeat with a dedup id).
        """
        outcomes: list[Placed | HeadraceError | None] = [refusal(topic, d) for d in drafts]
        first_of: dict[str, int] = {}
        by_shard: defaultdict[int | None, list[int]] = defaultdict(list)
        later: list[int] = []
        for i, draft in enumerate(drafts):
            if outcomes[i] is None and first_of.setdefault(draft.dedup_id or f"\0{i}", i) == i:
                (by_shard[_shard_of(topic, draft)] if draft.due_ms is None else later).append(i)
        self._file(topic, [(i, drafts[i]) for i in later], outcomes)
        for shard, members in by_shard.items():
            self._produce_to(topic, shard, [(i, drafts[i]) for i in members], outcomes)
        for i, draft in enumerate(drafts):
            if outcomes[i] is None:
                first = first_of[draft.dedup_id or ""]
                outcomes[i] = _repeated(drafts[first], draft, outcomes[first])
        return [outcome for outcome in outcomes if outcome is not None]

    def move(self, topic: Topic, members: Sequence[tuple[Movable, Draft]]) -> list[Placed | None]:
        """Put drafts into the log, each in the transaction that takes its timer or dead letter away: however often
        it is tried, once. None: it had been taken before. What belongs to one shard becomes one segment.

        Raises Unavailable where an answer was lost; to try again is safe.
        """
        outcomes: list[Placed | None] = [None] * len(members)
        by_shard: defaultdict[int | None, list[int]] = defaultdict(list)
        for i, (_, draft) in enumerate(members):
            by_shard[_shard_of(topic, draft)].append(i)
        for shard, places in by_shard.items():
            while places:
                now = _that_can_move([members[i][0] for i in places])
                pack = self._log.pack([members[i][1] for i in places[:now]])
                taken = places[: len(pack.drafts)]
                answer = self._write(topic, shard, pack, (), [members[i][0] for i in taken])
                if isinstance(answer, Gone):
                    places = [i for n, i in enumerate(places) if n not in answer.places]
                    continue
                assert not isinstance(answer, Known)
                for i, place in zip(taken, answer, strict=True):
                    outcomes[i] = place
                places = places[len(taken) :]
        return outcomes

    def _file(
        self,
        topic: Topic,
        members: Sequence[tuple[int, Draft]],
        outcomes: list[Placed | HeadraceError | None],
    ) -> None:
        """Store drafts that are due later as timers, each under an id of its own."""
        for run in _filings(members):
            try:
                timers = [self.timer(topic, self.offload(topic, draft)) for _, draft in run]
                self._file_run(topic, run, timers, outcomes)
            except HeadraceError as error:
                for i, _ in run:
                    outcomes[i] = outcomes[i] or error

    def _file_run(
        self,
        topic: Topic,
        run: Sequence[tuple[int, Draft]],
        timers: Sequence[Timer],
        outcomes: list[Placed | HeadraceError | None],
    ) -> None:
        left = list(zip(run, timers, strict=True))
        while left:
            entries = [_dedup_of(topic, d, t.id, t.filed_ms) for (_, d), t in left if d.dedup_id]
            self.note_keys(topic, [(timer.draft, timer.due_ms) for _, timer in left])
            known = {e.dedup_id: e for e in self._timers.file([t for _, t in left], entries)}
            for (i, draft), timer in left:
                if draft.dedup_id in known:
                    outcomes[i] = _duplicate(draft, known[draft.dedup_id])
                elif not known:
                    outcomes[i] = Placed(timer.id, None, None, timer.filed_ms, due_ms=timer.due_ms)
            if not known:
                self._filed([timer for _, timer in left])
            left = [each for each in left if outcomes[each[0][0]] is None]

    def timer(self, topic: Topic, draft: Draft) -> Timer:
        """The timer by which a draft waits for its time, under its own id or a new one."""
        assert draft.due_ms is not None
        shard = _shard_of(topic, draft)
        id = draft.id or ids.timed_id(self._chance.id(ids.REQUEST_ID_CHARS), shard, draft.due_ms)
        place = topic.shard_key(ANY if shard is None else shard)
        return Timer(
            draft.due_ms,
            id,
            TimerKind.DELIVER,
            place,
            replace(draft, id=id),
            topic.retention_days,
            filed_ms=self._clock.now_ms(),
        )

    def _produce_to(
        self,
        topic: Topic,
        shard: int | None,
        members: Sequence[tuple[int, Draft]],
        outcomes: list[Placed | HeadraceError | None],
    ) -> None:
        """Fill in the outcomes of drafts that go to one shard."""
        for run in _runs(members):
            try:
                left = [(i, draft, self.offload(topic, draft)) for i, draft in run]
                while left:
                    left = self._append(topic, shard, left, outcomes)
            except HeadraceError as error:
                for i, _ in run:
                    outcomes[i] = outcomes[i] or error

    def offload(self, topic: Topic, draft: Draft, above: int = BLOB_THRESHOLD_BYTES) -> Draft:
        """A draft small enough for the log: a body of more than `above` bytes goes to the blob store first."""
        if len(draft.body) <= above:
            return draft
        name = f"bodies/{topic.name}/{topic.uid}/{self._chance.id(24)}"
        self._blobs.put(name, draft.body)
        return replace(draft, body=b"", blob=name, blob_bytes=len(draft.body))

    def _append(
        self,
        topic: Topic,
        shard: int | None,
        members: Sequence[tuple[int, Draft, Draft]],
        outcomes: list[Placed | HeadraceError | None],
    ) -> list[tuple[int, Draft, Draft]]:
        """Append as many (index, as given, as stored) as fit one segment; what is left to do afterwards."""
        pack = self._log.pack([stored for *_, stored in members])
        now, later = members[: len(pack.drafts)], members[len(pack.drafts) :]
        answer = self._write(topic, shard, pack, [given for _, given, _ in now])
        assert not isinstance(answer, Gone)
        if isinstance(answer, Known):
            entries = {entry.dedup_id: entry for entry in answer.entries}
            for i, given, _ in now:
                if given.dedup_id in entries:
                    outcomes[i] = _duplicate(given, entries[given.dedup_id])
            return [m for m in now if outcomes[m[0]] is None] + list(later)
        for (i, *_), place in zip(now, answer, strict=True):
            outcomes[i] = place
        return list(later)

    def _write(
        self,
        topic: Topic,
        shard: int | None,
        pack: Pack,
        originals: Sequence[Draft],
        moved: Sequence[Movable] = (),
    ) -> list[Placed] | Known | Gone:
        """Win an offset for one pack. Without a shard given, a lost race hops to another shard."""
        losses = 0
        while True:
            key = topic.shard_key(shard if shard is not None else self._favourite_of(topic))
            with self._turn(topic, key, free=shard is None) as key:
                segment = self._next(topic, key, pack, losses >= LOSSES_BEFORE_RESERVING)
                entries = [
                    _dedup_entry(topic, segment, key, i, d) for i, d in enumerate(originals) if d.dedup_id
                ]
                self._note_keys(topic, key, segment)
                result = self._log.put(key, segment, pack, entries, moved)
                if isinstance(result, Known | Gone):
                    return result
                self._learn(key, segment, result, losses)
            if isinstance(result, Stored):
                return [_placed(key, segment, i) for i in range(segment.count)]
            losses += 1
            if shard is None:
                self._hop(topic, key.shard)

    def _next(self, topic: Topic, key: ShardKey, pack: Pack, turn: bool) -> Segment:
        """The segment at the offset to try for: behind the tail, or reserved from the shard's counter.

        Each try has a request id of its own, so that what was noted for one that lost names no other's messages.
        """
        tail = self._tails.get(key) or self._tails.put(key, self._log.tail(key))
        count = len(pack.drafts)
        first = self._reserve(key, count) if tail.way is Way.RESERVED else tail.offset + 1
        now_ms = self._clock.now_ms()
        way = Way.RESERVED if turn else tail.way
        request_id = self._chance.id(ids.REQUEST_ID_CHARS)
        return Segment(first, count, request_id, now_ms, topic.expires_s(now_ms), pack.drafts, way)

    def _note_keys(self, topic: Topic, key: ShardKey, segment: Segment) -> None:
        """Before the segment, for nothing may be stored that its keys don't find. What has an id of its own, or
        only returns, was noted before."""
        found: list[KeyEntry] = []
        for offset, draft in enumerate(segment.drafts, segment.first):
            if draft.keys and not draft.origin and not draft.id:
                id = ids.message_id(segment.request_id, key.shard, offset)
                found += entries_of(topic.uid, draft, id, segment.accepted_ms, segment.expires_s)
        if found:
            self._keys.note(found)

    def note_keys(
        self, topic: Topic, drafts: Iterable[tuple[Draft | None, int]], at_ms: int | None = None
    ) -> None:
        """Note the keys of drafts with an id of their own, each under the time it comes (or under `at_ms`)."""
        found: list[KeyEntry] = []
        for draft, comes_ms in drafts:
            if draft and draft.id and draft.keys:
                found += entries_of(topic.uid, draft, draft.id, at_ms or comes_ms, topic.expires_s(comes_ms))
        if found:
            self._keys.note(found)

    def _reserve(self, key: ShardKey, count: int) -> int:
        while (first := self._log.reserve(key, count)) is None:
            # The writer that turned the shard died before it set the counter.
            self._log.begin_reserving(key, self._log.tail(key).offset + 1)
        return first

    def _learn(self, key: ShardKey, segment: Segment, result: Stored | Taken, losses: int) -> None:
        """Remember the tail that a put has shown."""
        if isinstance(result, Stored):
            known = self._tails.get(key)
            if segment.way is Way.RESERVED and not (known and known.way is Way.RESERVED):
                self._log.begin_reserving(key, segment.end)
            self._tails.put(key, Tail(segment.end - 1, segment.way))
        elif losses % 2:  # the tail runs ahead of us: ask for it
            self._tails.drop(key)
        else:
            self._tails.put(key, Tail(result.by.end - 1, result.by.way))

    def _favourite_of(self, topic: Topic) -> int:
        favourite = self._favourite.get(topic.uid)
        if favourite is None or favourite >= topic.shards:
            favourite = self._favourite[topic.uid] = self._chance.below(topic.shards)
        tail = self._tails.get(topic.shard_key(favourite))
        if tail and tail.way is Way.RESERVED and not self._chance.below(_LOOK_AROUND):
            return self._hop(topic, favourite)
        return favourite

    def _hop(self, topic: Topic, shard: int) -> int:
        """Another shard than this one becomes the favourite; what was known of its tail is old."""
        other = (
            (shard + 1 + self._chance.below(topic.shards - 1)) % topic.shards if topic.shards > 1 else shard
        )
        self._favourite[topic.uid] = other
        if other != shard:
            self._tails.drop(topic.shard_key(other))
        return other

    def _turn(self, topic: Topic, key: ShardKey, *, free: bool) -> _Turn:
        """The right to append to a shard in this process: its threads need not race each other."""
        if free:
            for _ in range(topic.shards):
                lock = self._turns[key]
                if lock.acquire(blocking=False):
                    return _Turn(key, lock)
                key = topic.shard_key((key.shard + 1) % topic.shards)
        lock = self._turns[key]
        lock.acquire()
        return _Turn(key, lock)


class _Turn:
    """A held lock that says for which shard it is held."""

    def __init__(self, key: ShardKey, lock: threading.Lock) -> None:
        self._key = key
        self._lock = lock

    def __enter__(self) -> ShardKey:
        return self._key

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def check_size(topic: Topic, body: bytes) -> None:
    """Raises TooLarge for a body that the topic does not take."""
    if len(body) > topic.max_body_bytes:
        raise TooLarge(
            "BODY_TOO_LARGE",
            f"The body has {len(body)} bytes; topic {topic.name!r} takes {topic.max_body_bytes}.",
        )


def refusal(topic: Topic, draft: Draft) -> HeadraceError | None:
    """Why the topic does not take this message; None: it does."""
    try:
        check_size(topic, draft.body)
    except TooLarge as error:
        return error
    if draft.shard is not None and draft.shard >= topic.shards:
        return Refused("NO_SUCH_SHARD", f"Topic {topic.name!r} has shards 0 to {topic.shards - 1}.")
    return None


def _shard_of(topic: Topic, draft: Draft) -> int | None:
    if draft.shard is not None:
        return draft.shard
    if topic.shards == 1:  # a batch with and without keys stays one segment, in its order
        return 0
    return None if draft.ordering_key is None else shard_of(draft.ordering_key, topic.shards)


def _that_can_move(moved: Sequence[Movable]) -> int:
    """How many of them one transaction can hold."""
    actions = 0
    for n, each in enumerate(moved):
        actions += 1 if isinstance(each, Timer) else 2
        if actions > _MOVED_PER_SEGMENT:
            return n
    return len(moved)


def _runs(members: Sequence[tuple[int, Draft]]) -> Iterable[Sequence[tuple[int, Draft]]]:
    """Cut so that the dedup ids of one run fit one transaction."""
    run: list[tuple[int, Draft]] = []
    deduped = 0
    for member in members:
        if member[1].dedup_id and deduped == _DEDUPED_PER_SEGMENT:
            yield run
            run, deduped = [], 0
        run.append(member)
        deduped += member[1].dedup_id is not None
    yield run


def _filings(members: Sequence[tuple[int, Draft]]) -> Iterable[Sequence[tuple[int, Draft]]]:
    """What can be filed together: all without a dedup id, and of the others what fits a transaction."""
    plain = [member for member in members if not member[1].dedup_id]
    if plain:
        yield plain
    run: list[tuple[int, Draft]] = []
    size = 0
    for member in members:
        if not member[1].dedup_id:
            continue
        size += member[1].weight
        if run and (len(run) == _DEDUPED_PER_FILING or size > _BYTES_PER_FILING):
            yield run
            run, size = [], member[1].weight
        run.append(member)
    if run:
        yield run


def content_hash(draft: Draft) -> str:
    """What must be equal for two uses of a dedup id to be the same message."""
    content = (
        draft.body,
        draft.content_type,
        draft.keys,
        draft.tag,
        draft.ordering_key,
        draft.shard,
        sorted(
            item for item in draft.headers.items() if item[0].lower() != TRACEPARENT
        ),  # each try has its own
    )
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()


def _dedup_entry(topic: Topic, segment: Segment, key: ShardKey, index: int, draft: Draft) -> DedupEntry:
    id = ids.message_id(segment.request_id, key.shard, segment.first + index)
    return _dedup_of(topic, draft, id, segment.accepted_ms)


def _dedup_of(topic: Topic, draft: Draft, message_id: str, accepted_ms: int) -> DedupEntry:
    return DedupEntry(
        topic.uid,
        draft.dedup_id or "",
        content_hash(draft),
        message_id,
        accepted_ms,
        max(accepted_ms, draft.due_ms or 0) // 1000 + topic.dedup_window_seconds,
    )


def _placed(key: ShardKey, segment: Segment, index: int) -> Placed:
    offset = segment.first + index
    return Placed(
        ids.message_id(segment.request_id, key.shard, offset), key.shard, offset, segment.accepted_ms
    )


def _duplicate(draft: Draft, entry: DedupEntry) -> Placed | HeadraceError:
    if entry.content_hash != content_hash(draft):
        return mismatch()
    _, shard, offset = ids.parse_message_id(entry.message_id) or (None, None, None)
    timed = ids.parse_timed_id(entry.message_id)
    due_ms = timed.due_ms if timed else None
    return Placed(entry.message_id, shard, offset, entry.accepted_ms, duplicate=True, due_ms=due_ms)


def _repeated(
    first: Draft, again: Draft, outcome: Placed | HeadraceError | None
) -> Placed | HeadraceError | None:
    """The outcome of a dedup id's second use within one batch."""
    if content_hash(first) != content_hash(again):
        return mismatch()
    return replace(outcome, duplicate=True) if isinstance(outcome, Placed) else outcome


def mismatch() -> Conflict:
    """The error of a dedup id's second use for something else."""
    return Conflict("DEDUP_MISMATCH", "This dedup_id was used for another message within the window.")
