"""Topics: create, change, read, delete."""

from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict, cast

from ...domain.errors import Malformed
from ...wiring import Deps
from .. import lists, parse, settings
from ..calls import ADMIN, ANY, PAGED, TOPIC, Context, Reach, Response, call
from ..fields import Count, Time, at, at_or_none, one_of, shown
from .groups import GroupRates, GroupStats, Rate, group_rates, group_stats, rounded

if TYPE_CHECKING:
    from ...services.inspect.survey import TopicSurvey


class TopicStatsView(TypedDict):
    """What is in a topic: messages accepted in its life, those that wait before its log, and each group's part.
    `at_least` names the numbers that are only known to be no smaller. `spent_usd`: this month, for admins, if it has a
    budget."""

    accepted: Count
    delayed: Count
    prepared: Count
    at_least: NotRequired[list[Annotated[str, one_of("delayed", "prepared")]]]
    spent_usd: NotRequired[float]
    groups: dict[str, GroupStats]


class TopicDetail(settings.TopicView):
    """A topic's settings, and what is in it."""

    stats: TopicStatsView


class NamedStats(TopicStatsView):
    """What is in a topic, and which one it is."""

    topic: str


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


class DueHourView(TypedDict):
    """Delayed messages and retries that are due in the hour from `at` on. (Retries of SERIAL groups wait in their
    shards, and are not counted here.)"""

    at: Time
    delayed: Count
    retries: Count


class DueView(TypedDict):
    """The hours with due messages. `until`: the end of what was read (continue with it as `from`); null: all was
    read."""

    hours: list[DueHourView]
    until: Time | None


class RatePoint(TypedDict):
    """Rates from `at` on, for a bucket's length; the last one ends now. Null: not known."""

    at: Time
    accepted_per_second: Rate | None
    groups: dict[str, GroupRates]


class RatesView(TypedDict):
    """Rates in buckets of one length, the oldest first."""

    topic: str
    bucket_seconds: Count
    points: list[RatePoint]


_MOST_READING_MS = 8_000  # of a request: API Gateway ends one after 29 s


@call("PUT", TOPIC, scopes=ADMIN, body=settings.TopicBody, statuses=(200, 201), reach=Reach.GROUPS)
def put_topic(context: Context) -> Response[settings.TopicView]:
    """Create a topic, or change the settings that are given."""
    name, fields = context.params["topic"], settings.given(context.body)
    may_reveal, retry = context.caller is None or "*" in context.caller.topics, settings.new_retry(fields)
    topic, is_new = context.deps.admin.put_topic(name, fields, retry, may_reveal=may_reveal)
    if fields.keys() & {"shards", "priorities"} and not is_new:
        context.deps.waker.wake_after_redivision(topic)
    return Response(settings.topic_view(topic), 201 if is_new else 200)


@call("GET", TOPIC, scopes=ANY)
def get_topic(context: Context) -> Response[TopicDetail]:
    """A topic's settings and counts."""
    topic = context.topic()
    survey = context.deps.surveyor.exact_topic(topic)
    return Response(topic_detail(survey.seen_by(context.caller) if context.caller else survey, context.deps))


@call("GET", f"{TOPIC}/rates", scopes=ANY, query=("window",))
def get_rates(context: Context) -> Response[RatesView]:
    """Rates of produced and settled messages, and each group's backlog, over time.

    `window` is 1h (each minute; the default), 24h (ten minutes) or 7d (hours)."""
    window = lists.window(context.query)
    topic, deps = context.topic(), context.deps
    may_see = context.may_use_group
    points: list[RatePoint] = [
        {
            "at": at(each.from_ms),
            "accepted_per_second": rounded(each.accepted),
            "groups": {name: group_rates(of) for name, of in each.groups.items() if may_see(name)},
        }
        for each in deps.board.rates(topic, window, deps.surveyor.reading(topic))
    ]
    seconds = window.bucket_ms // 1_000
    return Response({"topic": topic.name, "bucket_seconds": seconds, "points": points})


