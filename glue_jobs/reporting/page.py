"""The report as one HTML page that needs nothing else: tables and inline charts, in light and dark, no script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from html import escape
from typing import Any

from glue_jobs.reporting.aggregates import FATES
from glue_jobs.reporting.charts import Series, bars, count_axis, duration, duration_axis, lines, number
from glue_jobs.reporting.group_counts import GroupCounts

Row = Mapping[str, Any]
Pair = tuple[str, str]
MOST_PAIRS = 40
_MOST_REASONS = 8
_FEW_DAYS = 3
_HEADS = (
    *("topic", "group", "accepted"),
    *("delivered", "dead letters", "under way", "waiting", "passed over", "deleted"),  # FATES
    *("attempts", "worst p50", "worst p99", "backlog now", "oldest now"),
)
_RANKS = (("p50", "c1"), ("p90", "c2"), ("p99", "c3"))
_MOST_POINTS = 168  # hours of a week; beyond, the last hour of each day


@dataclass(frozen=True)
class Report:
    """The rows of a report's tables; `gaps` says in sentences what the archive lacks of these days."""

    first: date
    last: date
    volumes: Sequence[Row] = ()
    daily: Sequence[Row] = ()
    failures: Sequence[Row] = ()
    backlog: Sequence[Row] = ()
    explained: Sequence[Row] = ()
    hourly: Sequence[Row] = ()
    counts: Sequence[GroupCounts] = ()
    gaps: Sequence[str] = field(default=())

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(days=n) for n in range((self.last - self.first).days + 1)]

    @property
    def is_short(self) -> bool:
        """Are hours shown in the place of days?"""
        return is_short(self.first, self.last)

    @property
    def moments(self) -> list[date]:
        """The days, or the hours, of the charts."""
        if not self.is_short:
            return self.days
        midnights = [datetime.combine(day, time()) for day in self.days]
        return [midnight + timedelta(hours=n) for midnight in midnights for n in range(24)]


@dataclass(kw_only=True, frozen=True)
class _Group:
    """The figures of one group."""

    topic: str
    group: str
    daily: dict[date, Row]
    hourly: dict[date, Row]
    failures: list[Row]
    backlog: list[Row]
    explained: Row
    counts: GroupCounts | None

    def sum(self, name: str) -> int:
        return sum(row[name] or 0 for row in self.daily.values())

    def worst(self, name: str) -> int | None:
        return max((row[name] for row in self.daily.values() if row[name] is not None), default=None)

    @property
    def open(self) -> int:
        """Messages that had not ended when the archive ends; of a group that tried nothing, the service's backlog."""
        if self.explained:
            return int(self.explained["waiting"] + self.explained["under_way"])
        return self.counts.backlog if self.counts else 0

    @property
    def is_healthy(self) -> bool:
        """Nothing is dead and nothing is left over."""
        return not (self.sum("dead_letters") or self.open or (self.counts and self.counts.dead))

    @property
    def rank(self) -> tuple[Any, ...]:
        """The worst first: by dead letters, what is left over, failed attempts."""
        failure_count = self.sum("attempts") - self.sum("delivered")
        return (
            self.is_healthy,
            -self.sum("dead_letters"),
            -self.open,
            -failure_count,
            self.topic,
            self.group,
        )


def is_short(first: date, last: date) -> bool:
    """Are these days so few that the report shows their hours?"""
    return (last - first).days + 1 < _FEW_DAYS


def page(report: Report) -> str:
    """The whole document."""
    groups = sorted(_groups(report), key=lambda group: group.rank)
    title = f"Headrace, {_span(report)}"
    parts = [
        f"<h1>Headrace <span>{escape(_span(report))}</span></h1>",
        "".join(f'<p class="gap">{escape(gap)}</p>' for gap in report.gaps),
        _tiles(report, groups),
        _overview(report, groups),
        *(_section(report, group) for group in groups[:MOST_PAIRS] if group.daily or group.backlog),
        _rest(report, groups),
        _NOTES,
    ]
    head = f'<meta charset="utf-8">{_META}<title>{escape(title)}</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n'
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def _span(report: Report) -> str:
    return str(report.first) if report.first == report.last else f"{report.first} to {report.last}"


def _groups(report: Report) -> list[_Group]:
    daily: defaultdict[Pair, dict[date, Row]] = defaultdict(dict)
    failures: defaultdict[Pair, list[Row]] = defaultdict(list)
    backlog: defaultdict[Pair, list[Row]] = defaultdict(list)
    for row in report.daily:
        daily[row["topic"], row["group"]][row["day"]] = row
    for row in report.failures:
        failures[row["topic"], row["group"]].append(row)
    for row in report.backlog:
        backlog[row["topic"], row["group"]].append(row)
    fates = {(row["topic"], row["group"]): row for row in report.explained}
    counts = {(each.topic, each.group): each for each in report.counts}
    hourly: defaultdict[Pair, dict[date, Row]] = defaultdict(dict)
    for row in report.hourly:
        hourly[row["topic"], row["group"]][row["hour"]] = row
    return [
        _Group(
            topic=pair[0],
            group=pair[1],
            daily=daily[pair],
            hourly=hourly[pair],
            failures=failures[pair],
            backlog=backlog[pair],
            explained=fates.get(pair, {}),
            counts=counts.get(pair),
        )
        for pair in {**daily, **backlog, **fates, **counts}
    ]


