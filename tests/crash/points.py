"""Which calls of a flow a fault is to meet. Those that would show nothing that others don't are left out, unless there
is time for all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from tests.conftest import SOAK
from tests.support.faults import DEADLY, QUICK_FAULTS, Fault, Note

FAULTS = tuple(Fault) if SOAK else QUICK_FAULTS
_REFUSED = {Fault.FAIL_ONCE, Fault.FAIL_ALWAYS, Fault.THROTTLED, Fault.CONFLICT, Fault.UNPROCESSED}


def all_points(fault: Fault, notes: Sequence[Note]) -> list[int]:
    """Every call, from 1, that the fault can happen to."""
    return [at for at, note in enumerate(notes, 1) if fault in note.spoilt_by]


class Played:
    """What has been played, by this process."""

    def __init__(self, of_deaths: Callable[[str], Hashable] = lambda flow: None) -> None:
        self._of_deaths = of_deaths
        self._first: dict[Hashable, tuple[str, Fault, int]] = {}

    def points(self, flow: str, fault: Fault, notes: Sequence[Note]) -> list[int]:
        """The calls to spoil: of those that are alike the first, and that one whenever it is asked for again."""
        fault_points = all_points(fault, notes)
        if SOAK:
            return fault_points
        triples = [(at, (flow, fault, at), self._likeness(flow, fault, notes, at)) for at in fault_points]
        return [at for at, this, likeness in triples if self._first.setdefault(likeness, this) == this]

    def _likeness(self, flow: str, fault: Fault, notes: Sequence[Note], at: int) -> Hashable:
        """What makes points alike. Deaths: the writes so far, and whether a call went outside since. Where nothing is
        lost, or the store stays away as after a death: the request. Else what comes after it as well."""
        if fault in DEADLY:
            return self._of_deaths(flow), *written_before(fault, notes, at)
        is_alone = fault in _REFUSED or (fault is Fault.LOST_ANSWER and not notes[at - 1].is_write)
        return fault, *(note.shape for note in notes[at - 1 : at if is_alone else at + 1])


def written_before(fault: Fault, notes: Sequence[Note], at: int) -> tuple[Hashable, ...]:
    """What a process that dies at a call leaves behind: whether a call went outside since its last write, and its
    writes."""
    notes_before = notes[: at if fault is Fault.DIE_AFTER else at - 1]
    writes = [note for note in notes_before if note.is_write]
    calls = 0 if fault is Fault.DIE_AFTER else notes[at - 1].outside
    return calls > (writes[-1].outside if writes else 0), *(note.shape for note in writes)
