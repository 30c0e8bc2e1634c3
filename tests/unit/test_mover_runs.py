"""A mover's run: what goes when, what goes together, and the report."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.errors import unavailable
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer, TimerKind, fragment_of
from chalicelib.scheduler.mover import Mover
from chalicelib.store.timers import Timers
from tests.support import factories as make
from tests.support.clock import START_MS, Inline, ManualClock
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
    assert shed.mover.tick(range(FRAGMENTS)).late_ms == 3_000
    shed.timers.store([make.timer(START_MS - 3_000, 1), make.timer(START_MS + 2_000, 2)])
    assert shed.mover.run_once().late_ms == 3_000, "though the last went in time"


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
    shed.mover.tick(range(FRAGMENTS))
    assert sorted(shed.loads) == [(7, ["m0", "m1", "m2"]), (7, ["r0", "r2"]), (30, ["r1"])]


def test_a_bug_is_told_once_and_the_run_has_not_finished() -> None:
    class Broken(Shed):
        def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
            raise KeyError("bug")

    shed = Broken()
    shed.timers.store([make.timer(START_MS - 1, shard=HOME)])
    end_ms = START_MS + 10_000
    report = shed.mover.run_once(lambda: shed.clock.now_ms() < end_ms)
    assert len(shed.told) == 1
    assert "bug" in shed.told[0][1]
    assert report.refused > 1
    assert not report.finished


def test_what_others_were_woken_for_is_woken_once() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS - 1, kind=TimerKind.WAKE, shard=HOME)])
    assert [shed.mover.tick(range(FRAGMENTS)).woken for _ in range(2)] == [1, 0]


def test_i10_a_wake_up_that_comes_again_while_it_is_woken_for_is_woken_for_again() -> None:
    """The delivery that it started has ended meanwhile: by a clock that is behind, nothing was due yet."""
    first = make.timer(START_MS - 1, kind=TimerKind.WAKE, shard=HOME, stored_ms=START_MS - 60_000)
    again = [replace(first, stored_ms=START_MS - 2)]

    class Restoring(Shed):
        def wake(self, due: Sequence[Timer]) -> None:
            self.timers.store([again.pop()] if again else [])

    shed = Restoring()
    shed.timers.store([first])
    assert [shed.mover.tick(range(FRAGMENTS)).woken for _ in range(4)] == [1, 1, 0, 0]


def test_a_run_that_was_refused_something_has_not_finished() -> None:
    class Refusing(Shed):
        def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
            if self.clock.now_ms() < START_MS + 500:
                raise unavailable()
            return super().append(shard, keep_days, due)

    shed = Refusing()
    shed.timers.store([make.timer(START_MS - 1, shard=HOME)])
    report = shed.mover.run_once()
    assert (report.moved, report.refused, report.finished) == (1, 1, False)


@pytest.mark.parametrize("method", ["store", "drop"])
def test_a_check_that_is_broken_off_is_made_again(method: str) -> None:
    """Between its present time and its next one, a transaction always has one of both."""
    shed = Shed()
    check = make.timer(START_MS - 1, kind=TimerKind.CHECK, shard=HOME, every_ms=60_000)
    shed.timers.store([check])
    timers: Any = Troubled(shed.timers, lambda name, *_: name == method)
    Mover(timers=timers, ways=shed.ways, clock=shed.clock, new_owner=lambda: "me", threads=Inline).tick(
        range(FRAGMENTS)
    )
    assert timers.refused == 1
    assert [timer.kind for timer in shed.timers.behind(check.fragment, "", 9)][:1] == [TimerKind.CHECK]


@pytest.mark.parametrize("back_ms", [1, 60_000, 90_000])
def test_a_check_outlives_a_clock_that_is_set_back_while_its_next_time_is_computed(back_ms: int) -> None:
    class SetBack(Timers):
        def first_due(self, *args: Any) -> Any:
            found = super().first_due(*args)
            shed.clock.at_ms = START_MS - back_ms
            return found

    shed = Shed(timers=SetBack(embedded_dynamo()))
    check = make.timer(START_MS, kind=TimerKind.CHECK, shard=HOME, every_ms=60_000)
    shed.timers.store([check])
    shed.mover.tick([check.fragment])
    [later] = shed.timers.behind(check.fragment, "", 9)
    assert later.due_ms == START_MS + 60_000


def test_a_mover_that_was_woken_sees_the_timer_that_was_just_filed() -> None:
    class Late(Timers):
        """What was filed is not seen by every read yet."""

        def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
            return super().next_ms(fragment, consistent=True) if consistent else None

    shed = Shed(timers=Late(embedded_dynamo()))
    timer = make.timer(START_MS - 1)
    shed.timers.store([timer])
    assert shed.mover.run_once(fragments=[timer.fragment]).moved == 1


def test_a_look_that_began_before_a_timer_was_stored_is_not_the_last_one() -> None:
    """The process that stored it has just woken this mover, and wakes no other."""

    class Slow(Inline):
        """The answer to the first look is late."""

        def submit(self, work: Callable[..., Any], /, *args: Any, **settings: Any) -> Future[Any]:
            answered = super().submit(work, *args, **settings)
            if answers:
                return answered
            answers.append((Future(), answered.result()))
            return answers[0][0]

    class Passing(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.at_ms == START_MS + 1_000:
                shed.timers.store([timer])
            if self.at_ms == START_MS + 3_000:
                ((future, result),) = answers
                future.set_result(result)

    answers: list[tuple[Future[Any], Any]] = []
    timer = make.timer(START_MS + 2_500)
    shed = Shed(clock=Passing())
    run = shed.run("slow", Slow())
    run.stay([timer.fragment], lambda: True, awake_ms=2_000)
    assert shed.moved == [timer]


def test_nothing_goes_before_its_time_though_it_was_seen_before() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS - 1, id="due"), make.timer(START_MS + 30, id="soon")])
    shed.mover.tick(range(FRAGMENTS))
    assert [timer.id for timer in shed.moved] == ["due"]


def test_what_is_due_soon_goes_within_a_twentieth_of_a_second_of_its_time() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS + 120, id="soon"), make.timer(START_MS + 700, id="later")])
    assert shed.mover.run_once().late_ms <= 50
    assert len(shed.moved) == 2


def test_what_a_run_was_refused_besides_is_counted() -> None:
    shed = Shed()
    timer = make.timer(START_MS + 30_000)
    shed.timers.store([timer])
    timers: Any = Troubled(shed.timers, lambda name, *_: name == "release_lease")
    mover = Mover(timers=timers, ways=shed.ways, clock=shed.clock, new_owner=lambda: "me", threads=Inline)
    assert mover.run_once(has_time=lambda: False).refused == 1
    assert shed.given == [[timer.fragment]], "whom it cannot let go of is given away all the same"


def test_the_end_of_a_process_is_the_end_of_its_run() -> None:
    class Ending(Shed):
        def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
            raise Death

    shed = Ending()
    shed.timers.store([make.timer(START_MS - 1)])
    mover = Mover(
        timers=cast(Any, shed.timers),
        ways=shed.ways,
        clock=shed.clock,
        new_owner=lambda: "me",
        threads=lambda: ThreadPoolExecutor(2),
    )
    with pytest.raises(Death):
        mover.tick(range(FRAGMENTS))


@pytest.mark.parametrize("jitter_ms", [0, 10_000])
def test_a_timer_that_only_the_schedule_finds_goes_in_time_however_late_the_schedule_is(
    jitter_ms: int,
) -> None:
    for due_ms in range(START_MS + 100_000, START_MS + 200_000, 5_000):
        shed, rng = Shed(), random.Random(due_ms)
        shed.timers.store([make.timer(due_ms)])
        began_ms = START_MS
        while not shed.moved:
            shed.clock.at_ms = max(began_ms, shed.clock.at_ms)
            shed.mover.run_once()
            began_ms += 60_000 + rng.randint(0, jitter_ms)
        assert shed.clock.at_ms - due_ms <= 100
