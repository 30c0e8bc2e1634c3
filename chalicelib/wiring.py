"""Chooses the adapters, once per cold start. The only reader of settings, clock and chance."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

from . import settings as environment
from .domain.ids import ALPHABET
from .domain.topic import Consumer, Group, Topic
from .services.tally import Tally
from .settings import Settings
from .store.clients import Clients, OnClient

if TYPE_CHECKING:
    from .ports import (
        Blobs,
        Chance,
        Clock,
        Control,
        Cursors,
        Invoker,
        Keys,
        Log,
        Rates,
        Records,
        Sender,
        Timers,
        Traces,
        Transactions,
    )
    from .scheduler.assigner import Assigner
    from .scheduler.checkpoint import Checkpointer
    from .scheduler.expirer import Expirer
    from .scheduler.mover import Mover
    from .scheduler.sweeper import Sweeper
    from .scheduler.watch import Watch
    from .services.amend import Amender
    from .services.assignment import Assignments
    from .services.catalog import Catalog
    from .services.checks import Checker
    from .services.claim import Claimer
    from .services.consume import Receiver
    from .services.cursor_state import CursorStates
    from .services.delayed import Delayed
    from .services.deliver import Deliverer
    from .services.due import Due
    from .services.intake import Intake
    from .services.key_lookup import KeyLookup
    from .services.lookup import Lookup
    from .services.positions import Positions
    from .services.produce import Producer
    from .services.reader import Reader
    from .services.redrive import Redriver
    from .services.settle import Settler
    from .services.setup import Setup
    from .services.tokens import Tokens
    from .services.trace import Tracer
    from .services.transactions import Transactor
    from .services.wake import Waker
    from .services.witness import Witness

_TOKEN_CHARS = 24  # DynamoDB takes up to 36
_OWNER_CHARS = 8
_MOST_THREADS = 256  # of one delivery


class SystemClock:
    """ports.Clock: the machine's time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class SystemChance:
    """ports.Chance: the machine's randomness."""

    def below(self, n: int) -> int:
        return secrets.randbelow(n)

    def id(self, chars: int) -> str:
        bits = secrets.randbits(5 * chars)
        return "".join(ALPHABET[bits >> 5 * i & 31] for i in range(chars))

    def secret(self) -> bytes:
        return secrets.token_bytes(32)


class Nobody:
    """ports.Invoker that starts nothing: a wake-up is only that, and schedules find what was to be done."""

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        return


local_invoker: Invoker = Nobody()
"""Set, before `deps` is first called, by a process that runs our functions itself."""

local_clock: Clock | None = None
"""Set likewise, where time is in somebody's hand."""


@dataclass(frozen=True)
class Adapters:
    """One form of every port."""

    log: Log
    cursors: Cursors
    records: Records
    timers: Timers
    transactions: Transactions
    traces: Traces
    keys: Keys
    rates: Rates
    control: Control
    blobs: Blobs
    clock: Clock
    chance: Chance
    create_tables: Callable[[], None]
    sender: Callable[[], Sender]
    invoker: Invoker
    threads: Callable[[], Executor]
    stage: str = ""
    """The name under which metrics are told; empty: they are not."""


