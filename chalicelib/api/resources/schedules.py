"""Schedules: messages at times, by cron or each so many seconds."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated, Any, TypedDict, TypeVar

from msgspec import Meta, Struct

from ...domain import redact, strict_json
from ...domain.errors import Forbidden, Issue, Malformed, NotFound
from ...domain.message import Draft, body_fields
from ...domain.timer import Missed, Overlap, Schedule, Timing
from ...domain.times import DAY_SECONDS, SECOND_MS
from ...domain.topic import Caller
from .. import lists, parse
from ..calls import ANY, BY_PRODUCERS, PAGED, Context, Response, call
from ..fields import APP, TIMEZONE, Count, Name, NoBody, Time, at, shown, some, taken
from ..http import check_priority, check_topic, invalid
from .produce import Produced, produced_view

_NEXT = 10
_LAST = 50
_TIMING = ("cron", "every_seconds", "timezone", "jitter_seconds")
_SAME = ("topic", "missed", "overlap", "paused", "app")
_WHEN = ("delay_seconds", "deliver_at", "sent_at", "dedup_id")


T = TypeVar("T", bound=Timing)


class TimingBody(Struct, forbid_unknown_fields=True, kw_only=True, rename={"begin": "from"}):
    """The times of a schedule: by `cron` (five fields, or `@daily` and the like) in `timezone`, or each
    `every_seconds`, counted from `from`, else from the schedule's creation."""

    cron: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    every_seconds: Annotated[int, Meta(ge=1, le=365 * DAY_SECONDS)] | None = None
    timezone: Annotated[str, Meta(min_length=1, max_length=64, pattern=TIMEZONE)] = "UTC"
    begin: Time | None = None
    until: Time | None = None
    jitter_seconds: Annotated[int, Meta(ge=0, le=DAY_SECONDS)] = 0


class ScheduleBody(TimingBody, kw_only=True):
    """A schedule: `message` is sent to `topic` at these times. It replaces all of an earlier one of this name."""

    topic: Name
    message: parse.MessageBody
    missed: Missed = Missed.ONE
    overlap: Overlap = Overlap.ALLOW
    paused: bool = False
    app: Annotated[str, Meta(pattern=APP)] | None = None


class NextTimes(TypedDict):
    """The next ten times of a schedule."""

    next: list[Time]


_From = TypedDict("_From", {"from": Time | None})


class ScheduleView(_From, NextTimes):
    """A schedule. `next` are its next ten times, without the jitter; none while it is paused. `made_by` is the id of
    the token that it was made with."""

    name: str
    topic: str
    message: dict[str, Any]
    cron: str | None
    every_seconds: Count | None
    timezone: str
    until: Time | None
    jitter_seconds: Count
    missed: Missed
    overlap: Overlap
    paused: bool
    app: str | None
    made_by: str
    created_at: Time


class LastFiring(TypedDict):
    """A message that a schedule has sent, and the time that it was for."""

    at: Time
    message_id: str


class WholeSchedule(ScheduleView):
    """A schedule with its last messages, the latest first: at most 50, as far as the topic still keeps them."""

    last: list[LastFiring]


_SCHEDULE = "/v1/schedules/{schedule}"


@call("PUT", _SCHEDULE, **BY_PRODUCERS, body=ScheduleBody, statuses=(200, 201))
def put_schedule(context: Context) -> Response[ScheduleView]:
    """Create or replace a schedule; it sends its message until it is paused or deleted."""
    body, caller, now_ms = context.body, context.caller, context.now_ms
    text = strict_json.member(context.raw, "message")
    draft = replace(parse.of_tenant(context, _draft(body.message, text)), by=context.by)
    own = {"name": context.params["schedule"], "draft": draft, "made_by": context.by}
    wanted = _timing(body, now_ms, Schedule, **own, **taken(body, *_SAME))
    _check_token(caller, wanted)
    check_priority(caller, draft.priority)
    schedule, is_new = context.deps.schedules.put(wanted, partial(check_topic, caller))
    return Response(_view(context, schedule), 201 if is_new else 200)


