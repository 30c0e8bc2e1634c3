"""What the services of all packages stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import observe
from ..services.core.counters import Counters
from .cached import cached_property

if TYPE_CHECKING:
    from ..adapters import Adapters
    from ..domain.errors import Unreadable
    from ..ports.world import Sender
    from ..services.core.assignments import Assignments
    from ..services.core.attempt_log import AttemptLog
    from ..services.core.catalog import Catalog
    from ..services.core.cursor_store import CursorStore
    from ..services.core.log_reader import LogReader
    from ..services.core.marker import Marker
    from ..services.core.meter_notes import MeterNotes
    from ..services.core.positions import Positions
    from ..services.core.rate_limiter import RateLimits
    from ..services.core.readiness import Readiness
    from ..services.core.secret_cipher import SecretCipher
    from ..services.core.signing_keys import SigningKeys
    from ..services.core.tails import Tails
    from ..services.core.wake import Waker
    from ..services.manage.registry import Registry


class CoreServices:
    """What the services of all packages stand on."""

    def __init__(self, adapters: Adapters) -> None:
        self.adapters = adapters
        self.counters = Counters()

    def skip(self, error: Unreadable) -> None:
        """Log and count an unreadable row that a list or a job skips."""
        observe.unreadable(self.adapters.stage, error)

    def setup(self) -> None:
        """Create missing tables and wait until they can be used. For local runs and tests."""
        self.adapters.create_tables()

    @cached_property
    def readiness(self) -> Readiness:
        from ..services.core.readiness import Readiness

        return Readiness(self.adapters.unreadable, self.adapters.clock)

    @cached_property
    def secret_cipher(self) -> SecretCipher:
        from ..services.core.secret_cipher import SecretCipher

        return SecretCipher(self.adapters.cipher, self.adapters.clock)

    @cached_property
    def signing_keys(self) -> SigningKeys:
        from ..services.core.signing_keys import SigningKeys

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
        from ..services.core.catalog import Catalog

        return Catalog(self.adapters.control, self.adapters.clock)

    @cached_property
    def assignments(self) -> Assignments:
        from ..services.core.assignments import Assignments

        return Assignments(self.adapters.control, self.catalog, self.adapters.clock)

    @cached_property
    def states(self) -> CursorStore:
        from ..services.core.cursor_store import CursorStore

        return CursorStore(self.adapters.cursors, self.adapters.clock, self.counters)

    @cached_property
    def reader(self) -> LogReader:
        from ..services.core.log_reader import LogReader

        return LogReader(self.adapters.log, self.adapters.clock)

    @cached_property
    def tails(self) -> Tails:
        from ..services.core.tails import Tails

        a = self.adapters
        return Tails(log=a.log, control=a.control, cursors=a.cursors, clock=a.clock)

    @cached_property
    def positions(self) -> Positions:
        from ..services.core.positions import Positions

        a = self.adapters
        return Positions(
            log=a.log,
            tails=self.tails,
            states=self.states,
            clock=a.clock,
        )

    @cached_property
    def attempt_log(self) -> AttemptLog:
        from ..services.core.attempt_log import AttemptLog

        a = self.adapters
        return AttemptLog(a.traces, self.assignments.name_and_rank, self.catalog.consumer_names, a.clock)

    @cached_property
    def waker(self) -> Waker:
        from ..services.core.wake import Waker

        a = self.adapters
        return Waker(
            catalog=self.catalog,
            invoker=a.invoker,
            mark=self.marker.mark,
            store_timers=a.timers.store,
            clock=a.clock,
            on_skip=self.skip,
        )

    @cached_property
    def marker(self) -> Marker:
        from ..services.core.marker import Marker

        return Marker(self.adapters.marks, self.adapters.timers.store, self.adapters.clock)

    @cached_property
    def meter_notes(self) -> MeterNotes:
        from ..services.core.meter_notes import MeterNotes

        return MeterNotes(self.adapters.marks, self.adapters.clock)

    @cached_property
    def rate_limits(self) -> RateLimits:
        from ..services.core.rate_limiter import RateLimits

        return RateLimits(self.adapters.token_buckets, self.adapters.clock)

    @cached_property
    def sender(self) -> Sender:
        return self.adapters.sender()

    @cached_property
    def registry(self) -> Registry:
        # It is here, and not in `manage`, because claims and pushes ask it who is registered.
        from ..services.manage.registry import Registry

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
