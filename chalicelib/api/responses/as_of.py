"""A topic as it was."""

from typing import TYPE_CHECKING, TypedDict

from .common import Count, Time, at

if TYPE_CHECKING:
    from ...domain.topic import Caller, Topic
    from ...services.inspect.as_of import PastCounts


class PastGroup(TypedDict):
    """A group's counts of messages: not tried yet; being tried; tried without success, to be tried again; dead."""

    waiting: Count
    in_flight: Count
    retrying: Count
    dead: Count


class AsOfView(TypedDict):
    """A topic at `counted_at`, the last full hour up to `at`; `exact` if they are the same. It counts messages
    accepted from `accepted_since` on. If `complete` is false, the archive lacks something of that time."""

    topic: str
    at: Time
    counted_at: Time
    exact: bool
    accepted_since: Time
    complete: bool
    groups: dict[str, PastGroup]


def view(topic: "Topic", at_ms: int, past: "PastCounts", caller: "Caller | None") -> AsOfView:
    """The counts, of the groups that the caller may use."""
    return {
        "topic": topic.name,
        "at": at(at_ms),
        "counted_at": at(past.counted_ms),
        "exact": past.counted_ms == at_ms,
        "accepted_since": at(past.since_ms),
        "complete": past.is_complete,
        "groups": {
            name: {
                "waiting": counts["waiting"],
                "in_flight": counts["in_flight"],
                "retrying": counts["retrying"],
                "dead": counts["dead"],
            }
            for name, counts in past.groups.items()
            if caller is None or caller.may_use_group(name)
        },
    }
