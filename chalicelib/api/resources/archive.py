"""The archive: its contents; and replays: archived messages, sent again."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta, Struct

from ...domain import limits as lim
from ...domain import strict_json
from ...domain.archive import ArchivedDay, Proof
from ...domain.errors import Forbidden, HeadraceError, Malformed
from ...domain.message import JSON, Draft
from ...domain.replay import Replay, ReplayState
from ...domain.topic import Caller
from .. import fields, lists, parse
from ..calls import ADMIN, ANY, PAGED, TOPIC, Context, Response, call
from ..http import check_every_group, check_group, check_topic, convert, invalid
from .produce import BatchBody, BatchView, batch_view, produced_view

if TYPE_CHECKING:
    from ...services.manage.replays import Archived


class ArchivedTopic(TypedDict):
    """A topic's part of a day. PROVED: the day is closed, and each of its offsets is accounted for. OPEN: more
    messages may come. HOLES: `missing` offsets were found nowhere, or journal objects of the day could not be read."""

    topic: str
    proof: Annotated[str, fields.one_of(*Proof)]
    messages: fields.Count
    deliveries: fields.Count
    missing: fields.Count


class ArchivedDayView(TypedDict):
    """A day: the hour up to which it is archived (24: all of it; null: nothing), and its topics."""

    day: str
    until_hour: fields.Count | None
    written_at: fields.Time | None
    damaged: fields.Count
    bodies_missing: fields.Count
    topics: list[ArchivedTopic]


class ArchiveView(lists.Page[ArchivedDayView]):
    """Days, the latest first, with the topics that the token may use. A day is deleted after `archive_days`; null:
    never."""

    archive_days: fields.Count | None


_DAYS = 14
_DAY = re.compile(r"(19[7-9]|2\d\d|[3-9]\d\d)\d-\d\d-\d\d\Z")  # fromisoformat reads much else, such as weeks


@call("GET", "/v1/archive", scopes=ANY, query=("to", "topic", *PAGED))
def get_archive(context: Context) -> Response[ArchiveView]:
    """List the archived days: `limit` (14; 31 at most) back from the day `to` (today), UTC, of all topics or one."""
    from ...services.inspect.archive import MOST_DAYS

    limit = lists.limit({"limit": str(_DAYS), **context.query})
    if limit > MOST_DAYS:
        raise invalid("limit", f"must be a number from 1 to {MOST_DAYS}")
    only, to = context.query.get("topic"), context.query.get("to")
    purpose = f"archive:{only}:{to}"
    last = day_of(lists.page_start(context, purpose) or to, context.now_ms)
    days = context.deps.archive_days.back_from(last, limit)
    items = [_day(day, content, context.caller, only) for day, content in days]
    before = (last - timedelta(days=limit)).isoformat()
    is_more = context.deps.archive_days.oldest() <= before
    page = lists.page(context, purpose, items, before if is_more else None).body
    return Response({**page, "archive_days": context.deps.adapters.archive_days})


def day_of(text: str | None, now_ms: int) -> date:
    """The day that a query names; today where it names none. Raises Malformed."""
    if text is None:
        return datetime.fromtimestamp(now_ms / 1000, UTC).date()
    try:
        day = date.fromisoformat(text) if _DAY.match(text) else None
    except ValueError:
        day = None
    if day is None:
        raise invalid("to", "must be a day like 2030-01-01")
    return day


def _day(day: str, content: ArchivedDay | None, caller: Caller | None, only: str | None) -> ArchivedDayView:
    if content is None:
        nothing = {"until_hour": None, "written_at": None, "damaged": 0, "bodies_missing": 0}
        return fields.shown(ArchivedDayView, None, day=day, topics=[], **nothing)
    topics = [
        fields.shown(ArchivedTopic, topic, topic=name, proof=content.proof(topic))
        for name, topic in content.topics.items()
        if only in (None, name) and (caller is None or caller.may_use(name))
    ]
    written_at = fields.at(content.written_ms) if content.written_ms else None
    return fields.shown(ArchivedDayView, content, day=day, written_at=written_at, topics=topics)


class ReplayBody(Struct, forbid_unknown_fields=True, rename={"begin": "from", "end": "to"}):
    """Archived messages to send again: accepted from `from` on and before `to`, with this tag, key and body."""

    begin: fields.Time
    end: fields.Time
    tag: fields.Tag | None = None
    key: fields.Key | None = None
    where: Annotated[str, Meta(min_length=1, max_length=lim.MAX_WHERE_CHARS)] | None = None
    into: fields.Name | None = None
    group: fields.Name | None = None
    rate: Annotated[int, Meta(ge=1, le=lim.MAX_REPLAY_RATE)] = lim.DEFAULT_REPLAY_RATE
    dry_run: bool = False
    start: bool = True


class ProgressBody(Struct, forbid_unknown_fields=True):
    """The progress that a replay's job reports."""

    state: Literal["RUNNING", "DONE", "FAILED"]
    matched: Annotated[int, Meta(ge=0, le=lim.MAX_COUNT)] | None = None
    sent: Annotated[int, Meta(ge=0, le=lim.MAX_COUNT)] = 0
    error: Annotated[str, Meta(max_length=lim.MAX_REASON_CHARS)] | None = None


