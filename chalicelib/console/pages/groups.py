"""One group: its way through the shards, its leases, its consumers, its settings; and a seek, previewed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...api import parse
from ...api.resources.consumers import without_path
from ...domain import breaker, ladder
from ...domain.assignment import EVERYONE, Assignment, is_online
from ...domain.errors import HeadraceError
from ...domain.message import Message
from ...domain.meter import WINDOWS
from ...domain.topic import EARLIEST, LATEST, Consumer, ConsumerKind, Group, Token, Topic
from ...modes import POLICIES
from ...services.inspect.survey import GroupSurvey, TopicSurvey
from .. import forms
from ..visit import MOST_READ_UNITS, Page, Shown, Visit
from .cases import last_failed
from .rates import rows_for, shard_charts, window_of
from .topics import first_shard, strips

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
    history = deps.board.last_hour(topic, group, lambda units: visit.has_read_units(units + _LEFT))
    of, price = _with_letters(visit, topic, survey.groups[0])
    model: dict[str, Any] = {
        "topic": topic,
        "group": group,
        "survey": survey,
        "of": of,
        "price": price,
        "last_hour": history,
        "failed": last_failed(visit, history),
        "strips": strips(survey, names),
        "leases": leases(survey.groups[0], names),
        "blocked": [
            (each, _message_at(visit, topic, each.shard, each.offset))
            for each in blocked_units(survey.groups[0], names)
        ],
        "members": members(consumers, assignment, visit.now_ms),
        "assignment": assignment,
        "retry": group.retry or topic.retry,
        "waits": ladder.waits(group.retry or topic.retry)[:12],
        "next_shard": first + len(survey.shards) if first + len(survey.shards) < topic.shards else None,
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
        counted = visit.deps.adapters.records.count_dead(
            topic.uid,
            of.group.uid,
            at_once,
            lambda: visit.has_read_units(_LEFT + visit.units.reads - before),
        )
        price = (visit.units.reads - before) / max(1, counted.number)
        if counted.number >= of.dead:
            of = replace(of, dead=counted.number, more_dead=not counted.whole)
    return of, round(price * 1_000)


def _lag(visit: Visit, topic: Topic, group: Group, survey: TopicSurvey) -> dict[str, Any]:
    """The group's backlog over time in each of the shards that are shown, as far as the page may read."""
    name = window_of(visit)
    groups = visit.deps.catalog.groups(topic)
    rows = rows_for(visit, topic, len(groups))
    now = survey.reading if survey.is_whole else None
    buckets = visit.deps.rate_charts.of(topic, WINDOWS[name], now, only=group, most_rows=rows)
    shards = [extent.shard for extent in survey.shards]
    lag = shard_charts(buckets, WINDOWS[name], visit.now_ms, group.name, shards)
    return {"lag": lag, "window": name, "windows": list(WINDOWS)}


def _message_at(visit: Visit, topic: Topic, shard: int, offset: int) -> Message | None:
    """The message that lies there; None where it is not read."""
    if not visit.has_read_units(2):
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
        "topic": topic,
        "group": group,
        "rows": forms.GROUP_ROWS,
        "fields": forms.group_fields(group),
        "usual": {"filter": "*", "on_dead": "", "on_success": "", **forms.topic_fields(topic)},
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
            if not visit.has_read_units(3):
                break
            targets[extent.shard] = visit.deps.surveyor.offset_at(
                topic, extent, at_ms, lambda: visit.has_read_units(1)
            )
        elif to == LATEST:
            targets[extent.shard] = extent.tail + 1
        else:
            offset = 0 if to == EARLIEST else int(to)
            targets[extent.shard] = min(max(offset, extent.first), extent.tail + 1)
    of = survey.groups[0]
    shards = tuple(each for each in of.shards if uid in (None, each.key.consumer_uid))
    return seek_preview(replace(of, shards=shards), targets, whole=len(targets) == topic.shards)


@dataclass(kw_only=True, frozen=True, slots=True)
class LeaseLine:
    """A lease that runs. `shard` is None on the retry lane."""

    shard: int | None
    offsets: Sequence[tuple[int, int]]
    number: int
    attempt: int
    consumer: str | None
    deadline_ms: int


@dataclass(kw_only=True, frozen=True, slots=True)
class Member:
    """A consumer of the group: what it has, and whether it works."""

    consumer: Consumer
    is_online: bool
    rank: int | None
    total: int
    shards: Sequence[int] | None
    breaker: str
    disables_ms: int | None

    def target_for(self, token: Token) -> str:
        """Where it is called; for who is no admin without what may be a secret."""
        is_secret = self.consumer.kind == ConsumerKind.URL and "admin" not in token.scopes
        return without_path(self.consumer.target) if is_secret else self.consumer.target


