"""What a log shows of a handler's exception: the handler's own lines."""

from __future__ import annotations

from types import TracebackType

from .errors import HeadraceError

_OURS = ("headrace", "asyncio")


def shortened(error: BaseException | None) -> BaseException | None:
    """The exception, without this package's and asyncio's frames, and without what is below a HeadraceError, whose
    text has it. An exception that has no other frames keeps them."""
    each, seen = error, set[int]()
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        each.__traceback__ = _others(each.__traceback__) or each.__traceback__
        if isinstance(each, HeadraceError):
            each.__cause__ = None  # and so its context is not shown, either
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return error


def _others(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] not in _OURS:
            frames.append(trace)
        trace = trace.tb_next
    chain: TracebackType | None = None
    for frame in reversed(frames):
        chain = TracebackType(chain, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return chain
