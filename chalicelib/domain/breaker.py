"""The circuit breaker of one push consumer, as data and functions of time.

    closed ──nothing but failures──▶ open ──its time is over──▶ half-open ──success──▶ closed, slowly
                                      ▲                            │                       │
                                      ├───────failed probes────────┘                       │
                                      └──────────────nothing but failures──────────────────┘

The breaker judges the consumer, not the messages. A success shows that the consumer works, even if other messages fail.
A failure without an answer of its own (none at all, or 429, 502, 503, 504) points to the consumer: ten in a row open
the circuit. A failure with one may be caused by the message: it counts once for each message, and opens the circuit
only after 32 in a row and a minute without any success (or after ten, if no message ever succeeded). A repeated failure
of the same message adds nothing, so only the failure of a first attempt opens the circuit. Nor is one
of a request that was under way while another succeeded: requests that wait for an answer in vain end together, long
after they began.

While the circuit is open nothing is sent, so no attempt is counted. "Slowly" means: each success doubles the number of
messages that may be in flight, each failure without an answer of its own halves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .limits import BREAKER_LONGEST_OPEN_MS, BREAKER_OPEN_MS, DISABLE_AFTER_MS, MAX_IN_FLIGHT

# Failures in a row that are remembered; so many with an answer of its own, of different messages, open it.
WINDOW = 32
# Failures in a row, without an answer of its own, that open it; any failures of a consumer that never succeeded.
_FEWEST = 10
_PROBES = 8  # failed probes, with an answer, that open it again
LATELY_MS = 60_000  # a success within this time shows that the consumer works
# By how much the clock that opened a circuit may be ahead of ours; a longer time is that of a wrong clock.
_CLOCKS_DIFFER_MS = 15_000


@dataclass(kw_only=True, frozen=True, slots=True)
class Health:
    """The health of a consumer. `window` has an entry for each failure since the last success (at `succeeded_ms`): True
    if the consumer's own code answered.

    `failing_ms`, `open_until_ms` and `times_opened` are the fields of the same names of its registration, the rest is
    known to this process only. `allowance` is how many messages may be in flight while the consumer recovers (0: it is
    not recovering, no limit).
    """

    window: tuple[bool, ...] = ()
    allowance: int = 0
    failing_ms: int | None = None
    open_until_ms: int | None = None
    times_opened: int = 0
    succeeded_ms: int | None = None


def after(
    health: Health,
    ok: bool,
    now_ms: int,
    full: int = MAX_IN_FLIGHT,
    *,
    began_ms: int,
    is_own_answer: bool = False,
    is_repeated: bool = False,
) -> Health:
    """The health after one more request, which began at `began_ms`. `full` is the allowance at which a recovery is
    complete. `is_own_answer`: the consumer's own code answered. `is_repeated`: every message of the request had failed
    before."""
    half_open = health.open_until_ms is not None and not is_open(health.open_until_ms, now_ms)
    if ok:
        if is_open(health.open_until_ms, now_ms):  # an outcome of a message sent before the circuit opened
            return replace(health, failing_ms=None, succeeded_ms=now_ms)
        higher = 2 * max(1, health.allowance) if half_open or health.allowance else 0
        return Health(window=(), allowance=higher if higher < full else 0, succeeded_ms=now_ms)
    failing_ms = _failing_ms(health, now_ms)
    if _is_ahead(health.open_until_ms, min(began_ms, now_ms), now_ms):  # sent before it opened: no probe
        return replace(health, failing_ms=failing_ms)
    if is_own_answer and is_repeated and not half_open:
        return health
    lower = health.allowance if is_own_answer else max(1, health.allowance // 2) if health.allowance else 0
    if not half_open and health.succeeded_ms is not None and began_ms < health.succeeded_ms <= now_ms:
        return replace(health, allowance=lower)
    window = (*health.window, is_own_answer)[-WINDOW:]
    if _opens(health, window, now_ms, half_open=half_open, repeated=is_repeated):
        open_ms = min(BREAKER_OPEN_MS * 2 ** min(health.times_opened, 10), BREAKER_LONGEST_OPEN_MS)
        opened = {"open_until_ms": now_ms + open_ms, "times_opened": health.times_opened + 1}
        return replace(health, window=(), allowance=1, failing_ms=failing_ms, **opened)
    return replace(health, window=window, failing_ms=failing_ms, allowance=lower)


def _opens(health: Health, window: tuple[bool, ...], now_ms: int, *, half_open: bool, repeated: bool) -> bool:
    """Do these failures in a row open the circuit?"""
    if half_open:
        return not window[-1] or len(window) >= _PROBES
    if repeated:
        return False
    if window.count(False) >= _FEWEST:
        return True
    if health.succeeded_ms is None:
        return len(window) >= _FEWEST
    return len(window) >= WINDOW and now_ms - health.succeeded_ms >= LATELY_MS


def _failing_ms(health: Health, now_ms: int) -> int | None:
    """Since when there were only failures, as far as is known. It is set only when there has been no success for a
    while; one failure between two successes is not worth a write."""
    is_long = len(health.window) >= WINDOW - 1
    only_failures = health.succeeded_ms is None or health.open_until_ms is not None or is_long
    return now_ms if health.failing_ms is None and only_failures else health.failing_ms


def allowance(health: Health, full: int, now_ms: int) -> int:
    """How many messages may be in flight now, of `full` in good health; 0 while the breaker is open."""
    if is_open(health.open_until_ms, now_ms):
        return 0
    if health.open_until_ms is not None:
        return 1
    return min(full, health.allowance or full)


def state(open_until_ms: int | None, now_ms: int) -> str:
    """closed, open or half-open."""
    if open_until_ms is None:
        return "closed"
    return "open" if is_open(open_until_ms, now_ms) else "half-open"


def is_open(open_until_ms: int | None, now_ms: int) -> bool:
    """Is it open yet? Not until a time that only a wrong clock can have set: its consumer would get nothing until
    then."""
    return _is_ahead(open_until_ms, now_ms, now_ms)


def _is_ahead(open_until_ms: int | None, at_ms: int, now_ms: int) -> bool:
    """Does the circuit's time end after `at_ms`, as far as the clock that set it can be believed now?"""
    latest_ms = now_ms + BREAKER_LONGEST_OPEN_MS + _CLOCKS_DIFFER_MS
    return open_until_ms is not None and at_ms < open_until_ms <= latest_ms


def should_disable(failing_ms: int | None, times_opened: int, now_ms: int) -> bool:
    """Has the consumer failed long enough to be disabled? Its circuit must also have opened: two failures a week apart
    do not disable it."""
    return failing_ms is not None and times_opened > 0 and now_ms - failing_ms >= DISABLE_AFTER_MS


def disables_ms(failing_ms: int | None, times_opened: int, now_ms: int) -> int | None:
    """When the consumer will be disabled; None during the first half of that time."""
    if failing_ms is None or not times_opened or now_ms - failing_ms < DISABLE_AFTER_MS // 2:
        return None
    return failing_ms + DISABLE_AFTER_MS
