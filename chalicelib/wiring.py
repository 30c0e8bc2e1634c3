"""Every service, made from one set of adapters once per cold start, and imported when it is first needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from operator import attrgetter
from threading import RLock
from typing import TYPE_CHECKING, Any

from . import observe
from .adapters import from_environment
from .domain.errors import NotFound, Unavailable
from .domain.times import HOUR_MS
from .services.core.counters import Counters

if TYPE_CHECKING:
    from .adapters import Adapters
    from .domain.attention import Attention
    from .domain.meter import Reading
    from .domain.notice import Events
    from .domain.status import Because
    from .domain.timer import Timer
    from .domain.topic import Consumer, CursorKey, Group, Topic
    from .ports.world import Sender
    from .scheduler.assigner import Assigner
    from .scheduler.attention import AttentionReport, ProofWatch
    from .scheduler.bodies import BodySweeper
    from .scheduler.checkpoint import Checkpointer
    from .scheduler.expirer import Expirer, RetentionGuard
    from .scheduler.meter_reader import MeterReader, State
    from .scheduler.mover import Mover
    from .scheduler.sweeper import Sweeper
    from .scheduler.watch import Watch
    from .services.consume.claim import Claimer
    from .services.consume.lease_settlement import SettleContext
    from .services.consume.receive import Receiver
    from .services.consume.settle import Settler
    from .services.consume.tenants import RecentTenants
    from .services.core.assignments import Assignments
    from .services.core.attempt_log import AttemptLog
    from .services.core.budgets import Budgets
    from .services.core.catalog import Catalog
    from .services.core.cursor_store import CursorStore
    from .services.core.expiring_cache import TtlCache
    from .services.core.log_reader import LogReader
    from .services.core.marker import Marker
    from .services.core.positions import Positions
    from .services.core.rate_limiter import RateLimits
    from .services.core.readiness import Readiness
    from .services.core.secrets import SecretCipher, SigningKeys
    from .services.core.tails import Tails
    from .services.core.wake import Waker
    from .services.inspect.archive import ArchiveDays
    from .services.inspect.fate import FateReader
    from .services.inspect.key_lookup import KeyLookup
    from .services.inspect.letter_lookup import LetterLookup
    from .services.inspect.lookup import Lookup
    from .services.inspect.over_time import Board
    from .services.inspect.statuses import Statuses
    from .services.inspect.survey import TopicSurvey
    from .services.inspect.surveyor import Surveyor
    from .services.inspect.trace import Tracer
    from .services.journal import Journal
    from .services.manage.admin import Admin
    from .services.manage.amend import Amender
    from .services.manage.audit_replay import AuditReplay
    from .services.manage.dead_letters import DeadLetters
    from .services.manage.deliveries import Deliveries
    from .services.manage.jobs import Jobs
    from .services.manage.purge import Purger
    from .services.manage.registry import Consent, Registry
    from .services.manage.repair import Repair
    from .services.manage.replays import Replays
    from .services.manage.retries import Retries
    from .services.manage.tokens import Made, Refusals, SignInLinks, Tokens
    from .services.produce.appender import Appender
    from .services.produce.check_back import Checker
    from .services.produce.delayed import Delayed
    from .services.produce.due import Due
    from .services.produce.producer import Producer
    from .services.produce.schedules import Schedules
    from .services.produce.transactions import Transactor
    from .services.push.dispatcher import Dispatcher
    from .services.push.health import SubscriberHealth
    from .services.push.outbound import Outbound
    from .services.push.sources import DispatchContext

_DENIALS_MS = HOUR_MS
_EMPTY_LANE_MS = 500  # how long a retry lane that gave nothing is not looked at
_OWNER_CHARS = 8


class _Service:
    """A value that is made when it is first asked for, once also where threads ask at the same time."""

    def __init__(self, make: Callable[[Deps], Any], given: Collection[str] | None = None) -> None:
        """`given` names the parameters that are not found by their names; None: the value is not of such a class."""
        self.given = given
        self._make = make
        self._making = RLock()

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, deps: Deps | None, owner: type) -> Any:
        if deps is None:
            return self
        with self._making:
            made = vars(deps)  # from then on Python finds the value there, and does not come here
            if self._name not in made:
                made[self._name] = self._make(deps)
            return made[self._name]


def _made(make: Callable[[Deps], Any]) -> Any:
    return _Service(make)


def _service(place: str, **given: str | Callable[[Deps], Any]) -> Any:
    """A service of the class at `place`. The parameters of its constructor are the services, or else the adapters, of
    the same names; `given` says where each of the others is, or has a function that makes it. Those with a default
    keep it, unless given."""

    def make(deps: Deps) -> Any:
        module, _, name = place.rpartition(".")
        service = getattr(import_module(f".{module}", __package__), name)
        found = {
            parameter.name: deps.find(parameter.name)
            for parameter in inspect.signature(service).parameters.values()
            if parameter.name not in given and parameter.default is parameter.empty
        }
        sources = {name: attrgetter(of) if isinstance(of, str) else of for name, of in given.items()}
        return service(**found, **{name: source(deps) for name, source in sources.items()})

    return _Service(make, given)


class Deps:
    """Every service, by name."""

    counters: Counters = _made(lambda deps: Counters())

    def __init__(self, adapters: Adapters) -> None:
        self.adapters = adapters

    def find(self, name: str) -> Any:
        """The service, or else the adapter, of this name."""
        return getattr(self if hasattr(Deps, name) else self.adapters, name)

    def setup(self) -> None:
        """Create missing tables and wait until they can be used. For local runs and tests."""
        self.adapters.create_tables()

    @property
    def signing_key(self) -> bytes:
        """The key that signs at this moment."""
        return self.signing_keys.present()

    # What the others use
    readiness: Readiness = _service("services.core.readiness.Readiness")
    secret_cipher: SecretCipher = _service("services.core.secrets.SecretCipher")
    signing_keys: SigningKeys = _service("services.core.secrets.SigningKeys")
    catalog: Catalog = _service("services.core.catalog.Catalog")
    assignments: Assignments = _service("services.core.assignments.Assignments")
    states: CursorStore = _service("services.core.cursor_store.CursorStore")
    reader: LogReader = _service("services.core.log_reader.LogReader")
    tails: Tails = _service("services.core.tails.Tails")
    positions: Positions = _service("services.core.positions.Positions")
    attempt_log: AttemptLog = _service("services.core.attempt_log.AttemptLog")
    marker: Marker = _service("services.core.marker.Marker")
    mark: Callable[[Topic], None] = _made(lambda deps: deps.marker.mark)
    waker: Waker = _service("services.core.wake.Waker")
    on_timers_stored: Callable[[Sequence[Timer]], None] = _made(lambda deps: deps.waker.wake_movers)
    events: Callable[[], Events | None] = _made(lambda deps: deps.catalog.events)
    rate_limits: RateLimits = _service("services.core.rate_limiter.RateLimits")
    budgets: Budgets = _service("services.core.budgets.Budgets")
    sender: Sender = _made(lambda deps: deps.adapters.sender())
    registry: Registry = _service("services.manage.registry.Registry")

    # What a message passes through
    appender: Appender = _service("services.produce.appender.Appender")
    producer: Producer = _service("services.produce.producer.Producer")
    due: Due = _service("services.produce.due.Due")
    schedules: Schedules = _service("services.produce.schedules.Schedules")
    delayed: Delayed = _service("services.produce.delayed.Delayed")
    transactor: Transactor = _service("services.produce.transactions.Transactor")
    checker: Checker = _service("services.produce.check_back.Checker")
    recent_tenants: RecentTenants = _service("services.consume.tenants.RecentTenants")
    claimer: Claimer = _service("services.consume.claim.Claimer", is_registered="catalog.is_registered")
    # Retry lanes that need no look for a moment: nothing was there, and nothing was put there by this process.
    empty_lanes: TtlCache[CursorKey, Because] = _service(
        "services.core.expiring_cache.TtlCache", max_age_ms=lambda deps: _EMPTY_LANE_MS
    )
    on_filled: Callable[[CursorKey], None] = _made(lambda deps: deps.empty_lanes.drop)
    settle_context: SettleContext = _service(
        "services.consume.lease_settlement.SettleContext", on_freed="waker.wake_beside_puller"
    )
    settler: Settler = _service(
        "services.consume.settle.Settler",
        context="settle_context",
        alive=lambda deps: lambda *who: deps.registry.note_alive(*who),
    )
    receiver: Receiver = _service("services.consume.receive.Receiver")
    subscriber_health: SubscriberHealth = _service(
        "services.push.health.SubscriberHealth", save="registry.set_health", disable="registry.disable"
    )
    dispatch_context: DispatchContext = _service(
        "services.push.sources.DispatchContext", teams="assignments.team"
    )
    dispatcher: Dispatcher = _service("services.push.dispatcher.Dispatcher", context="dispatch_context")
    outbound: Outbound = _service("services.push.outbound.Outbound", sender=lambda deps: lambda: deps.sender)

    # What people see
    statuses: Statuses = _service("services.inspect.statuses.Statuses")
    lookup: Lookup = _service("services.inspect.lookup.Lookup")
    key_lookup: KeyLookup = _service("services.inspect.key_lookup.KeyLookup")
    letter_lookup: LetterLookup = _service("services.inspect.letter_lookup.LetterLookup")
    tracer: Tracer = _service("services.inspect.trace.Tracer")
    fates: FateReader = _service("services.inspect.fate.FateReader")
    surveyor: Surveyor = _service("services.inspect.surveyor.Surveyor")
    board: Board = _service("services.inspect.over_time.Board")
    archive_days: ArchiveDays = _service("services.inspect.archive.ArchiveDays")

    # What people change, and who may
    admin: Admin = _service("services.manage.admin.Admin")
    tokens: Tokens = _service("services.manage.tokens.Tokens", checked=lambda deps: bool(deps.adapters.stage))
    refusals: Refusals = _service("services.manage.tokens.Refusals")
    made: Made = _service("services.manage.tokens.Made")
    # Which tokens' refusals at the door are in the audit trail, by code: once an hour for each.
    denials: TtlCache[tuple[str, str], bool] = _service(
        "services.core.expiring_cache.TtlCache", max_age_ms=lambda deps: _DENIALS_MS
    )
    sign_in_links: SignInLinks = _service("services.manage.tokens.SignInLinks")
    amender: Amender = _service("services.manage.amend.Amender")
    named_jobs: Jobs = _service("services.manage.jobs.Jobs")
    dead_letters: DeadLetters = _service("services.manage.dead_letters.DeadLetters")
    repair: Repair = _service("services.manage.repair.Repair")
    audit_replay: AuditReplay = _service("services.manage.audit_replay.AuditReplay")
    deliveries: Deliveries = _service("services.manage.deliveries.Deliveries")
    purger: Purger = _service("services.manage.purge.Purger")
    retries: Retries = _service("services.manage.retries.Retries")
    replays: Replays = _service("services.manage.replays.Replays")
    consent: Consent = _service("services.manage.registry.Consent")

    # What runs by schedule or from a stream
    mover: Mover = _service(
        "scheduler.mover.Mover",
        append="due.append",
        wake="waker.wake_due",
        check="waker.start_checks",
        wake_at="waker.wake_at",
        tell=lambda deps: observe.stuck,
    )
    sweeper: Sweeper = _service(
        "scheduler.sweeper.Sweeper", wake=lambda deps: lambda shard: deps.waker.route({shard: None})
    )
    watch: Watch = _service("scheduler.watch.Watch", furthest_behind="surveyor.furthest_behind")
    meter_reader: MeterReader = _service("scheduler.meter_reader.MeterReader", read="surveyor.reading")
    checkpointer: Checkpointer = _service(
        "scheduler.checkpoint.Checkpointer", look="repair.look", look_at_timers="repair.look_at_timers"
    )
    attention_report: AttentionReport = _service("scheduler.attention.AttentionReport")
    proof_watch: ProofWatch = _service("scheduler.attention.ProofWatch", days="archive_days.back_from")
    journal: Journal = _service("services.journal.Journal")
    archive_guard: RetentionGuard = _service("scheduler.expirer.RetentionGuard")
    retention_guard: RetentionGuard | None = _made(
        lambda deps: deps.archive_guard if deps.adapters.archive else None
    )
    expirer: Expirer = _service("scheduler.expirer.Expirer", end_letters="dead_letters.end_old")
    body_sweeper: BodySweeper = _service("scheduler.bodies.BodySweeper")
    assigner: Assigner = _service(
        "scheduler.assigner.Assigner",
        look_after="assignments.look_after",
        ask=lambda deps: lambda *who: deps.consent.ask(*who),
        remove=lambda deps: lambda *who: deps.registry.remove_expired(*who),
    )

    def is_unfinished(self, topic: Topic, message_id: str) -> bool:
        """Is a message there that a group has not come to an end with?"""
        from .domain.status import OVER

        try:
            message = self.lookup.message(topic, message_id)
        except NotFound:
            return False
        deliveries = self.statuses.of_topic(topic).deliveries(message)
        return any(each.status not in OVER for each in deliveries.values())

    def see(self, topic: Topic) -> State:
        from .scheduler.meter_reader import State

        survey = self.surveyor.survey(topic)
        has_backlog = any(group.backlog for group in survey.groups)
        states = self._attention_of(topic, survey)
        return State(survey.worst_trouble(survey.at_ms) or 0, has_backlog, states)

    def _attention_of(self, topic: Topic, survey: TopicSurvey) -> list[Attention]:
        """The states of a topic in which work waits for a person: two read units or so beside the survey."""
        from .domain import attention
        from .domain.transaction import TransactionState

        now_ms, states = survey.at_ms, list[attention.Attention]()
        staffed = {each.group.uid: each.consumers for each in self.adapters.control.staffed_groups(topic)}
        for each in survey.groups:
            waits_for_retries = each.backlog == sum(shard.retrying for shard in each.shards)
            waiting_ms = None if each.in_flight or waits_for_retries else each.oldest_ms
            states += attention.of_group(each.group, staffed.get(each.group.uid, ()), waiting_ms, now_ms)
        for one in self.adapters.transactions.of_state(topic, TransactionState.UNDECIDED, None, 1):
            states.append(attention.Attention(attention.Kind.UNDECIDED, one.prepared_ms, topic.name))
        if self.budgets.is_spent(topic):
            states.append(attention.Attention(attention.Kind.BUDGET, now_ms, topic.name))
        return [replace(state, noted_ms=now_ms) for state in states[: attention.MOST]]

    def note_changes(self, old: Sequence[Attention], new: Sequence[Attention]) -> None:
        """As `Marks.note_changes`, with an event for each state that begins or ends."""
        from .domain import notice

        now_ms = self.adapters.clock.now_ms()
        events = self.catalog.events() if any(s.kind in notice.OF_STATE for s in (*old, *new)) else None
        timer_of = partial(notice.of_state, events, now_ms)
        self.adapters.marks.note_changes(old, new, timer_of)

    def on_disabled(self, consumer: Consumer) -> None:
        """Enter it in the audit trail, and have the topic looked at. What cannot be stored now is lost to the trail;
        the job that visits all topics finds the state."""
        from .domain.audit import SERVICE, AuditEntry

        entry = AuditEntry(
            at_ms=self.adapters.clock.now_ms(),
            token_id=SERVICE,
            token_name=SERVICE,
            method="",
            path="",
            object=f"consumer {consumer.topic}/{consumer.group}/{consumer.name}",
            result=consumer.state,
            request_id=self.adapters.random.id(_OWNER_CHARS),
            topic=consumer.topic,
        )
        with suppress(Unavailable):
            self.adapters.marks.note_moving(consumer.topic)
            self.adapters.audit.add(entry)

    def settle_unwanted(self, topic: Topic, reading: Reading, has_time: Callable[[], bool]) -> None:
        """Not of a paused group: its filter may be changed before it continues."""
        from .services.consume.claimant import Claimant

        for group in self.catalog.groups(topic):
            backlogs = reading.groups[group.name].by_shard if group.name in reading.groups else ()
            is_paused = group.is_paused(self.adapters.clock.now_ms())
            by_shard = zip(topic.shard_numbers, backlogs, strict=False)
            shards = [shard for shard, backlog in by_shard if backlog and not is_paused]
            for uid in self.catalog.cursor_owners(topic, group) if shards else ():
                claimant = Claimant(topic=topic, group=group, lease_seconds=0, consumer_uid=uid)
                for shard in shards:
                    self.claimer.settle_unwanted(claimant, shard, has_time)

    def restore_marks(self, topic: Topic, has_time: Callable[[], bool]) -> None:
        """What each minute's jobs have to know of a topic, where they may have missed it."""
        self.assigner.restore_mark(topic)
        self.watch.restore_watch(topic)
        for group in self.catalog.groups(topic):
            if group.metrics:
                self.adapters.marks.watch(group.mark, 0)
        self.sweeper.restore_mark(topic, has_time)

    def expire(
        self, topic: Topic, group: Group, shard: int | None, consumer_uid: str, has_time: Callable[[], bool]
    ) -> int:
        from .services.consume.claimant import Claimant

        if consumer_uid not in self.catalog.cursor_owners(topic, group):
            return 0
        if shard is not None and consumer_uid in self.catalog.owed_nothing(topic, group):
            return 0
        return self.claimer.expire(
            Claimant(topic=topic, group=group, lease_seconds=0, owner="", consumer_uid=consumer_uid),
            shard,
            has_time,
        )


@cache
def deps() -> Deps:
    """The process's services, from its environment."""
    return Deps(from_environment())