def _tiles(report: Report, groups: Sequence[_Group]) -> str:
    attempts, delivered_count = (sum(g.sum(name) for g in groups) for name in ("attempts", "delivered"))
    dead_count = sum(g.sum("dead_letters") for g in groups)
    worst = max((p for g in groups if (p := g.worst("latency_p99_ms")) is not None), default=None)
    tiles = [
        ("accepted", number(sum(row["accepted"] for row in report.volumes)), ""),
        ("delivered", number(delivered_count), ""),
        ("attempts per success", f"{attempts / delivered_count:.2f}" if delivered_count else "-", ""),
        ("dead letters", number(dead_count), "bad" if dead_count else ""),
        ("left over at the end", number(sum(g.open for g in groups)), ""),
        ("slowest group's p99", duration(worst), ""),
    ]
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile {kind}"><b>{value}</b>{name}</div>' for name, value, kind in tiles)
        + "</div>"
    )


def _overview(report: Report, groups: Sequence[_Group]) -> str:
    acceptances: defaultdict[str, int] = defaultdict(int)
    for row in report.volumes:
        acceptances[row["topic"]] += row["accepted"]
    rows = [
        (
            *(escape(name) for name in (g.topic, g.group)),
            number(acceptances[g.topic]),
            *(number(g.explained.get(fate)) for fate in FATES),
            number(g.sum("attempts")),
            *(duration(g.worst(f"latency_{p}_ms")) for p in ("p50", "p99")),
            *_now(g.counts),
        )
        for g in groups[:MOST_PAIRS]
    ]
    alone = _topics_without_a_group(report, groups)
    rest = ["-"] * (len(_HEADS) - 3)
    rows += [(escape(topic), "no group", number(acceptances[topic]), *rest) for topic in alone[:MOST_PAIRS]]
    return _table(_HEADS, rows, texts=2)


def _topics_without_a_group(report: Report, groups: Sequence[_Group]) -> list[str]:
    return sorted({row["topic"] for row in report.volumes} - {group.topic for group in groups})


def _now(counts: GroupCounts | None) -> tuple[str, str]:
    if not counts:
        return "-", "-"
    age = counts.oldest_age_seconds
    return number(counts.backlog), duration(None if age is None else age * 1000)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int) -> str:
    """`texts` columns are words, the others numbers."""
    head = "".join(f"<th{'' if n < texts else ' class=n'}>{name}</th>" for n, name in enumerate(heads))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-of="{heads[n]}"{"" if n < texts else " class=n"}>{v}</td>' for n, v in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _section(report: Report, group: _Group) -> str:
    unit, readings = ("an hour", group.hourly) if report.is_short else ("a day", group.daily)
    labels = [_moment(moment, isinstance(moment, datetime)) for moment in report.moments]

    def by_time(name: str) -> list[float | None]:
        return [readings[moment][name] if moment in readings else None for moment in report.moments]

    ranks = [Series(p, colour, by_time(f"latency_{p}_ms")) for p, colour in _RANKS]
    charts = [
        bars(labels, Series("delivered", "c1", by_time("delivered")), f"Delivered messages {unit}"),
        lines(
            labels,
            ranks,
            duration_axis(value for series in ranks for value in series.values),
            "Latency, accepted to delivered",
        ),
        _backlog_chart(group),
        bars(labels, Series("dead letters", "bad", by_time("dead_letters")), f"Dead letters {unit}")
        if group.sum("dead_letters")
        else "",
        _reasons(group),
    ]
    title = f"{escape(group.topic)} <span>to</span> {escape(group.group)}"
    state = "" if group.is_healthy else " open"
    return f'<details{state}><summary><h2>{title}</h2></summary><div class="charts">{"".join(charts)}</div></details>'


def _backlog_chart(group: _Group) -> str:
    rows, hourly = group.backlog, len(group.backlog) <= _MOST_POINTS
    if not rows:
        return ""
    if not hourly:
        rows = [*rows[23:-1:24], rows[-1]]  # the last day may not be over
    values = [row["waiting"] for row in rows]
    labels = [_moment(row["hour"], hourly) for row in rows]
    label_step = 24 if hourly and len(rows) > 24 else 0
    return lines(labels, [Series("waiting", "c1", values)], count_axis(values), "Backlog", label_step)


def _moment(at: date, hourly: bool) -> str:
    day = f"{at:%b} {at.day}"
    return f"{day} {at:%H}h" if hourly and isinstance(at, datetime) and at.hour else day


