"""One group: its way through the shards, its leases, its consumers, its settings; and a seek, previewed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ...api import parse
from ...api.fields import without_path
from ...domain import breaker, ladder
from ...domain.assignment import EVERYONE, Assignment, is_online
from ...domain.errors import HeadraceError
from ...domain.message import Message
from ...domain.meter import WINDOWS
from ...domain.topic import EARLIEST, LATEST, Consumer, ConsumerKind, Group, Scope, Topic
from ...modes import POLICIES
from ...services.inspect.survey import GroupSurvey, TopicSurvey
from ...services.inspect.waiting import Waiters, next_in_line, who_waits
from .. import forms
from ..visit import MOST_READ_UNITS, Page, Shown, Visit
from .cases import last_failed
from .rates import rows_for, shard_charts, window_of
from .topics import first_shard, next_shard, strips

_MOST_LEASES = 50
_MOST_BLOCKED = 10
_LEFT = 5  # read units of the charts
_COUNTED_AT_ONCE = 25


def group_page(visit: Visit) -> Shown:
    """The strip of this group alone, its leases, and its consumers."""
    deps = visit.deps
    topic, group = visit.group()
    first = first_shard(visit, topic)
    survey = deps.surveyor.survey(topic, only=group, whole=True, first_shard=first)
    consumers = deps.catalog.consumers(topic, group)
    assignment = deps.adapters.control.assignment(topic, group)
    names = {consumer.uid: consumer.name for consumer in consumers}
    history = deps.board.last_hour(topic, group, lambda units: visit.has_units(units + _LEFT))
    of, price = _with_letters(visit, topic, survey.groups[0])
    blocked = blocked_units(survey.groups[0], names)
    model: dict[str, Any] = {
        "survey": survey,
        "of": of,
        "price": price,
        "last_hour": history,
        "failed": last_failed(visit, history),
        "strips": strips(survey, names),
        "leases": leases(survey.groups[0], names),
        "blocked": [(each, _message_at(visit, topic, each["shard"], each["offset"])) for each in blocked],
        "waiters": _waiters(visit, topic, of) if visit.query.get("waiting") else {},
        "members": members(visit, topic, consumers, assignment),
        "assignment": assignment,
        "retry": group.retry or topic.retry,
        "waits": ladder.waits(group.retry or topic.retry)[:12],
        "next_shard": next_shard(topic, first, survey),
    }
    # Charts are no moving part: they are read with the page, and not again every few seconds.
    model |= {} if visit.wants_fragment else _lag(visit, topic, group, survey)
    return Page("group.html", model)


def _with_letters(visit: Visit, topic: Topic, of: GroupSurvey) -> tuple[GroupSurvey, int]:
    """The group with all its dead letters, as far as the page's read units reach; and what counting 1,000 of them may
    cost. Each costs as much as its message is large: at most its part of what was read so far, with the first ones."""
    before = visit.units.reads
    price, room = before / max(1, of.dead), MOST_READ_UNITS - _LEFT - before
    at_once = min(_COUNTED_AT_ONCE, int(room / price)) if of.more_dead else 0
    if at_once > 0:
        count, uids = visit.deps.adapters.records.count_dead, (topic.uid, of.group.uid)
        counted = count(*uids, at_once, lambda: visit.has_units(_LEFT + visit.units.reads - before))
        price = (visit.units.reads - before) / max(1, counted.number)
        if counted.number >= of.dead:
            of = replace(of, dead=counted.number, more_dead=not counted.whole)
    return of, round(price * 1_000)


def _waiters(visit: Visit, topic: Topic, survey: GroupSurvey) -> dict[str, list[Waiters]]:
    """Who waits, by the fields that say whose a message is."""
    found = next_in_line(visit.deps.reader, topic, survey)
    fields = ("ordering_key", "tenant")
    return {field: who_waits(found, attrgetter(field), survey.limited_by) for field in fields}


def _lag(visit: Visit, topic: Topic, group: Group, survey: TopicSurvey) -> dict[str, Any]:
    """The group's backlog over time in each of the shards that are shown, as far as the page may read."""
    name = window_of(visit)
    groups = visit.deps.catalog.groups(topic)
    rows = rows_for(visit, topic, len(groups))
    now = survey.reading if survey.is_whole else None
    buckets = visit.deps.board.rates(topic, WINDOWS[name], now, only=group, most=rows)
    shards = {extent.shard: topic.shard_numbers.index(extent.shard) for extent in survey.shards}
    lag = shard_charts(buckets, WINDOWS[name], visit.now_ms, group.name, shards)
    return {"lag": lag, "window": name, "windows": list(WINDOWS)}


