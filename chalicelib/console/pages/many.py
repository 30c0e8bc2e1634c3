"""An action on many: how many there are, what went wrong and a few of them, before anything happens. Then it is done in
steps that can be stopped. This page alone may cost more than 20 read units: it reads what it counts."""

from __future__ import annotations

from typing import Any

from ...api.lists import LETTER_FILTERS
from ...api.parse import whole_number
from ...domain.errors import Malformed
from ...domain.record import FailureFilter
from ...domain.times import rfc3339
from ...domain.topic import Group, Topic
from ...services.inspect.letter_lookup import RedriveOutcome
from .. import forms
from ..visit import Page, Shown, Visit, query_text
from .dead_letters import LONGEST_MS, Failures, letter_filter, link_filters, tally

_STEP = 200
_FEW = 10
_PAGE = 100
_MOST = 10_000
_LETTERS = ("redrive", "delete_dead_letters")
# The last part of the page that lists what an action is on.
_LISTS = {**dict.fromkeys(_LETTERS, ("dead-letters",)), "recheck": ("transactions",)}
_PURGES = ("purge_group", "purge_topic")
_OF_GROUP = (*_LETTERS, "retry_many", "purge_group")
_OF_TOPIC = ("recheck", "purge_topic")


def many(visit: Visit) -> Shown:
    """The action that the URL names, on what its filters say: counted; after a first few, how they went; or how far it
    is."""
    call = visit.query.get("call", "")
    if call not in (_OF_GROUP if "group" in visit.params else _OF_TOPIC):
        raise Malformed("FORM_UNREADABLE", "This page has no such action.")
    topic, group = visit.group() if "group" in visit.params else (visit.topic(), None)
    ids = visit.query.get("ids", "").split()[:_FEW]
    model: dict[str, Any] = {"topic": topic, "group": group, "call": call, "which": link_filters(visit)}
    model |= {"here": (*_place(visit), "many"), "list": (*_place(visit), *_LISTS.get(call, ()))}
    model |= {"poll_seconds": 0, "is_begun": False, "outcomes": {}, "causes": (), "few": ()}
    if visit.query.get("did") == call and not ids:
        return Page("many.html", model | _progress(visit, call))
    if ids and group:
        outcomes = _outcomes(visit, topic, group, ids)
        model["outcomes"] = {id: outcome.value for id, outcome in outcomes.items()}
        model["has_failed"] = RedriveOutcome.FAILED in outcomes.values()
        if visit.wants_fragment or set(outcomes.values()) != {RedriveOutcome.SUCCEEDED}:
            is_open = RedriveOutcome.PENDING in outcomes.values() and not model["has_failed"]
            return Page("many.html", model | {"number": None, "poll_seconds": 2 if is_open else 0})
    return Page("many.html", model | _choice(visit, call, topic, group))


def _place(visit: Visit) -> tuple[str, ...]:
    """The parts of the page of the topic or the group."""
    group = visit.params.get("group")
    return ("topics", visit.params["topic"], *(("groups", group) if group else ()))


def _outcomes(visit: Visit, topic: Topic, group: Group, ids: list[str]) -> dict[str, RedriveOutcome]:
    """What became of those that were sent first, as far as a page may read."""
    return {
        id: visit.deps.letter_lookup.outcome_of_redrive(topic, group, id)
        if visit.has_units(8)
        else RedriveOutcome.PENDING
        for id in ids
    }


def _choice(visit: Visit, call: str, topic: Topic, group: Group | None) -> dict[str, Any]:
    if call in _PURGES:
        return _of_purge(visit, call, topic, group)
    limits = {"until": rfc3339(visit.now_ms), **link_filters(visit)}
    found = tally(_failures(visit, call, topic, group, letter_filter(visit)))
    state = {"total": str(found.number), "done": "0"}
    typed = {"confirm": group.name} if call == "delete_dead_letters" and group else {}
    return {
        "number": found.number,
        "more": not found.is_whole,
        "causes": found.causes,
        "sample": found.first[:5],
        "all": _offer(visit, {**limits, "limit": str(_STEP)}, state, **typed),
        "few": _few(visit, call, [each.id for each in found.first], limits),
    }


