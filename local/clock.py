"""What the local service alone has: `POST /v1/clock` moves its time forward, and what is due until then runs;
`POST /v1/reset` begins with an empty store. This folder is never shipped, so no deployed stage has them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from chalicelib import functions
from chalicelib.api.calls import Call, Context, Reach, Response
from chalicelib.api.fields import at
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.limits import MAX_DELAY_SECONDS
from chalicelib.wiring import Deps
from local import Unusable
from local.data_folder import write_private
from local.functions import FUNCTION_SECONDS, Invocations
from local.functions import Context as FunctionContext

_ENOUGH_SECONDS = 15.0  # of real time; the gateway gives a call 29, the last step may take long
_BURIAL_MS = 6 * 3_600_000  # between two runs of `expire`, as on AWS
_MOST_BURIALS = 40  # of one move: in a longer one the runs are further apart
# in this order: a check may commit a message, which is then delivered
_AWAITED = ("check", "deliver", "deliver_slow")


class ClockBody(Struct, forbid_unknown_fields=True):
    """How far to move the time."""

    advance_seconds: Annotated[int, Meta(ge=0, le=MAX_DELAY_SECONDS)]


class HandClock:
    """ports.Clock: the machine's time plus what the user has added to it."""

    def __init__(self, file: Path | None = None) -> None:
        """`file` keeps what was added, where what is stored stays, for that bears this time. Raises Unusable."""
        self._file = file
        self._ahead_ms = _read(file) if file and file.exists() else 0
        self._moved_ms = 0  # all that was added, also what a reset has taken back: who waits waits by it
        self._lock = threading.Lock()
        # Held by who moves the time step by step, or begins anew: one at a time.
        self.steps = threading.Lock()

    @property
    def ahead(self) -> timedelta:
        """How much was added."""
        return timedelta(seconds=round(self._ahead_ms / 1000))

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._moved_ms

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def reset(self) -> None:
        """Go back to the machine's time. Only for a store without rows of a later time."""
        with self._lock:
            self._ahead_ms = 0

    def move_to(self, at_ms: int) -> None:
        """Move forward to a time; never back."""
        with self._lock:
            step_ms = max(0, at_ms - self.now_ms())
            ahead_ms = self._ahead_ms + step_ms
            if self._file:  # first: what is stored at this time must not lie in the future after a restart
                write_private(self._file, str(ahead_ms))
            self._ahead_ms = ahead_ms
            self._moved_ms += step_ms


def _read(file: Path) -> int:
    try:
        return int(file.read_bytes())
    except ValueError:
        raise Unusable(
            f"{file} is damaged. It says by how many milliseconds the service's clock was moved: write 0 into it if it "
            "was not moved, else at least as much as before, or what is stored lies in the future."
        ) from None


