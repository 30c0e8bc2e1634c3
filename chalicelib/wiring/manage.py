"""What people change, and who may: `services/manage`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..domain.times import HOUR_MS
from .cached import cached_property
from .inspect import InspectServices

if TYPE_CHECKING:
    from ..services.core.expiring_cache import TtlCache
    from ..services.manage.admin import Admin
    from ..services.manage.amend import Amender
    from ..services.manage.dead_letters import DeadLetters
    from ..services.manage.refusals import Refusals
    from ..services.manage.replays import Replays
    from ..services.manage.sign_in_links import SignInLinks
    from ..services.manage.tokens import Tokens

_DENIALS_MS = HOUR_MS


class ManageServices(InspectServices):
    """What people change, and who may: `services/manage`."""

    @cached_property
    def admin(self) -> Admin:
        from ..services.manage.admin import Admin

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
    def tokens(self) -> Tokens:
        from ..services.manage.tokens import Tokens

        a = self.adapters
        return Tokens(a.control, a.clock, a.random, checked=bool(a.stage))

    @cached_property
    def refusals(self) -> Refusals:
        from ..services.manage.refusals import Refusals

        a = self.adapters
        return Refusals(a.audit, a.clock, a.random)

    @cached_property
    def denials(self) -> TtlCache[tuple[str, str], bool]:
        """Which tokens' refusals at the door are in the audit trail, by code: once an hour for each."""
        from ..services.core.expiring_cache import TtlCache

        return TtlCache(self.adapters.clock, _DENIALS_MS)

    @cached_property
    def sign_in_links(self) -> SignInLinks:
        from ..services.manage.sign_in_links import SignInLinks

        a = self.adapters
        return SignInLinks(tickets=a.tickets, signing_keys=self.signing_keys, clock=a.clock, random=a.random)

    @cached_property
    def amender(self) -> Amender:
        from ..services.manage.amend import Amender

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
    def dead_letters(self) -> DeadLetters:
        from ..services.manage.dead_letters import DeadLetters

        a = self.adapters
        return DeadLetters(
            catalog=self.catalog,
            letter_lookup=self.letter_lookup,
            statuses=self.statuses,
            records=a.records,
            attempt_log=self.attempt_log,
            states=self.states,
            producer=self.producer,
            waker=self.waker,
            clock=a.clock,
            on_filled=self.empty_lanes.drop,
        )

    @cached_property
    def replays(self) -> Replays:
        from ..services.manage.replays import Replays

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
