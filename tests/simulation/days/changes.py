"""Who thinks better of it: messages are edited, postponed and cancelled, transactions decided late or never, groups
sent elsewhere. What changes is noted in the ledger."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from chalicelib.domain.message import Draft, Message
from chalicelib.domain.times import DAY_MS, HOUR_MS
from chalicelib.domain.topic import cursor_key
from chalicelib.domain.transaction import Transaction, TransactionState
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from chalicelib.wiring import Deps
from tests.simulation.days.ledger import Accepted, Deal, Home
from tests.simulation.days.stage import Days
from tests.support.flows import draft


def _some_message(days: Days) -> tuple[Home, str] | None:
    """A label of some home whose message has an id; the youngest mostly, which may not be claimed yet."""
    home = days.homes.get(days.random.choice(sorted(days.homes))) if days.homes else None
    labels = [label for label in home.ids if label not in home.cancelled] if home else []
    if home is None or not labels:
        return None
    return home, days.random.choice(labels[-8:])


def edits(days: Days) -> None:
    """A message gets another body, or another time."""
    if (some := _some_message(days)) is None:
        return
    home, label = some
    if days.random.random() < 0.3:
        _postpones(days, home, label)
        return
    days.numbers += 1
    body = f"{label}|edition {days.numbers}"
    is_edited = _changed(days, home, label, "edit", {"body": f'"{body}"'.encode()})
    home.bodies[label] = {body} if is_edited else {*home.bodies.get(label, {label}), body}


def _postpones(days: Days, home: Home, label: str) -> None:
    due_ms = days.clock.at_ms + days.random.choice((10_000, HOUR_MS, 2 * DAY_MS, 12 * DAY_MS))
    produce = home.accepted[label]
    if produce.due_ms <= days.clock.at_ms:  # it may stand in the log by now: nothing to postpone
        return
    if not _changed(days, home, label, f"postpone to {due_ms}", {"due_ms": due_ms}):
        due_ms = min(produce.due_ms, due_ms)
    home.accepted[label] = replace(produce, due_ms=due_ms)


def _changed(days: Days, home: Home, label: str, what: str, changes: dict[str, Any]) -> bool:
    """Was it changed for certain? If not, perhaps."""

    def request(deps: Deps) -> bool:
        topic = deps.catalog.topic(home.topic.name)
        match deps.lookup.find(topic, home.ids[label]):
            case DelayedMessage() as delayed_message:
                deps.delayed.amend(topic, delayed_message, changes)
            case Message() as message:
                deps.amender.amend(topic, message, changes)
            case _:
                return False
        return True

    return bool(days.ask(f"{what} {label}", request, mortal=False))


def cancels(days: Days) -> None:
    """A message is taken back."""
    if (some := _some_message(days)) is None:
        return
    home, label = some

    def request(deps: Deps) -> bool:
        topic = deps.catalog.topic(home.topic.name)
        match deps.lookup.find(topic, home.ids[label]):
            case DelayedMessage() as delayed_message:
                deps.delayed.cancel(topic, delayed_message)
            case Message() as message:
                deps.amender.cancel(topic, message)
            case _:
                return False
        return True

    if days.ask(f"cancel {label}", request, mortal=False):
        home.cancelled.add(label)
    else:
        home.unsure.add(label)


def prepares(days: Days) -> None:
    """A message whose producer has to decide; some can be asked."""
    home = days.homes.get(name := days.random.choice(days.topics))
    if home is None:
        return
    days.numbers += 1
    label, now_ms = f"t{days.numbers}", days.clock.at_ms
    due_ms = now_ms + days.random.choice((50_000, 2 * DAY_MS)) if days.random.random() < 0.4 else None
    url = days.random.choice((None, "https://bank.example/"))
    checks = Checks(url, days.random.choice((60, 3_600, 86_400)))
    message = draft(label, due_ms=due_ms)
    answer = days.ask(
        f"prepare {label} due {due_ms}",
        partial(_prepared, name, message, checks),
        mortal=False,
    )
    home.sent_ms = days.clock.at_ms
    home.unsure.add(label)
    if answer:
        truth = days.random.choice(
            (TransactionState.COMMITTED, TransactionState.COMMITTED, TransactionState.ROLLED_BACK)
        )
        days.deals[answer[0].id] = Deal(home, label, truth, len(days.path), now_ms, due_ms or 0)


def _prepared(name: str, message: Draft, checks: Checks, deps: Deps) -> tuple[Transaction, bool]:
    topic = deps.catalog.topic(name)
    return deps.transactor.prepare(topic, message, checks)


def decides(days: Days) -> None:
    """A producer says what is to become of its transaction, soon or days later."""
    if days.deals:
        decide(days, days.random.choice(sorted(days.deals)))


def decide(days: Days, transaction_id: str) -> None:
    deal = days.deals[transaction_id]

    def request(deps: Deps) -> TransactionState:
        return deps.transactor.decide(deps.transactor.find(transaction_id), deal.truth).state

    state = days.ask(f"decide {deal.label} {deal.truth}", request, mortal=False)
    if state is None:
        days.deals[transaction_id].asked = True  # it may have been done
        return
    del days.deals[transaction_id]
    deal.home.unsure.discard(deal.label)
    if state is TransactionState.ROLLED_BACK:
        deal.home.cancelled.add(deal.label)
        return
    due_ms = max(deal.due_ms, deal.prepared_ms)
    deal.home.accepted[deal.label] = Accepted(deal.prepared, deal.prepared_ms, due_ms, waited=True)


def seeks(days: Days) -> None:
    """A group is sent to its beginning, its end, a time or an offset."""
    home = days.homes.get(days.random.choice(sorted(days.homes))) if days.homes else None
    names = sorted(name for name in home.members if "/" not in name) if home else []
    if home is None or not names:
        return
    member = home.members[days.random.choice(names)]
    now_ms = days.clock.at_ms
    back_ms = days.random.choice((60_000, HOUR_MS, 2 * DAY_MS))
    where = days.random.choice(("earliest", "latest", f"@{now_ms - back_ms}", days.random.randrange(30)))
    topic_name = home.topic.name

    def request(deps: Deps) -> int:
        topic = deps.catalog.topic(topic_name, consistent=True)
        group = deps.catalog.group(topic, member.group.name)
        for shard in topic.shard_numbers:
            deps.positions.seek(topic, cursor_key(topic, group, shard), where)
        deps.waker.wake_group(topic, group)
        return topic.shards

    is_sought = days.ask(f"seek {member.group.name} of {topic_name} to {where}", request, mortal=False)
    member.begins_anew(len(days.path), now_ms)
    if not is_sought or isinstance(where, int):
        member.from_ms = None
        member.loose = True  # what it is owed of earlier messages is unknown
    elif where == "earliest":
        member.from_ms = 0
    elif where == "latest":
        member.from_ms = None
    else:
        member.from_ms = now_ms - back_ms + 2 * days.plan.skew_ms