class Deps:
    """Every service, made from one set of adapters and imported when it is first needed: a cold start pays for what
    it runs."""

    def __init__(self, adapters: Adapters) -> None:
        self.adapters = adapters
        self.tally = Tally()

    def setup(self) -> None:
        """Create missing tables and wait until they can be used. For local runs and tests."""
        self.adapters.create_tables()

    @cached_property
    def signing_key(self) -> bytes:
        return self.adapters.control.signing_key(self.adapters.chance.secret())

    @cached_property
    def catalog(self) -> Catalog:
        from .services.catalog import Catalog

        return Catalog(self.adapters.control, self.adapters.clock)

    @cached_property
    def assignments(self) -> Assignments:
        from .services.assignment import Assignments

        return Assignments(self.adapters.control, self.catalog, self.adapters.clock)

    @cached_property
    def states(self) -> CursorStates:
        from .services.cursor_state import CursorStates

        return CursorStates(self.adapters.cursors, self.adapters.clock, self.tally)

    @cached_property
    def reader(self) -> Reader:
        from .services.reader import Reader

        return Reader(self.adapters.log, self.adapters.clock)

    @cached_property
    def producer(self) -> Producer:
        from .services.produce import Producer

        a = self.adapters
        return Producer(a.log, a.timers, a.keys, a.blobs, a.clock, a.chance, self.waker.filed)

    @cached_property
    def intake(self) -> Intake:
        from .services.intake import Intake
        from .services.rates import RateLimits

        return Intake(self.producer, RateLimits(self.adapters.rates, self.adapters.clock), self.tally)

    @cached_property
    def receiver(self) -> Receiver:
        from .services.consume import Receiver

        return Receiver(self.assignments, self.claimer, self.adapters.clock, self.adapters.chance)

    @cached_property
    def claimer(self) -> Claimer:
        from .services.claim import Claimer

        a = self.adapters
        return Claimer(self.states, self.reader, self.witness, self.catalog.is_registered, a.clock, a.chance)

    @cached_property
    def witness(self) -> Witness:
        from .services.witness import Witness

        return Witness(self.adapters.traces, self.assignments.standing, self.adapters.clock)

    @cached_property
    def waker(self) -> Waker:
        from .services.wake import Waker

        return Waker(self.catalog, self.adapters.invoker, self.adapters.clock)

    @cached_property
    def settler(self) -> Settler:
        from .services.settle import Settler

        return Settler(
            self.states,
            self.reader,
            self.witness,
            self.adapters.clock,
            lambda: self.signing_key,
            self.waker.filed,
            self.tally,
        )

    @cached_property
    def sender(self) -> Sender:
        return self.adapters.sender()

    @cached_property
    def deliverer(self) -> Deliverer:
        from .services.deliver import Deliverer
        from .services.health import Healths

        a = self.adapters
        return Deliverer(
            self.catalog,
            self.claimer,
            self.settler,
            self.sender,
            a.blobs,
            a.timers,
            self.waker,
            Healths(self.admin.set_health, self.admin.disable, a.clock),
            self.assignments.owners,
            a.clock,
            a.threads,
        )

    @cached_property
    def redriver(self) -> Redriver:
        from .services.redrive import Redriver

        a = self.adapters
        return Redriver(
            self.catalog,
            self.lookup,
            a.records,
            a.timers,
            self.witness,
            self.states,
            self.producer,
            self.waker,
            a.clock,
        )

    @cached_property
    def tracer(self) -> Tracer:
        from .services.trace import Tracer

        return Tracer(self.catalog, self.adapters.traces, self.adapters.records)

    @cached_property
    def due(self) -> Due:
        from .services.due import Due

        return Due(self.catalog, self.producer, self.adapters.timers, self.waker)

    @cached_property
    def delayed(self) -> Delayed:
        from .services.delayed import Delayed

        a = self.adapters
        return Delayed(a.timers, a.transactions, a.log, self.positions, self.producer, self.waker, a.clock)

    @cached_property
    def transactor(self) -> Transactor:
        from .services.transactions import Transactor

        a = self.adapters
        return Transactor(
            self.catalog,
            a.transactions,
            self.producer,
            self.waker,
            a.clock,
            a.chance,
            lambda: self.signing_key,
            self.tally,
        )

    @cached_property
    def checker(self) -> Checker:
        from .services.checks import Checker

        a = self.adapters
        return Checker(a.transactions, self.transactor, a.timers, self.sender, a.threads)

    @cached_property
    def amender(self) -> Amender:
        from .services.amend import Amender

        a = self.adapters
        return Amender(a.control, a.log, a.cursors, a.records, self.producer, self.reader, a.clock)

    @cached_property
    def mover(self) -> Mover:
        from .scheduler.mover import Mover

        a, waker = self.adapters, self.waker
        new_owner = partial(a.chance.id, _OWNER_CHARS)
        return Mover(a.timers, self.due.append, waker.due, waker.check, waker.mover, a.clock, new_owner)

    @cached_property
    def sweeper(self) -> Sweeper:
        from .scheduler.sweeper import Sweeper

        a = self.adapters
        return Sweeper(
            a.control, a.log, a.cursors, lambda shard: self.waker.route([shard]), a.clock, self.watch.see
        )

    @cached_property
    def watch(self) -> Watch:
        from .scheduler.watch import Watch

        a = self.adapters
        return Watch(a.control, a.log, a.cursors, a.clock)

    @cached_property
    def positions(self) -> Positions:
        from .services.positions import Positions

        return Positions(self.adapters.log, self.states)

    @cached_property
    def admin(self) -> Setup:
        from .services.setup import Setup

        a = self.adapters
        return Setup(
            a.control, self.catalog, self.positions, self.states, self.assignments, a.clock, a.chance
        )

    @cached_property
    def lookup(self) -> Lookup:
        from .services.lookup import Lookup

        a = self.adapters
        return Lookup(self.catalog, a.log, a.cursors, a.records, self.reader, self.delayed, a.clock)

    @cached_property
    def key_lookup(self) -> KeyLookup:
        from .services.key_lookup import KeyLookup

        return KeyLookup(self.adapters.keys, self.lookup)

    @cached_property
    def tokens(self) -> Tokens:
        from .services.tokens import Tokens

        return Tokens(self.adapters.control, self.adapters.clock, self.adapters.chance)

    @cached_property
    def checkpointer(self) -> Checkpointer:
        from .scheduler.checkpoint import Checkpointer

        return Checkpointer(self.adapters.control, self.adapters.log, self.adapters.clock)

    @cached_property
    def expirer(self) -> Expirer:
        from .scheduler.expirer import Expirer

        return Expirer(self.adapters.control, self._bury, self.adapters.clock)

    def _bury(self, topic: Topic, group: Group, shard: int, consumer_uid: str, before_ms: int) -> int:
        from .services.claim import Claimant

        return self.claimer.bury(Claimant(topic, group, 0, "", consumer_uid), shard, before_ms)

    @cached_property
    def assigner(self) -> Assigner:
        from .scheduler.assigner import Assigner

        return Assigner(self.adapters.control, self.assignments.look_after, self._ask)

    def _ask(self, topic: Topic, group: Group, consumer: Consumer) -> bool:
        from .services.consent import Consent

        return Consent(self.sender, self.admin, self.waker).ask(topic, group, consumer)


