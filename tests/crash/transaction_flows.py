"""The steps of a transaction, played under a fault and judged in the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain.errors import Conflict, HeadraceError, Unavailable
from chalicelib.domain.limits import MAX_CHECKS
from chalicelib.domain.message import Draft
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Topic
from chalicelib.domain.transaction import CheckAnswer, Transaction, TransactionState
from chalicelib.services.produce.check_back import Check
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.layout import fragment_of
from chalicelib.wiring import Deps
from tests.support.clock import Inline, ManualClock
from tests.support.faults import DEADLY, HARMLESS, Death, Fault, FaultPlan
from tests.support.flows import SharedTables, chance, draft
from tests.support.push import UNKNOWN, Inbox
from tests.support.rest import timers_of

COMMIT, ROLLBACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK
CHECKS = Checks("https://bank.example.com/check", 60)
RARE_CHECKS = replace(CHECKS, after_seconds=86_400)
SAYS = {COMMIT: CheckAnswer(COMMIT, "commit"), ROLLBACK: CheckAnswer(ROLLBACK, "rollback"), None: UNKNOWN}
_numbers = itertools.count()


@dataclass
class World:
    """One topic, its producer (as a ports.Sender that only asks), and what both saw."""

    tables: SharedTables
    clock: ManualClock = field(default_factory=ManualClock)
    name: str = field(default_factory=lambda: f"tx{next(_numbers)}.z")
    says: TransactionState | None = None
    asked: list[str] = field(default_factory=list)
    answered: list[Transaction] = field(default_factory=list)
    inbox: Inbox = field(default_factory=Inbox)
    meanwhile: Callable[[], object] = lambda: None  # what happens while the producer is asked

    def process(self, plan: FaultPlan | None = None) -> Deps:
        """A process that has just started."""
        seed = chance(self.name, next(_numbers))
        ways_out = {"sender": lambda: self, "invoker": self.inbox, "threads": Inline}
        return self.tables.deps(self.clock, seed, plan, **ways_out)

    def topic(self, deps: Deps) -> Topic:
        return deps.catalog.topic(self.name)

    def ask(self, transaction: Transaction, secrets: Sequence[bytes], seconds: float) -> CheckAnswer:
        assert transaction.id not in [t.id for t in self.answered if t.decided_ms], "asked after the decision"
        self.asked.append(transaction.id)
        self.meanwhile()
        return SAYS[self.says]

    def all(self, deps: Deps) -> list[Transaction]:
        topic = self.topic(deps)
        rows = [
            t
            for state in TransactionState
            for t in deps.adapters.transactions.of_state(topic, state, None, 100)
        ]
        return [deps.transactor.find(t.id) for t in rows]


def prepare(world: World, deps: Deps, checks: Checks = CHECKS, **settings: Any) -> Transaction:
    message: Draft = draft("m", **settings)
    delay_from_commit = message.due_ms is not None
    transaction, _ = deps.transactor.prepare(
        world.topic(deps), message, checks, delay_from_commit=delay_from_commit
    )
    world.answered.append(transaction)
    return transaction


def decide(state: TransactionState) -> Step:
    def act(world: World, deps: Deps) -> None:
        (transaction,) = world.all(world.process())
        world.answered.append(deps.transactor.decide(deps.transactor.find(transaction.id), state))

    return act


def decide_late(state: TransactionState, other: TransactionState) -> Step:
    """Decide on a state read before another client decided otherwise."""

    def act(world: World, deps: Deps) -> None:
        (transaction,) = world.all(world.process())
        decide(other)(world, world.process())
        with suppress(Conflict):
            world.answered.append(deps.transactor.decide(transaction, state))

    return act


def check_late(other: TransactionState) -> Step:
    """A check whose answer comes after the decision."""

    def act(world: World, deps: Deps) -> None:
        world.meanwhile = lambda: decide(other)(world, world.process())
        try:
            check(world, deps)
        finally:
            world.meanwhile = lambda: None

    return act


def check(world: World, deps: Deps) -> None:
    (transaction,) = world.all(world.process())
    world.clock.advance(transaction.check_after_ms)
    deps.checker.check([_first_of(transaction)], lambda: 60.0)


def check_again(world: World, deps: Deps) -> None:
    """Lambda's next attempt, a minute later: where the one before failed, or died, and where it was only slow."""
    (transaction,) = world.all(deps)
    world.clock.advance(60 * SECOND_MS)
    deps.checker.check([_first_of(transaction)], lambda: 60.0)


