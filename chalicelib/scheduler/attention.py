"""Reports the states in which work waits for a person: when one begins, and every 30 minutes while there are some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from ..domain.archive import ArchivedDay, Proof
from ..domain.attention import RULES, Attention, Kind
from ..domain.errors import Unavailable
from ..domain.times import DAY_MS, MINUTE_MS
from ..ports.world import Clock
from ..store import Marks, Rounds
from .walk import Trouble

# So many days of the archive back from one, the latest first.
Days = Callable[[date, int], Sequence[tuple[str, ArchivedDay | None]]]

_JOB = "attention"
_AGAIN_MS = 30 * MINUTE_MS
_BEGINS_MS = 5 * MINUTE_MS  # a state that comes and goes does not make a mail each time
_MOST = 100  # lines of a mail: SNS takes 256 KB
_DAYS = 14  # that are looked at for a proved one


@dataclass(kw_only=True, frozen=True, slots=True)
class AttentionReport:
    """Sends what is noted. `mail` sends a subject and a text to those who get the alarms."""

    rounds: Rounds
    mail: Callable[[str, str], None]

    def run_once(
        self, states: Sequence[Attention], now_ms: int, numbers: Mapping[str, int]
    ) -> Sequence[Attention]:
        """Send a report of the states, which were read after `now_ms`, if it is time; what it names. `numbers`: by
        topic the messages of its largest backlog. Without a state it reads and writes nothing. A report comes twice if
        the time of the last one cannot be stored. Raises Unavailable."""
        if not states:
            return ()
        bookmark = self.rounds.bookmark(_JOB)
        begins = any(state.noted_ms >= bookmark.passed_ms for state in states)
        if 0 <= now_ms - bookmark.passed_ms < (_BEGINS_MS if begins else _AGAIN_MS):
            return ()
        subject = "1 state needs attention" if len(states) == 1 else f"{len(states)} states need attention"
        self.mail(subject, _text(states, numbers, now_ms))
        self.rounds.keep(_JOB, replace(bookmark, passed_ms=now_ms))
        return states


def _text(states: Sequence[Attention], numbers: Mapping[str, int], now_ms: int) -> str:
    lines = [_line(state, numbers, now_ms) for state in states[:_MOST]]
    if len(states) > _MOST:
        lines.append(f"and {len(states) - _MOST} more.")
    return "\n".join([*lines, "", "`headrace attention` lists them."])


def _line(state: Attention, numbers: Mapping[str, int], now_ms: int) -> str:
    rule, minutes = RULES[state.kind], max(0, now_ms - state.since_ms) // MINUTE_MS
    is_measured = state.kind == Kind.BACKLOG and state.topic in numbers
    number = f" ({numbers[state.topic]} messages)" if is_measured else ""
    return f"{state.place}: {rule.what}{number} For {minutes} minutes. {rule.to_do}"


@dataclass(kw_only=True, frozen=True, slots=True)
class ProofWatch:
    """Notes that the last proved day of the archive is too old."""

    days: Days
    marks: Marks
    clock: Clock

    def run_once(self) -> list[Trouble]:
        """Look at the last days: an object of the bucket for each, and a write if the state has changed. A refusal is
        a trouble; the next run looks again."""
        now_ms, after_ms = self.clock.now_ms(), RULES[Kind.NOT_PROVED].after_ms
        try:
            since_ms = self._since_ms(now_ms)
            is_late = since_ms is not None and now_ms - since_ms >= after_ms
            old = [state for state in self.marks.attention(None, 1) if state.kind == Kind.NOT_PROVED]
            new = [Attention(Kind.NOT_PROVED, since_ms, noted_ms=now_ms)] if since_ms and is_late else []
            self.marks.note_changes(old, new)
        except Unavailable as error:
            return [Trouble.of("", error)]
        return []

    def _since_ms(self, now_ms: int) -> int | None:
        """The end of the last proved day, or the beginning of the first of these days if none is proved; None: nothing
        was archived in these days, which is another alarm."""
        days = self.days(datetime.fromtimestamp(now_ms / 1000, UTC).date(), _DAYS)
        archived = [(name, day) for name, day in days if day]
        for name, day in archived:
            if day.is_closed and all(day.proof(topic) == Proof.PROVED for topic in day.topics.values()):
                return _begin_ms(name) + DAY_MS
        return _begin_ms(archived[-1][0]) if archived else None


def _begin_ms(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1000
