"""What must be true: of each message that is given, and of all when a stage is idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chalicelib.domain.errors import HeadraceError, NotFound, TooMany
from chalicelib.domain.message import Draft, Message
from chalicelib.domain.times import DAY_MS
from chalicelib.services.produce.appender import ProduceResult
from tests.simulation.days.ledger import KNOWN_AFTER_MS, Home, Member
from tests.simulation.days.plan import SLOT_MS
from tests.support.flows import label_of

if TYPE_CHECKING:
    from tests.simulation.days.stage import Days

_LONGEST_REFUSAL_MS = 5_000


def judge(days: Days) -> None:
    """Every message that is owed to a group has its end, and the numbers that are shown agree."""
    deps = days.another().deps
    for home, member in days.members():
        try:
            topic = deps.catalog.topic(home.topic.name)
            group = deps.catalog.group(topic, member.group.name)
        except NotFound as error:
            days.accuse(str(error))
            continue
        consumer = next(
            (c.uid for c in deps.catalog.consumers(topic, group) if c.name == member.consumer), ""
        )
        letters = {
            label_of(_body(days, letter.message.draft))
            for _, letter in deps.adapters.records.dead(topic, group, None, 10_000)
            if letter.key.consumer_uid == consumer
        }
        owed_labels = {label for label in home.accepted if _owes(days, home, member, label)}
        if lost_labels := owed_labels - member.done - member.perhaps - letters:
            days.accuse(f"{member.name} of {topic.name} was never given {sorted(lost_labels)}")
        status = deps.surveyor.exact_group(topic, group)
        counts = status.backlog, status.in_flight, status.retrying
        if any(counts):
            days.accuse(f"{group.name} of {topic.name} counts {counts} at rest")
        log_entries = sum(max(each.tail + 1, each.cursor.next) for each in status.shards)
        if status.account.total != log_entries:
            days.accuse(f"{group.name} of {topic.name} has {status.account}, which is not {log_entries}")


def _owes(days: Days, home: Home, member: Member, label: str) -> bool:
    if label in home.cancelled or label in home.unsure or label in member.skipped:
        return False
    if not all(member.wants(home.tags.get(label))):
        return False
    produce = home.accepted[label]
    if member.is_called and produce.at_ms < member.absence.perhaps_until_ms:
        return False  # when it was away, its breaker and its handshake know
    if produce.number > member.since:
        return True
    came_ms = max(produce.at_ms, produce.due_ms)
    if member.from_ms is None or member.loose or came_ms < member.from_ms:
        return False
    return member.since_ms - came_ms < home.shortest_days * DAY_MS - SLOT_MS


def _body(days: Days, draft: Draft) -> bytes:
    return draft.body if draft.has_body else days.adapters.blobs.get(draft.blob or "") or b""


def _content(draft: Draft) -> tuple[object, ...]:
    ways = (draft.max_attempts, draft.ladder, draft.jitter)
    return (
        draft.body,
        draft.content_type,
        draft.keys,
        draft.tag,
        draft.ordering_key,
        dict(draft.headers),
        ways,
    )


def inspect(days: Days, home: Home, member: Member, message: Message, is_live: bool) -> None:
    """Check that a consumer may get this message."""
    label, about = label_of(message.draft.body), f"{member.name} of {home.topic.name}"
    is_of_before = label in member.before
    is_first = label not in member.given
    if label in member.done and not is_of_before:
        days.accuse(f"{about} was given {label} again")
    member.given.add(label)
    if message.draft.dead_reason:
        days.accuse(f"{about} was given {label}, which is a dead letter: {message.draft.dead_reason}")
    if label in home.refused:
        days.accuse(f"{about} was given {label}, which was refused")
    if label in member.missed:
        days.accuse(f"{about} was given {label}, which came while it was away")
    if not is_live:
        return
    produce = home.accepted.get(label)
    now_ms = days.clock.at_ms
    original = home.drafts.get(label)
    if original and label not in home.bodies and _content(original) != _content(message.draft):
        days.accuse(f"{about} was given {label} otherwise than it was sent")
    body = message.draft.body.decode().strip('"')
    if not any(member.wants(home.tags.get(label))):
        days.accuse(f"{about} was given {label}, which none of {member.filters} lets pass")
    if label in home.cancelled:
        days.accuse(f"{about} was given {label}, which was taken back")
    elif any(deal.label == label and not deal.asked for deal in days.deals.values()):
        days.accuse(f"{about} was given {label}, on which nobody has decided")
    elif label in home.bodies and body not in home.bodies[label] and not is_of_before:
        days.accuse(f"{about} was given {body}, and it was edited")
    if produce is None:
        if any(label in old.accepted for old in days.gone):
            days.accuse(f"{about} was given {label} of a former {home.topic.name}")
        return
    if produce.due_ms - 2 * days.plan.skew_ms > now_ms:
        days.accuse(f"{about} was given {label} {produce.due_ms - now_ms} ms early")
    is_owed_new_only = member.from_ms is None and not member.loose and not is_of_before and is_first
    if is_owed_new_only and produce.number < member.since and not produce.waited:
        days.accuse(f"{about} was given {label} of before its time")


def inspect_outcomes(days: Days, home: Home, outcomes: Sequence[ProduceResult | HeadraceError]) -> None:
    """Check a producer's answers: a topic with a rate limit takes something after a pause, and never more at once than
    a second's worth."""
    now_ms, limit = days.clock.at_ms, home.topic.rate_limit
    pause_ms, home.sent_ms = now_ms - home.sent_ms, now_ms
    refused_count = sum(isinstance(each, TooMany) for each in outcomes)
    is_rested = pause_ms > _LONGEST_REFUSAL_MS + 2 * days.plan.skew_ms
    if is_rested and refused_count and refused_count == len(outcomes):
        days.accuse(f"{home.topic.name} took nothing after {pause_ms} ms, at {limit} a second")
    if now_ms < home.rate_since_ms + KNOWN_AFTER_MS:
        return
    rejects = limit is not None and home.topic.on_rate_limit == "reject"
    if refused_count and not rejects:
        days.accuse(f"{home.topic.name} refused {refused_count}, and has no limit that says so")
    stored_count = sum(isinstance(each, ProduceResult) for each in outcomes)
    if rejects and stored_count > (limit or 0):
        days.accuse(f"{home.topic.name} took {stored_count} at once, at {limit} a second")
