"""A group whose messages are dead letters."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.message import Draft
from chalicelib.domain.record import DeadLetter
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.letter_lookup import DeadLetterFilter
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage

BURY = Nack(dead_letter=True, reason="no such account")
ALL = DeadLetterFilter()
MANY = 230


class Table:
    """A group, and its dead letters."""

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

    def pages(self, selection: DeadLetterFilter, limit: int) -> list[list[int]]:
        """The offsets of each page."""
        pages: list[list[int]] = []
        after: str | None = None
        while True:
            letters, after = self.letter_lookup.page(self.topic, self.group, selection, after, limit)
            pages.append([letter.offset for letter in letters])
            if after is None:
                return pages