@dataclass(frozen=True, slots=True)
class SeekPreview:
    """The effect of a seek: messages that come again, messages that are skipped, leases that end."""

    again: int
    passed_over: int
    leases: int
    whole: bool


def leases(survey: GroupSurvey, names: Mapping[str, str]) -> list[LeaseLine]:
    """The leases that run, the one that ends first first."""
    lines = [
        LeaseLine(
            shard=progress.shard,
            offsets=[(low, high - 1) for span in lease.spans for low, high in span.ranges()][:8],
            number=sum(span.count for span in lease.spans),
            attempt=max(span.attempt for span in lease.spans),
            consumer=names.get(lease.owner),
            deadline_ms=lease.deadline_ms,
        )
        for progress in (*survey.shards, *survey.lanes)
        for lease in progress.cursor.leases.values()
        if lease.spans
    ]
    return sorted(lines, key=lambda line: line.deadline_ms)[:_MOST_LEASES]


def members(consumers: Sequence[Consumer], assignment: Assignment | None, now_ms: int) -> list[Member]:
    """The consumers, those that do not work first."""
    lines = [_member(consumer, assignment, now_ms) for consumer in consumers]
    return sorted(lines, key=lambda line: (line.is_online, line.consumer.name))


def _member(consumer: Consumer, assignment: Assignment | None, now_ms: int) -> Member:
    everywhere = assignment is not None and assignment.strategy == EVERYONE
    return Member(
        consumer=consumer,
        is_online=is_online(consumer, now_ms),
        rank=assignment.rank(consumer.uid) if assignment else None,
        total=len(assignment.members) if assignment else 0,
        shards=None if everywhere else assignment.shards(consumer.uid) if assignment else (),
        breaker=breaker.state(consumer.open_until_ms, now_ms),
        disables_ms=breaker.disables_ms(consumer.failing_ms, consumer.times_opened, now_ms),
    )


def seek_preview(survey: GroupSurvey, targets: Mapping[int, int], *, whole: bool) -> SeekPreview:
    """What becomes of a group that is sent to these offsets, by shard."""
    again = passed_over = running_count = 0
    for progress in survey.shards:
        if progress.shard is None or progress.shard not in targets:
            continue
        cursor, target = progress.cursor, targets[progress.shard]
        settled_ranges = [(cursor.begin, cursor.floor), *cursor.settled]
        again += sum(max(0, high - max(low, target)) for low, high in settled_ranges)
        unsettled_count = max(0, target - cursor.floor) - sum(
            max(0, min(high, target) - low) for low, high in cursor.settled
        )
        passed_over += max(0, unsettled_count)
        running_count += len(cursor.leases)
    return SeekPreview(again, passed_over, running_count, whole)


@dataclass(kw_only=True, frozen=True, slots=True)
class Blocked:
    """A unit that waits for one of its messages: which, who has it (None: it waits for its next attempt, or its holder
    has no name), until when, and how many were skipped for it."""

    shard: int
    offset: int
    attempt: int
    is_leased: bool
    consumer: str | None
    until_ms: int
    behind: int


def blocked_units(survey: GroupSurvey, names: Mapping[str, str]) -> list[Blocked]:
    """The messages that wait for a retry, or are leased and hold back later ones of their unit; those that hold back
    most come first. None except in SERIAL. `names`: consumers' names by uid."""
    if not POLICIES[survey.group.mode].holds_back:
        return []
    findings: list[Blocked] = []
    for progress in survey.shards:
        shard = progress.shard or 0
        passed_counts: Counter[str] = Counter()
        for span in progress.cursor.waiting:
            passed_counts[span.unit] += span.count if span.attempt == 1 else 0
        holders = [
            (span, True, names.get(lease.owner), lease.deadline_ms)
            for lease in progress.cursor.leases.values()
            for span in lease.spans
            if not lease.run_ms or span.start in lease.begun()
        ]
        holders += [
            (span, False, None, span.next_ms or 0) for span in progress.cursor.waiting if span.attempt > 1
        ]
        findings += [
            Blocked(
                shard=shard,
                offset=span.start,
                attempt=span.attempt,
                is_leased=is_leased,
                consumer=consumer,
                until_ms=until_ms,
                behind=passed_counts[span.unit],
            )
            for span, is_leased, consumer, until_ms in holders
        ]
    holding = (each for each in findings if each.behind or not each.is_leased)
    return sorted(holding, key=lambda each: -each.behind)[:_MOST_BLOCKED]