@call("GET", f"{TOPIC}/due", scopes=ANY, query=("from",))
def get_due(context: Context) -> Response[DueView]:
    """Count delayed messages and retries by the hour in which they are due.

    It reads the first thousand or so timers of all topics from `from` on (default: from the earliest)."""
    from ...services.inspect.waiting import due_hours, lanes_of, reader

    from_ms = lists.time_ms(context.query, "from") or 0
    topic, deps = context.topic(), context.deps
    read, clock = reader(deps.adapters.timers, consistent=False), deps.adapters.clock
    lanes = lanes_of(deps.catalog, topic, context.may_use_group)
    ends_ms = clock.now_ms() + _MOST_READING_MS
    hours, until_ms = due_hours(read, topic, lanes, from_ms, lambda: clock.now_ms() < ends_ms)
    return Response({"hours": [shown(DueHourView, hour) for hour in hours], "until": at_or_none(until_ms)})


@call("GET", f"{TOPIC}/as-of", scopes=ANY, query=("at",))
def get_as_of(context: Context) -> Response[AsOfView]:
    """A topic's counts at the last full hour up to `at`.

    For each group that had tried anything: what was waiting, in flight, retried and dead. From the archive: 404
    `NOT_ARCHIVED` says who counts what is not counted yet."""
    at_ms = parse.time_ms(context.query.get("at", ""), "at")
    topic = context.topic()
    past = context.deps.archive_days.counts_at(topic, at_ms)
    groups = {
        name: cast(PastGroup, {kind: counts[kind] for kind in PastGroup.__annotations__})
        for name, counts in past.groups.items()
        if context.may_use_group(name)
    }
    own = {"topic": topic.name, "at": at(at_ms), "exact": past.counted_ms == at_ms, "groups": groups}
    since, is_complete = at(past.since_ms), past.is_complete
    return Response(shown(AsOfView, past, **own, accepted_since=since, complete=is_complete))


@call("GET", "/v1/topics", scopes=ANY, query=PAGED)
def list_topics(context: Context) -> Response[lists.Page[TopicDetail]]:
    """List the topics that the token may use, by name."""
    surveys, next_start = lists.counted_topics(context, "topics")
    details = [topic_detail(survey, context.deps) for survey in surveys]
    return lists.page(context, "topics", details, next_start)


@call("DELETE", TOPIC, scopes=ADMIN, query=("confirm",), statuses=(204,), reach=Reach.GROUPS)
def delete_topic(context: Context) -> Response[None]:
    """Delete a topic with its groups; `confirm` must repeat its name.

    The answer takes some three seconds; after it, the topic is gone in all processes."""
    name = context.params["topic"]
    topic = context.deps.admin.topic_to_delete(name)
    if context.query.get("confirm") != name:
        raise Malformed("CONFIRM_MISSING", f"Deleting a topic needs ?confirm={name} in the URL.")
    context.deps.admin.delete_topic(topic)
    return Response(None, 204)


def topic_detail(survey: "TopicSurvey", deps: Deps) -> TopicDetail:
    """A topic's settings, and what is in it."""
    return {**settings.topic_view(survey.topic), "stats": topic_stats_view(survey, deps)}


def topic_stats_view(survey: "TopicSurvey", deps: Deps) -> TopicStatsView:
    """What is in a topic, and what was spent of its budget."""
    before = {"delayed": survey.delayed, "prepared": survey.prepared}
    body: TopicStatsView = {
        "accepted": survey.accepted,
        "delayed": survey.delayed.number,
        "prepared": survey.prepared.number,
        "groups": {each.group.name: group_stats(each) for each in survey.groups},
    }
    if (spent_usd := deps.budgets.spent_usd(survey.topic)) is not None:
        body["spent_usd"] = round(spent_usd, 6)
    if at_least := [name for name, number in before.items() if not number.whole]:
        body["at_least"] = at_least
    return body
