"""Each of these bugs in movers, wake-ups and lines is seen by a test."""

from __future__ import annotations

import queue
from types import SimpleNamespace

import pytest

from chalicelib import functions
from chalicelib.scheduler import mover as mover_module
from chalicelib.scheduler.mover import Mover, MoverRun
from chalicelib.services.core.mover_wakes import MoverWakes
from chalicelib.services.core.wake import Waker
from chalicelib.services.manage import admin
from chalicelib.services.produce.drafts import UnitNames
from chalicelib.store import timers as store
from chalicelib.store.timers import Timers
from tests.contract.ports import test_timers
from tests.contract.schedules import test_sweeping_groups
from tests.contract.services import test_growth, test_lines, test_wake_ups
from tests.simulation import virtual
from tests.support.planting import Bug, Planted, assert_seen, names_of, on_a_stage
from tests.support.stages import embedded_stage
from tests.unit import test_mover_runs as runs
from tests.unit import test_mover_troubles as troubles
from tests.unit.test_mover_world import LATEST_MS, World


def a_world_is_in_time(seed: int) -> None:
    waits = SimpleNamespace(SimpleQueue=lambda: virtual.Queue(virtual.current()), Empty=queue.Empty)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mover_module, "queue", waits)
        world = World(seed)
        world.run()
    assert world.owed == {}
    assert max(world.late.values()) <= world.start_ms + LATEST_MS


def a_batch_keeps_its_order() -> None:
    test_lines.test_a_batch_that_is_due_in_one_millisecond_enters_in_its_order(embedded_stage(), 4, "k")


BUGS: Planted = {
    "a wake-up believed in that could not be sent": (
        Bug(Waker, "wake_at", "self._mover_wakes.remove(wake)", "pass"),
        on_a_stage(test_wake_ups.test_a_wake_up_that_could_not_be_sent_is_not_believed_in),
    ),
    "a wake-up believed in that has come": (
        Bug(MoverWakes, "add", "if now_ms < wake.at_ms <=", "if wake.at_ms <="),
        on_a_stage(test_wake_ups.test_timers_of_one_second_share_a_wake_up),
    ),
    "a wake-up for others than those that rely on it": (
        Bug(MoverWakes, "_add", "w.covers(fragments)", "True"),
        lambda: a_world_is_in_time(0),
    ),
    "a run that does not wait for its wake-up's timers": (
        Bug(Mover, "run_once", "min(max(now_ms, until_ms), now_ms + _MOST_AHEAD_MS)", "now_ms"),
        runs.test_a_run_waits_for_what_its_wake_up_is_early_for_and_for_nothing_else,
    ),
    "a schedule that wakes for nothing": (
        Bug(Mover, "tick", "self.wake_at(", "list("),
        runs.test_the_schedule_wakes_for_what_was_stored_long_before,
    ),
    "a run that races another through all pages": (
        Bug(MoverRun, "_empty", "fragment in self._met or ", ""),
        runs.test_a_run_leaves_a_full_fragment_to_the_run_that_was_first,
    ),
    "a refusal that ends the run": (
        Bug(MoverRun, "_results", "if not isinstance(error, Exception):", "if error:"),
        troubles.test_a_fragment_that_is_throttled_stops_only_itself,
    ),
    "a wake-up dropped although it was refused": (
        Bug(
            MoverRun,
            "_carry",
            "self.mover.wake(timers)\n        self.mover.timers.drop(timers)",
            "self.mover.timers.drop(timers)\n        self.mover.wake(timers)",
        ),
        troubles.test_a_wake_whose_invocation_is_refused_stops_only_itself,
    ),
    "a wake-up dropped that was stored again since it was read": (
        Bug(Timers, "drop", "timer.kind is TimerKind.WAKE and timer.stored_ms", "False"),
        runs.test_i10_a_wake_up_that_comes_again_while_it_is_woken_for_is_woken_for_again,
    ),
    "a later one that goes past what was refused": (
        Bug(MoverRun, "_move_due", "loads.keys() - self._stuck - ", "loads.keys() - "),
        troubles.test_nothing_of_a_shard_goes_past_what_was_refused,
    ),
    "a line in all fragments": (
        Bug(UnitNames, "name", "if self._fragment_of(id_of(name)) == fragment)", "if name)"),
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
        on_a_stage(test_growth.test_keys_stay_and_what_has_no_key_spreads, 4),
    ),
    "a watch for which the sweep leaves no time": (
        Bug(functions, "sweep", "_has_thirds(context, 1)", "_has_thirds(context, 0)"),
        on_a_stage(
            test_sweeping_groups.test_backlogs_are_told_and_lost_wake_ups_found_though_neither_has_time_enough
        ),
    ),
    "a look that takes all the memory": (
        Bug(store, "first_of", "weight > MAX_LOOK_BYTES", "weight > 10**12"),
        lambda: test_timers.test_a_look_is_bounded_in_bytes(embedded_stage().adapters.timers),
    ),
}


@pytest.mark.parametrize("name", names_of(BUGS, {"a look that takes all the memory"}))
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_seen(*BUGS[name], monkeypatch)
