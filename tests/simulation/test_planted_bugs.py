"""Bugs that real queues have had, planted one at a time: a few seeds must see each."""

from __future__ import annotations

import pytest

from chalicelib.domain import cursor as algebra
from chalicelib.modes.serial import Serial
from chalicelib.scheduler.sweeper import Sweeper
from chalicelib.services import claim
from chalicelib.services.deliver import _Run
from chalicelib.services.settle import _Leased
from chalicelib.store.memory import cursors
from chalicelib.store.memory.log import MemoryLog
from chalicelib.store.memory.tables import MemoryTables
from tests.crash.planting import Bug
from tests.simulation.judge import play

SEEDS = 200

BUGS: dict[str, Bug] = {
    "a settlement without its fence": Bug(
        cursors,
        "holds",
        "return all(current.leases.get(t) == lease for t, lease in change.expected_leases.items())",
        "return True",
    ),
    "a claim without its epoch": Bug(
        cursors,
        "holds",
        "if change.serialised and current.epoch != change.known_epoch:",
        "if False:",
    ),
    "a mover that does not delete": Bug(MemoryTables, "move", "del self.timers[timer_place(moved)]", "pass"),
    "a redrive that does not delete": Bug(
        MemoryTables, "move", "del self.letters[letter_place(moved)]", "pass"
    ),
    "attempt numbers that begin again in the lane": Bug(
        claim, "_before", "draft.origin.attempts if draft.origin else 0", "0"
    ),
    "a retry that is due a second early": Bug(
        algebra, "returned", "s.due_ms <= now_ms", "s.due_ms <= now_ms + 1000"
    ),
    "a unit that its dead message never lets go": Bug(
        Serial, "select", "settled.append((offset, offset + 1))\n", "busy.add(span.unit)\n"
    ),
    "an expired lease that nobody takes back": Bug(
        algebra, "expire", "lease.deadline_ms <= now_ms]", "lease.deadline_ms <= 0]"
    ),
    "a lease that is over a little too early": Bug(
        algebra, "expire", "overdue = [", "now_ms += 3000\n    overdue = ["
    ),
    "a dedup id that is not remembered": Bug(MemoryLog, "put", "self._tables.remember(dedup)", "pass"),
    "a sweeper that looks at whole segments only": Bug(
        Sweeper, "_has_more", "self._log.read(shard, cursor.segment_at, 1)", "[]"
    ),
    "an attempt that waited too long for its thread": Bug(
        _Run, "_send", "waited_ms > ", "waited_ms > 1000 * "
    ),
    "a failure that is forgotten when its timer should be filed": Bug(
        _Leased, "_write", "[step.timer for step in steps if step.timer]", "[]"
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    BUGS[name].plant(monkeypatch)
    assert any(play(seed)[1] for seed in range(SEEDS))
