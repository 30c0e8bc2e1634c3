"""The end of a stage's weeks: no more trouble, and all consumers take messages until none are left."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from chalicelib.store.layout import FRAGMENTS
from tests.simulation.days.ledger import Home, Member
from tests.simulation.days.plan import SLOT_MS
from tests.simulation.days.stage import Days
from tests.simulation.days.traffic import ack, received
from tests.support.flows import label_of

_MOST_ROUNDS = 400
_QUIET_ROUNDS = 2  # a sweep on a clock that is behind finds what was moved just now in its next run only


def calms(days: Days) -> None:
    """No more trouble from now on."""
    days.plan = replace(days.plan, deaths=0.0, missed=0.0, cold=1.0, ragged=False)
    days.sky.clears()


def heals(days: Days) -> None:
    """All consumers take messages until none are left. A PENDING subscriber is asked when the job that comes by
    all topics has come by, which takes it up to three runs; strangers want to be asked three times."""
    for _ in range(12):
        if not _has_strangers(days):
            break
        days.passes((days.slot + 1) * SLOT_MS - days.clock.at_ms)
        for _ in range(4):
            days.passes(60_000)
    quiet = 0
    for _ in range(_MOST_ROUNDS):
        days.clock.at_ms += 11 * 60_000
        settled_labels = _done(days)
        if days.served or "decisions" in days.plan.themes:
            days.minute()
        else:
            days.function("mover", lambda deps, _: deps.mover.run_once())
        for home, member in list(days.members()):
            if not member.is_called:
                _drained(days, home, member)
        new_labels = _done(days) - settled_labels
        next_ms = _awaited(days)
        quiet = 0 if new_labels or next_ms else quiet + 1
        if quiet == _QUIET_ROUNDS:
            return
        if not new_labels and next_ms:
            days.clock.at_ms = max(days.clock.at_ms, next_ms)
    days.accuse("there is no end to what is received")


def _has_strangers(days: Days) -> bool:
    """Is there a subscriber whose handshake is still open?"""
    members = [member for _, member in days.members()]
    return any(days.moods[uid] == "strange" for uid, (_, m) in days.served.items() if m in members)


def _done(days: Days) -> int:
    return sum(len(member.done) + len(member.perhaps) for _, member in days.members())


def _awaited(days: Days) -> int | None:
    timers = days.adapters.timers
    times = [t for f in range(FRAGMENTS) if (t := timers.next_ms(f, consistent=True)) is not None]
    return min(times, default=None)


def _drained(days: Days, home: Home, member: Member) -> int:
    count = 0
    while messages := received(days, home, member.name, 100):
        days.ask("ack", partial(ack, home.topic.name, member.group.name, messages), mortal=False)
        member.done.update(label_of(d.message.draft.body) for d in messages)
        count += len(messages)
    return count