@call("POST", "/v1/schedules/preview", scopes=ANY, body=TimingBody)
def preview_schedule(context: Context) -> Response[NextTimes]:
    """The next ten times of a schedule with these times; nothing is stored."""
    times = _timing(context.body, context.now_ms, Timing).times(context.now_ms)
    return Response({"next": [at(ms) for ms in islice(times, _NEXT)]})


@call("GET", "/v1/schedules", **BY_PRODUCERS, query=(*PAGED, "app"))
def list_schedules(context: Context) -> Response[lists.Page[ScheduleView]]:
    """Schedules by name, of the topics that the token may use; with `app`, of this application."""
    purpose, app = lists.purpose("schedules", (), context.query, ("app",)), context.query.get("app")

    def may_see(schedule: Schedule) -> bool:
        may_use = context.caller is None or context.caller.may_use(schedule.topic)
        return may_use and app in (None, schedule.app)

    read = context.deps.adapters.control.schedules
    rows, next_start = lists.visible_page(context, purpose, read, may_see, lambda schedule: schedule.name)
    return lists.page(context, purpose, [_view(context, row) for row in rows], next_start)


@call("GET", _SCHEDULE, **BY_PRODUCERS)
def get_schedule(context: Context) -> Response[WholeSchedule]:
    """A schedule, its next times and its last messages."""
    schedule = context.deps.schedules.find(*_named(context))
    return Response({**_view(context, schedule), "last": _last(context, schedule)})


@call("DELETE", _SCHEDULE, **BY_PRODUCERS, statuses=(204,))
def delete_schedule(context: Context) -> Response[None]:
    """Delete a schedule. Messages that it has sent stay."""
    context.deps.schedules.delete(*_named(context))
    return Response(None, 204)


@call("POST", f"{_SCHEDULE}/pause", **BY_PRODUCERS, body=NoBody)
def pause_schedule(context: Context) -> Response[ScheduleView]:
    """Stop a schedule until it is resumed; what it would have sent meanwhile is not sent."""
    return _set_paused(context, True)


@call("POST", f"{_SCHEDULE}/resume", **BY_PRODUCERS, body=NoBody)
def resume_schedule(context: Context) -> Response[ScheduleView]:
    """Let a paused schedule go on with its next time."""
    return _set_paused(context, False)


@call("POST", f"{_SCHEDULE}/run", **BY_PRODUCERS, body=NoBody, statuses=(201,))
def run_schedule(context: Context) -> Response[Produced]:
    """Send the message of a schedule now, once; its times stay as they are."""
    name, check = _named(context)
    topic, outcome = context.deps.schedules.run(name, parse.producer(context), check)
    return Response(produced_view(topic.name, outcome), 201)


def _set_paused(context: Context, paused: bool) -> Response[ScheduleView]:
    name, check = _named(context)
    return Response(_view(context, context.deps.schedules.set_paused(name, paused, check)))


def _named(context: Context) -> tuple[str, Any]:
    return context.params["schedule"], partial(check_topic, context.caller)


def _timing(body: TimingBody, now_ms: int, make: type[T], **fields: Any) -> T:
    """The times, in a schedule with these `fields`. Raises Malformed where there are no such times."""
    from zoneinfo import ZoneInfo

    if (body.cron is None) == (body.every_seconds is None):
        raise invalid("cron", "give either cron or every_seconds")
    try:
        ZoneInfo(body.timezone)
    except (KeyError, ValueError, OSError):
        raise invalid("timezone", "must be the name of a zone, like Europe/Berlin") from None
    for name, text in (("from", body.begin), ("until", body.until)):
        fields[f"{name}_ms"] = text if text is None else parse.time_ms(text, name)
    timing = make(created_ms=now_ms, **fields, **taken(body, *_TIMING))
    parse.check_delay((timing.from_ms or now_ms) - now_ms)
    if timing.cron:
        try:
            first_ms = replace(timing, until_ms=None).next_ms(now_ms)
        except ValueError as error:
            raise _invalid_cron(str(error)) from None
        if first_ms is None:
            raise _invalid_cron("has no time in the next eight years")
    from ...services.produce.schedules import period_ms

    if timing.jitter_seconds * SECOND_MS >= period_ms(timing):
        raise invalid("jitter_seconds", "must be less than the time from one firing to the next")
    return timing