@dataclass(kw_only=True, eq=False)
class ClockController:
    """Moves the clock step by step, to each time at which a timer is due, so that each timer runs at its own time; and
    to the times at which `expire` runs, so that what ends on the way is buried there.

    `forget`: removes expired rows, for a store that does not do so itself.
    `job_seconds`: the real time that the schedules' functions have, all together.
    """

    clock: HandClock
    deps: Callable[[], Deps]
    invocations: Invocations
    forget: Callable[[], object] = lambda: None
    job_seconds: float = FUNCTION_SECONDS

    @property
    def call(self) -> Call:
        """The call that moves the clock."""
        do = self.move_clock
        return Call("POST", "/v1/clock", do, ("admin",), ClockBody, (), False, reach=Reach.SERVICE)

    def move_clock(self, context: Context) -> Response[dict[str, Any]]:
        """Move the time. The answer has the time reached, and `finished`: it is the time asked for, no delivery is
        under way, and what ended until then is buried."""
        is_finished = self.advance(context.body.advance_seconds)
        return Response({"now": at(self.clock.now_ms()), "finished": is_finished})

    def advance(self, seconds: int, within: float = _ENOUGH_SECONDS) -> bool:
        """Move the time by `seconds`, in at most `within` seconds of real time. Returns False if it was not reached, if
        another call was moving the clock until then, if deliveries are still under way, or if the schedules' functions
        are not through: then expired rows stay."""
        until = time.monotonic() + within
        if not self.clock.steps.acquire(timeout=within):
            return False
        try:
            start_ms = self.clock.now_ms()
            target_ms = start_ms + seconds * 1000
            burials = iter(range(start_ms, target_ms, max(_BURIAL_MS, seconds * 1000 // _MOST_BURIALS))[1:])
            burial_ms = next(burials, target_ms)
            while time.monotonic() < until:
                now_ms = self.clock.now_ms()
                self._run_due(until)
                next_ms = next_due_ms(self.deps()) or target_ms + 1
                if next_ms <= now_ms:  # what was due, and is there, waits for its topic's rate
                    next_ms = now_ms + 1_000
                if next_ms <= min(burial_ms, target_ms):
                    self.clock.move_to(next_ms)
                elif burial_ms < target_ms:
                    self.clock.move_to(burial_ms)
                    functions.expire({}, self._context(), self.deps())
                    burial_ms = next(burials, target_ms)
                else:
                    self.clock.move_to(target_ms)
                    return self._run_schedules(until)
            return False
        finally:
            self.clock.steps.release()

    def _run_due(self, until: float) -> bool:
        """Move what is due into its log or lane, then deliver. Returns False if deliveries are still under way."""
        deps = self.deps()
        deps.mover.run_once()
        for topic in deps.adapters.control.topics_behind(None):
            for group in deps.catalog.groups(topic):
                deps.waker.wake_group(topic, group)
        return all(
            self.invocations.wait_until_idle(function, max(0.0, until - time.monotonic()))
            for function in _AWAITED
        )

    def _context(self) -> FunctionContext:
        return FunctionContext("clock", threading.Event(), self.job_seconds)

    def _run_schedules(self, until: float) -> bool:
        self._run_due(until)
        context = self._context()
        for frequent in (functions.assign, functions.sweep):
            frequent(context, self.deps())
        reports = [rare({}, context, self.deps()) for rare in (functions.expire, functions.checkpoint)]
        is_all = self._run_due(until)
        is_through = all(report["finished"] for report in reports)
        if is_through:  # else rows would go before what is owed of them is buried
            self.forget()
        return is_all and is_through


def next_due_ms(deps: Deps) -> int | None:
    """When the next timer is due."""
    timers = deps.adapters.timers
    return min(filter(None, (timers.next_ms(f, consistent=True) for f in timers.fragments())), default=None)


def seconds_to_due(deps: Callable[[], Deps]) -> float | None:
    """In how many seconds the next timer is due; None: there is none, or it is unknown."""
    with suppress(Unavailable):
        if (next_ms := next_due_ms(deps())) is not None:
            return (next_ms - deps().adapters.clock.now_ms()) / 1000
    return None


class Services:
    """In the place of `wiring.deps`: the same services at each call, until `renew`."""

    def __init__(self, make: Callable[[], Deps]) -> None:
        self._make = make
        self._deps = make()

    def __call__(self) -> Deps:
        return self._deps

    def renew(self, token: str) -> None:
        """Others, on a store with nothing in it but this admin token."""
        deps = self._make()
        deps.tokens.ensure_admin(token)
        self._deps = deps


def reset_call(services: Services, clock: HandClock, token: str, clear: Callable[[], None]) -> Call:
    """The call that forgets everything. What is under way goes on with what it has read, and finds nothing of it any
    more."""

    def reset(context: Context) -> Response[None]:
        """Start again, at the machine's time."""
        with clock.steps:  # a move that is under way would go on with the new services
            clock.reset()
            clear()
            services.renew(token)
        return Response(None, 204)

    return Call("POST", "/v1/reset", reset, ("admin",), None, (), False, reach=Reach.SERVICE)
