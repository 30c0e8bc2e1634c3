"""Dead letters over HTTP, in few words: make them, see them, send them again."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.message import Draft
from chalicelib.domain.record import DeadLetter, FailureFilter
from chalicelib.domain.topic import Group as GroupRow
from chalicelib.domain.topic import Topic as TopicRow
from chalicelib.services.consume.settle import Nack
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.http import Group, Reply, Topic
from tests.support.stages import Stage


def letters(group: Group, query: str = "") -> list[Any]:
    items: list[Any] = group.api.get(f"{group.path}/dead-letters?{query}").expect(200)["items"]
    return items


def letter(group: Group, message_id: str) -> Any:
    return group.api.get(f"{group.path}/dead-letters/{message_id}").expect(200)


def edit(group: Group, message_id: str, body: Any) -> Reply:
    return group.api.call("PATCH", f"{group.path}/dead-letters/{message_id}", {"body": body})


def redrive(group: Group, **which: Any) -> int:
    return int(group.api.post(f"{group.path}/dead-letters/redrive", which).expect(200)["redriven"])


def retry_now(group: Group, message_id: str) -> Reply:
    return group.api.post(f"{group.topic.path}/messages/{message_id}/retry", {"group": group.name})


def bury(group: Group, reason: str = "no", **fields: Any) -> list[Any]:
    if messages := group.receive(200, **fields):
        assert set(group.nack(*messages, dead_letter=True, reason=reason)) == {"ok"}
    return messages


def receive_again(group: Group, **fields: Any) -> list[Any]:
    """What is received again; a lane that was just empty is not looked at for half a second."""
    return group.receive(wait_seconds=1, **fields)


def bodies(group: Group, **fields: Any) -> list[Any]:
    return [message["body"] for message in receive_again(group, **fields)]


def produce_and_bury(topic: Topic, group: Group, *bodies: Any, **fields: Any) -> list[Any]:
    """The messages that were sent and then buried."""
    messages = [topic.produce(body, **fields) for body in bodies]
    assert len(bury(group)) == len(messages)
    return messages


BURY = Nack(dead_letter=True, reason="no such account")
ALL = FailureFilter()
MANY = 230


class Table:
    """A group, and letters of its topic."""

    def __init__(self, stage: Stage, *drafts: Draft, **settings: Any) -> None:
        self.desk = Desk.at(stage, max_body_bytes=1 << 20, **settings)
        self.group, self.topic, self.deps = self.desk.group(), self.desk.topic, self.desk.deps
        self.dead_letters, self.letter_lookup = self.deps.dead_letters, self.deps.letter_lookup
        self.ids = [result.id for result in self.desk.produce(*(drafts or (make.draft("x"),)))]
        self.bury()

    def bury(self) -> None:
        while messages := self.desk.receive(self.group, 500):
            self.desk.nack(self.group, messages, BURY)

    def letter(self) -> DeadLetter:
        return self.letter_lookup.find(self.topic, self.group, self.ids[0])[0]

    def edit(self, body: bytes, letter: DeadLetter | None = None, by: str = "") -> DeadLetter:
        return self.dead_letters.edit(self.topic, self.group, letter or self.letter(), body, by)

    def redrive(self, *letters: DeadLetter, by: str = "") -> int:
        return self.dead_letters.redrive(self.topic, self.group, letters or [self.letter()], by)

    def pages(self, selection: FailureFilter, limit: int) -> list[list[int]]:
        """The offsets of each page."""
        pages: list[list[int]] = []
        after: str | None = None
        while True:
            letters, after = self.letter_lookup.page(self.topic, self.group, selection, after, limit)
            pages.append([letter.offset for letter in letters])
            if after is None:
                return pages


def redrive_first(deps: Deps, topic: TopicRow, group: GroupRow, most: int, by: str = "") -> int:
    """Redrive the group's first dead letters; how many."""
    letters = deps.letter_lookup.page(topic, group, ALL, None, most)[0]
    return deps.dead_letters.redrive(topic, group, letters, by)
