"""What a message passes through: `services/produce`, `consume` and `push`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cached import cached_property
from .core import CoreServices

if TYPE_CHECKING:
    from ..domain.topic import CursorKey
    from ..services.consume.claim import Claimer
    from ..services.consume.receive import Receiver
    from ..services.consume.settle import Settler
    from ..services.core.expiring_cache import TtlCache
    from ..services.produce.check_back import Checker
    from ..services.produce.delayed import Delayed
    from ..services.produce.due import Due
    from ..services.produce.producer import Producer
    from ..services.produce.rate_limited_producer import RateLimitedProducer
    from ..services.produce.transactions import Transactor
    from ..services.push.dispatcher import Dispatcher
    from ..services.push.outbound import Outbound

_EMPTY_LANE_MS = 500  # how long a retry lane that gave nothing is not looked at


class MessageServices(CoreServices):
    """What a message passes through: `services/produce`, `consume` and `push`."""

    @cached_property
    def producer(self) -> Producer:
        from ..services.produce.producer import Producer

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
        from ..services.produce.rate_limited_producer import RateLimitedProducer

        return RateLimitedProducer(self.producer, self.rate_limits, self.counters)

    @cached_property
    def due(self) -> Due:
        from ..services.produce.due import Due

        return Due(
            catalog=self.catalog,
            producer=self.producer,
            timers=self.adapters.timers,
            waker=self.waker,
        )

    @cached_property
    def delayed(self) -> Delayed:
        from ..services.produce.delayed import Delayed

        a = self.adapters
        return Delayed(
            catalog=self.catalog,
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
        from ..services.produce.transactions import Transactor

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
        from ..services.produce.check_back import Checker

        a = self.adapters
        return Checker(
            a.transactions, self.transactor, a.timers, self.sender, a.clock, a.threads, self.counters
        )

    @cached_property
    def claimer(self) -> Claimer:
        from ..services.consume.claim import Claimer

        a = self.adapters
        return Claimer(
            states=self.states,
            reader=self.reader,
            attempt_log=self.attempt_log,
            is_registered=self.catalog.is_registered,
            clock=a.clock,
            random=a.random,
        )

    @cached_property
    def settler(self) -> Settler:
        from ..services.consume.lease_settlement import SettleContext
        from ..services.consume.settle import Settler

        context = SettleContext(
            states=self.states,
            reader=self.reader,
            attempt_log=self.attempt_log,
            clock=self.adapters.clock,
            counters=self.counters,
            on_timers_stored=self.waker.wake_movers,
            filled=self.empty_lanes.drop,
            on_freed=self.waker.wake_beside_puller,
        )
        return Settler(context, self.signing_keys, lambda *who: self.registry.note_alive(*who))

    @cached_property
    def empty_lanes(self) -> TtlCache[CursorKey, bool]:
        """Retry lanes that need no look for a moment: nothing was there, and nothing was put there by this process."""
        from ..services.core.expiring_cache import TtlCache

        return TtlCache(self.adapters.clock, _EMPTY_LANE_MS)

    @cached_property
    def receiver(self) -> Receiver:
        from ..services.consume.receive import Receiver

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
    def dispatcher(self) -> Dispatcher:
        from ..services.push.dispatcher import Dispatcher
        from ..services.push.health import SubscriberHealth
        from ..services.push.run import DispatchContext

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
        from ..services.push.outbound import Outbound

        a = self.adapters
        return Outbound(
            catalog=self.catalog,
            secret_cipher=self.secret_cipher,
            sender=lambda: self.sender,
            invoker=a.invoker,
            clock=a.clock,
        )
