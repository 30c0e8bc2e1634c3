"""Replays: archived messages, sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...domain.errors import Forbidden, HeadraceError, Malformed
from ...domain.replay import Replay, ReplayState
from ...domain.topic import Caller, Scope
from .. import list_pages, parse
from ..calls import Context, Response, call
from ..http import check_every_group, check_group, convert, invalid
from ..requests import ArchivedBody, BatchBody, ProgressBody, ReplayBody
from ..responses import produced, replays
from ..responses.common import Page, page
from ..responses.produced import BatchItem, BatchView
from ..responses.replays import CreatedReplay, ReplayView

if TYPE_CHECKING:
    from ...services.manage.replays import Archived
    from ...services.produce.appender import ProduceResult

_REPLAY = "/v1/replays/{id}"
_ROLES = (Scope.ADMIN,)


@call("POST", "/v1/topics/{topic}/replays", scopes=_ROLES, body=ReplayBody, statuses=(202,))
def create_replay(context: Context) -> Response[CreatedReplay]:
    """Send archived messages of a topic again, or with dry_run only count them: 202, and a job starts."""
    draft = _draft(context.body, context.params["topic"])
    check_reach(context.caller, draft.source, draft.into, draft.group)
    replay, is_started = context.deps.replays.create(draft, start=context.body.start)
    return Response(replays.created_view(replay, is_started), 202)


def _draft(body: ReplayBody, topic: str) -> Replay:
    from_ms, to_ms = parse.time_ms(body.begin, "from"), parse.time_ms(body.end, "to")
    if from_ms >= to_ms:
        raise invalid("to", "must be later than from")
    return Replay(
        id="",
        source=topic,
        into=body.into or topic,
        created_ms=0,
        from_ms=from_ms,
        to_ms=to_ms,
        rate=body.rate,
        group=body.group,
        tag=body.tag,
        key=body.key,
        where=parse.where(body.where),
        dry_run=body.dry_run,
    )


def check_reach(caller: Caller | None, source: str, into: str, group: str | None) -> None:
    """Raises Forbidden where the caller may not replay one topic into another, for this group (None: for all)."""
    if caller and not (caller.may_use(source) and caller.may_use(into)):
        raise Forbidden("TOPIC_FORBIDDEN", "The token is limited to other topics.")
    if group is None:
        check_every_group(caller)
    check_group(caller, group)


def _forbidden(context: Context, replay: Replay) -> bool:
    caller = context.caller
    if caller is None:
        return False
    may_use_group = "*" in caller.groups if replay.group is None else caller.may_use_group(replay.group)
    return not (may_use_group and caller.may_use(replay.source) and caller.may_use(replay.into))


@call("GET", "/v1/topics/{topic}/replays", scopes=_ROLES, query=("limit", "page_token"))
def list_replays(context: Context) -> Response[Page[ReplayView]]:
    """List replays of a topic's messages, the newest first, if the token may use their topics and group."""
    topic = context.params["topic"]
    purpose = f"replays:{topic}"
    rows, next_start = list_pages.visible_page(
        context,
        purpose,
        lambda before, most: context.deps.adapters.control.replays(topic, before, most),
        lambda replay: not _forbidden(context, replay),
        lambda replay: replay.id,
    )
    return Response(page(context, purpose, [replays.view(row) for row in rows], next_start))


@call("GET", _REPLAY, scopes=_ROLES)
def get_replay(context: Context) -> Response[ReplayView]:
    """A replay: what it chooses, its state, and how many messages it found and sent."""
    return Response(replays.view(_find(context)))


@call("PATCH", _REPLAY, scopes=_ROLES, body=ProgressBody)
def tell_progress(context: Context) -> Response[ReplayView]:
    """Report a replay's progress. Only for its job."""
    body = context.body
    from ...services.manage.replays import Progress

    progress = Progress(ReplayState(body.state), body.matched, body.sent, body.error)
    return Response(replays.view(context.deps.replays.tell(_find(context), progress)))


@call("POST", f"{_REPLAY}/messages", scopes=_ROLES, body=BatchBody)
def send_archived(context: Context) -> Response[BatchView]:
    """Send up to 1,000 archived messages under a replay, each once even if the call is repeated. Only for its job."""
    replay = _find(context)
    messages_and_errors = [_archived_or_error(item, i) for i, item in enumerate(context.body.messages)]
    good = [each for each in messages_and_errors if not isinstance(each, HeadraceError)]
    outcomes = iter(context.deps.replays.send(replay, good))
    results = [
        _result(context, replay, i, each if isinstance(each, HeadraceError) else next(outcomes))
        for i, each in enumerate(messages_and_errors)
    ]
    return Response({"results": results})


def _archived_or_error(item: Any, index: int) -> Archived | HeadraceError:
    try:
        return parse.archived(convert(item, ArchivedBody))
    except Malformed as error:
        return parse.item_error(error, f"messages[{index}]")


def _result(
    context: Context, replay: Replay, index: int, outcome: ProduceResult | HeadraceError
) -> BatchItem:
    result = outcome if isinstance(outcome, HeadraceError) else produced.view(replay.into, outcome)
    return produced.item(index, result, context.request_id)


def _find(context: Context) -> Replay:
    """The replay, if the caller may use its topics and its group; else NotFound, as if it did not exist."""
    replay = context.deps.replays.find(context.params["id"])
    if _forbidden(context, replay):
        from ...services.manage.replays import not_found

        raise not_found()
    return replay
