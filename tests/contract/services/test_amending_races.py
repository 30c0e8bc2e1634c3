"""Editors and claimers race for the same messages: one of them wins, and the other is refused."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from chalicelib.domain.message import Draft, Message
from chalicelib.domain.topic import Group
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.amending import _attempt
from tests.support.desk import Desk
from tests.support.stages import Stage


@dataclass
class Race:
    """Claimers and editors, each a process of its own, on the messages of one shard. Claimers take as many turns as
    editors, so that both are at the front together."""

    desk: Desk
    group: Group
    placed: list[ProduceResult]
    delivered: dict[int, bytes] = field(default_factory=dict)
    edited: defaultdict[int, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    over: threading.Event = field(default_factory=threading.Event)

    def claims(self, deps: Deps) -> None:
        claimer = Desk(self.desk.stage, deps, self.desk.topic)
        while (c := self.desk.cursor(self.group)).next < len(self.placed) or c.leases or c.waiting:
            if not self.over.is_set():
                self.turns.acquire(timeout=1)
            messages = deps.receiver.receive(self.desk.topic, self.group, None, 2, 0, 3_600)
            for d in messages:
                assert d.message.offset not in self.delivered
                self.delivered[d.message.offset] = d.message.draft.body
            assert set(claimer.ack(self.group, messages)) <= {None}

    def edits(self, name: str, deps: Deps) -> None:
        chance = random.Random(name)
        while (front := self.desk.cursor(self.group).next) < len(self.placed):
            n = max(0, min(len(self.placed) - 1, front + chance.randrange(-1, 6)))  # some are claimed already
            message = Message(self.placed[n].id, 0, n, 0, Draft(b""))
            what = chance.choice(["cancel", *(f'"{name}{chance.random()}"' for _ in range(3))])
            if what == "cancel":
                answer = _attempt(deps.amender.cancel, self.desk.topic, message)
            else:
                answer = _attempt(deps.amender.amend, self.desk.topic, message, {"body": what.encode()})
            self.edited[n].append((what, answer))
            self.turns.release()
        self.over.set()


@pytest.mark.parametrize(("mode", "batches"), [("queue", 40), ("serial", 15)])
def test_who_was_told_ok_sees_the_new_body_delivered_and_nothing_cancelled(
    stage: Stage, mode: str, batches: int
) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode=mode)
    results = [p for n in range(batches) for p in desk.produce(*make.drafts(5, ordering_key=f"k{n % 3}"))]
    race = Race(desk, group, results)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(race.claims, stage.process()) for _ in range(2)]
        runs += [pool.submit(race.edits, name, stage.process()) for name in ("e", "f")]
        for run in runs:
            run.result(timeout=300)
    answers = {answer for edits in race.edited.values() for _, answer in edits}
    assert answers <= {"ok", "ALREADY_CLAIMED", "MESSAGE_CANCELLED"}
    assert answers >= {"ok", "ALREADY_CLAIMED"}
    for row in desk.rows():
        for n in range(row.first, row.end):
            draft = row.drafts[n - row.first]
            oks = [what for what, answer in race.edited[n] if answer == "ok"]
            assert (n in race.delivered) == (not draft.cancelled), "delivered or cancelled, not both"
            assert draft.cancelled == ("cancel" in oks)
            if n in race.delivered:
                assert race.delivered[n] == draft.body, "an old copy was delivered"
                assert draft.body.decode() in (oks or [f'{{"n":{n % 5}}}'])
