"""How fast messages come and go, over an hour, a day, a week."""

from __future__ import annotations

from ..http import MOST_READ_UNITS, Page, Shown, Visit, page

_KEPT_BYTES = 64_000  # of readings: eight read units
_ROW_BYTES, _GROUP_BYTES = 130, 40  # of a reading, and of a group in it; names are mostly short
_MOST_GROUPS = 12


@page("GET", "/console/topics/{topic}/rates")
def rates(visit: Visit) -> Shown:
    """The charts of a topic and its groups."""
    from ...domain.meter import WINDOWS
    from ..views import rates as view

    topic = visit.topic()
    name = visit.query.get("window", "")
    name = name if name in WINDOWS else "1h"
    groups = visit.deps.catalog.groups(topic)
    rows = _KEPT_BYTES // (_ROW_BYTES + _GROUP_BYTES * len(groups))
    # What is read now costs half a unit for each shard and group: in a large topic the curve ends with the last minute.
    reads_now = (topic.shards + len(groups)) / 2 < MOST_READ_UNITS / 2
    buckets = visit.deps.rate_charts.of(topic, WINDOWS[name], most_rows=rows, reads_now=reads_now)
    mine = [group.name for group in groups if visit.caller.may_use_group(group.name)]
    model = {
        "topic": topic,
        "window": name,
        "windows": list(WINDOWS),
        "charts": view.charts(buckets, WINDOWS[name], visit.now_ms, mine[:_MOST_GROUPS]),
        "groups_left": max(0, len(mine) - _MOST_GROUPS),
        "poll_seconds": 30,
    }
    return Page("rates.html", model)
