"""Try it: a button for each mode makes a topic, a group and three messages; then they are received by hand."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...domain.errors import Forbidden, Malformed, NotFound
from ...domain.message import Message
from .. import actions
from ..visit import Page, SeeOther, Shown, Visit, query_text
from .messages import lines

MODES = ("queue", "serial", "broadcast")
GROUP = "everybody"
CONSUMERS = ("one", "two")
_MOST = 9
_WAYS = ("ack", "fail", "give_up")


def try_it(visit: Visit) -> Shown:
    """The buttons, and where the messages of the last one stand."""
    refusals = {mode: _refusal(visit, _begin(mode)) for mode in MODES}
    mode = visit.query.get("mode", "")
    model = {
        "modes": MODES,
        "refusals": refusals,
        "mode": mode if mode in MODES else "",
        "lines": _lines(visit, mode) if mode in MODES else [],
        "consumers": CONSUMERS if mode == "broadcast" else ("",),
        "calls": [action.curl(visit.base) for action in _begin(mode)] if mode in MODES else [],
        "refusal": actions.why_not_allowed(_receive("queue", ""), visit.caller),
        "poll_seconds": 2,
    }
    return Page("try_it.html", model)


def _begin(mode: str) -> list[actions.Action]:
    """What the button does, call by call."""
    topic = {"topic": f"try-{mode}"}
    group = {**topic, "group": GROUP}
    consumers = CONSUMERS if mode == "broadcast" else ()
    keys = enumerate(("red", "red", "blue"), 1)
    messages = [{"body": {"number": n}, "ordering_key": key, "tag": "try"} for n, key in keys]
    return [
        actions.Action("put_topic", topic, body={"mode": mode, "shards": 1, "retention_days": 1}),
        actions.Action("put_group", group, body={"from": "earliest"}),
        *(actions.Action("put_consumer", {**group, "consumer": name}, body={}) for name in consumers),
        *(actions.Action("produce", topic, body=message) for message in messages),
    ]


def _receive(mode: str, consumer: str) -> actions.Action:
    body = {"max": _MOST, **({"consumer": consumer} if consumer else {})}
    return actions.Action("receive", {"topic": f"try-{mode}", "group": GROUP}, body=body)


def _refusal(visit: Visit, calls: list[actions.Action]) -> Forbidden | None:
    return next((why for action in calls if (why := actions.why_not_allowed(action, visit.caller))), None)


def _lines(visit: Visit, mode: str) -> list[Any]:
    """The messages that the URL names, with their status for the group."""
    visit.check_may_read()
    try:
        topic = visit.deps.catalog.topic(f"try-{mode}")
    except NotFound:
        return []
    survey = visit.deps.surveyor.survey(topic, ages=False)
    messages = []
    for id in visit.query.get("ids", "").split()[:_MOST]:
        with suppress(NotFound):
            messages.append(visit.deps.lookup.find(topic, id))
    return lines([each for each in messages if isinstance(each, Message)], survey)


def begin_trying(visit: Visit) -> Shown:
    """Make what a mode needs, and send three messages."""
    mode = _mode(visit)
    answers = [actions.do(visit, action) for action in _begin(mode)]
    ids = [answer["id"] for answer in answers if isinstance(answer, dict) and "id" in answer]
    return SeeOther(visit.links.to("try", mode=mode, ids=" ".join(ids), did="produce"))


def take(visit: Visit) -> Shown:
    """Receive what there is, and settle it as the button says."""
    mode, way, consumer = _mode(visit), visit.form.get("way", ""), visit.form.get("consumer", "")
    if way not in _WAYS or consumer not in ("", *CONSUMERS):
        raise Malformed("FORM_UNREADABLE", "This form is none of the console's.")
    messages = actions.do(visit, _receive(mode, consumer))["messages"]
    if messages:
        actions.do(visit, _settle(mode, way, [message["receipt"] for message in messages]))
    query = {"mode": mode, "ids": visit.form.get("ids", ""), "took": len(messages), "way": way}
    return SeeOther(f"{visit.links.to('try')}{query_text(query)}")


def _settle(mode: str, way: str, receipts: list[str]) -> actions.Action:
    params = {"topic": f"try-{mode}", "group": GROUP}
    if way == "ack":
        return actions.Action("ack", params, body={"receipts": receipts})
    how = {"dead_letter": True} if way == "give_up" else {"delay_seconds": 5}
    return actions.Action("nack", params, body={"receipts": receipts, "reason": "tried by hand", **how})


def _mode(visit: Visit) -> str:
    mode = visit.form.get("mode", "")
    if mode not in MODES:
        raise Malformed("FORM_UNREADABLE", "This form is none of the console's.")
    return mode