class ArchivedBody(Struct, forbid_unknown_fields=True):
    """An archived message."""

    id: Annotated[str, Meta(min_length=1, max_length=lim.MAX_ID_CHARS // 2)]
    shard: Annotated[int, Meta(ge=0, lt=lim.SHARD_NUMBERS)]
    body_base64: str
    content_type: fields.MediaType
    keys: Annotated[list[fields.Key], Meta(max_length=lim.MAX_KEYS)] = []
    tag: fields.Tag | None = None
    tenant: fields.Tenant | None = None
    ordering_key: fields.Key | None = None
    headers: Annotated[dict[fields.HeaderName, fields.HeaderValue], Meta(max_length=lim.MAX_HEADERS)] = {}


_Span = TypedDict("_Span", {"from": fields.Time, "to": fields.Time})


class ReplayView(_Span):
    """A replay: the archived messages to send, where to, and its progress. `predicate` is `where`, parsed."""

    replay_id: str
    topic: str
    tag: str | None
    key: str | None
    where: str | None
    predicate: list[Any] | None
    into: str
    group: str | None
    rate: fields.Count
    dry_run: bool
    state: ReplayState
    matched: fields.Count | None
    sent: fields.Count
    error: str | None
    created_at: fields.Time
    changed_at: fields.Time


class CreatedReplay(ReplayView):
    """A replay that was just created. If its job was not started, `run_with` is the command that runs it."""

    started: bool
    run_with: NotRequired[str]


_REPLAY = "/v1/replays/{id}"


@call("POST", f"{TOPIC}/replays", scopes=ADMIN, body=ReplayBody, statuses=(202,))
def create_replay(context: Context) -> Response[CreatedReplay]:
    """Send archived messages of a topic again, or with dry_run only count them: 202, and a job starts."""
    draft = _draft(context.body, context.params["topic"])
    check_reach(context.caller, draft.source, draft.into, draft.group)
    replay, is_started = context.deps.replays.create(draft, start=context.body.start)
    body: CreatedReplay = {**replay_view(replay), "started": is_started}
    if not is_started:
        body["run_with"] = f"make replay ARGS='--replay {replay.id}'"
    return Response(body, 202)


def _draft(body: ReplayBody, topic: str) -> Replay:
    from_ms, to_ms = parse.time_ms(body.begin, "from"), parse.time_ms(body.end, "to")
    if from_ms >= to_ms:
        raise invalid("to", "must be later than from")
    choice = fields.taken(body, "group", "tag", "key", "rate", "dry_run") | {"where": where(body.where)}
    into = body.into or topic
    return Replay(id="", source=topic, into=into, created_ms=0, from_ms=from_ms, to_ms=to_ms, **choice)


def check_reach(caller: Caller | None, source: str, into: str, group: str | None) -> None:
    """Raises Forbidden where the caller may not replay one topic into another, for this group (None: for all)."""
    if caller and caller.tenant is not None:
        words = "Your token sends for one tenant; a replay sends for all of them."
        raise Forbidden("TENANT_FORBIDDEN", words)
    check_topic(caller, source)
    check_topic(caller, into)
    if group is None:
        check_every_group(caller)
    check_group(caller, group)


def _may_see(context: Context, replay: Replay) -> bool:
    try:
        check_reach(context.caller, replay.source, replay.into, replay.group)
    except Forbidden:
        return False
    return True


@call("GET", f"{TOPIC}/replays", scopes=ADMIN, query=PAGED)
def list_replays(context: Context) -> Response[lists.Page[ReplayView]]:
    """List replays of a topic's messages, the newest first, if the token may use their topics and group."""
    topic = context.params["topic"]
    purpose, read = f"replays:{topic}", partial(context.deps.adapters.control.replays, topic)
    may_see = partial(_may_see, context)
    rows, next_start = lists.visible_page(context, purpose, read, may_see, lambda replay: replay.id)
    return lists.page(context, purpose, [replay_view(row) for row in rows], next_start)


@call("GET", _REPLAY, scopes=ADMIN)
def get_replay(context: Context) -> Response[ReplayView]:
    """A replay: what it chooses, its state, and how many messages it found and sent."""
    return Response(replay_view(_find(context)))


@call("PATCH", _REPLAY, scopes=ADMIN, body=ProgressBody)
def tell_progress(context: Context) -> Response[ReplayView]:
    """Report a replay's progress. Only for its job."""
    body = context.body
    from ...services.manage.replays import Progress

    progress = Progress(ReplayState(body.state), body.matched, body.sent, body.error)
    return Response(replay_view(context.deps.replays.tell(_find(context), progress)))


@call("POST", f"{_REPLAY}/messages", scopes=ADMIN, body=BatchBody)
def send_archived(context: Context) -> Response[BatchView]:
    """Send up to 1,000 archived messages under a replay, each once even if the call is repeated. Only for its job."""
    replay = _find(context)
    items = [_archived_or_error(item, i) for i, item in enumerate(context.body.messages)]
    good = [each for each in items if not isinstance(each, HeadraceError)]
    outcomes = context.deps.replays.send(replay, good)
    return batch_view(context, items, outcomes, partial(produced_view, replay.into))


def _archived_or_error(item: Any, index: int) -> "Archived | HeadraceError":
    try:
        return archived(convert(item, ArchivedBody))
    except Malformed as error:
        return parse.item_error(error, f"messages[{index}]")


def _find(context: Context) -> Replay:
    """The replay, if the caller may use its topics and its group; else NotFound, as if it did not exist."""
    replay = context.deps.replays.find(context.params["id"])
    if not _may_see(context, replay):
        from ...services.manage.replays import not_found

        raise not_found()
    return replay


def replay_view(replay: Replay) -> ReplayView:
    """A replay: what it chooses, where to, and how far it is."""
    from ...domain import predicate  # late, for few calls need it

    parsed = predicate.parse(replay.where) if replay.where else None
    return fields.shown(ReplayView, replay, replay_id=replay.id, topic=replay.source, predicate=parsed)


def where(text: str | None) -> str | None:
    """The text of a predicate; Malformed for what is none."""
    from ...domain import predicate  # late, for few calls need it

    try:
        if text is not None:
            predicate.parse(text)
    except predicate.NotAPredicate as error:
        raise invalid("where", str(error)) from None
    return text


def archived(message: ArchivedBody) -> "Archived":
    """A message from the archive. A body that is the compact text of a JSON value is JSON again, any other is
    bytes."""
    from ...services.manage.replays import Archived

    body = parse.decoded_base64(message.body_base64)
    is_json = message.content_type == JSON and _is_compact_json(body)
    content = fields.taken(message, "content_type", "tag", "ordering_key", "headers")
    draft = Draft(body, is_json, keys=tuple(message.keys), **content)
    return Archived(message.id, message.shard, draft)


def _is_compact_json(raw: bytes) -> bool:
    try:
        return strict_json.compact(raw, strict_json.parse(raw)) == raw
    except Malformed:
        return False