def _first_of(transaction: Transaction) -> Check:
    return Check(transaction.id, transaction.prepared_ms + 2 * transaction.check_after_ms)


def move(world: World, deps: Deps) -> None:
    """The mover, and the checks it starts."""
    (transaction,) = world.all(world.process())
    world.clock.advance(60 * SECOND_MS)
    deps.mover.run_once(fragments=[fragment_of(transaction.id)])
    _run(world, deps)


def _run(world: World, deps: Deps) -> None:
    while world.inbox.asked:
        function, event = world.inbox.asked.popleft()
        if function == "check":
            deps.checker.check([Check(*each) for each in event["checks"]], lambda: 60.0)


Step = Callable[[World, Deps], object]


def preparing(**settings: Any) -> Step:
    return lambda world, deps: prepare(world, deps, **settings)


def delayed(world: World, deps: Deps) -> Transaction:
    return prepare(world, deps, due_ms=world.clock.now_ms() + 30 * SECOND_MS)


def nearly_undecided(world: World, deps: Deps) -> None:
    transaction = prepare(world, deps)
    tired = replace(transaction, checks=MAX_CHECKS - 1)
    assert deps.adapters.transactions.change(transaction, tired)
    world.asked += [transaction.id] * tired.checks


@dataclass(frozen=True)
class Flow:
    """One step under faults. `after` is what a client without an answer does next; `end` is how it must end, `says` the
    producer's answer to a check."""

    act: Step
    end: tuple[TransactionState, ...]
    arrange: Step = lambda world, deps: None
    after: Step = lambda world, deps: None
    says: TransactionState | None = None


_KEYED = {"keys": ("order-7",)}
_TWIN = {"dedup_id": "once"}
FLOWS: Mapping[str, Flow] = {
    "prepare": Flow(preparing(), (ROLLBACK,)),
    "prepare with a dedup id": Flow(preparing(**_TWIN), (ROLLBACK,), after=preparing(**_TWIN)),
    "prepare by key": Flow(preparing(**_KEYED), (ROLLBACK,)),
    "commit": Flow(decide(COMMIT), (COMMIT,), preparing(), decide(COMMIT)),
    "commit by key": Flow(decide(COMMIT), (COMMIT,), preparing(**_KEYED), decide(COMMIT)),
    "commit for later": Flow(decide(COMMIT), (COMMIT,), delayed, decide(COMMIT)),
    "commit, and nobody repeats it": Flow(decide(COMMIT), (COMMIT, ROLLBACK), preparing()),
    "commit what was rolled back": Flow(decide_late(COMMIT, ROLLBACK), (ROLLBACK,), preparing()),
    "commit for later what was rolled back": Flow(decide_late(COMMIT, ROLLBACK), (ROLLBACK,), delayed),
    "roll back": Flow(decide(ROLLBACK), (ROLLBACK,), preparing(), decide(ROLLBACK)),
    "roll back what was committed": Flow(decide_late(ROLLBACK, COMMIT), (COMMIT,), preparing()),
    "check: commit": Flow(check, (COMMIT, ROLLBACK), preparing(), says=COMMIT),
    "check: commit, too late": Flow(check_late(ROLLBACK), (ROLLBACK,), preparing(), says=COMMIT),
    "check: rollback, too late": Flow(check_late(COMMIT), (COMMIT, ROLLBACK), preparing(), says=ROLLBACK),
    "check: rollback": Flow(check, (ROLLBACK,), preparing(), says=ROLLBACK),
    "check: unknown": Flow(check, (ROLLBACK,), preparing()),
    "a rare check: commit": Flow(check, (COMMIT,), preparing(checks=RARE_CHECKS), check_again, says=COMMIT),
    "a rare check: rollback": Flow(
        check, (ROLLBACK,), preparing(checks=RARE_CHECKS), check_again, says=ROLLBACK
    ),
    "the last check": Flow(check, (TransactionState.UNDECIDED, ROLLBACK), nearly_undecided),
    "move and check": Flow(move, (ROLLBACK,), preparing()),
}


