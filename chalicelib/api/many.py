"""Calls for many: one form for what is chosen, the preview, the pages and the time of a call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Generic, NotRequired, TypedDict, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..domain import limits as lim
from ..domain.errors import Refused
from ..domain.record import Failure, FailureFilter
from ..domain.times import MINUTE_MS, SECOND_MS
from . import lists
from .calls import Context
from .fields import Count, Time, at, shown

T = TypeVar("T")
_PAGE = 100
_SAMPLE = 5
_LONGEST_MS = 15 * SECOND_MS  # of one call; API Gateway waits 29 s for an answer
_PLAN_MS = 10 * MINUTE_MS


class ManyBody(Struct, forbid_unknown_fields=True):
    """Which ones: by `ids` or by a `filter` (`{}` or none: all), at most `limit` of them. `dry_run`: only count them.
    `page_token`: go on where an answer to the same request ended."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=lim.MAX_BATCH)] | UnsetType = UNSET
    filter: lists.DeadFilter | UnsetType = UNSET
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=lim.MAX_REDRIVE)] = lim.MAX_BATCH
    page_token: str | UnsetType = UNSET


class PlannedBody(ManyBody):
    """The same, or the `plan` of a dry run instead of ids or a filter: it acts on nothing younger than the plan."""

    plan: str | UnsetType = UNSET


class Sample(TypedDict):
    """One of those that a dry run counted."""

    id: str
    reason: str | None
    error: str | None
    failed_at: Time


class ManyAnswer(TypedDict):
    """How many it was done to; after a dry run `count`, to how many it would be, with the first of them as a `sample`
    and perhaps a `plan`. `next_page_token`: more may be left."""

    count: NotRequired[Count]
    sample: NotRequired[Sequence[Sample]]
    plan: NotRequired[str]
    next_page_token: NotRequired[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work(Generic[T]):
    """What a call for many does. `counted` is the name of its count, `names` say of what it is. `page` gives the first
    items behind a position, and the next position. `act` is given items, how many were done before them and when the
    first call began; it returns how many it did. `plan_for`: what a plan holds for; None: there are no plans."""

    counted: str
    names: Sequence[str]
    by_ids: Callable[[Sequence[str]], Sequence[T]]
    page: Callable[[FailureFilter, Any, int], tuple[Sequence[T], Any]]
    act: Callable[[Sequence[T], int, int], int]
    failure: Callable[[T], Failure]
    plan_for: str | None = None


def answer(context: Context, work: Work[T]) -> Any:
    """Do the work, or count it in a dry run, as far as a call has time: the call's own form of ManyAnswer. Raises
    Refused or Malformed."""
    body, now_ms = context.body, context.deps.adapters.clock.now_ms
    began_ms = now_ms()
    fields, which = _choice(context, work, began_ms)
    purpose = _purpose(context, work, fields)
    after, before, first_ms = None, 0, began_ms
    if body.page_token is not UNSET:
        after, before, first_ms = lists.position_in(context, purpose, body.page_token)
    until_ms, count, sample = began_ms + _LONGEST_MS, 0, list[T]()
    while True:
        if body.ids is not UNSET:
            items, after = _of_ids(body, work, after or 0)
        else:
            items, after = work.page(which, after, min(_PAGE, body.limit - count))
        if body.dry_run:
            sample += items[: _SAMPLE - len(sample)]
            count += len(items)
        elif items:
            count += work.act(items, before + count, first_ms)
        if after is None or count >= body.limit or now_ms() >= until_ms:
            break
    result: dict[str, Any] = {work.counted: count}
    if body.dry_run:
        failures = map(work.failure, sample)
        views = [shown(Sample, each, failed_at=at(each.at_ms)) for each in failures]
        result = {"count": count, "sample": views}
        if work.plan_for and body.ids is UNSET:
            text = msgspec.json.encode(_Plan(dict(fields), began_ms)).decode()
            result["plan"] = context.deps.signing_keys.sign(_plan_purpose(work), text)
    if after is not None:
        result["next_page_token"] = lists.page_token(context, purpose, [after, before + count, first_ms])
    return result


def _of_ids(body: ManyBody, work: Work[T], start: int) -> tuple[Sequence[T], int | None]:
    ids, end = list(dict.fromkeys(body.ids or ()))[: body.limit], start + _PAGE
    return work.by_ids(ids[start:end]), end if end < len(ids) else None


def _choice(context: Context, work: Work[T], at_ms: int) -> tuple[Mapping[str, str], FailureFilter]:
    """The filter's fields, and the filter."""
    body = context.body
    plan = getattr(body, "plan", UNSET)
    if sum(given is not UNSET for given in (body.ids, body.filter, plan)) > 1:
        raise Refused("CHOICE_AMBIGUOUS", "Give ids, a filter or a plan, and no two of them.")
    if plan is not UNSET:
        planned = _read_plan(context, work, plan)
        if body.page_token is UNSET and at_ms - planned.at_ms > _PLAN_MS:
            raise _no_plan()
        which = lists.letter_filter(planned.filter)
        return planned.filter, replace(which, until_ms=min(planned.at_ms, which.until_ms or planned.at_ms))
    fields = msgspec.to_builtins(body.filter) if body.filter is not UNSET else {}
    return fields, lists.letter_filter(fields, "filter.")


def _purpose(context: Context, work: Work[T], fields: Mapping[str, str]) -> str:
    """What the page tokens of this request are for."""
    body = context.body
    rest = [body.dry_run, *(getattr(body, name, None) for name in ("ids", "plan", "rate", "consumer"))]
    names = [*work.names, *map(str, rest)]
    return lists.purpose(work.counted, names, fields, lists.LETTER_FILTERS)


class _Plan(Struct):
    """The filter of a dry run, and when that was."""

    filter: dict[str, str]
    at_ms: int


def _plan_purpose(work: Work[T]) -> str:
    return f"plan:{work.counted}:{work.plan_for}"


def _read_plan(context: Context, work: Work[T], plan: str) -> _Plan:
    text = context.deps.signing_keys.verified(_plan_purpose(work), plan)
    if text is None:
        raise _no_plan()
    return msgspec.json.decode(text, type=_Plan)


def _no_plan() -> Refused:
    words = "This plan is of another call, or older than ten minutes: ask for a new one with dry_run."
    return Refused("PLAN_INVALID", words)
