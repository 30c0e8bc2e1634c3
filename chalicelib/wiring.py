"""Every service, made from one set of adapters, once per cold start."""

from __future__ import annotations

from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from .adapters import Adapters, from_environment
from .domain.topic import Consumer, CursorKey, Group, Topic
from .services.core.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ports.world import Sender
    from .scheduler.assigner import Assigner
    from .scheduler.bodies import BodySweeper
    from .scheduler.checkpoint import Checkpointer
    from .scheduler.expirer import Expirer
    from .scheduler.keeper import RetentionGuard
    from .scheduler.meter_reader import MeterReader, State
    from .scheduler.mover import Mover
    from .scheduler.sweeper import Sweeper
    from .scheduler.watch import Watch
    from .services.consume.claim import Claimer
    from .services.consume.receive import Receiver
    from .services.consume.settle import Settler
    from .services.core.assignments import Assignments
    from .services.core.attempt_log import AttemptLog
    from .services.core.catalog import Catalog
    from .services.core.cursor_store import CursorStore
    from .services.core.expiring_cache import TtlCache
    from .services.core.log_reader import LogReader
    from .services.core.marker import Marker
    from .services.core.meter_notes import MeterNotes
    from .services.core.positions import Positions
    from .services.core.rate_limiter import RateLimits
    from .services.core.readiness import Readiness
    from .services.core.secret_cipher import SecretCipher
    from .services.core.signing_keys import SigningKeys
    from .services.core.tails import Tails
    from .services.core.wake import Waker
    from .services.inspect.archive_days import ArchiveDays
    from .services.inspect.as_of import Past
    from .services.inspect.fate import FateReader
    from .services.inspect.key_lookup import KeyLookup
    from .services.inspect.lookup import Lookup
    from .services.inspect.rates import RateCharts
    from .services.inspect.statuses import Statuses
    from .services.inspect.survey import Board, Surveyor
    from .services.inspect.trace import Tracer
    from .services.journal import Journal
    from .services.manage.admin import Admin
    from .services.manage.amend import Amender
    from .services.manage.dead_letters import Redriver
    from .services.manage.refusals import Refusals
    from .services.manage.registry import Registry
    from .services.manage.replays import Replays
    from .services.manage.sign_in_links import SignInLinks
    from .services.manage.tokens import Tokens
    from .services.produce.check_back import Checker
    from .services.produce.delayed import Delayed
    from .services.produce.due import Due
    from .services.produce.producer import Producer
    from .services.produce.rate_limited_producer import RateLimitedProducer
    from .services.produce.transactions import Transactor
    from .services.push.dispatcher import Dispatcher
    from .services.push.outbound import Outbound

_OWNER_CHARS = 8
_DENIALS_MS = 3_600_000
_EMPTY_LANE_MS = 500  # how long a retry lane that gave nothing is not looked at


