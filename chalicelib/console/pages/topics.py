"""One topic: its shards as a strip, its groups, its settings.

The strip shows each shard's log as a bar from the oldest message kept to the tail, and under it each group's lane. It
is exact, because offsets are dense: every offset is settled, leased, waiting or new, and in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ...api.parse import whole_number
from ...domain.cursor import Cursor
from ...domain.errors import Unavailable
from ...domain.status import Status
from ...domain.topic import Topic
from ...services.inspect.attempts import together
from ...services.inspect.survey import Extent, GroupSurvey, Progress, TopicSurvey
from .. import forms
from ..visit import Page, Shown, Visit
from .overview import rates_of

_RESERVE = 3  # what one group may cost, about
WIDTH = 1_000
_NARROWEST = 2.0
_LEAST_PART = 0.08  # of the kept log: where less is under way, the strip shows only that part
_LEAST_OFFSETS = 20
_FAILURES = {Status.RETRYING: "wait", Status.DEAD: "dead"}
_MOST_LANES = 6  # of one group on one shard: a broadcast has one for each consumer


def topic_page(visit: Visit) -> Shown:
    """The strip, and the groups."""
    topic = visit.topic()
    first = first_shard(visit, topic)
    may_go_on = visit.may_go_on(_RESERVE)
    survey = visit.deps.surveyor.survey(topic, whole=True, first_shard=first, may_go_on=may_go_on)
    if survey.is_whole:
        survey = visit.deps.board.keep(survey)
    survey = survey.seen_by(visit.caller)
    accepted_rate, settled_rate = rates_of(visit, topic)
    histories = {each.group.name: visit.last_hour(topic, each.group) for each in survey.groups}
    model = {
        "survey": survey,
        "strips": strips(survey, _names(visit, topic, survey)),
        "troubles": survey.troubles(visit.now_ms),
        "histories": histories,
        "last_hour": together(histories.values()),
        "accepted_rate": accepted_rate,
        "settled_rate": settled_rate,
        "next_shard": next_shard(topic, first, survey),
        "first_shard": first,
        "spent_usd": visit.deps.budgets.spent_usd(topic),
    }
    return Page("topic.html", model)


def first_shard(visit: Visit, topic: Topic) -> int:
    """The place of the shard that the page begins with."""
    number, numbers = whole_number(visit.query.get("shard", ""), 4) or 0, topic.shard_numbers
    return numbers.index(number) if number in numbers else len(numbers) - 1


def next_shard(topic: Topic, first: int, survey: TopicSurvey) -> int | None:
    """The shard that the next page begins with; None: it is the last page."""
    return next(iter(topic.shard_numbers[first + len(survey.shards) :]), None)


def _names(visit: Visit, topic: Topic, survey: TopicSurvey) -> dict[str, str]:
    """The names of a broadcast's consumers by uid: read already, for they say whose cursors there are."""
    return {
        uid: name
        for group in survey.groups
        if any(each.key.consumer_uid for each in group.shards)
        for uid, name in visit.deps.catalog.consumer_names(topic, group.group).items()
    }


def topic_settings(visit: Visit) -> Shown:
    """The topic's settings, changed in place; and its end, with what would go with it, unless that cannot be read."""
    topic = visit.topic(consistent=True)
    fields = {**forms.topic_fields(topic), "shards": str(topic.shards)}
    survey = None
    with suppress(Unavailable):
        survey = visit.deps.surveyor.survey(topic, ages=False, may_go_on=visit.may_go_on(_RESERVE))
        survey = survey.seen_by(visit.caller)
    return Page("topic_settings.html", {"rows": forms.TOPIC_ROWS, "fields": fields, "survey": survey})


class Bar(NamedTuple):
    """A piece of a lane, in thousandths of its width. `low` and `high` are its offsets, both inclusive."""

    kind: str
    x: float
    width: float
    low: int
    high: int
    attempt: int = 0
    until_ms: int | None = None


class Lane(NamedTuple):
    """One group's (in a broadcast: one consumer's) way through a shard.

    `failed`: of those that have left it, so many are known to have failed.
    """

    group: str
    consumer: str | None
    floor: int
    next: int
    backlog: int
    failed: int
    bars: Sequence[Bar]
    next_x: float

    @property
    def is_read(self) -> bool:
        """Is it known of all that are settled whether they failed?"""
        return all(bar.kind != "unread" for bar in self.bars)


class ShardStrip(NamedTuple):
    """One shard. `older` messages are kept left of what is shown."""

    extent: Extent
    low: int
    older: int
    lanes: Sequence[Lane]
    more_lanes: int = 0

    @property
    def kept(self) -> int:
        return self.extent.tail + 1 - self.extent.first


class _Scale(NamedTuple):
    low: int
    high: int

    def x(self, offset: int) -> float:
        return round(WIDTH * (min(max(offset, self.low), self.high) - self.low) / (self.high - self.low), 1)


def strips(survey: TopicSurvey, names: Mapping[str, str]) -> list[ShardStrip]:
    """The strip of each shard that was looked at; `names`: the consumers' names by uid."""
    return [_strip(extent, survey.groups, names) for extent in survey.shards]


def _strip(extent: Extent, groups: Sequence[GroupSurvey], names: Mapping[str, str]) -> ShardStrip:
    progresses = [(group, each) for group in groups for each in group.shards if each.shard == extent.shard]
    low = _low(extent, [each.cursor.floor for _, each in progresses])
    scale = _Scale(low, max(extent.tail + 1, low + 1))
    lanes: list[Lane] = []
    more = 0
    for group in groups:
        own = [each for of, each in progresses if of is group]
        lanes += [_lane(group, each, scale, names) for each in own[:_MOST_LANES]]
        more += max(0, len(own) - _MOST_LANES)
    return ShardStrip(extent=extent, low=low, older=max(0, low - extent.first), lanes=lanes, more_lanes=more)


def _low(extent: Extent, floors: Iterable[int]) -> int:
    """The first offset to show: the oldest that is kept; or, where little of it is under way, a little before that."""
    end = extent.tail + 1
    lowest = min((floor for floor in floors if floor >= extent.first), default=extent.first)
    kept_count, under_way = end - extent.first, end - lowest
    if kept_count <= _LEAST_OFFSETS or under_way >= kept_count * _LEAST_PART:
        return extent.first
    return max(extent.first, lowest - max(_LEAST_OFFSETS, under_way // 4))


def _lane(group: GroupSurvey, progress: Progress, scale: _Scale, names: Mapping[str, str]) -> Lane:
    cursor = progress.cursor
    uid = progress.key.consumer_uid
    failures = {
        offset: _FAILURES[Status(word)]
        for (shard, offset, owner), word in group.failures.items()
        if (shard, owner) == (progress.shard, uid) and word in _FAILURES
    }
    return Lane(
        group=group.group.name,
        consumer=names.get(uid, uid) if uid else None,
        floor=cursor.floor,
        next=cursor.next,
        backlog=progress.backlog,
        failed=len(failures),
        bars=(*_bars(cursor, scale, _first_unread(group, progress)), *_failed_bars(failures, scale)),
        next_x=scale.x(cursor.next),
    )


def _first_unread(group: GroupSurvey, progress: Progress) -> int:
    """The first offset of which it was not read whether it failed."""
    if group.read_to is None or group.read_to[0] > (progress.shard or 0):
        return progress.tail + 1
    return group.read_to[1] + 1 if group.read_to[0] == progress.shard else 0


def _bars(cursor: Cursor, scale: _Scale, unread: int) -> list[Bar]:
    """The pieces of a lane, from behind to the tail; of those settled from `unread` on it is not known whether they
    failed. Neighbours too small to be seen apart are drawn as one."""
    settled = [(scale.low, cursor.floor), *cursor.settled]
    bars = _merged_bars("done", [(low, min(high, unread)) for low, high in settled], scale)
    bars += _merged_bars("unread", [(max(low, unread), high) for low, high in settled], scale)
    for lease in cursor.leases.values():
        for span in lease.spans:
            until_ms = lease.deadline_ms
            bars += _merged_bars("lease", span.ranges(), scale, attempt=span.attempt, until_ms=until_ms)
    for span in cursor.waiting:
        failed = {"attempt": span.attempt - 1, "until_ms": span.next_ms}
        bars += _merged_bars("wait", span.ranges(), scale, **failed)
    return bars + _merged_bars("new", [(cursor.next, scale.high)], scale)


def _failed_bars(failures: Mapping[int, str], scale: _Scale) -> list[Bar]:
    """Those that left the lane for the retry queue or the dead letters, as far as the survey read them."""
    bars: list[Bar] = []
    for kind in _FAILURES.values():
        bars += _merged_bars(kind, [(at, at + 1) for at in sorted(failures) if failures[at] == kind], scale)
    return bars


def _merged_bars(kind: str, ranges: Iterable[tuple[int, int]], scale: _Scale, **more: Any) -> list[Bar]:
    """`more`: the attempt that they are in, and until when."""
    bars: list[Bar] = []
    for low, high in ranges:
        low, high = max(low, scale.low), min(high, scale.high)
        if low >= high:
            continue
        x, end = scale.x(low), scale.x(high)
        if bars and x - (bars[-1].x + bars[-1].width) < 1:
            first = bars.pop()
            low, x = first.low, first.x
        width = round(max(_NARROWEST, end - x), 1)
        x = min(x, WIDTH - _NARROWEST)
        bars.append(Bar(kind=kind, x=x, width=width, low=low, high=high - 1, **more))
    return bars
