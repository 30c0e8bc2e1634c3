"""The arithmetic of a token bucket, which fills at a steady pace and holds little (GCRA).

Its state is one number, the time up to which permits have been given out, in ns since 1970. A permit is given if that
time is not too far ahead; a time long past is as good as none.
"""

from __future__ import annotations

from dataclasses import dataclass

from .times import CLOCKS_DIFFER_MS

_NS = 1_000_000_000
_MS = 1_000_000
# For each second, what an idle account holds; with what processes hold in hand, at most a second's worth.
BURST = 0.5


@dataclass(frozen=True, slots=True)
class Grant:
    """`count` permits; if that is fewer than were asked for, the next one is free after `wait_ms`."""

    count: int
    wait_ms: int = 0


def take(
    given_until_ns: int, limit: float, count: int, now_ms: int, seconds: float = 1, burst: float = BURST
) -> tuple[Grant, int, int]:
    """Up to `count` permits of an account that gets `limit` in so many seconds. Idle, it holds what it gets in the
    part `burst` of this time. Beside the grant: the account's state afterwards, and the latest state before that has as
    many permits."""
    permit_ns, now_ns = max(1, int(seconds * _NS / limit)), now_ms * _MS
    # An account of a few permits a second holds not quite two, so that none is lost between two requests.
    ahead_ns = now_ns + max(int(seconds * burst * _NS), 19 * permit_ns // 10)
    is_wrong = given_until_ns > ahead_ns + CLOCKS_DIFFER_MS * _MS
    start_ns = now_ns if is_wrong else max(given_until_ns, now_ns)
    permits = min(count, max(0, ahead_ns - start_ns) // permit_ns)
    after_ns = start_ns + permits * permit_ns
    wait_ms = 0 if permits == count else max(1, -(-(after_ns + permit_ns - ahead_ns) // _MS))
    return Grant(permits, wait_ms), after_ns, ahead_ns - permits * permit_ns
