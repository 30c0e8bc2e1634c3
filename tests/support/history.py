"""The judge of histories: compares what clients saw with what the store holds in the end.

It accuses only where no order of events explains what was seen: an UNKNOWN may have happened or not, at any moment
from its beginning on. So duplicates and gaps are allowed exactly where a fault or a lost answer explains them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from chalicelib.domain.cursor import RUN
from tests.support.events import (
    NEVER,
    PUSHED,
    Case,
    Delivery,
    Event,
    Final,
    Kind,
    Op,
    Told,
    Violation,
    epoch_of,
)


def check(events: Iterable[Event], final: Final, skew_ms: int = 0) -> list[Violation]:
    """Everything in this history that Headrace promises not to do. `skew_ms` is how far the clocks of those who were
    asked may lie apart."""
    case = Case(events, final, skew_ms)
    per_message = (
        rule(case, d)
        for d in case.deliveries.values()
        for rule in (_check_attempts, _check_leases, _check_after, _check_early)
    )
    rules = (
        _check_stored,
        _check_ended,
        _check_claims,
        _check_settled,
        _check_refusals,
        _check_repeats,
        _check_order,
        _check_letters,
        _check_rest,
    )
    return list(
        dict.fromkeys(v for violations in (*(rule(case) for rule in rules), *per_message) for v in violations)
    )


def _check_stored(case: Case) -> Iterator[Violation]:
    """I1, I2, I3, I20: what was accepted is there once, what was refused is not."""
    for label, events in case.produced.items():
        places = case.final.places.get(label, ())
        accepted_ids = {e.message_id for e in events if e.told is Told.OK}
        if lost_ids := accepted_ids - set(places):
            yield Violation(Kind.LOST, f"{label}: accepted as {lost_ids}, not in the log")
        unknown = sum(e.told is Told.UNKNOWN for e in events)
        most = min(len(accepted_ids) + unknown, 1 if any(e.dedup_id for e in events) else NEVER)
        if len(places) > most:
            kind = Kind.DUPLICATED if most else Kind.UNEXPECTED
            yield Violation(kind, f"{label} stands in {len(places)} places, {most} can be explained")
    for label in set(case.final.places) - set(case.produced):
        yield Violation(Kind.UNEXPECTED, f"{label} is in the log and was never produced")


def _check_ended(case: Case) -> Iterator[Violation]:
    """I1, I15: each reader has settled every message that it is owed, and for a reason."""
    for (reader, message_id), status in case.final.statuses.items():
        if case.is_owed(reader, message_id):
            if status not in ("SUCCESS", "DEAD"):
                yield Violation(Kind.LOST, f"{message_id} is {status} for {reader}")
            elif not _is_explained(case, reader, message_id, status):
                yield Violation(Kind.LOST, f"{message_id} is {status} for {reader}: nobody settled it so")


def _is_explained(case: Case, reader: str, message_id: str, status: str) -> bool:
    deliveries = [d for key, d in case.deliveries.items() if (key[0], key[2]) == (reader, message_id)]
    since = max((r.began for d in deliveries for r in d.redrives if r.told is Told.OK), default=-1)
    if any(s.fate == status and s.maybe and s.began > since for d in deliveries for s in d.settles):
        return True
    if status == "DEAD" and any(e.expires for e in case.produced[case.label_of[message_id]]):
        return True
    attempts = max((c.attempt for d in deliveries for c in d.claims), default=0)
    last = case.join(reader).max_attempts + max(
        (d.earlier_attempts(since + 1) for d in deliveries), default=0
    )
    return status == "DEAD" and attempts + case.unseen_claims(reader) >= last


def _check_claims(case: Case) -> Iterator[Violation]:
    """I2, I4, I8: only what was produced is delivered, to those who are there, under rising epochs."""
    epochs: dict[tuple[str, bool, int], list[Event]] = defaultdict(list)
    for claim in case.of(Op.CLAIM):
        if not claim.message_id:
            continue
        if claim.message_id not in case.final.places.get(claim.label, ()):
            yield Violation(Kind.UNEXPECTED, f"{claim.message_id} was delivered and is not in the log")
        if not any(case.may_get(claim.reader, e) for e in case.produced[claim.label]):
            yield Violation(Kind.UNEXPECTED, f"{claim.label} was delivered to {claim.reader}")
        if any(leave.told is Told.OK and leave.ended < claim.began for leave in case.leaves[claim.reader]):
            yield Violation(Kind.UNEXPECTED, f"{claim.reader} got {claim.label} after it had left")
        if not claim.token.endswith(PUSHED):
            epochs[claim.reader, claim.lane, case.place_of(claim.message_id)[0]].append(claim)
    for (reader, *_), claims in epochs.items():
        for one, other in pairwise(claims):
            if one.ended < other.began and epoch_of(one) >= epoch_of(other):
                yield Violation(Kind.OVERLAPPING, f"{other.token} came after {one.token} for {reader}")


def _check_settled(case: Case) -> Iterator[Violation]:
    """I5, I20: one terminal answer, and it is what the store says in the end."""
    last = {reader: len(case.seeks(reader)) for reader in case.starts}
    for (reader, era, message_id), delivery in case.deliveries.items():
        ends = [s for s in delivery.settles if s.told is Told.OK and _terminal(case, delivery, s)]
        if any(not delivery.may_be_redriven(one, other) for one, other in pairwise(ends)):
            yield Violation(Kind.SETTLED_TWICE, delivery.about)
        status = case.final.statuses.get((reader, message_id))
        over = (
            bool(ends)
            and era == last[reader]
            and not any(r.ended > ends[-1].began for r in delivery.redrives)
        )
        if over and status and status != _terminal(case, delivery, ends[-1]):
            yield Violation(Kind.DISHONEST, f"{delivery.about} was settled {ends[-1].fate} and is {status}")


def _terminal(case: Case, delivery: Delivery, settle: Event) -> str:
    """SUCCESS or DEAD, if the settlement ends the delivery."""
    if settle.fate == "RELEASED":
        return ""
    if settle.fate == "RETRY":
        last = case.join(settle.reader).max_attempts + delivery.earlier_attempts(settle.began)
        return "DEAD" if settle.attempt >= last else ""
    return settle.fate


def _check_refusals(case: Case) -> Iterator[Violation]:
    """I20: a valid, unused lease is never refused as stale."""
    for (reader, _, _), delivery in case.deliveries.items():
        changes = [*case.seeks(reader), *case.leaves[reader]]
        for no in (
            e for e in (*delivery.settles, *delivery.extends) if e.told in (Told.REFUSED, Told.ALREADY)
        ):
            for claim in (c for c in delivery.claims if c.token == no.token and c.ended < no.began):
                void = any(claim.began < e.ended and e.began < no.ended for e in changes)
                is_used = delivery.may_be_settled(claim, no.ended)
                if not void and not is_used and no.ended_ms + case.skew_ms < delivery.deadline_ms(claim):
                    yield Violation(Kind.DISHONEST, f"{delivery.about}: {no.token} was valid and refused")


def _check_repeats(case: Case) -> Iterator[Violation]:
    """I20: what is called settled already was settled so, under that very lease."""
    answers = list(case.of(Op.SETTLE))
    for again in (e for e in answers if e.told is Told.ALREADY):
        same = (
            s
            for s in answers
            if (s.token, s.message_id, s.fate) == (again.token, again.message_id, again.fate)
        )
        if not any(s.maybe and s.began < again.ended for s in same):
            yield Violation(Kind.DISHONEST, f"{again.message_id}: {again.token} has not settled it before")


def _check_attempts(case: Case, delivery: Delivery) -> Iterator[Violation]:
    """I14: 1..n without repetition, without a gap that no unheard claim explains."""
    attempted = [c for c in delivery.claims if not any(s.fate == "RELEASED" for s in delivery.answers(c))]
    serial = case.join(delivery.reader).serial
    numbers = [  # what waited in a run, or was sent before its part was settled, keeps its number
        claim.attempt
        for claim, later in pairwise([*attempted, None])
        if claim and not (serial and later and _is_in_run(claim) and claim.attempt == later.attempt)
    ]
    is_falling = any(a.ended < b.began and a.attempt > b.attempt for a, b in pairwise(delivery.claims))
    if len(set(numbers)) != len(numbers) or is_falling:
        yield Violation(Kind.ATTEMPT, f"{delivery.about}: attempts {numbers}")
    if not numbers:
        return
    reader = delivery.claims[0].reader
    most = case.join(reader).max_attempts + delivery.earlier_attempts()
    if max(numbers) > most:
        yield Violation(Kind.ATTEMPT, f"{delivery.about}: attempts {numbers} of {most}")
    gaps = set(range(1, max(numbers))) - set(numbers)
    unclear = any(s.told is Told.UNKNOWN for s in case.seeks(reader))
    if len(gaps) > case.unseen_claims(reader) and not unclear:
        yield Violation(Kind.ATTEMPT, f"{delivery.about}: attempts {numbers}")


def _is_in_run(claim: Event) -> bool:
    return claim.token.endswith((RUN, PUSHED))


def _check_leases(case: Case, delivery: Delivery) -> Iterator[Violation]:
    """I4: while one lease is valid, no other consumer gets the message. I16: nor settles with an older one."""
    for old in delivery.claims:
        for new in (c for c in delivery.claims if c.began > old.ended and c.token != old.token):
            void = any(old.began < s.ended and s.began < new.ended for s in case.seeks(new.reader))
            if not void and not delivery.may_be_free(old, new):
                yield Violation(Kind.OVERLAPPING, f"{delivery.about}: {old.token} and {new.token}")
            for event in (*delivery.settles, *delivery.extends):
                if event.told is Told.OK and event.token == old.token and event.began > new.ended:
                    yield Violation(Kind.FENCE, f"{delivery.about}: {old.token} after {new.token}")


def _check_after(case: Case, delivery: Delivery) -> Iterator[Violation]:
    """I6: no attempt begins after a terminal answer was given."""
    for end in (s for s in delivery.settles if s.told is Told.OK and _terminal(case, delivery, s)):
        if any(c.began > end.ended and not delivery.may_be_redriven(end, c) for c in delivery.claims):
            yield Violation(Kind.AFTER_ACK, delivery.about)


def _check_early(case: Case, delivery: Delivery) -> Iterator[Violation]:
    """I9: no attempt begins before its time. If it is unknown whether a settlement was recorded, not before the lease
    is over either, if that comes first."""
    for old in delivery.claims:
        times = [_due_ms(case, delivery, old, s) for s in delivery.answers(old)]
        for new in (c for c in delivery.claims if c.began > old.ended and c.token != old.token):
            is_asked_for = any(old.began < h.ended and h.began < new.ended for h in delivery.retries_now)
            void = any(old.began < s.ended and s.began < new.ended for s in case.seeks(new.reader))
            is_excused = is_asked_for or void or delivery.may_be_redriven(old, new)
            if times and not is_excused and new.ended_ms + case.skew_ms < min(times):
                yield Violation(Kind.EARLY, f"{delivery.about}: attempt {new.attempt}")


def _due_ms(case: Case, delivery: Delivery, claim: Event, settle: Event) -> int:
    """The earliest time of another attempt after this settlement, as far as known."""
    over_ms = delivery.deadline_ms(claim)
    if _terminal(case, delivery, settle):
        return over_ms if settle.told is Told.UNKNOWN else 0
    due_ms = settle.began_ms + settle.delay_ms
    return due_ms if settle.told is Told.OK else min(due_ms, over_ms)


def _check_letters(case: Case) -> Iterator[Violation]:
    """I15: a dead delivery has a dead letter, unless it was deleted; no other has one."""
    final = case.final
    dead_messages = {place for place, status in final.statuses.items() if status == "DEAD"}
    discarded_letters = {(d.reader, d.message_id) for d in case.deliveries.values() if d.discards}
    for reader, message_id in (dead_messages - final.letters - discarded_letters) | (
        final.letters - dead_messages
    ):
        status = final.statuses.get((reader, message_id))
        yield Violation(Kind.LETTER, f"{message_id} is {status} for {reader}, letters: {len(final.letters)}")


def _check_rest(case: Case) -> Iterator[Violation]:
    """I10, I15: in the end nothing waits any more."""
    for what in case.final.left:
        yield Violation(Kind.LEFT, what)


def _check_order(case: Case) -> Iterator[Violation]:
    """I7: in a serial group a message starts when those before it in its unit have ended."""
    units = _units(case)
    for claim in case.of(Op.CLAIM):
        if not claim.message_id or claim.lane or not case.join(claim.reader).serial:
            continue  # what is in the lane has lost its place
        shard, offset = case.place_of(claim.message_id)
        for produce in case.produced[claim.label][:1]:
            for earlier, event in units.get((shard, produce.unit), {}).items():
                before = case.place_of(earlier)[1] < offset and case.is_owed(claim.reader, earlier)
                if before and not _may_be_over(case, earlier, claim):
                    yield Violation(
                        Kind.OUT_OF_ORDER, f"{claim.label} before {event.label} for {claim.reader}"
                    )


def _units(case: Case) -> dict[tuple[int, str], dict[str, Event]]:
    """The accepted messages of each unit of order, by id."""
    units: defaultdict[tuple[int, str], dict[str, Event]] = defaultdict(dict)
    for label, ids in case.final.places.items():
        for event in (e for e in case.produced[label] if e.told is Told.OK):
            for message_id in ids:
                units[case.place_of(message_id)[0], event.unit][message_id] = event
    return units


def _may_be_over(case: Case, earlier: str, claim: Event) -> bool:
    """May the earlier message have ended before this claim was granted, or is it in the same run?"""
    delivery = case.deliveries.get((claim.reader, case.era(claim.reader, claim), earlier))
    if delivery and claim.token.endswith(RUN) and claim.token in (c.token for c in delivery.claims):
        return True
    if delivery and any(
        s.maybe and _terminal(case, delivery, s) and s.began < claim.ended for s in delivery.settles
    ):
        return True
    redrives = delivery is not None and delivery.redrives  # perhaps it was buried without an attempt before
    if case.final.statuses.get((claim.reader, earlier)) != "DEAD" and not redrives:
        return False
    if delivery is None:
        return True
    return all(
        delivery.may_be_free(c, claim) for c in delivery.claims if c.began < claim.began and not c.lane
    )
