"""Who comes and goes: consumers of a broadcast, and those that are called, in good moods and bad."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.errors import NotFound
from chalicelib.domain.topic import ConsumerKind, ConsumerState, Group, Offline
from chalicelib.services.manage.registry import Contact
from chalicelib.wiring import Deps
from tests.simulation.days.ledger import Absence, Home, Member
from tests.simulation.days.stage import Days

BROADCAST = "all"
CALLED = "hook"
_NAMES = ("a", "b")


def _some_home(days: Days) -> Home | None:
    return days.homes.get(days.random.choice(days.topics))


def comes_or_goes(days: Days) -> None:
    """A consumer of a broadcast registers, or takes its leave; one that comes again is another."""
    home = _some_home(days)
    if home is None:
        return
    name = days.random.choice(_NAMES)
    member = home.members.get(f"{BROADCAST}/{name}")
    if member and days.random.random() < 0.5:
        _leaves(days, home, member)
    elif member is None:
        _registers(days, home, BROADCAST, name, "broadcast", days.random.choice((False, False, True)))


def _leaves(days: Days, home: Home, member: Member) -> None:
    home.ghosts.append(home.members.pop(member.name))

    def request(deps: Deps) -> bool:
        topic = deps.catalog.topic(home.topic.name, consistent=True)
        group = deps.catalog.group(topic, member.group.name, consistent=True)
        deps.registry.unregister(topic, group, deps.catalog.consumer(topic, group, member.consumer))
        return True

    days.insist(f"{member.name} leaves {home.topic.name}", request)


def is_called(days: Days) -> None:
    """An operator registers a push consumer, by URL or as a function."""
    home = _some_home(days)
    if home and CALLED not in home.members:
        _registers(days, home, CALLED, "server", "queue", is_called=True)


def _registers(days: Days, home: Home, group_name: str, name: str, mode: str, is_called: bool) -> None:
    days.numbers += 1
    target = f"https://{name}.example/{days.numbers}"
    kind = days.random.choice(("url", "url", "function")) if is_called else "pull"
    is_stranger = kind == "url" and days.random.random() < 0.5
    contact = (
        Contact(ConsumerKind(kind), target, ConsumerState.PENDING if is_stranger else ConsumerState.ACTIVE)
        if is_called
        else Contact()
    )
    settings: dict[str, Any] = {"begin": "latest", "mode": mode}
    if mode == "broadcast":
        settings["offline"] = days.random.choice(("keep", "skip"))

    def request(deps: Deps) -> Any:
        topic = deps.catalog.topic(home.topic.name, consistent=True)
        stored_group = deps.adapters.control.group(topic, group_name)
        group = stored_group or deps.admin.put_group(topic, group_name, settings)[0]
        consumer = deps.registry.register(topic, group, name, contact).member.consumer
        if consumer.is_called and consumer.state == "ACTIVE":
            deps.waker.wake_for(topic, group, consumer)
        return group, consumer

    what = f"{name} joins {group_name} of {home.topic.name}: {kind}{' (a stranger)' * is_stranger}"
    since = len(days.path)
    answer = days.insist(what, request)
    if answer is None:
        return
    group, consumer = answer
    full = f"{group_name}/{name}" if mode == "broadcast" else group_name
    member = Member(
        group, len(days.path), days.clock.at_ms, None, name if mode == "broadcast" else "", is_called
    )
    member.seen_ms = member.perhaps_seen_ms = days.clock.at_ms
    if mode == "broadcast":
        member.absence = home.absences.setdefault(group_name, _absence(group))
    member.loose = len(days.path) > since + 1
    others = (each for each in home.members.values() if each.group.uid == group.uid)
    member.filters = [tags for each in others for tags in each.filters] or [group.tags]
    home.members[full] = member
    if is_called:
        days.served[consumer.uid] = home, member
        days.targets[target].add(consumer.uid)
        days.moods[consumer.uid] = "strange" if is_stranger else "good"
    days.calls()


def _absence(group: Group) -> Absence:
    absence = Absence()
    if group.offline == Offline.SKIP:
        absence.changes(Offline.SKIP, 0, is_certain=True)
    return absence


def changes_offline(days: Days) -> None:
    """A broadcast skips what comes while a consumer is away, or keeps it, from now on."""
    home, policy = _some_home(days), days.random.choice(tuple(Offline))
    if home is None or BROADCAST not in home.absences:
        return
    name = home.topic.name
    answer = days.ask(
        f"set offline of {BROADCAST} of {name} to {policy}",
        lambda deps: deps.admin.put_group(
            deps.catalog.topic(name, consistent=True), BROADCAST, {"offline": policy}
        ),
        mortal=False,
    )
    home.absences[BROADCAST].changes(policy, days.clock.at_ms, is_certain=answer is not None)


def changes_mood(days: Days) -> None:
    """Who is called fails from now on, or works again."""
    uids = sorted(uid for uid, mood in days.moods.items() if mood != "strange")
    if uids:
        uid = days.random.choice(uids)
        days.moods[uid] = days.random.choice(("good", "good", "mixed", "failing", "silent", "gone"))
        if days.moods[uid] != "good":
            days.bad_since_ms.setdefault(uid, days.clock.at_ms)
        days.note(f"{uid} is {days.moods[uid]} now")


def mend(days: Days) -> None:
    """All consumers are healthy again, and disabled ones register again."""
    deps = days.another().deps
    for uid, mood in days.moods.items():
        days.moods[uid] = mood if mood == "strange" else "good"
    for home, member in list(days.members()):
        try:
            _registers_anew(days, deps, home, member)
        except NotFound as error:
            days.accuse(str(error))


def _registers_anew(days: Days, deps: Deps, home: Home, member: Member) -> None:
    topic = deps.catalog.topic(home.topic.name)
    group = deps.catalog.group(topic, member.group.name)
    for consumer in deps.catalog.consumers(topic, group):
        if consumer.state == "DISABLED" and consumer.uid in days.moods:
            deps.registry.register(topic, group, consumer.name, Contact(consumer.kind, consumer.target))
            deps.waker.wake_group(topic, group)
