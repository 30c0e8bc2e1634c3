"""The circuit breaker of one consumer that is called, as data and functions of time.

    closed ──half of ≥ 10 outcomes failed──▶ open ──its time is over──▶ half-open ──success──▶ closed, slowly
                                              ▲                             │                        │
                                              ├───────────failure───────────┘                        │
                                              └──────────half of ≥ 10 outcomes failed────────────────┘

While it is open nothing is sent, so no attempt is counted. Slowly: each success doubles what may be in flight, each
failure halves it, so that a subscriber that often fails and mostly does not comes back, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .limits import BREAKER_LONGEST_OPEN, BREAKER_OPEN, DISABLE_AFTER, MAX_IN_FLIGHT

WINDOW = 20  # outcomes that are looked at
_FEWEST = 10  # outcomes that say something
_OPEN_MS = round(BREAKER_OPEN.total_seconds() * 1000)
_LONGEST_MS = round(BREAKER_LONGEST_OPEN.total_seconds() * 1000)
_DISABLE_MS = round(DISABLE_AFTER.total_seconds() * 1000)


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a consumer: `window` are its last outcomes, True for a success.

    `failing_ms`, `open_until_ms` and `trips` are the fields of the same names of its registration, the rest is this
    process's own. `allowance` is how much may be in flight while it recovers (0: it does not, all may).
    """

    window: tuple[bool, ...] = ()
    allowance: int = 0
    failing_ms: int | None = None
    open_until_ms: int | None = None
    trips: int = 0


def after(health: Health, ok: bool, now_ms: int, full: int = MAX_IN_FLIGHT) -> Health:
    """The health after one more outcome. `full` is the allowance at which a recovery is complete."""
    window = (*health.window, ok)[-WINDOW:]
    failing_ms = _failing_ms(health, window, now_ms)
    if _is_open(health.open_until_ms, now_ms):  # an outcome of what was sent before it opened
        return replace(health, failing_ms=failing_ms)
    half_open = health.open_until_ms is not None
    if ok:
        risen = 2 * max(1, health.allowance) if half_open or health.allowance else 0
        return Health(window, risen if risen < full else 0)
    if half_open or (len(window) >= _FEWEST and 2 * sum(window) <= len(window)):
        open_ms = min(_OPEN_MS * 2 ** min(health.trips, 10), _LONGEST_MS)
        return Health((), 1, failing_ms, now_ms + open_ms, health.trips + 1)
    fallen = max(1, health.allowance // 2) if health.allowance else 0
    return replace(health, window=window, failing_ms=failing_ms, allowance=fallen)


def _failing_ms(health: Health, window: tuple[bool, ...], now_ms: int) -> int | None:
    """Since when there were only failures, as far as the window tells: a lone failure among successes is not worth
    a write of the registration."""
    if window[-1]:
        return None
    return now_ms if health.failing_ms is None and not any(window) else health.failing_ms


def allowance(health: Health, full: int, now_ms: int) -> int:
    """How many messages may be in flight now, of `full` in good health; 0 while the breaker is open."""
    if _is_open(health.open_until_ms, now_ms):
        return 0
    if health.open_until_ms is not None:
        return 1
    return min(full, health.allowance or full)


def state(open_until_ms: int | None, now_ms: int) -> str:
    """closed, open or half-open."""
    if open_until_ms is None:
        return "closed"
    return "open" if _is_open(open_until_ms, now_ms) else "half-open"


def _is_open(open_until_ms: int | None, now_ms: int) -> bool:
    return open_until_ms is not None and now_ms < open_until_ms


def should_disable(failing_ms: int | None, trips: int, now_ms: int) -> bool:
    """Has the consumer only failed for so long that it is not called any more? Two failures a week apart are no
    such thing: its circuit must have opened."""
    return failing_ms is not None and trips > 0 and now_ms - failing_ms >= _DISABLE_MS


def disables_ms(failing_ms: int | None, trips: int, now_ms: int) -> int | None:
    """When the consumer will be disabled, told from half of that time on."""
    if failing_ms is None or not trips or now_ms - failing_ms < _DISABLE_MS // 2:
        return None
    return failing_ms + _DISABLE_MS