class Deps:
    """Every service, made from one set of adapters and imported when it is first needed: a cold start pays for what
    it runs."""

    def __init__(self, adapters: Adapters) -> None:
        self.adapters = adapters
        self.counters = Counters()

    def setup(self) -> None:
        """Create missing tables and wait until they can be used. For local runs and tests."""
        self.adapters.create_tables()

    @cached_property
    def readiness(self) -> Readiness:
        from .services.core.readiness import Readiness

        return Readiness(self.adapters.unreadable, self.adapters.clock)

    @cached_property
    def secret_cipher(self) -> SecretCipher:
        from .services.core.secret_cipher import SecretCipher

        return SecretCipher(self.adapters.cipher, self.adapters.clock)

    @cached_property
    def signing_keys(self) -> SigningKeys:
        from .services.core.signing_keys import SigningKeys

        a = self.adapters
        return SigningKeys(
            control=a.control, secret_cipher=self.secret_cipher, clock=a.clock, random=a.random
        )

    @property
    def signing_key(self) -> bytes:
        """The key that signs at this moment."""
        return self.signing_keys.present()

    @cached_property
    def catalog(self) -> Catalog:
        from .services.core.catalog import Catalog

        return Catalog(self.adapters.control, self.adapters.clock)

    @cached_property
    def assignments(self) -> Assignments:
        from .services.core.assignments import Assignments

        return Assignments(self.adapters.control, self.catalog, self.adapters.clock)

    @cached_property
    def states(self) -> CursorStore:
        from .services.core.cursor_store import CursorStore

        return CursorStore(self.adapters.cursors, self.adapters.clock, self.counters)

    @cached_property
    def reader(self) -> LogReader:
        from .services.core.log_reader import LogReader

        return LogReader(self.adapters.log, self.adapters.clock, self.counters)

    @cached_property
    def tails(self) -> Tails:
        from .services.core.tails import Tails

        a = self.adapters
        return Tails(log=a.log, control=a.control, cursors=a.cursors, clock=a.clock)

    @cached_property
    def producer(self) -> Producer:
        from .services.produce.producer import Producer

        a = self.adapters
        return Producer(
            log=a.log,
            tails=self.tails,
            timers=a.timers,
            keys=a.keys,
            blobs=a.blobs,
            clock=a.clock,
            random=a.random,
            on_timers_stored=self.waker.wake_movers,
            mark=self.marker.mark,
        )

    @cached_property
    def rate_limited_producer(self) -> RateLimitedProducer:
        from .services.produce.rate_limited_producer import RateLimitedProducer

        return RateLimitedProducer(self.producer, self.rate_limits, self.counters)

    @cached_property
    def rate_limits(self) -> RateLimits:
        from .services.core.rate_limiter import RateLimits

        return RateLimits(self.adapters.token_buckets, self.adapters.clock)

    @cached_property
    def denials(self) -> TtlCache[tuple[str, str], bool]:
        """Which tokens' refusals at the door are in the audit trail, by code: once an hour for each."""
        from .services.core.expiring_cache import TtlCache

        return TtlCache(self.adapters.clock, _DENIALS_MS)

    @cached_property
    def refusals(self) -> Refusals:
        from .services.manage.refusals import Refusals

        a = self.adapters
        return Refusals(a.audit, a.clock, a.random)

    @cached_property
    def receiver(self) -> Receiver:
        from .services.consume.receive import Receiver

        a = self.adapters
        return Receiver(
            catalog=self.catalog,
            assignments=self.assignments,
            claimer=self.claimer,
            settler=self.settler,
            blobs=a.blobs,
            clock=a.clock,
            random=a.random,
            empty_lanes=self.empty_lanes,
            is_ending=a.is_ending,
        )

    @cached_property
    def empty_lanes(self) -> TtlCache[CursorKey, bool]:
        """Retry lanes that need no look for a moment: nothing was there, and nothing was put there by this process."""
        from .services.core.expiring_cache import TtlCache

        return TtlCache(self.adapters.clock, _EMPTY_LANE_MS)

    @cached_property
    def claimer(self) -> Claimer:
        from .services.consume.claim import Claimer
        from .services.consume.lost_entries import LostEntries

        a = self.adapters
        lost_entries = LostEntries(a.log, a.records, a.timers)
        is_registered = self.catalog.is_registered
        return Claimer(
            states=self.states,
            reader=self.reader,
            attempt_log=self.attempt_log,
            is_registered=is_registered,
            lost_entries=lost_entries,
            clock=a.clock,
            random=a.random,
        )

    @cached_property
    def attempt_log(self) -> AttemptLog:
        from .services.core.attempt_log import AttemptLog

        return AttemptLog(self.adapters.traces, self.assignments.standing, self.adapters.clock)

    @cached_property
    def waker(self) -> Waker:
        from .services.core.wake import Waker

        a = self.adapters
        return Waker(
            catalog=self.catalog,
            invoker=a.invoker,
            mark=self.marker.mark,
            store_timers=a.timers.store,
            clock=a.clock,
            counters=self.counters,
        )

    @cached_property
    def settler(self) -> Settler:
        from .services.consume.lease_settlement import SettleContext
        from .services.consume.settle import Settler

        context = SettleContext(
            states=self.states,
            reader=self.reader,
            attempt_log=self.attempt_log,
            clock=self.adapters.clock,
            counters=self.counters,
            on_timers_stored=self.waker.wake_movers,
            filled=self.empty_lanes.drop,
        )
        return Settler(context, self.signing_keys, lambda *who: self.registry.alive(*who))

    @cached_property
    def sender(self) -> Sender:
        return self.adapters.sender()

    @cached_property
    def dispatcher(self) -> Dispatcher:
        from .services.push.dispatcher import Dispatcher
        from .services.push.health import SubscriberHealth
        from .services.push.run import DispatchContext

        a = self.adapters
        context = DispatchContext(
            catalog=self.catalog,
            claimer=self.claimer,
            settler=self.settler,
            sender=self.sender,
            secret_cipher=self.secret_cipher,
            blobs=a.blobs,
            timers=a.timers,
            waker=self.waker,
            subscriber_health=SubscriberHealth(self.registry.set_health, self.registry.disable, a.clock),
            teams=self.assignments.team,
            clock=a.clock,
            threads=a.threads,
        )
        return Dispatcher(context)

    @cached_property
    def outbound(self) -> Outbound:
        from .services.push.outbound import Outbound

        a = self.adapters
        return Outbound(
            catalog=self.catalog,
            secret_cipher=self.secret_cipher,
            sender=lambda: self.sender,
            invoker=a.invoker,
            clock=a.clock,
        )

    @cached_property
    def redriver(self) -> Redriver:
        from .services.manage.dead_letters import Redriver

        a = self.adapters
        return Redriver(
            catalog=self.catalog,
            lookup=self.lookup,
            records=a.records,
            attempt_log=self.attempt_log,
            states=self.states,
            producer=self.producer,
            waker=self.waker,
            clock=a.clock,
            filled=self.empty_lanes.drop,
        )

    @cached_property
    def tracer(self) -> Tracer:
        from .services.inspect.trace import Tracer

        a = self.adapters
        return Tracer(
            catalog=self.catalog, traces=a.traces, records=a.records, statuses=self.statuses, clock=a.clock
        )

    @cached_property
    def replays(self) -> Replays:
        from .services.manage.replays import Replays

        a = self.adapters
        producer, waker = self.producer, self.waker
        return Replays(
            control=a.control,
            catalog=self.catalog,
            producer=producer,
            waker=waker,
            jobs=a.jobs,
            clock=a.clock,
            random=a.random,
            counters=self.counters,
        )

    @cached_property
    def due(self) -> Due:
        from .services.produce.due import Due

        a = self.adapters
        return Due(
            catalog=self.catalog,
            producer=self.producer,
            timers=a.timers,
            log=a.log,
            waker=self.waker,
            counters=self.counters,
        )

    @cached_property
    def delayed(self) -> Delayed:
        from .services.produce.delayed import Delayed

        a = self.adapters
        return Delayed(
            timers=a.timers,
            transactions=a.transactions,
            log=a.log,
            positions=self.positions,
            producer=self.producer,
            waker=self.waker,
            clock=a.clock,
        )

    @cached_property
    def transactor(self) -> Transactor:
        from .services.produce.transactions import Transactor

        a = self.adapters
        return Transactor(
            catalog=self.catalog,
            transactions=a.transactions,
            producer=self.producer,
            waker=self.waker,
            clock=a.clock,
            random=a.random,
            keys=self.signing_keys,
            counters=self.counters,
        )

    @cached_property
    def checker(self) -> Checker:
        from .services.produce.check_back import Checker

        a = self.adapters
        return Checker(a.transactions, self.transactor, a.timers, self.sender, a.threads)

    @cached_property
    def amender(self) -> Amender:
        from .services.manage.amend import Amender

        a = self.adapters
        return Amender(
            control=a.control,
            log=a.log,
            cursors=a.cursors,
            records=a.records,
            producer=self.producer,
            reader=self.reader,
            clock=a.clock,
        )

    @cached_property
    def mover(self) -> Mover:
        from . import observe
        from .scheduler.mover import Mover
        from .scheduler.mover_run import Ways

        a, waker = self.adapters, self.waker
        new_owner = partial(a.random.id, _OWNER_CHARS)
        due = self.due
        ways = Ways(
            append=due.append,
            wake=waker.wake_due,
            check=waker.start_checks,
            set_aside=due.set_aside,
            hand_over=waker.start_mover,
            tell=observe.stuck,
        )
        return Mover(timers=a.timers, ways=ways, clock=a.clock, new_owner=new_owner, threads=a.threads)

    @cached_property
    def marker(self) -> Marker:
        from .services.core.marker import Marker

        return Marker(self.adapters.marks, self.adapters.timers.store, self.adapters.clock)

    @cached_property
    def sweeper(self) -> Sweeper:
        from .scheduler.scout import Scout
        from .scheduler.sweeper import Sweeper

        a = self.adapters
        scout = Scout(control=a.control, log=a.log, cursors=a.cursors, clock=a.clock)
        return Sweeper(
            control=a.control,
            scout=scout,
            marks=a.marks,
            rounds=a.rounds,
            wake=lambda shard: self.waker.route({shard: None}),
            clock=a.clock,
            threads=a.threads,
        )

    @cached_property
    def watch(self) -> Watch:
        from .scheduler.watch import Watch

        a = self.adapters
        return Watch(
            control=a.control, log=a.log, cursors=a.cursors, marks=a.marks, rounds=a.rounds, clock=a.clock
        )

    @cached_property
    def positions(self) -> Positions:
        from .services.core.positions import Positions

        a = self.adapters
        return Positions(log=a.log, tails=self.tails, states=self.states, records=a.records, clock=a.clock)

    @cached_property
    def admin(self) -> Admin:
        from .services.manage.admin import Admin

        a = self.adapters
        return Admin(
            control=a.control,
            catalog=self.catalog,
            positions=self.positions,
            states=self.states,
            records=a.records,
            marks=a.marks,
            clock=a.clock,
            random=a.random,
        )

    @cached_property
    def registry(self) -> Registry:
        from .services.manage.registry import Registry

        a = self.adapters
        return Registry(
            control=a.control,
            catalog=self.catalog,
            positions=self.positions,
            states=self.states,
            assignments=self.assignments,
            mark=self.marker.mark,
            secret_cipher=self.secret_cipher,
            clock=a.clock,
            random=a.random,
        )

    @cached_property
    def lookup(self) -> Lookup:
        from .services.inspect.lookup import Lookup

        a = self.adapters
        return Lookup(
            catalog=self.catalog,
            log=a.log,
            records=a.records,
            reader=self.reader,
            delayed=self.delayed,
            statuses=self.statuses,
            timers=a.timers,
            transactions=a.transactions,
            clock=a.clock,
        )

    @cached_property
    def statuses(self) -> Statuses:
        from .services.inspect.statuses import Statuses

        a = self.adapters
        return Statuses(
            catalog=self.catalog,
            cursors=a.cursors,
            records=a.records,
            timers=a.timers,
            reader=self.reader,
            clock=a.clock,
        )

    @cached_property
    def surveyor(self) -> Surveyor:
        from .services.inspect.survey import Surveyor

        a = self.adapters
        return Surveyor(catalog=self.catalog, log=a.log, cursors=a.cursors, records=a.records, clock=a.clock)

    @cached_property
    def archive_days(self) -> ArchiveDays:
        from .services.inspect.archive_days import ArchiveDays

        return ArchiveDays(self.adapters.blobs)

    @cached_property
    def sign_in_links(self) -> SignInLinks:
        from .services.manage.sign_in_links import SignInLinks

        a = self.adapters
        return SignInLinks(tickets=a.tickets, signing_keys=self.signing_keys, clock=a.clock, random=a.random)

    @cached_property
    def board(self) -> Board:
        from .services.inspect.survey import Board

        return Board(self.surveyor, self.adapters.readings, self.adapters.clock)

    @cached_property
    def rate_charts(self) -> RateCharts:
        from .services.inspect.rates import RateCharts

        return RateCharts(self.adapters.readings, self.adapters.clock)

    @cached_property
    def past(self) -> Past:
        from .services.inspect.as_of import Past

        return Past(self.adapters.blobs)

    @cached_property
    def meter_notes(self) -> MeterNotes:
        from .services.core.meter_notes import MeterNotes

        return MeterNotes(self.adapters.marks, self.adapters.clock)

    @cached_property
    def meter_reader(self) -> MeterReader:
        from .scheduler.meter_reader import MeterReader

        a = self.adapters
        return MeterReader(
            control=a.control,
            marks=a.marks,
            readings=a.readings,
            read=self.surveyor.reading,
            see=self._state_of,
        )

    def _state_of(self, topic: Topic) -> State:
        from .scheduler.meter_reader import State
        from .services.inspect.troubles import worst_of

        survey = self.surveyor.look(topic)
        return State(worst_of(survey, survey.at_ms), any(group.backlog for group in survey.groups))

    @cached_property
    def fates(self) -> FateReader:
        from .services.inspect.fate import FateReader

        return FateReader(
            catalog=self.catalog, statuses=self.statuses, records=self.adapters.records, log=self.adapters.log
        )

    @cached_property
    def key_lookup(self) -> KeyLookup:
        from .services.inspect.key_lookup import KeyLookup

        return KeyLookup(self.adapters.keys, self.lookup)

    @cached_property
    def tokens(self) -> Tokens:
        from .services.manage.tokens import Tokens

        a = self.adapters
        return Tokens(a.control, a.clock, a.random, checked=bool(a.stage))

    @cached_property
    def checkpointer(self) -> Checkpointer:
        from .scheduler.checkpoint import Checkpointer

        a = self.adapters
        return Checkpointer(control=a.control, log=a.log, rounds=a.rounds, clock=a.clock)

    @cached_property
    def journal(self) -> Journal:
        from .services.journal import Journal
        from .store.changes import batch_name, written

        return Journal(written, batch_name, self.adapters.blobs)

    @cached_property
    def expirer(self) -> Expirer:
        from .scheduler.expirer import Expirer

        a = self.adapters
        return Expirer(
            control=a.control,
            rounds=a.rounds,
            bury=self._bury,
            see=self._see,
            clock=a.clock,
            keeper=self._retention_guard,
        )

    @cached_property
    def body_sweeper(self) -> BodySweeper:
        from .scheduler.bodies import BodySweeper

        a = self.adapters
        return BodySweeper(
            log=a.log,
            records=a.records,
            control=a.control,
            blobs=a.blobs,
            clock=a.clock,
            guard=self._retention_guard,
        )

    @cached_property
    def _retention_guard(self) -> RetentionGuard | None:
        from .scheduler.keeper import RetentionGuard

        a = self.adapters
        return RetentionGuard(a.log, a.blobs, a.clock) if a.archive else None

    def _see(self, topic: Topic, has_time: Callable[[], bool]) -> None:
        """What each minute's jobs have to know of a topic, where they may have missed it."""
        self.sweeper.see(topic, has_time)
        self.assigner.see(topic)
        self.watch.see(topic)

    def _bury(
        self,
        topic: Topic,
        group: Group,
        shard: int | None,
        consumer_uid: str,
        has_time: Callable[[], bool],
    ) -> int:
        from .services.consume.claimant import Claimant

        return self.claimer.bury(
            Claimant(topic=topic, group=group, lease_seconds=0, owner="", consumer_uid=consumer_uid),
            shard,
            has_time,
        )

    @cached_property
    def assigner(self) -> Assigner:
        from .scheduler.assigner import Assigner

        a = self.adapters
        look_after = self.assignments.look_after
        return Assigner(
            control=a.control,
            marks=a.marks,
            rounds=a.rounds,
            look_after=look_after,
            ask=self._ask,
            clock=a.clock,
            threads=a.threads,
        )

    def _ask(self, topic: Topic, group: Group, consumer: Consumer) -> bool:
        from .services.manage.handshake import Consent

        return Consent(self.sender, self.registry, self.waker).ask(topic, group, consumer)


@cache
def deps() -> Deps:
    """The process's services, from its environment."""
    return Deps(from_environment())