def _invalid_cron(issue: str) -> Malformed:
    fields = "minute, hour, day of the month, month and day of the week, like `0 9 * * mon-fri`"
    detail = f"`cron` {issue}. It takes {fields}."
    return Malformed("INVALID_CRON", detail, issues=(Issue("cron", issue),))


def _check_token(caller: Caller | None, timing: Timing) -> None:
    """A schedule must not go on after the token that made it, or send more than the token may."""
    if caller and caller.rate_limit is not None:
        words = "Your token has a rate_limit, and makes no schedules: they would send messages without it."
        raise Forbidden("TOO_MUCH", words)
    ends_ms = caller.expires_ms if caller else None
    if ends_ms is not None and (timing.until_ms is None or timing.until_ms > ends_ms):
        raise Forbidden("TOO_MUCH", f"Your token ends at {at(ends_ms)}: give an `until` that is not later.")


def _draft(message: parse.MessageBody, raw: bytes) -> Draft:
    """The message; `expires_ms` counts from its firing."""
    for name in _WHEN:
        if getattr(message, name) is not None:
            raise invalid(f"message.{name}", "is not for a schedule's message")
    try:
        return parse.draft_of(message, 0, raw)
    except Malformed as error:
        raise parse.item_error(error, "message") from None


def _view(context: Context, schedule: Schedule) -> ScheduleView:
    times = [at(ms) for ms in schedule.upcoming(context.now_ms, _NEXT)]
    return shown(ScheduleView, schedule, message=_message(_shown_draft(context, schedule)), next=times)


def _shown_draft(context: Context, schedule: Schedule) -> Draft:
    """The message as people see it. Of a topic that is gone, what it hid when the schedule was stored is hidden."""
    draft = context.shown_urls(schedule.draft)
    hidden = draft.redact
    with suppress(NotFound):
        topic = context.deps.catalog.topic(schedule.topic)
        hidden = topic.redact if topic.uid == schedule.topic_uid else hidden
    return replace(draft, body=redact.masked(draft, hidden), is_json=True) if hidden else draft


def _message(draft: Draft) -> dict[str, Any]:
    """The message as it was given: the fields that say something."""
    body = body_fields(draft)
    retry = some(taken(draft, "max_attempts", "ladder", "jitter", "steps_from"))
    fields = taken(draft, "tag", "tenant", "ordering_key", "shard", "priority", "callback_url") | {
        "content_type": draft.content_type if "body_base64" in body else None,
        "keys": draft.keys or None,
        "headers": draft.headers or None,
        "expires_in_seconds": draft.expires_ms and draft.expires_ms // SECOND_MS,
        "retry": retry or None,
    }
    return {**body, **some(fields)}


def _last(context: Context, schedule: Schedule) -> list[LastFiring]:
    """Each message names the one before."""
    firings: list[LastFiring] = []
    message_id = context.deps.schedules.last_id(schedule)
    while message_id and len(firings) < _LAST:
        try:
            message = context.deps.lookup.message(context.deps.catalog.topic(schedule.topic), message_id)
        except NotFound:
            break
        firing = message.draft.firing
        firings.append({"at": at(firing.at_ms if firing else message.accepted_ms), "message_id": message_id})
        message_id = firing.last_id if firing else ""
    return firings
