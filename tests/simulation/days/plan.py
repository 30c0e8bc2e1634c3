"""What a seed decides beforehand of a stage's weeks."""

from __future__ import annotations

import random
from dataclasses import dataclass

from chalicelib.domain.times import DAY_MS, HOUR_MS


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed decides beforehand. `idle` topics lie beside those that are used; a run of a job has time for so many
    of its steps; rows go so long after their end (None: never)."""

    seed: int
    idle: int
    steps: int | None
    reaped_after_ms: int | None
    cold: float
    deaths: float
    missed: float
    skew_ms: int
    retention_days: int | float
    shards: int
    checkpoints: bool
    ragged: bool  # up to every other run of a job has hardly any time
    themes: tuple[str, ...] = ()


SLOT_MS = 6 * HOUR_MS
TOPICS = ("beta", "omega")
SETTINGS = "settings"  # of one seed in four, and with it one of the next two
RATES = "rates"
ABSENCES = "absences"
WORK = "work"
LIMITS = "values at limits"  # of stages of its own
THEMES = ("changes", "decisions", "seeks", "broadcasts", "calls", "throttled", "clocks")

_OWN_THEMES = {1: (WORK,), 3: (SETTINGS, RATES), 7: (SETTINGS, ABSENCES)}  # by the seed, modulo 8


def plan_of(seed: int, *also: str) -> Plan:
    """The seed's weeks, with some themes beside those that it draws."""
    rng = random.Random(f"days {seed}")
    idle = rng.choice((0, 0, 12, 40))
    steps = rng.choice((None, 12 + idle))
    return Plan(
        seed=seed,
        idle=idle,
        steps=steps,
        reaped_after_ms=rng.choice((-10_000, 0, DAY_MS, None)),
        cold=rng.choice((0.1, 0.5, 1.0)),
        deaths=0.0 if steps else rng.choice((0.0, 0.1)),
        missed=0.0 if steps else rng.choice((0.0, 0.1)),
        skew_ms=rng.choice((0, 0, 10_000)),
        retention_days=rng.choice((0.25, 1, 2, 7)),
        shards=rng.choice((1, 2, 3)),
        checkpoints=rng.random() < 0.7,
        ragged=rng.random() < 0.3,
        themes=(*rng.sample(THEMES, rng.choice((0, 1, 1, 2))), *_OWN_THEMES.get(seed % 8, ()), *also),
    )
