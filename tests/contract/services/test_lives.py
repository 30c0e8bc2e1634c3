"""Topics and groups live, die and live again, seen by processes that each believe what they read seconds ago, while
rows expire at TTL's leisure and only some of the schedules run. Each accepted message is accounted for.

A state machine in virtual time. It knows which messages a group is owed for certain, and which it
may get; the rest it must never see.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from chalicelib.domain.errors import HeadraceError, NotFound
from chalicelib.domain.ladder import Retry
from chalicelib.domain.receipt import sign_receipt
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Group, Topic
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Nack
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import ManualClock
from tests.support.embedded import engine_client
from tests.support.stages import embedded_stage

NAME = "orders"
GROUPS = ("a", "b")
PROCESSES = 3
RETENTIONS = (1, 3, 30)
DELAY_MS = 90 * SECOND_MS
RUN_MS = 6 * HOUR_MS
CACHE_MS = 3 * SECOND_MS
MANY = 3


@dataclass
class Sent:
    """A message that was accepted, in which life of the topic, and when it came into the log at the latest."""

    number: int
    life: int
    at_ms: int
    in_log_ms: int
    certain: bool  # the topic was not deleted meanwhile
    delayed: bool


@dataclass
class Member:
    """A group, the number of the first message that was accepted after it, and what it has seen."""

    group: Group
    first: int
    life: int
    at_ms: int
    acked: Counter[str] = field(default_factory=Counter)


class Sleeper:
    """Something happens during a sleep on the stage's clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.meanwhile: Callable[[], object] | None = None
        clock.sleep = self.sleep  # type: ignore[method-assign]

    def sleep(self, seconds: float) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        self._clock.advance(round(seconds * 500))
        if meanwhile:
            meanwhile()
        self._clock.advance(round(seconds * 500))


