"""The jobs that run by schedule or from a stream: `scheduler` and the journal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .cached import cached_property
from .manage import ManageServices

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..domain.topic import Consumer, Group, Topic
    from ..scheduler.assigner import Assigner
    from ..scheduler.bodies import BodySweeper
    from ..scheduler.checkpoint import Checkpointer
    from ..scheduler.expirer import Expirer
    from ..scheduler.keeper import RetentionGuard
    from ..scheduler.meter_reader import MeterReader, State
    from ..scheduler.mover import Mover
    from ..scheduler.sweeper import Sweeper
    from ..scheduler.watch import Watch
    from ..services.journal import Journal

_OWNER_CHARS = 8


class ScheduledServices(ManageServices):
    """The jobs that run by schedule or from a stream: `scheduler` and the journal."""

    @cached_property
    def mover(self) -> Mover:
        from .. import observe
        from ..scheduler.mover import Mover
        from ..scheduler.mover_run import Ways

        a, waker = self.adapters, self.waker
        new_owner = partial(a.random.id, _OWNER_CHARS)
        due = self.due
        ways = Ways(
            append=due.append,
            wake=waker.wake_due,
            check=waker.start_checks,
            hand_over=waker.start_mover,
            tell=observe.stuck,
        )
        return Mover(timers=a.timers, ways=ways, clock=a.clock, new_owner=new_owner, threads=a.threads)

    @cached_property
    def sweeper(self) -> Sweeper:
        from ..scheduler.scout import Scout
        from ..scheduler.sweeper import Sweeper

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
        from ..scheduler.watch import Watch

        a = self.adapters
        return Watch(
            control=a.control, log=a.log, cursors=a.cursors, marks=a.marks, rounds=a.rounds, clock=a.clock
        )

    @cached_property
    def meter_reader(self) -> MeterReader:
        from ..scheduler.meter_reader import MeterReader

        a = self.adapters
        return MeterReader(
            control=a.control,
            marks=a.marks,
            readings=a.readings,
            read=self.surveyor.reading,
            see=self._state_of,
        )

    def _state_of(self, topic: Topic) -> State:
        from ..scheduler.meter_reader import State
        from ..services.inspect.troubles import worst_of

        survey = self.surveyor.survey(topic)
        has_backlog = any(group.backlog for group in survey.groups)
        return State(worst_of(survey, survey.at_ms), has_backlog)

    @cached_property
    def checkpointer(self) -> Checkpointer:
        from ..scheduler.checkpoint import Checkpointer

        a = self.adapters
        return Checkpointer(control=a.control, log=a.log, rounds=a.rounds, clock=a.clock)

    @cached_property
    def journal(self) -> Journal:
        from ..services.journal import Journal
        from ..store.changes import batch_name, written_rows

        return Journal(written_rows, batch_name, self.adapters.blobs)

    @cached_property
    def expirer(self) -> Expirer:
        from ..scheduler.expirer import Expirer

        a = self.adapters
        return Expirer(
            control=a.control,
            rounds=a.rounds,
            expire=self._expire,
            see=self._see,
            clock=a.clock,
            keeper=self._retention_guard,
        )

    @cached_property
    def body_sweeper(self) -> BodySweeper:
        from ..scheduler.bodies import BodySweeper

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
        from ..scheduler.keeper import RetentionGuard

        a = self.adapters
        return RetentionGuard(a.log, a.blobs, a.clock) if a.archive else None

    def _see(self, topic: Topic, has_time: Callable[[], bool]) -> None:
        """What each minute's jobs have to know of a topic, where they may have missed it."""
        self.assigner.restore_mark(topic)
        self.watch.restore_watch(topic)
        self.sweeper.restore_mark(topic, has_time)

    def _expire(
        self,
        topic: Topic,
        group: Group,
        shard: int | None,
        consumer_uid: str,
        has_time: Callable[[], bool],
    ) -> int:
        from ..services.consume.claimant import Claimant

        return self.claimer.expire(
            Claimant(topic=topic, group=group, lease_seconds=0, owner="", consumer_uid=consumer_uid),
            shard,
            has_time,
        )

    @cached_property
    def assigner(self) -> Assigner:
        from ..scheduler.assigner import Assigner

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
        from ..services.manage.handshake import Consent

        return Consent(self.sender, self.registry, self.waker).ask(topic, group, consumer)
