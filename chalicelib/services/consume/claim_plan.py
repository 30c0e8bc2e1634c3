"""Planning a claim: which messages of one cursor it would grant, bury or settle. It reads; it writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, islice, takewhile
from operator import itemgetter

from ...domain import cursor_size, pull_share, ranges
from ...domain import cursor_transitions as transitions
from ...domain.cursor import Cursor, Lease, Selection, offset_state
from ...domain.limits import MAX_ANSWER_BYTES, MAX_OFFSET, MAX_PASSED_OVER, MAX_RECEIVE
from ...domain.message import DeadReason, Draft, Message, is_expired
from ...domain.record import Record
from ...domain.spans import Span, coalesce, in_order
from ...domain.topic import passes_filter
from ...modes import Candidate, ClaimVerdict
from ..core.log_reader import Freshness, LogReader, Slot
from . import claim_choice, retry_lane
from .claim_choice import ClaimPlan, choose, cursor_behind, dues, fills_an_answer, is_settled, is_skipped
from .claimant import Claimant, ClaimedMessage
from .tenants import RecentTenants

_LOOKAHEAD = 1_000
_BURIED_AT_ONCE = 200
_LEASE_ENDED = "The lease ended before the message was settled."
_Planned = tuple[ClaimPlan, Cursor]  # and the cursor after it


class ClaimPlanner:
    """Plans a claim from one cursor and its log at one moment."""

    def __init__(
        self,
        *,
        reader: LogReader,
        claimant: Claimant,
        shard: int | None,
        recent_tenants: RecentTenants,
        leased_in: Callable[[int | None], Counter[str]],
        now_ms: int,
    ) -> None:
        self._reader = reader
        self._claimant = claimant
        self._policy = claimant.policy
        self._shard = shard
        self._key = claimant.key(shard)
        self._recent_tenants = recent_tenants
        self._leased_in = cache(leased_in)
        self._may_skip = True  # messages of heavy tenants
        self._keeps_entries = shard is None and not self._policy.reads_units  # a burial's: they are alike
        self._now_ms = now_ms

    def plan_that_fits(self, cursor: Cursor, most: int, most_bytes: int, token: str) -> _Planned:
        """A plan, and the cursor after it; for fewer messages, if the cursor has no space for all."""
        deadline_ms = self._now_ms + self._claimant.lease_seconds * 1000
        while True:
            plan = self.plan(cursor, most, most_bytes)
            count = plan.granted_count
            after = transitions.claim(plan.cursor, plan.selection, token, self._claimant.owner, deadline_ms)
            if count and self._policy.of_key and self._shard is not None:
                after = replace(after, in_lane=int(any(self._leased_in(None))))
            if seat := self._claimant.seat:
                left = plan.available - count
                new_round = pull_share.after(cursor.round, seat, count, left, self._now_ms)
                after = replace(after, round=new_round)
            passed_over = plan.selection.passed_over  # they need space even where no lease is open
            if not (count or passed_over) or cursor_size.has_room_for_claim(
                plan.cursor, after, 0 if passed_over else count
            ):
                return plan, after
            if plan.has_tenants:
                self._may_skip = False
            elif self._policy.run:
                self._claimant = replace(self._claimant, run=self._claimant.run // 2)
                self._policy = self._claimant.policy
            else:
                most = count // 2 or min(1, most - 1)

    def plan_within(self, permits: int, cursor: Cursor, most_bytes: int, token: str) -> _Planned:
        """As `plan_that_fits`, for so many messages; of runs, for those of one unit."""
        self._claimant = replace(self._claimant, run=min(self._claimant.run, permits))
        self._policy = self._claimant.policy
        return self.plan_that_fits(cursor, 1 if self._policy.run else permits, most_bytes, token)

    def plan(self, cursor: Cursor, most: int, most_bytes: int) -> ClaimPlan:
        """Read the messages that could be claimed and let the policy choose; read on if it passes many over."""
        current = transitions.lapse(cursor, self._now_ms)
        room = 0 if cursor_size.is_full(current) else self._claimant.room(self._claimant.in_flight(current))
        mine = min(most, room)
        most = min(mine * self._claimant.claimants, room)
        trust = self._trust(cursor)
        back, slots, is_alone = self._back(current, most, trust)
        most = 1 if is_alone else most
        enough = max(most, self._policy.run)
        wanted_count = 0 if is_alone else min(enough, MAX_RECEIVE)
        if not self._policy.reads_units:
            wanted_count = max(0, wanted_count - sum(not each.is_skipped for each in back))
        if self._policy.waits_in_cursor and not cursor_size.has_room_for_new(current):
            wanted_count = 0
        messages = {s.offset: s.message for s in slots if s.message}
        ahead: list[Slot] = []
        choice = choose(self._policy, current, back, (), most, most_bytes)
        # In a lane each look costs a read.
        may_skip = self._may_skip and self._shard is not None and cursor_size.has_room_to_skip(current)
        has_tenants = False
        while wanted_count:
            page = self._ahead(cursor_behind(ahead, current), wanted_count - len(ahead), trust)
            if may_skip and not ahead and any(s.message and s.message.draft.tenant for s in (*slots, *page)):
                is_page_full = len(page) == wanted_count and not fills_an_answer(page)
                ahead, turned = self._fairly(current, back, page, is_page_full, trust)
                messages |= {s.offset: s.message for s in ahead if s.message}
                choice, has_tenants = choose(self._policy, current, *turned, most, most_bytes), True
                break
            new_candidates = [*choice.new_candidates, *(self._candidate(slot, None) for slot in page)]
            choice = choose(self._policy, current, back, new_candidates, most, most_bytes)
            passed_over = choice.passed_over  # of those the contents are not kept
            ahead += (replace(s, message=None) if s.offset in passed_over else s for s in page)
            messages |= {s.offset: s.message for s in page if s.message and s.offset not in passed_over}
            is_end = len(ahead) < wanted_count and not fills_an_answer(page)
            if choice.is_full or choice.granted_count >= enough or is_end or len(ahead) >= _LOOKAHEAD:
                break
            if len(ahead) == wanted_count:
                wanted_count = min(_LOOKAHEAD, wanted_count * 2)
        selection = self._mine(current, choice, messages, mine, is_alone)
        is_idle = has_tenants and not (selection.granted or selection.settled or self._policy.holds_back)
        if is_idle and len(ahead) < _LOOKAHEAD:
            selection = Selection(next=current.next)  # a write would only say that all of it waits
        plan = self._plan(ahead, current, selection, messages, choice.dead_candidates, choice.granted_count)
        because = claim_choice.because_of(self._policy, current, choice, self._now_ms, has_room=mine > 0)
        return replace(plan, is_alone=is_alone, because=because, has_tenants=has_tenants)

    def _mine(
        self,
        current: Cursor,
        choice: claim_choice.Choice,
        messages: Mapping[int, Message],
        most: int,
        is_alone: bool,
    ) -> Selection:
        """What is chosen, but for what is left to others."""
        selection, count = choice.selection, choice.granted_count
        if count and self._claimant.claimants > 1 and not is_alone:
            part = self._claimant.part(current.round, count, most, self._now_ms)
            if self._claimant.seat and self._recent_tenants.has_heavy(self._claimant.group.uid):
                part = most  # what the others would get might wait for slow messages
            selection = self._policy.select(current, choice.back, choice.new_candidates, part)
        left = {n for n, each in messages.items() if self._claimant.leaves(each)}
        return claim_choice.leave_out(selection, left, current) if left else selection

    def _fairly(
        self, current: Cursor, back: list[Candidate], page: list[Slot], is_page_full: bool, trust: Freshness
    ) -> tuple[list[Slot], tuple[list[Candidate], list[Candidate]]]:
        """All that a claim looks at from the page on, and the candidates, those of heavy tenants behind the others."""
        if is_page_full:
            page = page + self._ahead(cursor_behind(page, current), _LOOKAHEAD - len(page), trust)
        return page, self._recent_tenants.in_turn(
            self._claimant.group.uid,
            back,
            [self._candidate(slot, None) for slot in page],
            has_more=len(page) >= _LOOKAHEAD or fills_an_answer(page),
            heavy_room=self._claimant.heavy_room(current),
        )

    def plan_unwanted(self, cursor: Cursor) -> Selection:
        """Settle the next unclaimed messages up to the first that the group gets, or that is to be buried. Looks at one
        at first: it is mostly that one."""
        trust = self._trust(cursor)
        ahead: list[Slot] = []
        unwanted: list[Candidate] = []
        for count in (1, _LOOKAHEAD):
            if len(unwanted) == len(ahead):
                ahead = self._ahead(cursor, count, trust)
                candidates = (self._candidate(slot, None) for slot in ahead)
                unwanted = list(takewhile(claim_choice.is_unwanted, candidates))
        return self._plan(ahead, cursor, self._policy.select(cursor, (), unwanted, 1), {}, ()).selection

    def held(self, cursor: Cursor, lease: Lease) -> list[ClaimedMessage]:
        """The messages of a lease, as when it was granted, at this planner's time."""
        attempts, trust = dict(sorted(lease.attempts().items())), self._trust(cursor)
        return [
            self._claimed_message(lease.token, attempts[slot.offset], slot.offset, slot.message)
            for slot in self._resolve_all(self._slots_at(attempts, trust), trust)
            if slot.message
        ]

    def plan_expiry(self, cursor: Cursor, has_time: Callable[[], bool]) -> ClaimPlan:
        """Plan dead letters for waiting and unclaimed messages that are expired, exhausted or past their retention;
        grant nothing. Messages that are kept for longer are skipped: in a retry lane without units, whose entries come
        in any order, as many as there is time to read."""
        current = transitions.lapse(cursor, self._now_ms)
        trust = self._trust(cursor)
        back, slots = self._buried_of_waiting(current, trust, has_time)
        kept_entries, ahead = self._to_bury(current, trust, has_time)
        new_candidates = [self._candidate(slot, None) for slot in ahead]
        staying = [c for c in new_candidates if not is_settled(c)]
        most = len(staying) if self._keeps_entries else MAX_PASSED_OVER
        end = staying[most].offset if len(staying) > most else MAX_OFFSET
        settled = [c for c in new_candidates if is_settled(c) and c.offset < end]
        waiting_dead, new_dead, dead_candidates = claim_choice.within_bounds(back, settled, MAX_ANSWER_BYTES)
        selection = self._policy.select(current, waiting_dead, new_dead, 1)
        passed_over = [*kept_entries] if selection.next > current.next else []
        passed_over += [Span(c.offset, 1, c.attempt, c.unit) for c in staying if c.offset < selection.next]
        selection = replace(selection, passed_over=tuple(passed_over))
        lapsed = self._lapsed_entries(cursor, trust) if selection.settled and self._shard is None else ()
        messages = {s.offset: s.message for s in (*lapsed, *slots, *ahead) if s.message}
        return self._plan(ahead, current, selection, messages, dead_candidates)

    def _lapsed_entries(self, cursor: Cursor, trust: Freshness) -> Iterable[Slot]:
        """A lane's entries whose leases have lapsed. Each names the message of the attempt."""
        overdue = [lease for lease in cursor.leases.values() if lease.deadline_ms <= self._now_ms]
        offsets = [offset for lease in overdue for offset in lease.attempts()]
        return self._reader.fetch(self._key.shard, offsets, trust).values()

    def _buried_of_waiting(
        self, current: Cursor, trust: Freshness, has_time: Callable[[], bool]
    ) -> tuple[list[Candidate], list[Slot]]:
        """The waiting messages that are to be settled without a delivery, as many as one answer holds and there is time
        to find."""
        candidates: list[Candidate] = []
        slots: list[Slot] = []
        size = 0
        skipped = in_order(span for span in current.waiting if is_skipped(span))
        others = in_order(span for span in current.waiting if not is_skipped(span))
        for number, (offset, span) in enumerate(chain(others, islice(skipped, _BURIED_AT_ONCE)), 1):
            if len(slots) == _LOOKAHEAD or (number % _BURIED_AT_ONCE == 0 and not has_time()):
                break
            (slot,) = self._resolve_all(self._slots_at([offset], trust), trust)
            candidate = self._candidate(slot, span)
            if not is_settled(candidate):
                continue
            candidates.append(candidate)
            slots.append(slot)
            size += candidate.size
            if size > MAX_ANSWER_BYTES:
                break
        return candidates, slots

    def _back(self, current: Cursor, most: int, trust: Freshness) -> tuple[list[Candidate], list[Slot], bool]:
        """The waiting messages that are due, as many as one answer holds. With units, those of each unit up to the
        first that can be delivered, for the others wait for it, or in a run those behind it, too; first the first of
        each unit, then the second ones, so that those of one unit do not fill an answer. Who pulls gets a message whose
        lease ended alone (True), for it may have ended its consumer."""
        is_ordered, run = self._policy.holds_back, self._policy.run
        units: set[str] = set()  # of which more may follow in a run
        candidates: list[Candidate] = []
        slots: list[Slot] = []
        size = 0
        is_alone, left, leased = False, 0, transitions.leased_counts(current)
        queues = dues(self._policy, current, self._now_ms) if most else []
        while queues:
            turn = sorted(((*due, queue) for queue in queues for due in islice(queue, 1)), key=itemgetter(0))
            queues = []
            for offset, span, queue in turn:
                if len(slots) == (_LOOKAHEAD if is_ordered else most) or size > MAX_ANSWER_BYTES:
                    return candidates, slots, False
                is_alone = span.has_lapsed and not self._claimant.is_called
                if is_alone and not all(map(is_settled, candidates)):
                    continue
                slots += self._resolve_all(self._slots_at([offset], trust), trust)
                candidate = self._candidate(slots[-1], span)
                in_flight = candidate.elsewhere and candidate.elsewhere + leased[candidate.unit]
                is_busy = in_flight >= max(1, self._policy.of_key) and not is_settled(candidate)
                if is_busy or self._claimant.leaves(slots[-1].message):
                    left += 1
                    del slots[-1]
                    queues += [] if is_ordered or left > _LOOKAHEAD else [queue]
                    continue
                candidates.append(candidate)
                size += candidate.size
                if is_alone and not is_settled(candidate):
                    return candidates, slots, True
                may_follow = len(slots) < run and (span.unit in units or len(units) < most)
                if may_follow and not is_settled(candidate):
                    units.add(span.unit)
                if not is_ordered or may_follow or is_settled(candidate):
                    queues.append(queue)
        return candidates, slots, False

    def _plan(
        self,
        ahead: list[Slot],
        current: Cursor,
        selection: Selection,
        messages: dict[int, Message],
        dead_candidates: Sequence[Candidate],
        available: int = 0,
    ) -> ClaimPlan:
        records = tuple(
            self._record(candidate, messages[candidate.offset], offset_state(current, candidate.offset)[1])
            for candidate in dead_candidates
            if ranges.contains(selection.settled, candidate.offset)
        )
        selection = replace(selection, skipped=ranges.total(selection.settled) - len(records))
        if selection.next > current.next:
            segment_at = self._reader.segment_at(self._key.shard, ahead, selection.next)
            selection = replace(selection, segment_at=segment_at)
        return ClaimPlan(selection, current, messages, records, available)

    def _ahead(self, current: Cursor, count: int, trust: Freshness) -> list[Slot]:
        slots = self._reader.slots_from(self._key.shard, current.next, current.segment_at, count, trust)
        return self._resolve_all(slots, trust)

    def _to_bury(
        self, cursor: Cursor, trust: Freshness, has_time: Callable[[], bool]
    ) -> tuple[tuple[Span, ...], list[Slot]]:
        """The next unclaimed slots of which some may be buried, and the entries of a lane before them, which are kept:
        they take no space in the cursor, for they are alike."""
        ahead = self._ahead(cursor, _BURIED_AT_ONCE, trust)
        kept_entries: tuple[Span, ...] = ()
        while self._keeps_entries and ahead and has_time():
            candidates = [self._candidate(slot, None) for slot in ahead]
            if any(map(is_settled, candidates)):
                break
            kept_entries = coalesce([*kept_entries, *(Span(c.offset, 1, c.attempt) for c in candidates)])
            ahead = self._ahead(cursor_behind(ahead, cursor), _BURIED_AT_ONCE, trust)
        return kept_entries, ahead

    def _trust(self, cursor: Cursor) -> Freshness:
        """Which cached segments are acceptable; entries of a lane are never edited, so any are."""
        return self._reader.trust(self._claimant.group, self._claimant.consumer_uid, cursor.amended)

    def _slots_at(self, offsets: Iterable[int], trust: Freshness) -> Iterator[Slot]:
        return (self._reader.fetch(self._key.shard, [offset], trust)[offset] for offset in offsets)

    def _resolve_all(self, slots: Iterable[Slot], trust: Freshness) -> list[Slot]:
        """The messages that a lane's entries refer to, cached as long as the entries are; a topic's messages as they
        are. Only the first ones, if an answer cannot hold more bodies: a function's memory could not either."""
        resolved_slots: list[Slot] = []
        size = 0
        for slot in slots:
            if self._shard is None and slot.message:
                message = retry_lane.resolve(self._reader, self._claimant.topic, slot.message, trust)
                slot = replace(slot, message=message)
            resolved_slots.append(slot)
            size += slot.message.draft.size if slot.message else 0
            if size > MAX_ANSWER_BYTES:
                break
        return resolved_slots

    def _candidate(self, slot: Slot, span: Span | None) -> Candidate:
        """A candidate with its verdict: deliver the message, or settle it without a delivery."""
        if slot.message is None:
            return Candidate(slot.offset, slot.count, verdict=ClaimVerdict.SETTLE)
        attempt = span.attempt if span else 1
        draft = slot.message.draft
        unit = self._claimant.unit(slot.message, self._shard)
        group = self._claimant.group
        is_owed = (
            draft.origin is not None
            or attempt > 1  # what was tried is owed, as in the lane: a filter is for what was never tried
            or draft.dead_reason == DeadReason.UNDECODABLE
            or passes_filter(group.tags, draft.tag)
        )
        is_owed = is_owed and not draft.cancelled and draft.target_group_uid in (None, group.uid)
        is_exhausted = attempts_before(draft) + attempt > self._claimant.last_attempt(draft)
        is_dead = is_exhausted or draft.dead_reason is not None or self._is_over(slot.message)
        verdict = ClaimVerdict.DELIVER if is_owed and not is_dead else ClaimVerdict.SETTLE
        skipped = span is not None and is_skipped(span)
        fields = unit, verdict, is_owed and is_dead, draft.weight, draft.tenant, skipped
        other = slot.message.shard if self._shard is None else None
        elsewhere = self._leased_in(other)[unit] if self._policy.of_key and unit else 0
        return Candidate(slot.offset, 1, attempt, *fields, elsewhere=elsewhere)

    def _is_over(self, message: Message) -> bool:
        ends_ms = message.ends_ms if self._shard is None else self._claimant.topic.keeps_until_ms(message)
        return ends_ms <= self._now_ms or is_expired(message.draft, self._now_ms)

    def granted(self, plan: ClaimPlan, token: str) -> list[ClaimedMessage]:
        """The messages that a plan grants."""
        found = [(span.attempt, n) for span in plan.selection.granted for n in span.offsets()]
        return [self._claimed_message(token, attempt, n, plan.messages[n]) for attempt, n in found]

    def _claimed_message(self, token: str, attempt: int, offset: int, message: Message) -> ClaimedMessage:
        receipt = self._claimant.receipt(message, offset, token, self._now_ms)
        number, unit = attempts_before(message.draft) + attempt, self._claimant.unit(message, self._shard)
        return ClaimedMessage(message, number, receipt, unit)

    def _record(self, candidate: Candidate, message: Message, span: Span | None) -> Record:
        """The DEAD record of a dead letter."""
        why = DeadReason.EXPIRED if self._is_over(message) else DeadReason.ATTEMPTS_EXHAUSTED
        reason = message.draft.dead_reason or why
        is_by_lapse = reason == DeadReason.ATTEMPTS_EXHAUSTED and span is not None and span.has_lapsed
        attempts = attempts_before(message.draft) + candidate.attempt - 1
        error = _LEASE_ENDED if is_by_lapse else None
        return self._claimant.dead_record(message, attempts, reason, error, self._now_ms)


def attempts_before(draft: Draft) -> int:
    """How many attempts were made before the one that has number 1 in the cursor."""
    return draft.origin.attempts if draft.origin else 0