@cache
def deps() -> Deps:
    """The process's services, from its environment."""
    settings = environment.read()
    return Deps(dynamo_adapters(settings, local_clock, invoker=_invoker(settings)))


def _invoker(settings: Settings) -> Invoker:
    if not settings.deliver or not settings.mover or not settings.check:
        return local_invoker
    from .delivery.functions import LambdaInvoker

    names = {"deliver": settings.deliver, "mover": settings.mover, "check": settings.check}
    clients = Clients(settings.region)
    return LambdaInvoker(lambda: clients.get("lambda"), names)


def dynamo_adapters(
    settings: Settings,
    clock: Clock | None = None,
    chance: Chance | None = None,
    on_client: OnClient | None = None,
    invoker: Invoker | None = None,
) -> Adapters:
    """The ports on DynamoDB. `on_client` sees every AWS client before its first use."""
    from .store.blobs import FolderBlobs, S3Blobs
    from .store.control import DynamoControl, rows_of
    from .store.cursors import DynamoCursors
    from .store.dynamo import Dynamo
    from .store.keys import DynamoKeys
    from .store.layout import Tables
    from .store.log import DynamoLog
    from .store.rates import DynamoRates
    from .store.records import DynamoRecords
    from .store.tables import create_missing
    from .store.timers import DynamoTimers
    from .store.traces import DynamoTraces
    from .store.transactions import DynamoTransactions

    clock, chance = clock or SystemClock(), chance or SystemChance()
    tables = Tables(settings.prefix)
    clients = Clients(settings.region, on_client)
    client = clients.get("dynamodb")
    dynamo = Dynamo(
        client,
        tables,
        lambda n: clock.sleep(0.005 * (1 + chance.below(2**n))),
        lambda: chance.id(_TOKEN_CHARS),
    )
    return Adapters(
        log=DynamoLog(dynamo),
        cursors=DynamoCursors(dynamo),
        records=DynamoRecords(dynamo),
        timers=DynamoTimers(dynamo),
        transactions=DynamoTransactions(dynamo),
        traces=DynamoTraces(dynamo),
        keys=DynamoKeys(dynamo),
        rates=DynamoRates(dynamo),
        control=DynamoControl(rows_of(client, tables.control, settings.region)),
        blobs=S3Blobs(clients.get("s3"), settings.bucket)
        if settings.bucket
        else FolderBlobs(settings.folder),
        clock=clock,
        chance=chance,
        create_tables=lambda: create_missing(client, tables),
        sender=lambda: _sender(settings, clients, clock),
        invoker=invoker or Nobody(),
        threads=_threads,
        stage=settings.prefix if settings.deployed else "",
    )


def _threads() -> Executor:
    return ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="send")


def _sender(settings: Settings, clients: Clients, clock: Clock) -> Sender:
    from .delivery.addresses import Rules
    from .delivery.egress import Egress
    from .delivery.functions import Functions, LambdaFunctions, LocalFunctions
    from .delivery.sender import Sender as Out

    own_hosts = frozenset({settings.origin})
    rules = Rules(frozenset(settings.ports), own_hosts, settings.allow_loopback, settings.port)
    functions: Functions = LocalFunctions(settings.functions)
    if settings.account:
        functions = LambdaFunctions(
            lambda: clients.get("lambda"), settings.region, settings.account, settings.prefix
        )
    return Out(Egress(rules, time.monotonic), functions, clock, time.monotonic, settings.origin)


def memory_adapters(
    clock: Clock,
    chance: Chance,
    sender: Callable[[], Sender] | None = None,
    invoker: Invoker | None = None,
    threads: Callable[[], Executor] = _threads,
) -> Adapters:
    """The ports in memory, for tests and simulations."""
    from .store import memory

    tables = memory.MemoryTables()
    return Adapters(
        log=memory.MemoryLog(tables),
        cursors=memory.MemoryCursors(tables),
        records=memory.MemoryRecords(tables),
        timers=memory.MemoryTimers(tables),
        transactions=memory.MemoryTransactions(tables),
        traces=memory.MemoryTraces(),
        keys=memory.MemoryKeys(),
        rates=memory.MemoryRates(),
        control=memory.MemoryControl(),
        blobs=memory.MemoryBlobs(),
        clock=clock,
        chance=chance,
        create_tables=lambda: None,
        sender=sender or (lambda: _sender(environment.read({}), Clients("us-east-1"), clock)),
        invoker=invoker or Nobody(),
        threads=threads,
    )
