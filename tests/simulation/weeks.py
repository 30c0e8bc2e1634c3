"""The actions of a stage's weeks, seed by seed."""

from __future__ import annotations

from chalicelib.domain.times import DAY_MS, HOUR_MS
from chalicelib.domain.topic import Group, Mode, Topic
from tests.simulation.days import changes, limits, readers, settings
from tests.simulation.days.healing import calms, heals
from tests.simulation.days.judge import judge
from tests.simulation.days.plan import ABSENCES, LIMITS, RATES, SETTINGS, WORK, plan_of
from tests.simulation.days.settings import (
    changes_group,
    changes_rate,
    changes_topic,
    founds,
    remakes_group,
    remakes_topic,
)
from tests.simulation.days.stage import Days, Deed
from tests.simulation.days.traffic import receives, redrives, sends, sends_much, settles_late, works_quietly

_DEEDS = 60


def _wait(least_ms: int, most_ms: int) -> Deed:
    return lambda days: days.passes(days.random.randint(least_ms, most_ms))


def _darkens(days: Days) -> None:
    """A partition is throttled for a while. A row outlives its retention by four runs of `expire`: 20 hours are three
    of them, and a run that is missed, or has hardly any time, would be one too many."""
    is_irregular = days.plan.missed or days.plan.ragged
    longest_ms = 2 * HOUR_MS if is_irregular else 20 * HOUR_MS
    days.sky.darkens(days.random.choice((2_000, 60_000, 2 * HOUR_MS, longest_ms)))
    days.injected["partition throttled"] += 1


def _sets_clock(days: Days) -> None:
    """A process's clock is set."""
    clock = days.random.choice(days.seats).clock
    clock.skew_ms = days.random.randint(-days.plan.skew_ms, days.plan.skew_ms)
    days.injected["clock set"] += 1


DEEDS: tuple[tuple[int, Deed], ...] = (
    (16, sends),
    (14, receives),
    (3, settles_late),
    (3, changes_topic),
    (1, changes_group),
    (2, remakes_group),
    (1, remakes_topic),
    (2, redrives),
    (10, _wait(100, 4_000)),
    (4, _wait(60_000, 600_000)),
    (4, _wait(HOUR_MS, 20 * HOUR_MS)),
    (2, _wait(DAY_MS, 4 * DAY_MS)),
)
THEMES: dict[str, tuple[tuple[int, Deed], ...]] = {
    "changes": ((6, changes.edits), (4, changes.cancels)),
    "decisions": ((8, changes.prepares), (6, changes.decides)),
    "seeks": ((4, changes.seeks),),
    "broadcasts": ((6, readers.comes_or_goes), (2, readers.changes_mood)),
    "calls": ((4, readers.is_called), (6, readers.changes_mood)),
    "throttled": ((6, _darkens),),
    "clocks": ((6, _sets_clock),),
    SETTINGS: ((6, settings.changes_any_setting), (6, settings.changes_any_setting_of_a_group)),
    RATES: ((4, changes_rate), (6, sends_much)),
    ABSENCES: ((8, readers.comes_or_goes), (4, readers.changes_offline), (8, receives)),
    WORK: ((12, readers.comes_or_goes), (20, works_quietly)),
    LIMITS: ((6, limits.sends_extremes),),
}


def play(seed: int, *also: str) -> Days:
    """One seed's weeks, with some themes more, to their end, judged."""
    days = Days(plan_of(seed, *also))
    control = days.adapters.control
    for n in range(days.plan.idle):
        topic = Topic(f"idle-{n:03}", f"uid{n:05}", days.clock.at_ms, shards=1)
        control.put_topic(topic, None)
        control.put_group(
            topic, Group(topic.name, "nobody", f"gid{n:05}", days.clock.at_ms, mode=Mode.QUEUE), None
        )
    for name in days.topics:
        founds(days, name)
    weights, deeds = zip(*DEEDS, *(deed for theme in days.plan.themes for deed in THEMES[theme]), strict=True)
    for deed in days.random.choices(deeds, weights, k=_DEEDS):
        deed(days)
    calms(days)
    readers.mend(days)
    for transaction_id in sorted(days.deals):
        changes.decide(days, transaction_id)
    heals(days)
    judge(days)
    return days


def story(days: Days, last: int = 80) -> str:
    """What a reader needs to understand a seed's failure, and to see it again."""
    return "\n".join(
        [f"days, seed {days.plan.seed}: {plan_of(days.plan.seed)}", *days.complaints, *days.path[-last:]]
    )
