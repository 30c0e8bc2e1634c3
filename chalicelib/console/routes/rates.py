"""How fast messages come and go, over an hour, a day, a week."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..http import MOST_READ_UNITS, Page, Shown, Visit, page

if TYPE_CHECKING:
    from ...domain.topic import Topic

_UNIT_BYTES = 8_000  # of readings, for a read unit
_ROUNDED_UP = 2  # read units: half of one for each level of readings, and a little
# of a reading, of a group in it, of a shard that is behind
_ROW_BYTES, _GROUP_BYTES, _SHARD_BYTES = 130, 40, 5
_MOST_BYTES = 512  # of a reading with its shards
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
    # What is read now costs half a unit for each shard and group: in a large topic the curve ends with the last minute.
    cost_now = (topic.shards + len(groups)) / 2
    now = visit.deps.surveyor.reading(topic) if cost_now < MOST_READ_UNITS / 2 else None
    rows = rows_for(visit, topic, len(groups))
    buckets = visit.deps.rate_charts.of(topic, WINDOWS[name], now, most_rows=rows)
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


def rows_for(visit: Visit, topic: Topic, groups: int) -> int:
    """How many readings of a topic with so many groups a page may still read."""
    plain = _ROW_BYTES + _GROUP_BYTES * groups
    row = max(plain, min(_MOST_BYTES, plain + _SHARD_BYTES * topic.shards * groups))
    read_units = MOST_READ_UNITS - visit.units.number - _ROUNDED_UP
    return max(1, int(read_units * _UNIT_BYTES / row))
