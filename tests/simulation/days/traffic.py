"""Actions of producers and consumers: they send, receive, acknowledge, refuse, forget and redrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from chalicelib.domain.errors import TooMany
from chalicelib.domain.receipt import sign_receipt
from chalicelib.domain.record import FailureFilter
from chalicelib.domain.times import DAY_MS, HOUR_MS
from chalicelib.domain.topic import Topic
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Nack
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.wiring import Deps
from tests.simulation.days.judge import inspect, inspect_outcomes
from tests.simulation.days.ledger import Accepted, Home, Member
from tests.simulation.days.plan import SETTINGS, TOPICS
from tests.simulation.days.settings import GROUPS
from tests.simulation.days.stage import Days
from tests.support.events import Told
from tests.support.flows import draft, label_of, told_by

_DELAYS_MS = (2_000, 50_000, 3 * HOUR_MS, 2 * DAY_MS, 9 * DAY_MS)
_TAGS = ("red", "blue", None)
_SHORTEST_ABSENCE_MS = 12_000  # a sign of life may be ten seconds older than it seems
_CERTAIN_ABSENCE_MS = 60_000
_LONG_LEASE_SECONDS = 1_800  # longer than it works, also where a run of six hours begins meanwhile


def sends(days: Days, to: str = "") -> None:
    """A producer; a message without an answer may have been stored or not."""
    name = to or days.random.choice(TOPICS)
    home = days.homes.get(name)
    delay_ms = days.random.choice((0, 0, 0, *_DELAYS_MS))
    now_ms = days.clock.at_ms
    due_ms = now_ms + delay_ms if delay_ms else None
    labels = [f"m{len(days.path)}-{n}" for n in range(days.random.choice((1, 1, 3, 20)))]
    drafts = [
        draft(label, due_ms=due_ms, ordering_key=days.random.choice(("a", "b", None))) for label in labels
    ]
    if SETTINGS in days.plan.themes:
        drafts = [replace(each, tag=days.random.choice(_TAGS)) for each in drafts]
    outcomes = days.ask(
        f"produce {name} {labels[0]}+{len(labels)} due in {delay_ms}",
        lambda deps: deps.producer.produce(deps.catalog.topic(name), drafts),
    )
    if home is not None:
        inspect_outcomes(days, home, outcomes or ())
    for label, outcome in zip(labels, outcomes or (), strict=False):
        if isinstance(outcome, ProduceResult) and home is not None:
            home.accepted[label] = Accepted(
                len(days.path), now_ms, due_ms or now_ms, waited=bool(due_ms), id=outcome.id
            )
            home.ids[label] = outcome.id
            home.tags[label] = drafts[labels.index(label)].tag or ""
        if isinstance(outcome, TooMany) and home is not None:
            home.refused.add(label)


def sends_much(days: Days) -> None:
    """Producers who hardly wait between their requests."""
    for _ in range(4):
        sends(days)
        days.clock.at_ms += days.random.choice((0, 300, 2_000))


def receives(days: Days) -> None:
    """A consumer: it acknowledges, refuses or forgets what it got, or does so later."""
    home = days.random.choice(list(days.homes.values()) or [None])
    if home is None:
        return
    names = sorted(name for name, member in home.members.items() if not member.is_called)
    name = days.random.choice(names or list(GROUPS))
    messages = received(days, home, name, days.random.choice((1, 3, 50)))
    if not messages:
        return
    member = home.members[name]
    match days.random.choice(("ack", "ack", "ack", "nack", "bury", "forget", "keep")):
        case "ack":
            settles(days, member, home.topic, messages)
        case "keep":
            days.held += [(member, home.topic, each) for each in messages]
        case "nack":
            nack = Nack(days.random.choice((0, 5_000, HOUR_MS, 3 * DAY_MS)))
            days.ask("nack", partial(_nack, home.topic.name, member.group.name, messages, nack))
        case "bury":
            bury = Nack(dead_letter=True)
            days.ask("bury", partial(_nack, home.topic.name, member.group.name, messages, bury))


def works_quietly(days: Days) -> None:
    """A consumer of a broadcast works for minutes on what it has, without a sign of life, and acknowledges it in time:
    it was never away. Where writes are refused, its sign of life may be lost."""
    pulling = [(home, each) for home, each in days.members() if each.consumer and not each.is_called]
    if not pulling or "throttled" in days.plan.themes:
        return
    home, member = days.random.choice(pulling)
    messages: list[ClaimedMessage] = []
    for _ in range(2):  # the first time it may have been away
        messages += received(days, home, member.name, 50, _LONG_LEASE_SECONDS)
        sends(days, home.topic.name)
    days.passes(days.random.randint(_CERTAIN_ABSENCE_MS, 300_000))
    if not messages:
        return
    if days.random.random() < 0.5:
        member.seen_ms = days.clock.at_ms
        messages += received(days, home, member.name, 50, _LONG_LEASE_SECONDS)
    for part in (messages[:1], messages[1:]):
        if part and not _acknowledges_in_time(days, home, member, part):
            return


def _acknowledges_in_time(days: Days, home: Home, member: Member, messages: list[ClaimedMessage]) -> bool:
    """Is there an answer? It may refuse nothing."""
    answers = days.ask(f"ack {len(messages)}", partial(ack, home.topic.name, member.group.name, messages))
    labels = [label_of(each.message.draft.body) for each in messages]
    member.perhaps_seen_ms = days.clock.at_ms
    if answers is None:
        member.perhaps.update(labels)
        return False
    member.seen_ms = days.clock.at_ms
    for label, answer in zip(labels, map(told_by, answers), strict=True):
        if answer in (Told.OK, Told.UNKNOWN):
            (member.done if answer is Told.OK else member.perhaps).add(label)
        else:
            days.accuse(f"{member.name} worked on {label} in time, and was refused")
    return True


def received(days: Days, home: Home, name: str, most: int, lease_seconds: int = 60) -> list[ClaimedMessage]:
    """What a receive gives, judged by the ledger."""
    topic_name = home.topic.name
    live = home.members.get(name)
    group_name, _, consumer_name = name.partition("/")
    missed_labels = _comes_back(days, home, live) if live and live.consumer else set()

    def request(deps: Deps) -> list[ClaimedMessage]:
        topic = deps.catalog.topic(topic_name)
        group = deps.catalog.group(topic, group_name)
        consumer = None
        if consumer_name:
            consumer = deps.catalog.consumer(topic, group, consumer_name)
            deps.registry.sign_of_life(topic, group, consumer)
        return deps.receiver.receive(topic, group, consumer, most, 0, lease_seconds)

    now_ms = days.clock.at_ms
    if live:
        live.leased_until_ms = max(live.leased_until_ms, now_ms + lease_seconds * 1000)
    answer: list[ClaimedMessage] | None = days.ask(f"receive {topic_name} {name} {most}", request)
    if live and answer is not None:
        live.seen_ms = now_ms
        live.missed |= missed_labels
    messages = answer or []
    members = {each.group.uid: each for each in _lives(days, topic_name, name)}
    for each in messages:
        inspect(
            days, home, members[each.receipt.group_uid], each.message, members[each.receipt.group_uid] is live
        )
    return [each for each in messages if live and each.receipt.group_uid == live.group.uid]


def _comes_back(days: Days, home: Home, member: Member) -> set[str]:
    """A consumer of a broadcast shows that it is there. If it was away, and its group may skip, what came meanwhile is
    not owed. Returns what it surely is not given either."""
    now_ms, skew_ms = days.clock.at_ms, 2 * days.plan.skew_ms
    since_ms, member.perhaps_seen_ms = member.perhaps_seen_ms, now_ms
    if now_ms >= member.absence.perhaps_until_ms or now_ms - member.seen_ms <= _SHORTEST_ABSENCE_MS - skew_ms:
        return set()
    came = {label: each for label, each in home.accepted.items() if each.due_ms <= now_ms + skew_ms}
    member.skipped |= came.keys() - member.done
    # A check may have committed them meanwhile, which the ledger notes with the answer.
    member.skipped |= {deal.label for deal in days.deals.values() if deal.home is home}
    is_certain = (
        now_ms - since_ms > _CERTAIN_ABSENCE_MS + skew_ms and now_ms > member.leased_until_ms + skew_ms
    )
    if now_ms < member.absence.surely_from_ms or not is_certain:
        return set()
    new_labels = {label for label, each in came.items() if each.at_ms > since_ms and not each.waited}
    return new_labels - member.given


def _lives(days: Days, topic: str, name: str) -> Iterator[Member]:
    for home in (*days.gone, *days.homes.values()):
        if home.topic.name == topic:
            yield from (m for m in (*home.members.values(), *home.ghosts) if m.name == name)


def settles(days: Days, member: Member, topic: Topic, messages: list[ClaimedMessage]) -> None:
    """An ack; what it says of each is believed."""
    home = days.homes.get(topic.name)
    if member.consumer and home and home.members.get(member.name) is member:
        _comes_back(days, home, member)
    answers = days.ask(f"ack {len(messages)}", partial(ack, topic.name, member.group.name, messages))
    labels = [label_of(each.message.draft.body) for each in messages]
    if answers is None:
        member.perhaps.update(labels)
        return
    answer_of = {label: told_by(answer) for label, answer in zip(labels, answers, strict=True)}
    member.done |= {label for label, answer in answer_of.items() if answer is Told.OK}
    member.perhaps |= {label for label, answer in answer_of.items() if answer is Told.UNKNOWN}


def settles_late(days: Days) -> None:
    """What was kept is acknowledged at last, perhaps in vain."""
    leases, days.held = days.held, []
    for member, topic, each in leases:
        settles(days, member, topic, [each])


def ack(topic_name: str, name: str, messages: list[ClaimedMessage], deps: Deps) -> Any:
    topic = deps.catalog.topic(topic_name)
    group = deps.catalog.group(topic, name)
    return deps.settler.ack(topic, group, _receipts(deps, messages))


def _nack(topic_name: str, name: str, messages: list[ClaimedMessage], how: Nack, deps: Deps) -> Any:
    topic = deps.catalog.topic(topic_name)
    return deps.settler.nack(topic, deps.catalog.group(topic, name), _receipts(deps, messages), how)


def _receipts(deps: Deps, messages: list[ClaimedMessage]) -> list[str]:
    return [sign_receipt(deps.signing_key, each.receipt) for each in messages]


def redrives(days: Days) -> None:
    """Some dead letters are sent again."""
    home = days.homes.get(name := days.random.choice(TOPICS))
    if home is None or not home.members:
        return
    group = home.members[days.random.choice(sorted(home.members))].group.name

    def request(deps: Deps) -> int:
        topic = deps.catalog.topic(name)
        consumer_group = deps.catalog.group(topic, group)
        letters = deps.letter_lookup.page(topic, consumer_group, FailureFilter(), None, 5)[0]
        labels = {produce.id: label for label, produce in home.accepted.items()}  # a large body is elsewhere
        for member in home.members.values():
            if member.group.name == group:
                redriven_labels = {
                    label_of(letter.message.draft.body) or labels.get(letter.message.id, "")
                    for letter in letters
                }
                member.given |= redriven_labels
                member.missed -= redriven_labels
        return deps.dead_letters.redrive(topic, consumer_group, letters)

    days.ask(f"redrive {group} of {name}", request)
