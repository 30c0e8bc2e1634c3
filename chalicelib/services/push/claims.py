"""Claims messages for push consumers: which consumer may claim how many from which source. A *source* is a shard or
the retry lane (None).

Called by `run.py`; `claim.py` in the package `consume` does the claiming itself, `capacity.py` knows the limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...domain.errors import Unavailable
from ...domain.limits import MAX_SHARDS
from ...domain.status import Because
from ...domain.topic import Consumer, CursorKey, Mode
from ..consume.claim import Claimer
from ..consume.claimant import Claim, Claimant, ClaimedMessage
from .run_time import RunTime
from .settlements import Settlements, batch_of, in_units
from .sources import Capacity, Sources

_LOST_RACES = 10
_MOST_IN_RUNS = 100  # of one claim
_FAULTS = 2  # of different sources: then the store itself has a fault
_REST_LOOKS = 10  # so many looks leave a refused source out: the store's client tries long before it gives up

Grant = tuple[Consumer, Sequence[ClaimedMessage]]  # a consumer, and the messages that it claimed


@dataclass(eq=False)
class Claims:
    """The claims of one run."""

    claimer: Claimer
    capacity: Capacity
    time: RunTime
    settlements: Settlements
    consumer_uid: str

    def __post_init__(self) -> None:
        self.looks = 0
        self.last_shards: dict[int, int] = {}  # of each priority that had messages, by its first shard
        # The sources that had messages, in the order of their first ones.
        self.served: dict[int | None, None] = {}
        # By source: until when its messages wait for a full batch.
        self.fills_until_ms: dict[int | None, int] = {}
        self.keys_wait: set[int | None] = set()  # sources that may wait for keys leased in others
        self.unpermitted: CursorKey | None = None  # of a cursor whose messages wait for the group's rate
        self.has_left_off = False  # a claim ended before it found a message to deliver, or the end
        self._had_messages = False  # others have perhaps seen them
        self._may_have_more = False  # after it returned messages, a cursor had not even its guarantee
        self.fault: Unavailable | None = None  # the run ends when the messages in flight are settled
        # Sources whose last claim the store refused, and at which look.
        self._refused: dict[int | None, tuple[int, Unavailable]] = {}

    @property
    def faults(self) -> Sequence[Unavailable]:
        """Why the run is to be repeated: `fault`, and sources that the store refused and that may have messages yet."""
        return [*filter(None, [self.fault]), *(error for _, error in self._refused.values())]

    def grants(self, sources: Sources) -> Iterator[Grant]:
        """Claim from all sources. Each grant must be sent before the next one is asked for, since it takes slots. If
        the store is not available, the grants end and `fault` says why. What the store refuses of one source stops only
        that source; `faults` says so."""
        try:
            yield from self._from_all(sources)
        except Unavailable as error:
            self.fault = error

    def _from_all(self, sources: Sources) -> Iterator[Grant]:
        """If the group's limit left nothing for us, read the cursors again after our last return: a run that still
        holds slots will come back for the rest; if slots are free by now, claim again."""
        for _ in range(_LOST_RACES):
            self.looks += 1
            if self.capacity.is_to_look(sources):
                self.capacity.read_other_runs(sources)
            self.capacity.is_limited = self._may_have_more = False
            in_turn = sources.in_turn(self.looks, self.capacity.allowance(sources), self.last_shards)
            shards = [shard for shard in in_turn if not self._is_left_out(shard)]
            served_shards = (shard for shard in shards if sources.consumers_of(shard))
            self.claimer.preload(sources.topic, sources.group, self.consumer_uid, served_shards)
            for shard in shards:
                if not self.time.allows_attempt(sources):  # the messages in flight have to be settled
                    return
                try:
                    yield from self._from_source(sources, shard)
                except Unavailable as error:
                    self._refused[shard] = self.looks, error
                    if len(self._refused) >= _FAULTS:
                        raise
                if self.unpermitted:
                    return
            if self.capacity.under_way or self.fault:
                return
            if self.capacity.is_limited:
                self.capacity.read_other_runs(sources)
                if self.capacity.free(sources) > 0 or self._may_have_more:
                    continue
            if not self._others_have_moved(sources):
                return

    def _is_left_out(self, shard: int | None) -> bool:
        return shard in self._refused and self.looks <= self._refused[shard][0] + _REST_LOOKS

    def _others_have_moved(self, sources: Sources) -> bool:
        """Did other runs change the cursors of these sources on which they had messages when we last read them? Who
        saw ours may have returned its own and ended, because we come back. So this is asked once after each time that
        we had some."""
        if not self._had_messages:
            return False
        self._had_messages = False
        answers = [self._others_have_moved_at(sources, shard) for shard in sources.in_turn(self.looks, 0)]
        return any(answers)

    def _others_have_moved_at(self, sources: Sources, shard: int | None) -> bool:
        if consumers := sources.consumers_of(shard):
            claimant = self._claimant(sources, shard, consumers[0])
            has_leases = self.claimer.in_flight(claimant, shard) > 0
            return has_leases and self.claimer.has_changed(claimant.key(shard))
        return False

    def _from_source(self, sources: Sources, shard: int | None) -> Iterator[Grant]:
        """The consumers of a source take turns; each claims its share of the messages. What is learnt during a round of
        all of them frees no slots before the next round: its last ones would get more than their share."""
        losses = 0
        served_uids: set[str] = set()
        consumers = self._in_order(sources, shard)
        was_limited = self.capacity.is_limited
        free = self.capacity.free(sources)
        while losses < _LOST_RACES:
            rooms = {c: room for c in consumers if (room := self.capacity.room(sources, shard, c)) > 0}
            if not rooms:
                return
            next_consumers = [c for c in rooms if c.uid not in served_uids]
            if served_uids and (free <= 0 or not next_consumers):
                free = self.capacity.free(sources)
            if not next_consumers:
                if free < sources.few:  # the next look takes them, with what ends by then
                    return
                served_uids, next_consumers = set(), list(rooms)
            free = min(free, self.capacity.free(sources))
            self.capacity.is_limited |= free <= 0
            claimant = self._claimant(sources, shard, next_consumers[0], len(next_consumers), free)
            claim = self.claimer.claim(claimant, shard, rooms[next_consumers[0]])
            self._refused.pop(shard, None)
            if claim is None:
                losses += 1
                continue
            if claim.because is Because.RATE_LIMITED:
                self.unpermitted = claimant.key(shard)
                return
            self._note(claimant, shard, claim)
            if claim.messages:
                served_uids.add(next_consumers[0].uid)
                free -= len(in_units(claim.messages))
                sendable = self._within_bounds(sources, claimant, claim)
                yield next_consumers[0], sendable
                if len(sendable) < len(claim.messages):
                    # Another run of this source may have ended while we held them.
                    self._may_have_more |= self.claimer.in_flight(claimant, shard) < claimant.guaranteed
                    return
            self.has_left_off |= claim.has_left_off
            # What comes after this reading of the log is found by the next look, when these messages have ended.
            if not claim.messages or self.claimer.is_drained(claimant, shard):
                # If it had slots, messages are what is missing.
                if claimant.room(self.claimer.in_flight(claimant, shard)) > 0:
                    self.capacity.is_limited = was_limited
                return

    def _note(self, claimant: Claimant, shard: int | None, claim: Claim) -> None:
        """Note what a claim found, and what its source waits for."""
        self.fills_until_ms.pop(shard, None)
        if claim.fills_until_ms:
            self.fills_until_ms[shard] = claim.fills_until_ms
        self.keys_wait.discard(shard)
        if claim.messages:
            self._had_messages = True
            self.served[shard] = None
            self.last_shards |= {} if shard is None else {shard - shard % MAX_SHARDS: shard}
        elif claim.because is Because.KEYS_WAIT and self.claimer.looks_elsewhere(claimant, shard):
            self.keys_wait.add(shard)

    def _in_order(self, sources: Sources, shard: int | None) -> Sequence[Consumer]:
        """The consumers of a source, rotated with each claim (in whichever process), and by shard: where little is
        produced, only the first in order would ever get messages."""
        consumers = sources.consumers_of(shard)
        if len(consumers) < 2:
            return consumers
        rotation = self.claimer.rotation(self._claimant(sources, shard, consumers[0]), shard) + (shard or 0)
        start = rotation % len(consumers)
        return (*consumers[start:], *consumers[:start])

    def _within_bounds(self, sources: Sources, claimant: Claimant, claim: Claim) -> Sequence[ClaimedMessage]:
        """The granted messages that may be sent within the group's limit; the rest is returned, and no attempt is
        counted. Of each run one message is in flight."""
        units, unsure = in_units(claim.messages), claim.in_flight - claimant.guaranteed
        if unsure <= 0:
            return claim.messages
        try:
            taken = self.capacity.read_other_runs(sources, Counter({claimant.owner: len(units)}))
            excess = taken - sources.most
        except Unavailable as error:
            self.fault, excess = error, unsure
        count = len(units) - max(0, min(excess, unsure, len(units)))
        if count < len(units):
            self.capacity.is_limited = True
            unsent = [unit[0].receipt for unit in units[count:]]
            self.settlements.give_back(sources.topic, sources.group, unsent)
            self.claimer.rate_limits.put_back(sources.group, sum(map(len, units[count:])))
        return [each for unit in units[:count] for each in unit]

    def _claimant(
        self, sources: Sources, shard: int | None, consumer: Consumer, parts: int = 1, free: int = 0
    ) -> Claimant:
        limits, called = sources.limits(shard), sources.called_for(shard, consumer)
        group, batch = sources.group, batch_of(sources.group, consumer)
        is_serial = group.mode is Mode.SERIAL and group.auto_ack
        return Claimant(
            topic=sources.topic,
            group=group,
            lease_seconds=max(self.time.lease_seconds(sources, each) for each in called),
            owner=consumer.uid,
            is_called=True,
            consumer_uid=self.consumer_uid,
            most_in_flight=limits.most,
            guaranteed=limits.guaranteed,
            free=max(0, free),
            parts=parts,
            batch=batch,
            batch_wait_ms=consumer.batch_wait_seconds * 1000,
            # Messages of a run are sent to one place.
            run=_MOST_IN_RUNS if is_serial and not group.callbacks and batch == 1 else 0,
            takes=sources.has_callback if consumer is sources.callbacks else None,
        )