def _message_at(visit: Visit, topic: Topic, shard: int, offset: int) -> Message | None:
    """The message that lies there; None where it is not read."""
    if not visit.has_units(2):
        return None
    reader = visit.deps.reader
    return reader.fetch(topic.shard_key(shard), [offset], reader.recent())[offset].message


def group_settings(visit: Visit) -> Shown:
    """The group's settings, its seek with a preview, its end."""
    topic, group = visit.group(consistent=True)
    to, consumer = visit.query.get("to", "").strip(), visit.query.get("consumer", "")
    survey = visit.deps.surveyor.survey(topic, only=group, whole=bool(to), ages=False)
    uids = {each.name: each.uid for each in visit.deps.catalog.consumers(topic, group)}
    preview, problem = None, None
    if to:
        try:
            preview = _preview(visit, topic, survey, to, uids.get(consumer))
        except HeadraceError as error:
            problem = error
    model = {
        "rows": forms.GROUP_ROWS,
        "fields": forms.group_fields(group),
        "usual": {"filter": "*", **forms.topic_fields(topic)},
        "to": to,
        "consumer": consumer,
        "names": sorted(uids) if POLICIES[group.mode].per_consumer else (),
        "preview": preview,
        "problem": problem,
        "survey": survey,
        "of": survey.groups[0],
        "consumers": len(uids),
    }
    return Page("group_settings.html", model)


def _preview(visit: Visit, topic: Topic, survey: TopicSurvey, to: str, uid: str | None) -> Any:
    """The effect of a seek, of all or of one consumer of a broadcast (its uid): how many messages come again, and how
    many are skipped."""
    at_ms = None
    if to not in (EARLIEST, LATEST) and not forms.is_whole_number(to):
        at_ms = parse.time_ms(to, "to", f'"{EARLIEST}", "{LATEST}", an offset')
    targets: dict[int, int] = {}
    for extent in survey.shards:
        if at_ms is not None:
            if not visit.has_units(3):
                break
            offset_at = visit.deps.surveyor.offset_at
            targets[extent.shard] = offset_at(topic, extent, at_ms, visit.may_go_on(1))
        elif to == LATEST:
            targets[extent.shard] = extent.tail + 1
        else:
            offset = 0 if to == EARLIEST else int(to)
            targets[extent.shard] = min(max(offset, extent.first), extent.tail + 1)
    of = survey.groups[0]
    shards = tuple(each for each in of.shards if uid in (None, each.key.consumer_uid))
    return seek_preview(replace(of, shards=shards), targets, whole=len(targets) == len(topic.shard_numbers))


