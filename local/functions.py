"""Lambda's part: calls the functions of app.py, in this process.

Not imitated: a function that runs longer than its time-out is not killed, it only sees that no time remains.
"""

from __future__ import annotations

import heapq
import itertools
import json
import sys
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from chalice.app import Chalice

from chalicelib.domain.errors import unavailable

FUNCTION_SECONDS = 60.0
_LONGER_SECONDS = {"deliver_slow": 900.0}  # as on Lambda
RETRY_PAUSES = (60.0, 120.0)  # Lambda's, for asynchronous invocations
_MOST_AT_ONCE = 200
_OVERDUE_SECONDS = 1.0  # until what could not be moved is tried again
_ARN = "arn:aws:lambda:us-east-1:000000000000:function:"

Function = Callable[[Any, Any], Any]


def functions_of(app: Chalice) -> dict[str, Function]:
    """The Lambda functions an app has beside its HTTP handler and authorizers, by name. Safe for threads."""
    functions: tuple[Any, ...] = (*app.event_sources, *app.pure_lambda_functions)
    return {each.name: app.handler_map[each.name] for each in functions}


class Context:
    """The context of a Lambda invocation, which has so many seconds."""

    memory_limit_in_mb = 512

    def __init__(
        self,
        function_name: str,
        stop: threading.Event,
        seconds: float = FUNCTION_SECONDS,
        request_id: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`request_id`: one of its own, if it is empty."""
        self.function_name, self.aws_request_id = function_name, request_id or str(uuid.uuid4())
        self.invoked_function_arn = _ARN + function_name
        self._stop, self._clock, self._deadline = stop, clock, clock() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the time-out; 0 when this process is about to end, so that functions finish early."""
        left_ms = int((self._deadline - self._clock()) * 1000)
        return 0 if self._stop.is_set() else max(0, left_ms)


def attempt(function: Function, event: Any, context: Context) -> bool:
    """Call a function once. False: it raised, and the traceback is on standard error; or it says that a batch must
    come again."""
    try:
        answer = function(event, context)
    except Exception:
        _tell_failed(context)
        return False
    return not (isinstance(answer, dict) and answer.get("batchItemFailures"))


def _tell_failed(context: Context) -> None:
    print(f"Function {context.function_name} failed ({context.aws_request_id}):", file=sys.stderr)
    traceback.print_exc(file=sys.stderr)


def event_of(function: str) -> dict[str, Any]:
    """What a function gets when its time has come, of EventBridge."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "000000000000",
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": "us-east-1",
        "resources": [f"arn:aws:events:us-east-1:000000000000:rule/{function}"],
        "detail": {},
    }


@dataclass(order=True, slots=True)
class _Call:
    due: float
    number: int
    function: str = field(compare=False)
    event: str = field(compare=False)
    id: str = field(compare=False)
    pauses: tuple[float, ...] = field(compare=False)
    period: float = field(default=0, compare=False)  # of a call that its time starts


@dataclass(eq=False)
class Invocations:
    """ports.Invoker: a queue, and threads that come when there is work, `most` of them.

    `pauses`: before each further attempt at a call that raised; none for what `every` starts, as the next run makes up
    for it. `seconds_to_due`: in how many the next timer is due.
    """

    functions: Mapping[str, Function]
    _: KW_ONLY
    pauses: tuple[float, ...] = RETRY_PAUSES
    most: int = _MOST_AT_ONCE
    seconds_to_due: Callable[[], float | None] = lambda: None

    def __post_init__(self) -> None:
        self._calls: list[_Call] = []
        self._numbers = itertools.count()
        self._mover_at = 0.0
        self._threads = self._free = 0
        self._running: Counter[str] = Counter()
        lock = threading.Lock()
        self._has_work, self._has_ended = threading.Condition(lock), threading.Condition(lock)
        self._stopping = threading.Event()

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        """Call it soon, in another thread. After `stop` this does nothing, as if the process had died just then.

        Raises LookupError for an unknown function, TypeError for an event that is not JSON."""
        if function not in self.functions:
            raise LookupError(f"app.py has no function named {function}")
        self._call_at(time.monotonic(), function, event)

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        """Call it when the next timer is due, which is known here to the millisecond. Where one is overdue, it could
        not be moved: then after the delay."""
        seconds = self.seconds_to_due()
        self._move_in(seconds if seconds is not None and seconds > 0 else delay_seconds)

    def _move_in(self, seconds: float) -> None:
        now = time.monotonic()
        if not now < self._mover_at <= now + seconds:
            self._mover_at = now + seconds
            self._call_at(self._mover_at, "mover", {"Records": [{"body": '{"until_ms": 0}'}]})

    def every(self, seconds: float, function: str, delay: float = 0) -> None:
        """Call it after the delay and then at this rate, whether or not its last run has ended. Runs missed while the
        machine slept are made up for by one."""
        due = time.monotonic() + delay
        self._push(_Call(due, next(self._numbers), function, "", "", (), seconds))

    def _call_at(self, due: float, function: str, event: Mapping[str, Any]) -> None:
        text = json.dumps(event)
        self._push(_Call(due, next(self._numbers), function, text, str(uuid.uuid4()), self.pauses))

    def ask(self, function: str, event: Mapping[str, Any], seconds: int) -> Mapping[str, Any]:
        """Call it in this thread. Raises Unavailable where it fails, LookupError and TypeError as `invoke`."""
        if function not in self.functions:
            raise LookupError(f"app.py has no function named {function}")
        context = Context(function, self._stopping, seconds)
        try:
            answer = self.functions[function](json.loads(json.dumps(event)), context)
        except Exception as error:
            _tell_failed(context)
            raise unavailable(f"The function {function} failed; try again.") from error
        return dict(json.loads(json.dumps(answer)))

    def wait_until_idle(self, function: str, seconds: float) -> bool:
        """Wait until a function neither runs nor is called but for another attempt. False: it took longer."""
        with self._has_ended:
            return self._has_ended.wait_for(lambda: not self._is_wanted(function), seconds)

    def _is_wanted(self, function: str) -> bool:
        now = time.monotonic()
        is_due = any(call.function == function and call.due <= now for call in self._calls)
        return is_due or self._running[function] > 0

    def stop(self, seconds: float) -> bool:
        """Start nothing more, tell running functions that their time is up and wait for them. False: some still run."""
        with self._has_work:
            self._stopping.set()
            self._calls.clear()
            self._has_work.notify_all()
            return self._has_ended.wait_for(lambda: not self._running.total(), seconds)

    def _push(self, call: _Call) -> None:
        with self._has_work:
            if not self._stopping.is_set():
                self._add(call)

    def _add(self, call: _Call) -> None:
        """If the machine has no more threads, the call waits for one of those that are there, or for the next call."""
        heapq.heappush(self._calls, call)
        if len(self._calls) > self._free and self._threads < self.most:
            with suppress(RuntimeError):
                threading.Thread(target=self._work, name="function", daemon=True).start()
                self._threads += 1  # it waits for our lock
                self._free += 1
        self._has_work.notify()

    def _work(self) -> None:
        while call := self._next():
            self._run(call)
            with self._has_ended:
                self._free += 1
                self._running[call.function] -= 1
                self._has_ended.notify_all()

    def _next(self) -> _Call | None:
        """Wait for a call that is due; None: no more."""
        with self._has_work:
            while not self._stopping.is_set():
                seconds = self._calls[0].due - time.monotonic() if self._calls else None
                if seconds is not None and seconds <= 0:
                    call = heapq.heappop(self._calls)
                    self._free -= 1
                    self._running[call.function] += 1
                    if call.period:
                        due, now = call.due + call.period, time.monotonic()
                        self._add(replace(call, due=due if due > now else now + call.period))
                        return replace(call, event=json.dumps(event_of(call.function)))
                    return call
                self._has_work.wait(seconds)
        return None

    def _run(self, call: _Call) -> None:
        limit = _LONGER_SECONDS.get(call.function, FUNCTION_SECONDS)
        context = Context(call.function, self._stopping, limit, call.id)
        success = attempt(self.functions[call.function], json.loads(call.event), context)
        is_mover = call.function == "mover" and not self._stopping.is_set()
        if is_mover and (seconds := self.seconds_to_due()) is not None:
            self._move_in(seconds if seconds > 0 else _OVERDUE_SECONDS)
        if not success and call.pauses:
            pause, *later_pauses = call.pauses
            self._push(replace(call, due=time.monotonic() + pause, pauses=tuple(later_pauses)))
