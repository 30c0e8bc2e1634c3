"""The numbers that the API shows must add up (I15, ADR 61): when the world is idle, and at any time while work goes on.

They are checked in two ways. From outside, at one moment: every number is exact, and lists, fates and counts agree.
As clients do, by a process whose reads are interleaved with others: numbers lie between those before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.domain.message import Message
from chalicelib.domain.topic import Topic
from chalicelib.domain.transaction import DECIDED
from chalicelib.services.inspect.lookup import Filters
from chalicelib.services.inspect.survey import GroupSurvey, TopicSurvey
from chalicelib.wiring import Deps
from tests.simulation.clients import TOPIC, SimClient
from tests.simulation.processes import Clock
from tests.simulation.world import World
from tests.support.clock import SeededRandom
from tests.support.events import Final, Op, Told

_WORDS = ("NEW", "RUNNING", "RETRYING", "SUCCESS", "DEAD")
_MOST = 1_000


def onlooker(world: World) -> None:
    """Looks now and then, in both ways."""
    for _ in range(world.plan.looks):
        world.pause(world.plan.seconds / (world.plan.looks + 1))
        deps = _outside(world)
        topic = deps.catalog.topic(TOPIC)
        for complaint in (*_uneven(world, deps, topic), *_waiting(world, deps, topic)):
            world.accuse(complaint)
        _ask(world, topic)


def uncounted(world: World, client: SimClient, end: Final) -> Iterator[str]:
    """The errors in the numbers of an idle world."""
    deps, topic = client.deps, client.topic
    yield from _waiting(world, deps, topic)
    stats = deps.surveyor.exact_topic(topic)
    if stats.delayed.number:
        yield f"{stats.delayed.number} are delayed, and all is over"
    for survey in stats.groups:
        yield from _at_rest(world, deps, stats, survey, end)
    if world.plan.looks:
        yield from _uneven(world, deps, topic)
        yield from _untrue(world, deps, topic)


def _outside(world: World) -> Deps:
    """A process outside the world: its reads take no time, and nothing comes between."""
    clock = Clock(world.scheduler, 0)
    return Deps(replace(world.adapters, clock=clock, random=SeededRandom("onlooker")))


def _at_rest(world: World, deps: Deps, stats: TopicSurvey, survey: GroupSurvey, end: Final) -> Iterator[str]:
    """Accepted is done, dead or was never owed; and it is what everybody has done with it."""
    group, account = survey.group, survey.account
    owners = deps.catalog.cursor_owners(stats.topic, group)
    if account.total != stats.accepted * len(owners) or account.new + account.running + account.retrying:
        yield f"of {stats.accepted} for {len(owners)} of {group.name} there are {account}"
    labels = {i: label for label, ids in end.places.items() for i in ids}
    tags = {e.label: e.tag for e in world.events if e.op is Op.PRODUCE}
    words = Counter(
        word if word != "SUCCESS" or group.tags is None or tags[labels[message_id]] in group.tags else None
        for (reader, message_id), word in end.statuses.items()
        if reader.partition("/")[0] == group.name
    )
    holes = stats.accepted - len(labels)
    expected = (words["SUCCESS"], words["DEAD"], words[None] + holes * len(owners))
    if (account.success, account.dead, account.skipped) != expected:
        yield f"of {group.name} are done, dead and skipped {expected}, and told is {account}"


def _waiting(world: World, deps: Deps, topic: Topic) -> Iterator[str]:
    """What waits before the log."""
    stats = deps.surveyor.exact_topic(topic)
    promises = world.promises
    delays = [d for d in promises.delays.values() if d.message_id and not d.cancels]
    least = sum(delay.message_id not in promises.entered for delay in delays)
    if not least <= stats.delayed.number <= len(promises.delays) + len(promises.deals):
        yield f"{stats.delayed.number} are delayed, {least} surely"
    transactions = [world.adapters.transactions.get(each) for each in promises.deal_labels]
    undecided = sum(each is not None and each.state not in DECIDED for each in transactions)
    # A check counts until it is due, also where a process died before it had dropped it.
    if not undecided <= stats.prepared.number <= len(promises.deals):
        yield f"{stats.prepared.number} are prepared, and in the store {undecided}"
    ids = {e.message_id for e in world.events if e.op is Op.PRODUCE and e.message_id}
    if stats.accepted < len(ids & promises.entered.keys()):
        yield f"{stats.accepted} were accepted, and known of {len(ids)}"


def _uneven(world: World, deps: Deps, topic: Topic) -> Iterator[str]:
    """Counts, lists and fates that are not of one mind."""
    stats = deps.surveyor.exact_topic(topic)
    messages = list(_messages(deps, topic))
    for survey in stats.groups:
        group, words = survey.group, Counter[str]()
        by_word: dict[str, set[str]] = {word: set() for word in _WORDS}
        for message in messages:
            if status := deps.statuses.of_topic(topic).delivery(group, message):
                words.update([each.status for each in status.consumers.values()] or [status.status])
                by_word[status.status].add(message.id)
        a = survey.account
        owners = len(deps.catalog.cursor_owners(topic, group))
        if a.total != stats.accepted * owners:
            yield f"of {stats.accepted} for {owners} of {group.name} there are {a}"
        counts = a.running, a.retrying, a.dead
        by_one = words["RUNNING"], words["RETRYING"], words["DEAD"]
        if counts != by_one and not (_sought(world) and _is_older_tried(counts, by_one)):
            yield f"running, retrying, dead of {group.name} are {counts}, and one by one {by_one}"
        if len(messages) == stats.accepted and a.new != words["NEW"]:
            yield f"new to {group.name} are {a.new}, and one by one {words['NEW']}"
        for word, ids in by_word.items():
            page, _ = deps.lookup.newest_first(topic, Filters(group, word), _MOST, None)
            if {message.id for message in page} != ids:
                yield f"{len(page)} are listed as {word} for {group.name}, and are {len(ids)}"
    for message in messages:
        for name, fate in deps.fates.of(topic, message).owed.items():
            if not fate.adds_up:
                yield f"{message.id} is {fate.status.status} for {name}, and nowhere"


def _untrue(world: World, deps: Deps, topic: Topic) -> Iterator[str]:
    """Traces of attempts that no actor made."""
    attempts = {
        (e.reader.partition("/")[0], e.message_id, e.attempt)
        for e in world.events
        if e.op in (Op.SETTLE, Op.CLAIM)
    }
    is_unheard = any(e.op is Op.CLAIM and e.told is Told.UNKNOWN for e in world.events)
    for message in _messages(deps, topic):
        path = deps.tracer.path(topic, message)
        if path[0].event not in ("accepted", "prepared") and not world.plan.skew_ms:
            yield f"the path of {message.id} begins with {path[0].event}"
        for each in path if not is_unheard else ():
            if each.event == "delivered" and (each.group, message.id, each.attempt) not in attempts:
                yield f"the path of {message.id} tells of attempt {each.attempt} for {each.group}: {each.outcome}"


def _ask(world: World, topic: Topic) -> None:
    """Check as clients do. While the topic grows or consumers join, processes may differ in what there is."""
    if {"grow", "join"} & set(world.plan.deeds):
        return
    before = _tails(world, topic)
    stats = world.ask(_stats)
    after = _tails(world, topic)
    if stats is None:
        return
    if not before <= stats.accepted <= after:
        world.accuse(f"{stats.accepted} were accepted, between {before} and {after}")
    for each in stats.groups:
        owners = len({progress.key.consumer_uid for progress in each.shards})
        if not before * owners <= each.account.total <= after * owners:
            world.accuse(
                f"of {before} to {after} for {owners} of {each.group.name} there were {each.account}"
            )


def _stats(client: SimClient) -> TopicSurvey:
    return client.deps.surveyor.exact_topic(client.topic)


def _tails(world: World, topic: Topic) -> int:
    return sum(world.adapters.log.tail(topic.shard_key(shard)).offset + 1 for shard in topic.shard_numbers)


def _sought(world: World) -> bool:
    """Did an operator seek? Messages then have two deliveries, of which one is counted."""
    return any(e.op is Op.SEEK and e.maybe for e in world.events) or world.plan.seeks


def _is_older_tried(counts: tuple[int, int, int], by_one: tuple[int, int, int]) -> bool:
    """The one thing that is not counted exactly: where both deliveries of a message wait for an attempt, the older's
    counts as RUNNING instead of the newer's as RETRYING."""
    (running_count, retrying_count, dead_count), (running_ones, retrying_ones, dead_ones) = counts, by_one
    is_one_more = (
        running_count > running_ones and running_count + retrying_count == running_ones + retrying_ones
    )
    return is_one_more and dead_count == dead_ones


def _messages(deps: Deps, topic: Topic) -> Iterator[Message]:
    for shard in topic.shard_numbers:
        rows: Sequence[Any] = deps.adapters.log.read(topic.shard_key(shard), 0, _MOST, consistent=True)
        yield from (m for row in rows for o in range(row.first, row.end) if (m := row.message(shard, o)))
