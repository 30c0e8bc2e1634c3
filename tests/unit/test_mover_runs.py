"""Movers share the work by leases, and one that falls behind gives half of its fragments to another."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import pytest

from chalicelib.domain.errors import unavailable
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer, TimerKind, fragment_of
from chalicelib.scheduler.mover import Mover
from chalicelib.scheduler.mover_run import MoveReport, MoverRun, Ways
from chalicelib.store.memory import MemoryTables, MemoryTimers
from tests.support import factories as make
from tests.support.clock import START_MS, ManualClock, SeededRandom
from tests.support.faults import Death
from tests.support.push import Inline
from tests.support.troubled import Troubled

HOME = make.shard()


@dataclass
class Shed:
    """A mover, what it has put into logs, and which fragments it gave away."""

    clock: ManualClock = field(default_factory=ManualClock)
    timers: MemoryTimers = field(default_factory=lambda: MemoryTimers(MemoryTables()))
    moved: list[Timer] = field(default_factory=list)
    given: list[Sequence[int]] = field(default_factory=list)
    loads: list[tuple[int, list[str]]] = field(default_factory=list)
    """What went together, and for how many days."""
    told: list[tuple[str, str]] = field(default_factory=list)
    brings: list[int] = field(default_factory=list)
    """How many timers each look for what was set aside brings back."""
    seconds: float = 0
    """What each append takes."""

    def __post_init__(self) -> None:
        chance = SeededRandom()
        nothing = lambda *_: None  # noqa: E731
        self.ways = Ways(
            append=self.append,
            wake=self.wake,
            check=nothing,
            set_aside=nothing,
            hand_over=self.given.append,
            tell=self.tell,
        )
        self.timers.bring_back = lambda: self.brings.pop(0) if self.brings else 0  # type: ignore[method-assign]
        self.mover = Mover(
            timers=self.timers,
            ways=self.ways,
            clock=self.clock,
            new_owner=lambda: chance.id(8),
            threads=Inline,
        )

    def run(self, owner: str, threads: Executor) -> MoverRun:
        """One run, which waits for nothing that its threads are late with."""
        return MoverRun(
            timers=self.timers,
            ways=self.ways,
            clock=self.clock,
            owner=owner,
            threads=threads,
            patience_seconds=0.001,
        )

    def wake(self, due: Sequence[Timer]) -> None:
        pass

    def tell(self, where: str, error: BaseException) -> None:
        self.told.append((where, str(error)))

    def append(self, shard: ShardKey, keep_days: int, due: Sequence[Timer]) -> int:
        self.clock.advance(round(self.seconds * 1000))
        self.timers.drop(due)
        self.moved += due
        self.loads.append((keep_days, [timer.id for timer in due]))
        return len(due)


def test_a_run_leaves_alone_what_another_run_of_its_process_holds() -> None:
    meanwhile: list[MoveReport] = []

    class Reentrant(Shed):
        def append(self, shard: ShardKey, keep_days: int, due: Sequence[Timer]) -> int:
            began_ms = self.clock.now_ms()
            meanwhile.append(self.mover.run_once(lambda: self.clock.now_ms() < began_ms + 5_000))
            return super().append(shard, keep_days, due)

    shed = Reentrant()
    shed.timers.store([make.timer(START_MS - 1)])
    assert shed.mover.run_once().moved == 1
    assert [(report.moved, report.ticks) for report in meanwhile] == [(0, 0)]


def test_a_mover_that_falls_behind_gives_every_other_fragment_to_another() -> None:
    shed = Shed(seconds=2)
    shed.timers.store([make.timer(START_MS - 1, id=f"t{n}", shard=HOME) for n in range(4_000)])
    mine = shed.mover.run_once()
    assert shed.given[0] == list(range(1, FRAGMENTS, 2))
    for fragments in shed.given:  # and what is given away meanwhile
        shed.mover.run_once(fragments=fragments)
    assert 0 < mine.moved < 4_000
    assert len({timer.id for timer in shed.moved}) == len(shed.moved) == 4_000


def test_a_mover_that_keeps_up_gives_nothing_away() -> None:
    shed = Shed(seconds=0.2)
    shed.timers.store([make.timer(START_MS - 1, id=f"t{n}", shard=HOME) for n in range(1_000)])
    assert shed.mover.run_once().moved == 1_000
    assert shed.given == []


def test_what_is_due_for_one_shard_goes_together_and_in_order_whatever_its_fragment() -> None:
    shed = Shed()
    due = [make.timer(START_MS - 1 - n, id=f"t{n}", shard=HOME) for n in range(50)]
    shed.timers.store(due)
    shed.mover.run_once()
    assert len({fragment_of(timer.id) for timer in due}) == FRAGMENTS
    assert [timer.id for timer in shed.moved] == [timer.id for timer in reversed(due)]


def test_a_mover_whose_time_is_up_leaves_its_fragments_to_another() -> None:
    shed = Shed()
    soon = make.timer(START_MS + 30_000)
    shed.timers.store([soon])
    assert not shed.mover.run_once(has_time=lambda: False).finished
    assert shed.given == [[soon.fragment]]
    assert shed.mover.run_once(fragments=shed.given[0]).moved == 1


def test_a_run_that_is_over_gives_back_what_it_is_granted_late() -> None:
    class Late(Inline):
        """Threads that stand still until they are let go on."""

        def submit(self, work: Callable[..., Any], /, *args: Any, **settings: Any) -> Future[Any]:
            tasks.append(partial(work, *args, **settings))
            return Future()

    tasks: list[Callable[[], object]] = []
    shed = Shed()
    shed.timers.store([make.timer(START_MS + 30_000, fragment=3)])
    run = shed.run("late", Late())
    run.stay([3], lambda: False)
    (take,) = tasks
    take()
    assert shed.given == [[3]]
    assert shed.timers.acquire_lease(3, "another", START_MS, START_MS + 1) is None


def test_the_greatest_lateness_is_told() -> None:
    shed = Shed()
    shed.timers.store([make.timer(START_MS - late_ms, n) for n, late_ms in enumerate((10, 3_000, 200))])
    assert shed.mover.tick(range(FRAGMENTS)).late_ms == 3_000


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
        def append(self, shard: ShardKey, keep_days: int, due: Sequence[Timer]) -> int:
            raise KeyError("bug")

    shed = Broken()
    shed.timers.store([make.timer(START_MS - 1, shard=HOME)])
    end_ms = START_MS + 10_000
    report = shed.mover.run_once(lambda: shed.clock.now_ms() < end_ms)
    assert len(shed.told) == 1
    assert "bug" in shed.told[0][1]
    assert report.refused > 1
    assert not report.finished


def test_what_was_set_aside_is_looked_for_at_the_start_and_every_ten_minutes() -> None:
    shed = Shed()
    shed.brings = [2, 0, 0, 0]
    looks = []
    for wait_ms in (0, 1, 1, 600_000, -3_600_000):
        shed.clock.advance(wait_ms)
        shed.mover.run_once()
        looks.append(len(shed.brings))
    assert looks == [3, 2, 2, 1, 0], (
        "again at once while there was something, and where the clock was set back"
    )


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
        def append(self, shard: ShardKey, keep_days: int, due: Sequence[Timer]) -> int:
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
    class SetBack(MemoryTimers):
        def first_due(self, *args: Any) -> Any:
            found = super().first_due(*args)
            shed.clock.at_ms = START_MS - back_ms
            return found

    shed = Shed(timers=SetBack(MemoryTables()))
    check = make.timer(START_MS, kind=TimerKind.CHECK, shard=HOME, every_ms=60_000)
    shed.timers.store([check])
    shed.mover.tick([check.fragment])
    [later] = shed.timers.behind(check.fragment, "", 9)
    assert later.due_ms == START_MS + 60_000


def test_a_mover_that_was_woken_sees_the_timer_that_was_just_filed() -> None:
    class Late(MemoryTimers):
        """What was filed is not seen by every read yet."""

        def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
            return super().next_ms(fragment, consistent=True) if consistent else None

    shed = Shed(timers=Late(MemoryTables()))
    timer = make.timer(START_MS - 1)
    shed.timers.store([timer])
    assert shed.mover.run_once(fragments=[timer.fragment]).moved == 1


def test_a_look_that_began_before_a_timer_was_stored_is_not_the_last_one() -> None:
    """Whoever stored it has just woken this mover, and wakes no other."""

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


def test_a_fragment_is_its_movers_for_three_renewals() -> None:
    class Slow(Shed):
        def append(self, shard: ShardKey, keep_days: int, due: Sequence[Timer]) -> int:
            self.clock.advance(14_000)
            other = Mover(
                timers=self.timers,
                ways=self.ways,
                clock=self.clock,
                new_owner=lambda: "other",
                threads=Inline,
            )
            other.run_once(lambda: False)
            return super().append(shard, keep_days, due)

    shed = Slow()
    shed.timers.store([make.timer(START_MS - 1)])
    assert shed.mover.run_once().moved == 1
    assert shed.given == [], "nobody else had it"


@pytest.mark.parametrize("woken_for", [None, [3]], ids=["by schedule", "woken"])
@pytest.mark.parametrize("due_in_ms", [1_000, 14_000, 25_000])
@pytest.mark.parametrize("lease_ms", [500, 9_000, 15_000])
def test_what_a_dead_mover_held_goes_when_its_lease_ends(
    lease_ms: int, due_in_ms: int, woken_for: list[int] | None
) -> None:
    shed = Shed()
    timer = make.timer(START_MS + due_in_ms, fragment=3)
    shed.timers.store([timer])
    assert shed.timers.acquire_lease(3, "dead", START_MS, START_MS + lease_ms) is None
    report = shed.mover.run_once(fragments=woken_for)
    assert shed.moved == [timer]
    assert report.late_ms <= max(0, lease_ms - due_in_ms) + 100


@pytest.mark.parametrize("woken_for", [None, [3]], ids=["by schedule", "woken"])
def test_a_run_leaves_a_fragment_whose_holder_renews_its_lease_to_it(woken_for: list[int] | None) -> None:
    class Renewing(ManualClock):
        """The holder renews its lease each five seconds."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.at_ms >= renewed_ms[-1] + 5_000:
                renewed_ms.append(self.at_ms)
                shed.timers.acquire_lease(3, "holder", self.at_ms, self.at_ms + 15_000)

    class Counting(MemoryTimers):
        def acquire_lease(self, fragment: int, owner: str, now_ms: int, until_ms: int) -> int | None:
            owners.append(owner)
            return super().acquire_lease(fragment, owner, now_ms, until_ms)

    owners: list[str] = []
    renewed_ms = [START_MS]
    shed = Shed(clock=Renewing(), timers=Counting(MemoryTables()))
    shed.timers.store([make.timer(START_MS + 25_000, fragment=3)])
    shed.timers.acquire_lease(3, "holder", START_MS, START_MS + 15_000)
    report = shed.mover.run_once(lambda: shed.clock.now_ms() < START_MS + 60_000, woken_for)
    assert (report.ticks, report.finished) == (0, True)
    assert shed.clock.at_ms <= START_MS + 7_000
    tries = len(owners) - owners.count("holder")
    assert tries == (2 if woken_for is None else 4), "each failed one costs a write unit, and the wait none"


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
    timers: Any = Troubled(shed.timers, lambda name, *_: name in ("bring_back", "release_lease"))
    mover = Mover(timers=timers, ways=shed.ways, clock=shed.clock, new_owner=lambda: "me", threads=Inline)
    assert mover.run_once(has_time=lambda: False).refused == 2
    assert shed.given == [[timer.fragment]], "whom it cannot let go of is given away all the same"


def test_a_lease_that_comes_when_its_run_has_left_is_let_go_and_handed_over() -> None:
    """Whoever was started meanwhile may have met it."""
    shed, goes_on = Shed(), threading.Event()
    timer = make.timer(START_MS - 1)
    shed.timers.store([timer])

    def is_late(name: str, *_: object) -> bool:
        return name == "acquire_lease" and not goes_on.wait(20)

    shed.timers, timers = cast(MemoryTimers, Troubled(shed.timers, is_late)), shed.timers
    with ThreadPoolExecutor(1) as threads:
        shed.run("late", threads).stay([timer.fragment], lambda: False)
        goes_on.set()
    assert shed.given == [[timer.fragment]]
    assert timers.acquire_lease(timer.fragment, "next", START_MS, START_MS + 1) is None


def test_the_end_of_a_process_is_the_end_of_its_run() -> None:
    class Ending(Shed):
        def append(self, shard: ShardKey, keep_days: int, due: Sequence[Timer]) -> int:
            raise Death

    shed = Ending()
    shed.timers.store([make.timer(START_MS - 1)])
    mover = Mover(
        timers=shed.timers,
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
