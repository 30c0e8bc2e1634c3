"""What people see: `services/inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cached import cached_property
from .messages import MessageServices

if TYPE_CHECKING:
    from ..services.inspect.archive_days import ArchiveDays
    from ..services.inspect.as_of import Past
    from ..services.inspect.counts import Counts
    from ..services.inspect.fate import FateReader
    from ..services.inspect.key_lookup import KeyLookup
    from ..services.inspect.letter_lookup import LetterLookup
    from ..services.inspect.lookup import Lookup
    from ..services.inspect.rates import RateCharts
    from ..services.inspect.statuses import Statuses
    from ..services.inspect.survey_board import Board
    from ..services.inspect.surveyor import Surveyor
    from ..services.inspect.trace import Tracer


class InspectServices(MessageServices):
    """What people see: `services/inspect`."""

    @cached_property
    def statuses(self) -> Statuses:
        from ..services.inspect.statuses import Statuses

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
    def lookup(self) -> Lookup:
        from ..services.inspect.lookup import Lookup

        a = self.adapters
        return Lookup(
            catalog=self.catalog,
            log=a.log,
            records=a.records,
            reader=self.reader,
            delayed=self.delayed,
            statuses=self.statuses,
            clock=a.clock,
        )

    @cached_property
    def counts(self) -> Counts:
        from ..services.inspect.counts import Counts

        a = self.adapters
        return Counts(
            catalog=self.catalog,
            log=a.log,
            records=a.records,
            reader=self.reader,
            statuses=self.statuses,
            timers=a.timers,
            transactions=a.transactions,
            clock=a.clock,
            on_skip=self.skip,
        )

    @cached_property
    def key_lookup(self) -> KeyLookup:
        from ..services.inspect.key_lookup import KeyLookup

        return KeyLookup(self.adapters.keys, self.lookup, self.adapters.clock, self.skip)

    @cached_property
    def letter_lookup(self) -> LetterLookup:
        from ..services.inspect.letter_lookup import LetterLookup

        a = self.adapters
        return LetterLookup(catalog=self.catalog, lookup=self.lookup, records=a.records, clock=a.clock)

    @cached_property
    def tracer(self) -> Tracer:
        from ..services.inspect.trace import Tracer

        a = self.adapters
        return Tracer(
            catalog=self.catalog,
            traces=a.traces,
            transactions=a.transactions,
            statuses=self.statuses,
            clock=a.clock,
        )

    @cached_property
    def fates(self) -> FateReader:
        from ..services.inspect.fate import FateReader

        return FateReader(
            catalog=self.catalog, statuses=self.statuses, records=self.adapters.records, log=self.adapters.log
        )

    @cached_property
    def surveyor(self) -> Surveyor:
        from ..services.inspect.surveyor import Surveyor

        a = self.adapters
        return Surveyor(catalog=self.catalog, log=a.log, cursors=a.cursors, records=a.records, clock=a.clock)

    @cached_property
    def board(self) -> Board:
        from ..services.inspect.survey_board import Board

        return Board(self.surveyor, self.adapters.readings, self.adapters.clock, self.skip)

    @cached_property
    def rate_charts(self) -> RateCharts:
        from ..services.inspect.rates import RateCharts

        return RateCharts(self.adapters.readings, self.adapters.clock)

    @cached_property
    def past(self) -> Past:
        from ..services.inspect.as_of import Past

        return Past(self.adapters.blobs)

    @cached_property
    def archive_days(self) -> ArchiveDays:
        from ..services.inspect.archive_days import ArchiveDays

        return ArchiveDays(self.adapters.blobs)