processes = st.integers(0, PROCESSES - 1)
groups = st.sampled_from(GROUPS)


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stage = embedded_stage()
        self.clock = self.stage.clock
        self.sleeper = Sleeper(self.clock)
        self.processes = [self.stage.process() for _ in range(PROCESSES)]
        self.lives = 0
        self.topic: Topic | None = None
        self.retentions: list[int] = []  # that this life of the topic has had
        self.sent: dict[str, Sent] = {}
        self.members: dict[str, Member] = {}
        self.deeds = 0  # since something was deleted: a life must have a chance to become interesting

    # What people do.

    @initialize()
    def begin(self) -> None:
        self.put_topic(0, 1)
        self.put_group(0, "a", "earliest", "queue")

    @rule(process=processes, days=st.sampled_from(RETENTIONS))
    def put_topic(self, process: int, days: int) -> None:
        settings: dict[str, Any] = {"shards": 2, "retention_days": days, "retry": Retry(50, (1,), jitter=0.0)}
        topic, is_new = self.processes[process].admin.put_topic(NAME, settings)
        assert is_new == (self.topic is None)
        if is_new:
            self.lives += 1
            self.retentions = []
        self.topic = topic
        self.retentions.append(days)

    @precondition(lambda self: self.topic and self.deeds >= MANY)
    @rule(process=processes, other=processes, is_delayed=st.booleans())
    def delete_topic(self, process: int, other: int, is_delayed: bool) -> None:
        self.deeds = 0
        admin = self.processes[process].admin
        self.sleeper.meanwhile = lambda: self._produce(other, is_delayed, certain=False)
        admin.delete_topic(admin.topic_to_delete(NAME))
        self.topic = None
        self.members.clear()

    @precondition(lambda self: self.topic)
    @rule(
        process=processes,
        name=groups,
        begin=st.sampled_from(("earliest", "latest")),
        mode=st.sampled_from(("queue", "serial")),
    )
    def put_group(self, process: int, name: str, begin: str, mode: str) -> None:
        if name in self.members:
            return
        deps, at_ms = self.processes[process], self.clock.now_ms()
        topic = deps.catalog.topic(NAME, consistent=True)
        group, is_new = deps.admin.put_group(topic, name, {"begin": begin, "mode": mode})
        assert is_new
        self.members[name] = Member(group, len(self.sent), self.lives, at_ms)

    @precondition(lambda self: self.members and self.deeds >= MANY)
    @rule(process=processes, other=processes, name=groups)
    def delete_group(self, process: int, other: int, name: str) -> None:
        if name not in self.members:
            return
        self.deeds = 0
        deps, member = self.processes[process], self.members.pop(name)
        topic = deps.catalog.topic(NAME, consistent=True)
        self.sleeper.meanwhile = lambda: self._receive(other, member, "ack")
        deps.admin.delete_group(topic, deps.admin.group_to_delete(topic, name))
        # Who has it in his hands still.
        assert self.processes[other].receiver.receive(topic, member.group, None, 10, 0, 30) == []

    @rule(process=processes, is_delayed=st.booleans())
    def produce(self, process: int, is_delayed: bool) -> None:
        self._produce(process, is_delayed, certain=True)

    def _produce(self, process: int, is_delayed: bool, *, certain: bool) -> None:
        """As a request does it: with what the process believes."""
        self.deeds += 1
        deps, at_ms = self.processes[process], self.clock.now_ms()
        label = str(len(self.sent))
        draft = make.draft(label, due_ms=at_ms + DELAY_MS if is_delayed else None)
        try:
            (outcome,) = deps.producer.produce(deps.catalog.topic(NAME), [draft])
        except NotFound:
            assert self.topic is None or not certain
            return
        assert isinstance(outcome, ProduceResult)
        assert self.topic is not None, "accepted for a topic that is not there"
        in_log_ms = at_ms + (DELAY_MS if is_delayed else 0)
        self.sent[label] = Sent(len(self.sent), self.lives, at_ms, in_log_ms, certain, is_delayed)

    @precondition(lambda self: self.members)
    @rule(process=processes, name=groups, how=st.sampled_from(("ack", "nack", "later", "keep")))
    def receive(self, process: int, name: str, how: str) -> None:
        member = self.members.get(name)
        if member:
            self._receive(process, member, how)

    def _receive(self, process: int, member: Member, how: str) -> int:
        deps = self.processes[process]
        try:
            topic = deps.catalog.topic(NAME)
            group = deps.catalog.group(topic, member.group.name)
        except NotFound:
            return 0
        messages = deps.receiver.receive(topic, group, None, 10, 0, 30)
        self.deeds += bool(messages)
        for delivery in messages:
            self._judge(member, delivery)
        receipts = [sign_receipt(deps.signing_key, d.receipt) for d in messages]
        if how == "ack":
            answers = deps.settler.ack(topic, group, receipts)
            settled_messages = [
                d for d, a in zip(messages, answers, strict=True) if not isinstance(a, HeadraceError)
            ]
            member.acked.update(_label(delivery) for delivery in settled_messages)
        elif how in ("nack", "later"):
            deps.settler.nack(topic, group, receipts, Nack(delay_ms=2 * SECOND_MS if how == "later" else 0))
        return len(messages)

    def _judge(self, member: Member, delivery: ClaimedMessage) -> None:
        label = _label(delivery)
        message = self.sent[label]
        assert message.life == member.life, "of another life of the topic"
        assert not member.acked[label], "delivered again after its ack"
        if member.group.begin == "latest" and not message.delayed:
            assert message.number >= member.first, "accepted before the group was there"
        if not delivery.receipt.entry:  # an entry of the retry lane is kept for itself
            longest_ms = max(self.retentions) * DAY_MS
            assert self.clock.now_ms() < message.in_log_ms + longest_ms + 12 * HOUR_MS, "past its retention"

    @rule(process=processes)
    def restart(self, process: int) -> None:
        self.processes[process] = self.stage.process()

    # What time brings.

    @rule(ms=st.sampled_from((100, SECOND_MS, 2 * SECOND_MS, CACHE_MS, 40 * SECOND_MS, HOUR_MS)))
    def pass_moments(self, ms: int) -> None:
        self.clock.advance(ms)
        self.processes[0].mover.run_once()

    @rule(
        runs=st.integers(1, 20),
        checkpoints=st.booleans(),
        seed=st.integers(0, 99),
        late_percent=st.sampled_from((0, 50, 100)),
    )
    def pass_days(self, runs: int, checkpoints: bool, seed: int, late_percent: int) -> None:
        """`late_percent` is the share of rows, in percent, that TTL takes later each time it comes by."""
        chance = random.Random(seed)
        for _ in range(runs):
            self.clock.advance(RUN_MS)
            process = self.stage.process()
            process.mover.run_once()
            process.expirer.run_once()
            if checkpoints:
                process.checkpointer.run_once()
            self._drop_some(lambda: chance.randrange(100) >= late_percent)

    def _drop_some(self, is_taken: Callable[[], bool]) -> None:
        """DynamoDB's TTL, which takes expired rows in no order."""
        client, table = engine_client(self.stage.adapters), "headrace-log"
        expired = {":now": {"N": str(self.clock.now_ms() // 1000)}}
        rows = client.scan(TableName=table, FilterExpression="x <= :now", ExpressionAttributeValues=expired)[
            "Items"
        ]
        for row in filter(lambda _: is_taken(), rows):
            client.delete_item(TableName=table, Key={"s": row["s"], "o": row["o"]})

    # What must be so.

    @precondition(lambda self: self.members)
    @rule(process=processes)
    def settle_up(self, process: int) -> None:
        """Everybody gets what he is owed; what became a dead letter instead is past its retention."""
        for member in self.members.values():
            for _ in range(4):
                while self._receive(process, member, "ack"):
                    pass
                self.clock.advance(40 * SECOND_MS)
                self.processes[process].mover.run_once()
        for member in self.members.values():
            self._balance(self.processes[process], member)

    def _balance(self, deps: Deps, member: Member) -> None:
        assert self.topic
        letters = deps.adapters.records.dead(self.topic, member.group, None, 100_000)
        dead_labels = {_text(letter.message.draft.body) for _, letter in letters}
        for label in dead_labels:
            message = self.sent[label]
            assert message.life == member.life
            age_ms = self.clock.now_ms() - message.at_ms
            assert age_ms >= min(self.retentions) * DAY_MS, "buried too soon"
            before_ms = member.at_ms - message.in_log_ms
            assert before_ms < max(self.retentions) * DAY_MS + 12 * HOUR_MS, "over before the group was there"
        for label, message in self.sent.items():
            if self._is_owed(member, message):
                assert member.acked[label] == 1 or label in dead_labels, f"message {label} is lost"

    def _is_owed(self, member: Member, message: Sent) -> bool:
        """For certain."""
        if not message.certain or message.life != member.life:
            return False
        if self.clock.now_ms() <= message.in_log_ms:
            return False
        if message.number >= member.first:
            return True
        return member.group.begin == "earliest" and member.at_ms - message.at_ms < DAY_MS // 2


def _label(delivery: ClaimedMessage) -> str:
    return _text(delivery.message.draft.body)


def _text(body: bytes) -> str:
    return body.decode().strip('"')


Lives.TestCase.settings = settings(max_examples=12, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase
