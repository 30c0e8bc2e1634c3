"""Actions of the owners of topics and groups: they create, change, delete and create again."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.ladder import Retry
from chalicelib.domain.topic import Mode, Payload
from tests.simulation.days.ledger import Home, Member
from tests.simulation.days.plan import TOPICS
from tests.simulation.days.stage import Days

GROUPS = ("one", "two")


def changes_topic(days: Days) -> None:
    """A topic's settings: it keeps messages for longer or shorter, and may grow."""
    home = days.homes.get(name := days.random.choice(TOPICS))
    if home is None:
        return
    settings: dict[str, Any] = {"retention_days": days.random.choice((1 / 24, 0.25, 1, 2, 7, 30))}
    if days.random.random() < 0.3 and home.topic.shards < 4:
        settings["shards"] = home.topic.shards + 1
    _put_topic(days, name, settings)


def changes_group(days: Days) -> None:
    """A group's settings, those that change nothing about what is owed."""
    home = days.homes.get(name := days.random.choice(TOPICS))
    if home is None or not home.members:
        return
    group = home.members[days.random.choice(sorted(home.members))].group.name
    settings = {"lease_seconds": days.random.choice((5, 60)), "max_in_flight": days.random.choice((1, 64))}
    days.ask(
        f"change {group} of {name}",
        lambda deps: deps.admin.put_group(deps.catalog.topic(name, consistent=True), group, settings),
        mortal=False,
    )


def changes_rate(days: Days) -> None:
    """How many messages a second a topic takes, or what becomes of the others."""
    name = days.random.choice(TOPICS)
    if name not in days.homes:
        return
    settings: dict[str, Any] = {
        "rate_limit": days.random.choice((None, 1, 5, 1_000)),
        "on_rate_limit": days.random.choice(("reject", "dead_letter")),
    }
    setting = days.random.choice(("rate_limit", "rate_limit", "on_rate_limit"))
    _put_topic(days, name, {setting: settings[setting]})


def changes_any_setting(days: Days) -> None:
    """One setting of a topic, any but its rate limit."""
    rng, home = days.random, days.homes.get(name := days.random.choice(TOPICS))
    if home is None:
        return
    settings: dict[str, Any] = {
        "mode": rng.choice(tuple(Mode)),
        "key_shards": home.topic.shards,
        "retry": _retry(days),
        "lease_seconds": rng.choice((5, 30, 600)),
        "alarm_backlog": rng.choice((None, 1, 100)),
        "max_body_bytes": rng.choice((1_000, 262_144)),
        "dedup_window_seconds": rng.choice((60, 86_400)),
        "wake": rng.choice(("stream", "direct")),
    }
    setting = rng.choice(sorted(settings))
    _put_topic(days, name, {setting: settings[setting]})


def changes_any_setting_of_a_group(days: Days) -> None:
    """One setting of a group: any that can be changed, but for what it does with those who are away."""
    rng, home = days.random, days.homes.get(name := days.random.choice(TOPICS))
    if home is None or not home.members:
        return
    group = home.members[rng.choice(sorted(home.members))].group.name
    settings: dict[str, Any] = {
        "tags": rng.choice((None, ("red",), ("red", "blue"))),
        "retry": rng.choice((None, _retry(days))),
        "lease_seconds": rng.choice((None, 5, 60)),
        "batch_size": rng.choice((1, 3, 10)),
        "max_in_flight": rng.choice((1, 4, 64)),
        "payload": rng.choice(tuple(Payload)),
        "assignment": rng.choice(("mod", "average", "rendezvous")),
    }
    setting = rng.choice(sorted(settings))
    if setting == "tags":  # also if the answer is lost
        for member in home.members.values():
            if member.group.name == group:
                member.filters.append(settings["tags"])
    days.ask(
        f"set {setting} of {group} of {name} to {settings[setting]}",
        lambda deps: deps.admin.put_group(
            deps.catalog.topic(name, consistent=True), group, {setting: settings[setting]}
        ),
        mortal=False,
    )


def _retry(days: Days) -> Retry:
    rng = days.random
    return Retry(rng.choice((2, 5, 16)), rng.choice(((1,), (60, 600), "jmq")), jitter=rng.choice((0.0, 0.1)))


def remakes_group(days: Days) -> None:
    """A group is deleted, or made (again)."""
    home = days.homes.get(name := days.random.choice(TOPICS))
    if home is None:
        return
    group = days.random.choice(GROUPS)
    if member := home.members.pop(group, None):
        home.ghosts.append(member)
        days.insist(
            f"delete {group} of {name}",
            lambda deps: deps.admin.delete_group(
                topic := deps.catalog.topic(name, consistent=True), deps.admin.group_to_delete(topic, group)
            ),
        )
    if member is None or days.random.random() < 0.5:
        _put_group(days, home, group)


def remakes_topic(days: Days) -> None:
    """A topic is deleted, and mostly made again, soon or late."""
    name = days.random.choice(TOPICS)
    if home := days.homes.pop(name, None):
        days.gone.append(home)
        days.insist(f"delete {name}", lambda deps: deps.admin.delete_topic(deps.admin.topic_to_delete(name)))
    if home is None or days.random.random() < 0.7:
        founds(days, name)


def founds(days: Days, name: str) -> None:
    """A topic is made, with a group or two."""
    plan = days.plan
    _put_topic(days, name, {"retention_days": plan.retention_days, "shards": plan.shards})
    for group in GROUPS[: days.random.choice((1, 2))]:
        _put_group(days, days.homes[name], group)


def _put_topic(days: Days, name: str, settings: dict[str, Any]) -> None:
    answer = days.insist(f"put {name} {settings}", lambda deps: deps.admin.put_topic(name, settings))
    if answer is None:
        return
    topic = answer[0]
    if home := days.homes.get(name):
        if {"rate_limit", "on_rate_limit"} & settings.keys():
            home.rate_since_ms = days.clock.at_ms
        home.topic, home.shortest_days = topic, min(home.shortest_days, topic.retention_days)
    else:
        days.homes[name] = Home(topic, topic.retention_days)


def _put_group(days: Days, home: Home, name: str) -> None:
    begin = days.random.choice(("earliest", "latest"))
    topic_name, since = home.topic.name, len(days.path)
    answer = days.insist(
        f"put {name} of {topic_name} from {begin}",
        lambda deps: deps.admin.put_group(
            deps.catalog.topic(topic_name, consistent=True), name, {"begin": begin, "mode": "queue"}
        ),
    )
    if answer is not None:
        from_ms = 0 if begin == "earliest" else None
        first = len(days.path) == since + 1
        now = (len(days.path), days.clock.at_ms)
        home.members[name] = Member(answer[0], *now, from_ms, loose=not first)