def _few(visit: Visit, call: str, ids: list[str], limits: forms.Fields) -> list[dict[str, Any]]:
    """Forms for the first one, and for the first few: how they go is seen before the others."""
    if call == "retry_many" and ids:
        one = _offer(visit, {"ids": ids[0]}, {})
        return [{**one, "back": f"topics/{visit.params['topic']}/messages/{ids[0]}"}]
    numbers = dict.fromkeys((1, len(ids))) if call == "redrive" and ids else ()
    few = (" ".join(ids[:number]) for number in numbers)
    return [_offer(visit, {"ids": each}, {"ids": each, **limits}) for each in few]


def _failures(visit: Visit, call: str, topic: Topic, group: Group | None, which: FailureFilter) -> Failures:
    """What the action is on. None at last, if there is no time for more."""
    deps, until_ms, number = visit.deps, visit.now_ms + LONGEST_MS, 0
    rows: Any
    after: Any = None
    while number < _MOST and visit.now_ms < until_ms:
        if group is None:
            rows, after = deps.transactor.undecided(topic, which, after, _PAGE)
        elif call == "retry_many":
            rows, after = deps.retries.page(topic, group, None, which, after, _PAGE)
        else:
            rows, after = deps.letter_lookup.page(topic, group, which, after, _PAGE)
        yield from (row.to_filter if call in _LETTERS else row.failure for row in rows)
        number += len(rows)
        if after is None:
            return
    yield None


def _of_purge(visit: Visit, call: str, topic: Topic, group: Group | None) -> dict[str, Any]:
    """What each group would lose, as far as it is read."""
    read, may_go_on = visit.deps.surveyor.survey, visit.may_go_on(3)
    survey = read(topic, only=group, whole=True, ages=False, may_go_on=may_go_on).seen_by(visit.caller)
    in_cursors = sum(progress.retrying for each in survey.groups for progress in each.shards)
    # Those in cursors are in the backlog, too.
    number = sum(each.backlog + each.retrying for each in survey.groups) - in_cursors
    return {
        "number": number,
        "more": not survey.is_whole or any(each.more_retrying for each in survey.groups),
        "survey": survey,
        "all": _offer(visit, {}, {"total": str(number), "done": "0"}, confirm=(group or topic).name),
    }


def _progress(visit: Visit, call: str) -> dict[str, Any]:
    """How far it is; the next step, until there is none."""
    counts = (whole_number(visit.query.get(name, ""), 9) for name in ("total", "done", "n", "rate"))
    total, before, number, rate = (count or 0 for count in counts)
    done, token = before + number, visit.query.get("next")
    fields = {**link_filters(visit), "limit": str(_STEP), "page_token": token or ""}
    fields |= {"rate": str(rate)} if rate else {}
    if call == "delete_dead_letters":
        fields["confirm"] = visit.params["group"]
    following = _offer(visit, fields, {"total": str(total), "done": str(done)}) if token else None
    so_far = {"done": done, "total": max(done, total), "rate": rate}
    return {"is_begun": True, **so_far, "following": following}


def _offer(visit: Visit, fields: forms.Fields, state: forms.Fields, **typed: str) -> dict[str, Any]:
    """A form: its action, its hidden fields, and the page after it. `typed`: what a person types into it."""
    call, params = visit.query["call"], visit.params
    sent = {**params, "call": call, **fields, **typed}
    query = {"call": call, **{name: fields[name] for name in LETTER_FILTERS if name in fields}, **state}
    return {
        "action": forms.of(sent).action,
        "fields": {**({"topic": params["topic"]} if call == "recheck" else {}), **fields},
        "back": f"{'/'.join(_place(visit))}/many{query_text(query)}",
    }