def play(
    tables: SharedTables, flow: Flow, fault: Fault | None = None, at: int = 0
) -> tuple[FaultPlan, list[str]]:
    """Run a flow with a fault at its `at`-th call, start afresh, let an hour of movers pass, judge."""
    world = World(tables)
    deps = world.process()
    deps.admin.put_topic(world.name, {"shards": 1})
    flow.arrange(world, deps)
    world.says = flow.says
    plan, error = FaultPlan(fault, at), None
    try:
        flow.act(world, world.process(plan))
    except (Death, HeadraceError) as exception:
        error = exception
    flow.after(world, world.process())
    come_to_rest(world)
    return plan, [*judge(world, flow), *_judge_error(fault if plan.fired else None, error)]


def _judge_error(fault: Fault | None, error: BaseException | None) -> list[str]:
    if fault in DEADLY:
        return [] if isinstance(error, Death) else ["death was swallowed"]
    if error is None or (fault and fault not in HARMLESS and isinstance(error, Unavailable)):
        return []
    return [f"raised {error!r}"]


def come_to_rest(world: World) -> None:
    """Minutes in which the producer, when it is asked, says that nothing happened: until all is decided and no timer
    is left, and one more; but at most twenty."""
    world.says = ROLLBACK
    deps, quiet = world.process(), False
    for _ in range(20):
        world.clock.advance(60 * SECOND_MS)
        transactions = world.all(deps)
        ids = [id for t in transactions for id in (t.id, t.message_id)]
        deps.mover.run_once(fragments=sorted({fragment_of(id) for id in ids}))
        _run(world, deps)
        if quiet:
            return
        quiet = not any(t.state is TransactionState.PREPARED for t in transactions)
        quiet = quiet and not any(id in timer for timer in timers_of(deps) for id in ids)


def judge(world: World, flow: Flow) -> list[str]:
    """The violations in the end."""
    deps, wrong = world.process(), []
    transactions = world.all(deps)
    if len(transactions) > 1 or (world.answered and not transactions):
        wrong.append(f"{len(transactions)} transactions")
    rows = deps.adapters.log.read(world.topic(deps).shard_key(0), 0, 100, consistent=True)
    ids = [message.id for row in rows for o in range(row.first, row.end) if (message := row.message(0, o))]
    for transaction in transactions:
        if transaction.state not in flow.end:
            wrong.append(f"ended {transaction.state}")
        if ids != [transaction.message_id] * (transaction.state is COMMIT):
            wrong.append(f"{transaction.state}, but in the log: {ids}")
        if transaction.state is COMMIT and transaction.due_ms is None and transaction.offset != rows[0].first:
            wrong.append("it stands elsewhere than was said")
        answers = {(t.state, t.shard, t.offset, t.due_ms) for t in world.answered if t.decided_ms}
        if answers - {(transaction.state, transaction.shard, transaction.offset, transaction.due_ms)}:
            wrong.append(f"{answers} was answered, {transaction} is true")
        if not 0 <= len(world.asked) - transaction.checks <= 1 or transaction.checks > MAX_CHECKS:
            wrong.append(f"{transaction.checks} of {len(world.asked)} calls counted")
        timers = deps.adapters.timers.first_due(fragment_of(transaction.id), 10**15 - 2, 10_000).timers
        if any(timer.id == transaction.id for timer in timers):
            wrong.append("a timer is left")
    return wrong
