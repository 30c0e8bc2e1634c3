"""Topics: their settings, and what is in them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from ...domain.topic import Topic
from . import retry
from .common import Count, Mode, Time, at, one_of
from .groups import GroupCounts, counts
from .retry import RetryView

if TYPE_CHECKING:
    from ...services.inspect.counts import TopicStats


class TopicView(TypedDict):
    """A topic's settings. `key_shards` stands where it differs from `shards`."""

    topic: str
    mode: Mode
    shards: Count
    key_shards: NotRequired[Count]
    retry: RetryView
    lease_seconds: Count
    retention_days: Count
    alarm_backlog: Count | None
    rate_limit: Count | None
    on_rate_limit: Annotated[str, one_of("reject", "dead_letter")]
    max_body_bytes: Count
    dedup_window_seconds: Count
    wake: Annotated[str, one_of("stream", "direct")]
    created_at: Time


class TopicStatsView(TypedDict):
    """What is in a topic: messages accepted in its life, those that wait before its log, and each group's part.
    `at_least` names the numbers that are only known to be no smaller."""

    accepted: Count
    delayed: Count
    prepared: Count
    at_least: NotRequired[list[Annotated[str, one_of("delayed", "prepared")]]]
    groups: dict[str, GroupCounts]


class TopicDetail(TopicView):
    """A topic's settings, and what is in it."""

    stats: TopicStatsView


class NamedStats(TopicStatsView):
    """What is in a topic, and which one it is."""

    topic: str


def view(topic: Topic) -> TopicView:
    """A topic's settings."""
    body: TopicView = {
        "topic": topic.name,
        "mode": topic.mode,
        "shards": topic.shards,
        "retry": retry.view(topic.retry),
        "lease_seconds": topic.lease_seconds,
        "retention_days": topic.retention_days,
        "alarm_backlog": topic.alarm_backlog,
        "rate_limit": topic.rate_limit,
        "on_rate_limit": topic.on_rate_limit,
        "max_body_bytes": topic.max_body_bytes,
        "dedup_window_seconds": topic.dedup_window_seconds,
        "wake": topic.wake,
        "created_at": at(topic.created_ms),
    }
    if topic.shards_of_keys != topic.shards:
        body["key_shards"] = topic.shards_of_keys
    return body


def detail(topic: Topic, topic_stats: "TopicStats", may_use_group: Callable[[str], bool]) -> TopicDetail:
    """A topic's settings, and what is in it."""
    return {**view(topic), "stats": stats(topic_stats, may_use_group)}


def stats(topic_stats: "TopicStats", may_use_group: Callable[[str], bool]) -> TopicStatsView:
    """What is in a topic, with the groups that the caller may use."""
    before = {"delayed": topic_stats.delayed, "prepared": topic_stats.prepared}
    body: TopicStatsView = {
        "accepted": topic_stats.accepted,
        "delayed": topic_stats.delayed.number,
        "prepared": topic_stats.prepared.number,
        "groups": {
            name: counts(status) for name, status in topic_stats.groups.items() if may_use_group(name)
        },
    }
    if at_least := [name for name, number in before.items() if not number.whole]:
        body["at_least"] = at_least
    return body
