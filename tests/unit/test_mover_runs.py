"""A mover's run: what goes when, what goes together, and the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.errors import unavailable
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import FirstTimers, Timer, TimerKind
from chalicelib.store.layout import FRAGMENTS, fragment_of
from chalicelib.store.timers import Timers
from tests.support import factories as make
from tests.support.clock import START_MS, Inline
from tests.support.embedded import embedded_dynamo
from tests.support.faults import Death
from tests.support.shed import Shed
from tests.support.troubled import Troubled

HOME = make.shard()


def test_what_is_due_for_one_shard_goes_together_and_in_order_whatever_its_fragment() -> None:
    shed = Shed()
    due = [make.timer(START_MS - 1 - n, id=f"t{n}", shard=HOME) for n in range(50)]
    shed.timers.store(due)
    shed.mover.run_once()
    assert len({fragment_of(timer.id) for timer in due}) == FRAGMENTS
    assert [timer.id for timer in shed.moved] == [timer.id for timer in reversed(due)]


def test_the_greatest_lateness_is_told() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS - late_ms, n) for n, late_ms in enumerate((10, 3_000, 200))])
    assert shed.mover.run_once().late_ms == 3_000
    shed.timers.store([make.timer(START_MS - 3_000, 1), make.timer(START_MS + 200, 2)])
    assert shed.mover.run_once(until_ms=START_MS + 300).late_ms == 3_200, "though the last went in time"


def test_retries_go_with_those_that_are_kept_as_long_and_messages_with_all() -> None:
    shed = Shed()
    for kind, name in ((TimerKind.RETRY, "r"), (TimerKind.DELIVER, "m")):
        settings: dict[str, Any] = {"kind": kind, "shard": HOME, "draft": make.draft(name)}
        shed.timers.store(
            [
                make.timer(START_MS - 9 + n, id=f"{name}{n}", keep_days=days, **settings)
                for n, days in enumerate((7, 30, 7))
            ]
        )
    shed.mover.run_once()
    assert sorted(shed.loads) == [(7, ["m0", "m1", "m2"]), (7, ["r0", "r2"]), (30, ["r1"])]


def test_a_bug_is_told_once_and_the_run_has_not_finished() -> None:
    class Broken(Shed):
        def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
            raise KeyError("bug")

    shed = Broken()
    shed.timers.store([make.timer(START_MS - 1, shard=HOME)])
    report = shed.mover.run_once()
    assert len(shed.told) == 1
    assert "bug" in shed.told[0][1]
    assert (report.refused, report.finished) == (1, False)


def test_what_others_were_woken_for_is_woken_once() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS - 1, kind=TimerKind.WAKE, shard=HOME)])
    assert [shed.mover.run_once().woken for _ in range(2)] == [1, 0]


def test_i10_a_wake_up_that_comes_again_while_it_is_woken_for_is_woken_for_again() -> None:
    """The delivery that it started has ended meanwhile: by a clock that is behind, nothing was due yet."""
    first = make.timer(START_MS - 1, kind=TimerKind.WAKE, shard=HOME, stored_ms=START_MS - 60_000)
    again = [replace(first, stored_ms=START_MS - 2)]

    class Restoring(Shed):
        def wake(self, due: Sequence[Timer]) -> None:
            self.timers.store([again.pop()] if again else [])

    shed = Restoring()
    shed.timers.store([first])
    assert [shed.mover.run_once().woken for _ in range(4)] == [1, 1, 0, 0]


def test_a_run_that_was_refused_something_has_not_finished_and_wakes_another() -> None:
    class Refusing(Shed):
        def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
            if self.clock.now_ms() < START_MS + 500:
                raise unavailable()
            return super().append(shard, keep_days, due)

    shed = Refusing()
    shed.timers.store([make.timer(START_MS - 1, 3, shard=HOME), make.timer(START_MS + 500, 5)])
    report = shed.mover.run_once()
    assert (report.moved, report.refused, report.finished) == (0, 1, False)
    assert shed.woken == [(START_MS + 1_000, [3])]
    shed.clock.advance(1_000)
    assert shed.mover.run_once(fragments=[3]).moved == 1


@pytest.mark.parametrize("method", ["store", "drop"])
def test_a_check_that_is_broken_off_is_made_again(method: str) -> None:
    """Between its present time and its next one, a transaction always has one of both."""
    shed = Shed()
    check = make.timer(START_MS - 1, kind=TimerKind.CHECK, shard=HOME, every_ms=60_000)
    shed.timers.store([check])
    timers: Any = Troubled(shed.timers, lambda name, *_: name == method)
    shed.mover_of(timers).run_once()
    assert timers.refused == 1
    assert [timer.kind for timer in shed.timers.behind(fragment_of(check.id), "", 9)][:1] == [TimerKind.CHECK]


@pytest.mark.parametrize(("every_ms", "woken"), [(59_999, True), (60_000, False)])
def test_a_check_that_is_repeated_before_the_schedules_next_run_has_a_wake_up(
    every_ms: int, woken: bool
) -> None:
    shed = Shed()
    check = make.timer(START_MS, 3, kind=TimerKind.CHECK, shard=HOME, every_ms=every_ms)
    shed.timers.store([check])
    assert shed.mover.run_once().checked == 1
    assert shed.woken == ([(START_MS + every_ms, [3])] if woken else [])


@pytest.mark.parametrize("back_ms", [1, 60_000, 90_000])
def test_a_check_outlives_a_clock_that_is_set_back_while_its_next_time_is_computed(back_ms: int) -> None:
    class SetBack(Inline):
        def submit(self, work: Callable[..., Any], /, *args: Any, **settings: Any) -> Future[Any]:
            if getattr(work, "func", work).__name__ == "_carry":
                shed.clock.at_ms = START_MS - back_ms
            return super().submit(work, *args, **settings)

    shed = Shed()
    check = make.timer(START_MS, kind=TimerKind.CHECK, shard=HOME, every_ms=60_000)
    shed.timers.store([check])
    shed.mover_of(shed.timers, SetBack).run_once()
    [later] = shed.timers.behind(fragment_of(check.id), "", 9)
    assert later.due_ms == START_MS + 60_000


def test_a_mover_that_was_woken_sees_the_timer_that_was_just_filed() -> None:
    class Late(Timers):
        """What was filed is not seen by every read yet."""

        def first_due(self, *args: Any, consistent: bool = True) -> Any:
            return super().first_due(*args) if consistent else FirstTimers([])

    shed = Shed(timers=Late(embedded_dynamo()))
    timer = make.timer(START_MS - 1)
    shed.timers.store([timer])
    assert shed.mover.tick().moved == 0
    assert shed.mover.run_once(fragments=[0]).moved == 1


def test_a_run_waits_for_what_its_wake_up_is_early_for_and_for_nothing_else() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS + ms, id=str(ms)) for ms in (-1, 30, 250, 301)])
    assert shed.mover.run_once().moved == 1
    report = shed.mover.run_once(until_ms=START_MS + 300)
    assert [timer.id for timer in shed.moved] == ["-1", "30", "250"]
    assert (shed.clock.now_ms(), report.late_ms) == (START_MS + 250, 220)


@pytest.mark.parametrize(("wakes", "waited_ms"), [(1, 0), (2, 500), (9, 500), (10, 0)])
def test_a_run_waits_for_more_where_wake_ups_come_together_but_are_not_too_many(
    wakes: int, waited_ms: int
) -> None:
    shed = Shed()
    shed.mover.run_once(wakes=wakes)
    assert shed.clock.now_ms() - START_MS == waited_ms


def test_a_wake_up_that_is_far_too_early_by_this_clock_comes_again() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS + 5_000, 3)])
    assert shed.mover.run_once(fragments=[3], until_ms=START_MS + 5_300).moved == 0
    assert shed.woken == [(START_MS + 5_300, [3])]
    assert shed.clock.now_ms() == START_MS


def test_a_run_whose_time_is_up_wakes_another_at_once() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS - 1, 4) for _ in range(600)])
    times = iter([True, True])
    report = shed.mover.run_once(lambda: next(times, False), [4])
    assert (report.moved, report.finished) == (500, False)
    assert shed.woken == [(START_MS, [4])]


def test_the_schedule_wakes_for_what_was_stored_long_before() -> None:
    """What is due within 15 minutes of its storing has a wake-up of its own."""
    shed = Shed()
    ages = {"short": 900_000, "long": 900_001, "later": 10**9, "due": 10**9}
    dues = {"short": START_MS + 9_000, "long": START_MS + 9_000, "later": START_MS + 75_001, "due": START_MS}
    timers = [make.timer(dues[name], id=name, stored_ms=dues[name] - ages[name]) for name in ages]
    shed.timers.store(timers)
    assert shed.mover.tick().moved == 1
    assert shed.woken == [(START_MS + 9_000, [fragment_of("long")])]


def test_the_schedule_wakes_each_second_for_what_it_does_not_read() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS + 100 * n, 2, stored_ms=START_MS) for n in range(1, 400)])
    shed.mover.tick()
    assert shed.woken == [(START_MS + second * 1_000, [2]) for second in range(25, 75)]


def test_a_run_leaves_a_full_fragment_to_the_run_that_was_first() -> None:
    class Beaten(Shed):
        def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
            return 0 if due[0].fragment == 2 else super().append(shard, keep_days, due)

    shed = Beaten()
    shed.timers.store([make.timer(START_MS - 1, fragment) for fragment in (2, 5) for _ in range(600)])
    report = shed.mover.run_once()
    assert (report.moved, shed.loads.count((7, [])), shed.woken) == (600, 0, [(START_MS + 1_000, [2])])


def test_the_end_of_a_process_is_the_end_of_its_run() -> None:
    class Ending(Shed):
        def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
            raise Death

    shed = Ending()
    shed.timers.store([make.timer(START_MS - 1)])
    with pytest.raises(Death):
        shed.mover_of(shed.timers, lambda: ThreadPoolExecutor(2)).run_once()