def _reasons(group: _Group) -> str:
    counts: defaultdict[str, int] = defaultdict(int)
    for row in group.failures:
        counts[row["reason"]] += row["attempts"]
    if not counts:
        return ""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in most[_MOST_REASONS:])
    rows_shown = most[:_MOST_REASONS] + ([("other reasons", rest)] if rest else [])
    highest = max(count for _, count in rows_shown)
    items = "".join(
        f"<li><span>{escape(reason)}</span>"
        f'<i style="width:{100 * count / highest:.1f}%"></i><b>{number(count)}</b></li>'
        for reason, count in rows_shown
    )
    return (
        f'<figure><figcaption>Failed attempts by reason</figcaption><ol class="reasons">{items}</ol></figure>'
    )


def _rest(report: Report, groups: Sequence[_Group]) -> str:
    more = (
        (len(groups), "groups, with less to tell,"),
        (len(_topics_without_a_group(report, groups)), "topics without a group"),
    )
    return "".join(
        f"<p>{count - MOST_PAIRS} more {kind} are in the tables beside this page.</p>"
        for count, kind in more
        if count > MOST_PAIRS
    )


_META = (
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
_NOTES = (
    "<footer>Times are UTC. A message counts on the day it was accepted, an attempt on the day it began. Latency runs "
    "from acceptance to the end of the attempt that succeeded, waiting and retries included. Backlog: messages that a "
    "group has tried and not finished, or has not reached yet, at the end of each hour (of each day, over more than "
    "a week). Left over: under way (tried, not ended) and waiting (behind the last that was tried). Passed over: not "
    "wanted by the filter, expired, or older than the group. Deleted: not ended when the topic was deleted and created "
    "again. Groups come in the order of their trouble; healthy ones are folded. Now: what the service said when this "
    "page was made.</footer>"
)
_STYLE = """
:root{color-scheme:light dark;--page:#f9f9f7;--card:#fcfcfb;--ink:#0b0b0b;--soft:#52514e;--line:#e1e0d9;
--c1:#2a78d6;--c2:#1baf7a;--c3:#eda100;--bad:#d03b3b}
@media (prefers-color-scheme:dark){:root{--page:#0d0d0d;--card:#1a1a19;--ink:#fff;--soft:#c3c2b7;--line:#2c2c2a;
--c1:#3987e5;--c2:#199e70;--c3:#c98500;--bad:#e66767}}
body{margin:0;background:var(--page);color:var(--ink);font:14px/1.45 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 20px;overflow-wrap:anywhere}
h1{font-size:22px;margin:0 0 16px}h2{font-size:17px;margin:0 0 8px}h1 span,h2 span{color:var(--soft);font-weight:400}
.gap{border-left:4px solid var(--bad);padding:6px 12px;background:var(--card)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-bottom:16px}
.tile,details,.wide{background:var(--card);border:1px solid var(--line);border-radius:8px}
.tile{padding:12px 14px;color:var(--soft)}.tile b{display:block;font-size:24px;color:var(--ink)}
.tile.bad b{color:var(--bad)}
.wide{overflow-x:auto;margin-bottom:16px}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:7px 12px;border-bottom:1px solid var(--line);white-space:nowrap}
tbody tr:last-child td{border-bottom:0}th{color:var(--soft);font-weight:500}
.n{text-align:right;font-variant-numeric:tabular-nums}
details{padding:16px;margin-bottom:16px}summary{cursor:pointer}summary h2{display:inline}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:12px 24px}
figure{margin:0}figcaption{color:var(--soft);margin-bottom:2px}svg{width:100%;height:auto;display:block}
.grid{stroke:var(--line)}.tick,.name{font-size:11px;fill:var(--soft)}.name{fill:var(--ink)}
rect.c1{fill:var(--c1)}rect.bad{fill:var(--bad)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.line.c1{stroke:var(--c1)}.line.c2{stroke:var(--c2)}.line.c3{stroke:var(--c3)}
.dot.c1{fill:var(--c1)}.dot.c2{fill:var(--c2)}.dot.c3{fill:var(--c3)}.area{fill-opacity:.15}.area.c1{fill:var(--c1)}
.reasons{list-style:none;margin:6px 0 0;padding:0}
.reasons li{display:grid;grid-template-columns:minmax(0,3fr) 2fr 4em;gap:10px;align-items:center;padding:3px 0}
.reasons span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.reasons b{text-align:right}
.reasons i{display:block;height:12px;border-radius:2px;background:var(--bad)}
@media (max-width:640px){main{padding:16px 10px}.tick,.name{font-size:15px}thead{display:none}.wide{overflow:visible}
table,tbody,tr,td{display:block}tr{padding:8px 12px;border-bottom:1px solid var(--line)}tr:last-child{border:0}
td{display:flex;justify-content:space-between;gap:12px;padding:1px 0;border:0;white-space:normal}
td::before{content:attr(data-of);color:var(--soft)}.reasons li{grid-template-columns:minmax(0,3fr) 1fr 4em}}
footer{color:var(--soft);font-size:12px;margin-top:8px}
"""
