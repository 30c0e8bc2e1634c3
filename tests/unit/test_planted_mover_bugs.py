"""Each of these bugs in movers, wake-ups and lines is seen by a test."""

from __future__ import annotations

import queue
from types import SimpleNamespace

import pytest

from chalicelib import functions
from chalicelib.scheduler import beside
from chalicelib.scheduler.foreign_leases import ForeignLeases
from chalicelib.scheduler.mover import Mover
from chalicelib.scheduler.mover_run import MoverRun
from chalicelib.services.core.unit_names import UnitNames
from chalicelib.services.core.wake import Waker
from chalicelib.services.manage import admin
from chalicelib.store import timers as store
from chalicelib.store.timers import Timers
from tests.contract.ports import test_timers
from tests.contract.schedules import test_sweeping_groups
from tests.contract.services import test_growth, test_lines
from tests.simulation import virtual
from tests.support.planting import Bug, Planted, assert_seen, names_of
from tests.support.stages import embedded_stage
from tests.unit import test_mover_leases as leases
from tests.unit import test_mover_runs as runs
from tests.unit import test_mover_troubles as troubles
from tests.unit.test_mover_world import LATEST_MS, World


def a_world_is_in_time(seed: int, deadly: bool = False) -> None:
    waits = SimpleNamespace(SimpleQueue=lambda: virtual.Queue(virtual.current()), Empty=queue.Empty)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "queue", waits)
        world = World(seed, deadly)
        world.run()
    assert world.owed == {}
    assert max(world.late.values()) <= world.start_ms + LATEST_MS


def a_batch_keeps_its_order() -> None:
    test_lines.test_a_batch_that_is_due_in_one_millisecond_enters_in_its_order(embedded_stage(), 4, "k")


BUGS: Planted = {
    "a mover believed in because of a timer that was cancelled": (
        Bug(Waker, "_is_awake", "< AWAKE_MS", "< 50_000"),
        lambda: troubles.test_a_cancelled_timer_leaves_no_false_belief_in_its_mover(False),
    ),
    "a mover believed in whose invocation was refused": (
        Bug(
            Waker,
            "wake_movers",
            "if asleep and self.start_mover(asleep):",
            "if asleep and [self.start_mover(asleep)]:",
        ),
        lambda: troubles.test_a_cancelled_timer_leaves_no_false_belief_in_its_mover(True),
    ),
    "a woken mover that leaves at once": (
        Bug(Mover, "run_once", "has_time, AWAKE_MS)", "has_time, 1)"),
        lambda: a_world_is_in_time(15),  # one in which a client's timing is bad
    ),
    "a dead mover's lease whose end nobody waits for": (
        Bug(ForeignLeases, "meet", "self._ends_ms.setdefault(fragment, until_ms) != until_ms", "True"),
        lambda: a_world_is_in_time(7, deadly=True),
    ),
    "a fragment taken again after it was given away": (
        Bug(MoverRun, "_acquire_lease", "fragment not in self._wanted", "False"),
        leases.test_a_lease_that_comes_when_its_run_has_left_is_let_go_and_handed_over,
    ),
    "a mover that waits beside one that is alive": (
        Bug(ForeignLeases, "meet", "self._ends_ms.setdefault(fragment, until_ms) != until_ms", "False"),
        lambda: leases.test_a_run_leaves_a_fragment_whose_holder_renews_its_lease_to_it(None),
    ),
    "a mover that leaves without looking once more": (
        Bug(MoverRun, "_leave", "return self._try_to_take(fragment, consistent=True)", "return None"),
        troubles.test_what_is_filed_while_a_mover_leaves_is_still_its_own,
    ),
    "a refusal that ends the run": (
        Bug(MoverRun, "_results", "if not isinstance(error, Exception):", "if error:"),
        lambda: troubles.test_a_fragment_that_is_throttled_stops_only_itself("first_due"),
    ),
    "a wake-up dropped although it was refused": (
        Bug(
            MoverRun,
            "_carry",
            "self._ways.wake(timers)\n        self._timers.drop(timers)",
            "self._timers.drop(timers)\n        self._ways.wake(timers)",
        ),
        troubles.test_a_wake_whose_invocation_is_refused_stops_only_itself,
    ),
    "a wake-up dropped that was stored again since it was read": (
        Bug(Timers, "drop", "timer.kind is TimerKind.WAKE and timer.stored_ms", "False"),
        runs.test_i10_a_wake_up_that_comes_again_while_it_is_woken_for_is_woken_for_again,
    ),
    "a later one that goes past what was refused": (
        Bug(MoverRun, "_move", "if load not in self._stuck}", "if load}"),
        troubles.test_nothing_of_a_shard_goes_past_what_was_refused,
    ),
    "a mover that hands on what it never held": (
        Bug(MoverRun, "_give", "ours = self._ours(fragments)", "ours = list(fragments)"),
        troubles.test_trouble_that_outlasts_movers_does_not_multiply_them,
    ),
    "a line in all fragments": (
        Bug(UnitNames, "name", "if fragment_of(id_of(name)) == fragment)", "if name)"),
        a_batch_keeps_its_order,
    ),
    "a line ordered by the clock alone": (
        Bug(
            UnitNames,
            "_next",
            "max(self._sequence + 1, self._clock.now_ms() * _PER_MS)",
            "self._clock.now_ms()",
        ),
        a_batch_keeps_its_order,
    ),
    "keys that move when the topic grows": (
        Bug(admin, "_default_key_shards", "return old.shards_of_keys if", "return None if"),
        lambda: test_growth.test_keys_stay_and_what_has_no_key_spreads(embedded_stage(), 4),
    ),
    "a mover that looks no further than to the next one": (
        Bug(MoverRun, "_is_soon", "+ SOON_MS", "+ 60_000"),
        lambda: runs.test_a_timer_that_only_the_schedule_finds_goes_in_time_however_late_the_schedule_is(
            10_000
        ),
    ),
    "a watch for which the sweep leaves no time": (
        Bug(
            functions,
            "sweep",
            "_has_thirds(context, 1)",
            "_has_thirds(context, 0)",
        ),
        lambda: (
            test_sweeping_groups.test_backlogs_are_told_and_lost_wake_ups_found_though_neither_has_time_enough(
                embedded_stage()
            )
        ),
    ),
    "a last look that began before the timer was stored": (
        Bug(MoverRun, "stay", "< awake_until_ms or bool(self._takes.under_way)", "< awake_until_ms"),
        runs.test_a_look_that_began_before_a_timer_was_stored_is_not_the_last_one,
    ),
    "a look that takes all the memory": (
        Bug(
            store,
            "first_of",
            "weight > MAX_LOOK_BYTES",
            "weight > 10**12",
        ),
        lambda: test_timers.test_a_look_is_bounded_in_bytes(embedded_stage().adapters.timers),
    ),
}


@pytest.mark.parametrize("name", names_of(BUGS, {"a look that takes all the memory"}))
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_seen(*BUGS[name], monkeypatch)