def leases(survey: GroupSurvey, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The leases that run, the one that ends first first. `shard` is None on the retry lane."""
    running = [
        (progress.shard, lease)
        for progress in (*survey.shards, *survey.lanes)
        for lease in progress.cursor.leases.values()
        if lease.spans
    ]
    return [
        {
            "shard": shard,
            "offsets": [(low, high - 1) for span in lease.spans for low, high in span.ranges()][:8],
            "number": sum(span.count for span in lease.spans),
            "attempt": max(span.attempt for span in lease.spans),
            "consumer": names.get(lease.owner),
            "deadline_ms": lease.deadline_ms,
        }
        for shard, lease in sorted(running, key=lambda each: each[1].deadline_ms)[:_MOST_LEASES]
    ]


def members(
    visit: Visit, topic: Topic, consumers: Sequence[Consumer], assignment: Assignment | None
) -> list[dict[str, Any]]:
    """The consumers, those that do not work first: what each has, and whether it works."""
    lines = [_member(visit, topic, consumer, assignment) for consumer in consumers]
    return sorted(lines, key=lambda line: (line["is_online"], line["consumer"].name))


def _member(visit: Visit, topic: Topic, consumer: Consumer, assignment: Assignment | None) -> dict[str, Any]:
    now_ms = visit.now_ms
    everywhere = assignment is not None and assignment.strategy == EVERYONE
    shards = assignment.shards(consumer.uid, topic.shard_numbers) if assignment else ()
    is_secret = consumer.kind == ConsumerKind.URL and Scope.ADMIN not in visit.caller.scopes
    return {
        "consumer": consumer,
        "target": without_path(consumer.target) if is_secret else consumer.target,
        "is_online": is_online(consumer, now_ms),
        "rank": assignment.rank(consumer.uid) if assignment else None,
        "total": len(assignment.members) if assignment else 0,
        "shards": None if everywhere else shards,
        "breaker": breaker.state(consumer.open_until_ms, now_ms),
        "disables_ms": breaker.disables_ms(consumer.failing_ms, consumer.times_opened, now_ms),
    }


def seek_preview(survey: GroupSurvey, targets: Mapping[int, int], *, whole: bool) -> dict[str, Any]:
    """What becomes of a group that is sent to these offsets, by shard: messages that come again, messages that are
    skipped, leases that end."""
    again = passed_over = running_count = 0
    for progress in survey.shards:
        if progress.shard is None or progress.shard not in targets:
            continue
        cursor, target = progress.cursor, targets[progress.shard]
        settled_ranges = [(cursor.begin, cursor.floor), *cursor.settled]
        again += sum(max(0, high - max(low, target)) for low, high in settled_ranges)
        settled_count = sum(max(0, min(high, target) - low) for low, high in cursor.settled)
        passed_over += max(0, max(0, target - cursor.floor) - settled_count)
        running_count += len(cursor.leases)
    return {"again": again, "passed_over": passed_over, "leases": running_count, "whole": whole}


def blocked_units(survey: GroupSurvey, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The messages that wait for a retry, or are leased and hold back later ones of their unit; those that hold back
    most come first: who has it (None: it waits for its next attempt, or its holder has no name), until when, and how
    many were skipped for it (`behind`). None except in SERIAL. `names`: consumers' names by uid."""
    if not POLICIES[survey.group.mode].holds_back:
        return []
    findings: list[dict[str, Any]] = []
    for progress in survey.shards:
        cursor, passed_counts = progress.cursor, Counter[str]()
        for span in cursor.waiting:
            passed_counts[span.unit] += span.count if span.attempt == 1 else 0
        leased = (
            (span, lease)
            for lease in cursor.leases.values()
            for span in lease.spans
            if not lease.run_ms or span.start in lease.begun()
        )
        holders = [(span, True, names.get(lease.owner), lease.deadline_ms) for span, lease in leased]
        holders += [(span, False, None, span.next_ms or 0) for span in cursor.waiting if span.attempt > 1]
        findings += [
            {
                "shard": progress.shard or 0,
                "offset": span.start,
                "attempt": span.attempt,
                "is_leased": is_leased,
                "consumer": consumer,
                "until_ms": until_ms,
                "behind": passed_counts[span.unit],
            }
            for span, is_leased, consumer, until_ms in holders
        ]
    holding = (each for each in findings if each["behind"] or not each["is_leased"])
    return sorted(holding, key=lambda each: -each["behind"])[:_MOST_BLOCKED]
