"""Producing: checked drafts become segments in the log. A 2xx follows the write, never precedes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from ...domain import ids, redact
from ...domain.append import AlreadyMoved, DedupHit, KeyEntry, Outcomes, ProduceResult, Promotable, Successor
from ...domain.blob_expiry import body_name
from ...domain.errors import HeadraceError, Refused
from ...domain.limits import BLOB_THRESHOLD_BYTES
from ...domain.message import Draft, Message, holds_json, host_of
from ...domain.request import Request
from ...domain.timer import ANY, Part, Timer, TimerKind
from ...domain.topic import Topic
from ...ports.world import Blobs, Clock, Random
from ...store import Keys, Log, Timers
from ..core.bodies import with_body
from ..core.budgets import Budgets
from ..core.catalog import Catalog
from ..core.counters import ACCEPTED, Counters
from ..core.rate_limiter import RateLimits
from . import dedup
from . import drafts as planning
from .appender import Appender, entries_of
from .drafts import UnitNames
from .resend import ResendLookup, RowsFound


@dataclass(kw_only=True, eq=False)
class Producer:
    """Takes messages in: at once into the log, or as timers for later. `on_timers_stored` is called with new timers."""

    log: Log
    catalog: Catalog
    appender: Appender
    timers: Timers
    keys: Keys
    blobs: Blobs
    rate_limits: RateLimits
    budgets: Budgets
    counters: Counters
    clock: Clock
    random: Random
    on_timers_stored: Callable[[Sequence[Timer]], None]

    def __post_init__(self) -> None:
        self._unit_names = UnitNames(self.clock, self.random, self.timers.fragment_of)

    def produce(
        self,
        topic: Topic,
        drafts: Sequence[Draft],
        by: str = "",
        request: Request | None = None,
        first_use: dedup.FirstUseOf = dedup.unknown_use,
    ) -> list[ProduceResult | HeadraceError]:
        """Store drafts, all of one shard in as few rows as possible. Returns for each draft where it was stored, or
        the error. `by` is the id of the producer's token; `request` names a request that may be sent again;
        `first_use` says what has become of a dedup id's message.

        What is over the topic's budget or rate limit, the last first, is not stored and gets TooMany; or, over the
        limit, it is stored as a dead letter for every group, where the topic wants that. A fault below turns the drafts
        it concerns into UNAVAILABLE (unknown, safe to repeat with a dedup id).
        """
        outcomes: Outcomes = [self.refusal(topic, draft) for draft in drafts]
        judge = partial(dedup.judged, first_use=first_use, request=request)
        if request:
            drafts = dedup.named(drafts, request)
        if topic.rate_limit is not None or topic.budget_usd is not None:
            drafts = self._limit(topic, drafts, request, outcomes)
        first_of: dict[str, int] = {}
        by_shard: defaultdict[int | range, list[int]] = defaultdict(list)
        later: list[int] = []
        for i, draft in enumerate(drafts):
            if outcomes[i] is None and first_of.setdefault(draft.dedup_id or f"\0{i}", i) == i:
                shard = planning.place_of(topic, draft)
                if request and isinstance(shard, range):
                    shard = shard[request.shard(len(shard))]
                (by_shard[shard] if draft.due_ms is None else later).append(i)
        if later:
            self._store_later(topic, [(i, replace(drafts[i], by=by)) for i in later], outcomes, judge)
        for shard, members in by_shard.items():
            resend_lookup = None
            if request and isinstance(shard, int):
                resend_lookup = ResendLookup(self.log, request, topic.shard_key(shard))
            items = [(i, planning.without_time(drafts[i])) for i in members]
            self._produce_to(topic, shard, items, outcomes, judge, by, resend_lookup)
        for i, draft in enumerate(drafts):
            if outcomes[i] is None:
                first = first_of[draft.dedup_id or ""]
                outcomes[i] = dedup.outcome_of_same_id(drafts[first], draft, outcomes[first])
        results = [outcome for outcome in outcomes if outcome is not None]
        self.counters.add(ACCEPTED, sum(isinstance(o, ProduceResult) and not o.duplicate for o in results))
        return results

    def refusal(self, topic: Topic, draft: Draft) -> HeadraceError | None:
        """Why this message cannot be produced to the topic; None: it can."""
        host = host_of(draft.callback_url)
        if host and not self.catalog.allows_callback(topic, host, consistent=True):
            words = (
                f"No group of topic {topic.name!r} has the host {host!r} of callback_url in its `callbacks`."
            )
            return Refused("CALLBACK_REFUSED", words)
        return planning.refusal(topic, draft)

    def _limit(
        self, topic: Topic, drafts: Sequence[Draft], request: Request | None, outcomes: Outcomes
    ) -> Sequence[Draft]:
        """Take permits for the drafts that would be stored. What an earlier try of a resend has stored needs none:
        otherwise its end might never be admitted. Those over the limit get their outcome, or become dead letters."""
        good = [i for i, outcome in enumerate(outcomes) if outcome is None]
        stored = self._stored_before(topic, [drafts[i] for i in good], request)
        new = [i for n, i in enumerate(good) if n not in stored]
        no_money = self.budgets.refusal(topic)
        over = set(new if no_money else new[self.rate_limits.admit(topic, len(new)) :])
        if no_money is None and topic.on_rate_limit == "dead_letter":
            return [planning.dead_by_limit(draft) if i in over else draft for i, draft in enumerate(drafts)]
        for i in over:
            outcomes[i] = no_money or planning.too_many(topic)
        return drafts

    def admit(self, topic: Topic, draft: Draft) -> Draft:
        """Count a message that is about to be prepared (in a transaction) like one that is produced. Returns it,
        perhaps as a dead letter. Raises TooMany, or why the topic does not take it."""
        outcomes: Outcomes = [self.refusal(topic, draft)]
        (draft,) = self._limit(topic, [draft], None, outcomes)
        if isinstance(outcomes[0], HeadraceError):
            raise outcomes[0]
        return draft

    def _stored_before(self, topic: Topic, drafts: Sequence[Draft], request: Request | None) -> set[int]:
        """The indexes of a resend's drafts that an earlier try has stored. Empty for a first try, and if this is
        unknown: `produce` then reports it for each draft. Messages with a time are recognised by their dedup id."""
        if request is None or request.since_ms is None:
            return set()
        by_shard: defaultdict[int, list[int]] = defaultdict(list)
        stored: set[int] = set()
        for i, draft in enumerate(drafts):
            if draft.due_ms is None:
                shard = planning.place_of(topic, draft)
                by_shard[shard if isinstance(shard, int) else shard[request.shard(len(shard))]].append(i)
            if draft.dedup_id and dedup.has_time(draft) and self._is_remembered(topic, draft.dedup_id):
                stored.add(i)
        for shard, indexes in by_shard.items():
            key = topic.shard_key(shard)
            rows = None
            with suppress(HeadraceError):
                rows = self.appender.rows_before(topic, key, ResendLookup(self.log, request, key))
            if rows:
                messages = rows.messages_for([drafts[i] for i in indexes])
                stored |= {i for i, message in zip(indexes, messages, strict=True) if message}
        return stored

    def _is_remembered(self, topic: Topic, dedup_id: str) -> bool:
        with suppress(HeadraceError):
            entry = self.log.dedup_entry(topic.uid, dedup_id)
            return entry is not None and entry.ends_ms > self.clock.now_ms()
        return False

    def move(self, topic: Topic, members: Sequence[tuple[Promotable, Draft]]) -> list[ProduceResult | None]:
        """Put drafts into the log, each in the transaction that takes its timer or dead letter away. What belongs to
        one shard becomes one segment. Safe to repeat: each is moved at most once. None means another process moved it.

        Raises Unavailable where an answer was lost.
        """
        outcomes: list[ProduceResult | None] = [None] * len(members)
        by_shard: defaultdict[int | range, list[int]] = defaultdict(list)
        for i, (_, draft) in enumerate(members):
            by_shard[planning.place_of(topic, draft)].append(i)
        for shard, indexes in by_shard.items():
            while indexes:
                now = planning.count_that_can_move([members[i][0] for i in indexes])
                pack = self.log.pack([members[i][1] for i in indexes[:now]])
                chunk = indexes[: len(pack.drafts)]
                answer = self.appender.append(topic, shard, pack, (), [members[i][0] for i in chunk])
                if isinstance(answer, AlreadyMoved):
                    indexes = [i for n, i in enumerate(indexes) if n not in answer.indexes]
                    continue
                assert not isinstance(answer, DedupHit | RowsFound)
                for i, result in zip(chunk, answer, strict=True):
                    outcomes[i] = result
                indexes = indexes[len(chunk) :]
        return outcomes

    def move_row(self, topic: Topic, timer: Timer, drafts: Sequence[Draft]) -> list[ProduceResult]:
        """Put drafts of one timer into the log, shard by shard; what is not there yet stays in the timer. Safe to
        repeat: each is moved at most once. Empty: another process does it."""
        results: list[ProduceResult] = []
        while drafts:
            shard = planning.place_of(topic, drafts[0])
            pack = self.log.pack([draft for draft in drafts if planning.place_of(topic, draft) == shard])
            moved = {id(draft) for draft in pack.drafts}
            drafts = [draft for draft in drafts if id(draft) not in moved]
            source = Part(timer, tuple(drafts)) if drafts else timer
            answer = self.appender.append(topic, shard, pack, (), [source])
            if isinstance(answer, AlreadyMoved):
                break
            assert not isinstance(answer, DedupHit | RowsFound)
            results += answer
            timer = replace(timer, edits=timer.edits + 1)
        return results

    def _store_later(
        self, topic: Topic, members: Sequence[tuple[int, Draft]], outcomes: Outcomes, judge: dedup.Judge
    ) -> None:
        """Store drafts that are due later as timers, each under an id of its own. After a failure the later drafts of
        the same ordering key are not stored."""
        errors: dict[str | None, HeadraceError] = {}
        drafts = [(i, replace(draft, id=self._timed_id(topic, draft))) for i, draft in members]
        for run in planning.timer_batches(drafts):
            try:
                going = [(i, draft) for i, draft in run if planning.unit_of(topic, draft) not in errors]
                items = [(i, d, self._first_timer(topic, self.offload(topic, d))) for i, d in going]
                self._store_batch(topic, items, outcomes, judge)
            except HeadraceError as error:
                errors |= {unit: error for _, draft in going if (unit := planning.unit_of(topic, draft))}
                for i, _ in going:
                    outcomes[i] = outcomes[i] or error
            for i, draft in run:
                outcomes[i] = outcomes[i] or errors[planning.unit_of(topic, draft)]

    def _timed_id(self, topic: Topic, draft: Draft) -> str:
        """The id of a delayed draft; those of a batch rise in its order."""
        assert draft.due_ms is not None
        id_of = partial(ids.timed_id, shard=planning.log_shard_of(topic, draft), due_ms=draft.due_ms)
        return id_of(self.waiting_name(topic, draft, id_of) or self.random.id(ids.REQUEST_ID_CHARS))

    def waiting_name(self, topic: Topic, draft: Draft, id_of: Callable[[str], str]) -> str | None:
        """A name for a message that will wait; `id_of` makes its id of it. None if it has no order to keep."""
        unit = planning.unit_of(topic, draft)
        return None if unit is None else self._unit_names.name(topic, unit, id_of)

    def _store_batch(
        self, topic: Topic, items: Sequence[tuple[int, Draft, Timer]], outcomes: Outcomes, judge: dedup.Judge
    ) -> None:
        while items:
            entries = [dedup.entry_of(topic, d, t.id, t.stored_ms) for _, d, t in items if d.dedup_id]
            timers = [timer for *_, timer in items]
            self.note_keys(topic, [(timer.draft, timer.due_ms) for timer in timers])
            if used_entries := self.timers.store(timers, entries):
                items = dedup.to_store(items, used_entries, outcomes, judge)
                continue
            for i, _, timer in items:
                outcomes[i] = ProduceResult(timer.id, None, None, timer.stored_ms, due_ms=timer.due_ms)
            self.on_timers_stored(timers)
            return

    def _first_timer(self, topic: Topic, draft: Draft) -> Timer:
        """The timer of a message that was accepted when its delay began."""
        return self.timer(topic, replace(draft, accepted_ms=None), draft.accepted_ms)

    def successor(self, topic: Topic, draft: Draft) -> Successor:
        """A draft with a time as the successor of a message whose dedup id it takes over; its keys are noted. To be
        stored with that message's end."""
        draft = replace(draft, id=self._timed_id(topic, draft))
        timer = self._first_timer(topic, self.offload(topic, draft))
        self.note_keys(topic, [(timer.draft, timer.due_ms)])
        return timer, dedup.entry_of(topic, draft, timer.id, timer.stored_ms)

    def timer(self, topic: Topic, draft: Draft, stored_ms: int | None = None) -> Timer:
        """The timer of a delayed draft, under the draft's own id; stored now, unless `stored_ms` says when."""
        assert draft.due_ms is not None
        assert draft.id is not None
        shard = planning.log_shard_of(topic, draft)
        shard_key = topic.shard_key(ANY if shard is None else shard)
        stored_ms = self.clock.now_ms() if stored_ms is None else stored_ms
        timer = Timer(draft.due_ms, draft.id, TimerKind.DELIVER, shard_key, stored_ms=stored_ms)
        # The timer says when.
        return replace(timer, draft=replace(draft, due_ms=None), keep_days=topic.retention_days)

    def _produce_to(
        self,
        topic: Topic,
        shard: int | range,
        members: Sequence[tuple[int, Draft]],
        outcomes: Outcomes,
        judge: dedup.Judge,
        by: str,
        resend_lookup: ResendLookup | None,
    ) -> None:
        """Fill in the outcomes of drafts that go to one shard. After a failure the later drafts are not stored:
        otherwise a repeated draft would come after them."""
        try:
            for run in planning.runs_of(members):
                items_left = [(i, draft, self.offload(topic, draft)) for i, draft in run]
                while items_left:
                    items_left = self._append(topic, shard, items_left, outcomes, judge, by, resend_lookup)
        except HeadraceError as error:
            for i, _ in members:
                outcomes[i] = outcomes[i] or error

    def unmasked(self, topic: Topic, before: Message, new: Draft) -> bytes:
        """The body of an edit, with what is stored wherever it has the mask of `redact`. Raises Refused."""
        hidden = redact.pointers(topic, before) if holds_json(new) else ()
        return redact.restored(new.body, with_body(self.blobs, before).draft, hidden) if hidden else new.body

    def offload(self, topic: Topic, draft: Draft, above: int = BLOB_THRESHOLD_BYTES) -> Draft:
        """A draft small enough for the log: a body of more than `above` bytes goes to the blob store first."""
        if len(draft.body) <= above:
            return draft
        name = body_name(topic.name, topic.uid, self.random.id(24))
        self.blobs.put(name, draft.body)
        return replace(draft, body=b"", blob=name, blob_bytes=len(draft.body))

    def _append(
        self,
        topic: Topic,
        shard: int | range,
        members: Sequence[tuple[int, Draft, Draft]],
        outcomes: Outcomes,
        judge: dedup.Judge,
        by: str,
        resend_lookup: ResendLookup | None,
    ) -> list[tuple[int, Draft, Draft]]:
        """Append as many (index, as given, as stored) as fit one segment; what is left to do afterwards."""
        pack = self.log.pack([draft for *_, draft in members])
        now, later = members[: len(pack.drafts)], members[len(pack.drafts) :]
        originals = [original for _, original, _ in now]
        answer = self.appender.append(topic, shard, pack, originals, by=by, resend_lookup=resend_lookup)
        assert not isinstance(answer, AlreadyMoved)
        if isinstance(answer, RowsFound):
            for (i, *_), message in zip(members, answer.messages_for([m[1] for m in members]), strict=True):
                if message:
                    at = (message.id, message.shard, message.offset, message.accepted_ms)
                    outcomes[i] = ProduceResult(*at, duplicate=True)
            return [m for m in members if outcomes[m[0]] is None]
        if isinstance(answer, DedupHit):
            return dedup.to_store(now, answer.entries, outcomes, judge) + list(later)
        for (i, *_), result in zip(now, answer, strict=True):
            outcomes[i] = result
        return list(later)

    def note_keys(
        self, topic: Topic, drafts: Iterable[tuple[Draft | None, int]], at_ms: int | None = None
    ) -> None:
        """Note the keys of drafts with an id of their own, each under the time it comes (or under `at_ms`)."""
        entries: list[KeyEntry] = []
        for draft, comes_ms in drafts:
            if draft and draft.id and draft.keys:
                expires_s = topic.expires_s(comes_ms)
                entries += entries_of(topic.uid, draft, draft.id, at_ms or comes_ms, expires_s)
        if entries:
            self.keys.note(entries)
