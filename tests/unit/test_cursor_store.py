"""Cursors as one process writes and remembers them: lost races, lost answers, what was stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import CLOSED, Cursor, Disposition, Result, Selection, raise_floor
from chalicelib.domain.cursor_write import Change, RefusalReason, WriteRefused, was_stored
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.record import Record
from chalicelib.domain.spans import Span
from chalicelib.domain.timer import Timer
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import CursorKey
from chalicelib.services.core.counters import Counters
from chalicelib.services.core.cursor_store import CursorSnapshot, CursorStore
from chalicelib.store.cursors import Cursors
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import embedded_stage
from tests.support.troubled import Counted, Troubled

KEY = make.cursor_key()


class Desk:
    """Processes that look at one cursor."""

    def __init__(self) -> None:
        self.stage = embedded_stage()
        self.cursors: Cursors = self.stage.adapters.cursors
        self.counters = Counters()
        self.one, self.other = self.process(), self.process()

    def process(self, cursors: Any = None) -> CursorStore:
        return CursorStore(cursors or self.cursors, self.stage.clock, self.counters)


def further(state: CursorSnapshot) -> cursor_write.Change:
    """A claim of the next offset."""
    old = state.cursor
    claimed = make.leased_cursor(old.next, 1, f"{old.epoch + 1}.aaaa", START_MS + old.next)
    return cursor_write.change(old, replace(claimed, epoch=old.epoch + 1))


def begin(desk: Desk) -> None:
    desk.cursors.create(KEY, Cursor())


def test_who_lost_a_race_goes_on_from_what_the_winner_wrote() -> None:
    desk = Desk()
    begin(desk)
    desk.one.last(KEY)
    desk.other.update(KEY, further)
    offsets: list[int] = []

    def attempt(state: CursorSnapshot) -> cursor_write.Change | None:
        offsets.append(state.cursor.next)
        return further(state) if len(offsets) < 3 else None

    desk.one.update(KEY, attempt)
    assert offsets[:2] == [0, 1]


def test_who_lost_against_a_deletion_sees_that_nothing_is_there() -> None:
    desk = Desk()
    begin(desk)
    state = desk.one.last(KEY)

    class Gone:
        def write(self, *_: Any, **__: Any) -> WriteRefused:
            return WriteRefused(RefusalReason.LOST, None)

        def get(self, *_: Any, **__: Any) -> None:
            return None

    desk.one.cursors = Gone()  # type: ignore[assignment]
    assert desk.one.write(KEY, state, further(state)) is None
    assert not desk.one.last(KEY).exists


def test_where_an_answer_was_lost_nobody_says_that_nothing_was_written() -> None:
    class Silent:
        def write(self, *_: Any, **__: Any) -> WriteRefused:
            return WriteRefused(RefusalReason.UNKNOWN, None)

    desk = Desk()
    state = CursorSnapshot(Cursor(), exists=False)
    with pytest.raises(Unavailable):
        desk.process(Silent()).write(KEY, state, further(state))


def test_each_burial_is_counted_once_and_what_nobody_can_read_is_told() -> None:
    desk = Desk()
    begin(desk)
    success = make.record(0, "SUCCESS")
    records = [success, make.dead_record(1), make.dead_record(2), make.dead_record(2, reason="UNDECODABLE")]
    state = desk.one.last(KEY)
    assert desk.one.write(KEY, state, further(state), records)
    assert desk.counters.take() == {"Dead": 2, "Undecodable": 1}
    place = {"topic": KEY.shard.topic, "shard": 0, "offset": 2, "group_uid": KEY.group_uid}
    assert desk.counters.events() == [("undecodable", place)]


def test_what_stands_in_one_write_twice_is_written_once_as_it_was_last() -> None:
    desk = Desk()
    begin(desk)
    writes: list[tuple[Sequence[Record], Sequence[Timer]]] = []

    class Watched:
        def get(self, *args: Any, **settings: Any) -> Cursor | None:
            return desk.cursors.get(*args, **settings)

        def write(self, key: Any, change: Any, records: Any, timers: Any, *, exists: bool) -> Any:
            writes.append((records, timers))
            return desk.cursors.write(key, change, records, timers, exists=exists)

    process = desk.process(Watched())
    state = process.last(KEY)
    retry, success = make.record(0, "RETRYING"), make.record(0, "SUCCESS")
    of_another_shard = make.record(0, "RETRYING", shard=1, of=replace(KEY, shard=replace(KEY.shard, shard=1)))
    timer, neighbour = make.timer(START_MS, id="t1"), make.timer(START_MS, id="t2")
    records, timers = [retry, of_another_shard, success], [timer, neighbour, timer]
    assert process.write(KEY, state, further(state), records, timers)
    assert writes == [([success, of_another_shard], [timer, neighbour])]


def test_what_was_seen_is_believed_for_a_second_and_what_is_read_is_of_now() -> None:
    desk = Desk()
    begin(desk)

    class Behind:
        """Reads that need not be consistent show what was there at first."""

        def get(self, key: CursorKey, *, consistent: bool = False) -> Cursor | None:
            return desk.cursors.get(key) if consistent else Cursor()

    behind = desk.process(Behind())
    assert (desk.one.last(KEY).cursor.next, behind.last(KEY).cursor.next) == (0, 0)
    assert desk.other.update(KEY, further)
    desk.stage.clock.advance(1_000)
    assert desk.one.last(KEY).cursor.next == 0
    desk.stage.clock.advance(1)
    assert desk.one.last(KEY).cursor.next == 1
    assert behind.last(KEY).cursor.next == 0
    assert behind.read(KEY).cursor.next == behind.last(KEY).cursor.next == 1


def test_a_closed_cursor_stays_closed_for_a_day() -> None:
    desk = Desk()
    begin(desk)
    desk.one.close([KEY])
    desk.stage.clock.advance(DAY_MS - 1_000)
    desk.stage.drop_expired()
    assert desk.one.read(KEY).cursor.is_closed
    desk.stage.clock.advance(2_000)
    desk.stage.drop_expired()
    assert not desk.one.read(KEY).exists


class Asked(Counted):
    """store.Cursors of a process that wants to know several cursors."""

    def of_owner(self, *args: Any, **settings: Any) -> Any:
        self.calls["of_owner"] += 1
        return self._port.of_owner(*args, **settings)  # type: ignore[attr-defined]


KEYS = [make.cursor_key(make.shard(), "group") for _ in range(4)]


@pytest.mark.parametrize(
    ("known", "calls"),
    [(0, {"of_owner": 1}), (1, {"of_owner": 1, "get": 1}), (2, {"get": 4}), (3, {"get": 4}), (4, {"get": 4})],
)
def test_cursors_that_are_wanted_together_are_read_in_one_query_if_most_are_not_known(
    known: int, calls: dict[str, int]
) -> None:
    """Of four; those known have been read one by one."""
    desk = Desk()
    desk.cursors.create(KEYS[3], make.leased_cursor(0, 2, "1.aaaa", START_MS))
    asked = Asked(desk.cursors)
    store = desk.process(asked)
    for key in KEYS[:known]:
        store.last(key)
    store.preload(KEYS, len(KEYS))
    snapshots = [store.last(key) for key in KEYS]
    assert dict(asked.calls) == calls
    assert [snapshot.exists for snapshot in snapshots] == [False, False, False, True]
    assert snapshots[3].cursor.next == 2


def test_where_several_cannot_be_read_together_each_is_read_alone() -> None:
    desk = Desk()
    store = desk.process(Troubled(desk.cursors, lambda name, *_: name == "of_owner"))
    store.preload(KEYS, len(KEYS))
    assert not store.last(KEYS[0]).exists


def test_what_was_written_while_several_were_read_is_not_replaced_by_what_they_were() -> None:
    class Slow(Counted):
        def of_owner(self, *args: Any, **settings: Any) -> Any:
            before = desk.cursors.of_owner(*args, **settings)
            assert store.update(KEYS[0], further)
            return before

    desk = Desk()
    desk.cursors.create(KEYS[0], Cursor())
    store = desk.process(Slow(desk.cursors))
    store.preload(KEYS, len(KEYS))
    assert store.last(KEYS[0]).cursor.next == 1


HELD = make.leased_cursor(0, 4)
TOKEN = "1.aaaa"
LATER = START_MS + 60_000


def settling(of: Cursor, *offsets: int, fate: Disposition = Disposition.SUCCESS) -> Change:
    return cursor_write.change(of, transitions.settle(of, TOKEN, [Result(o, fate, 9) for o in offsets])[0])


def claiming(of: Cursor, token: str, most: int = 2, now_ms: int = START_MS) -> Change:
    current = transitions.lapse(of, now_ms)
    back = transitions.due_spans(current, now_ms)
    selection = Selection((*back, Span(current.next, most)), next=current.next + most)
    return cursor_write.change(of, transitions.claim(current, selection, token, "", now_ms + 30_000))


def after(cursor: Cursor, *changes: Change) -> Cursor:
    for change in changes:
        assert cursor_write.holds(change, cursor)
        cursor = cursor_write.apply(cursor, change)
    return cursor


def test_our_claim_is_told_from_anothers_by_its_token() -> None:
    ours, others = claiming(HELD, "2.ours"), claiming(HELD, "2.them")
    assert was_stored(ours, after(HELD, ours)) is True
    assert was_stored(ours, after(HELD, others)) is False


def test_our_claim_stands_beside_a_later_one() -> None:
    ours = claiming(HELD, "2.ours")
    after_ours = after(HELD, ours)
    assert was_stored(ours, after(after_ours, claiming(after_ours, "3.them"))) is True


def test_a_claim_whose_lease_has_passed_on_is_not_ours_any_more() -> None:
    ours = claiming(HELD, "2.ours")
    after_ours = after(HELD, ours)
    assert was_stored(ours, after(after_ours, claiming(after_ours, "3.them", now_ms=LATER))) is False


def test_a_claim_that_granted_nothing_cannot_be_recognised() -> None:
    change = cursor_write.change(
        HELD, transitions.claim(HELD, Selection(settled=((4, 6),), next=6), "2.ours", "", 1)
    )
    assert was_stored(change, after(HELD, change)) is False


def test_a_whole_and_a_partial_settlement_are_recognised() -> None:
    for offsets in ((0, 1, 2, 3), (0,), (1, 3)):
        for fate in Disposition:
            ours = settling(HELD, *offsets, fate=fate)
            assert was_stored(ours, after(HELD, ours)) is True


def test_a_settlement_is_recognised_whatever_befell_the_rest_of_its_lease() -> None:
    ours = settling(HELD, 0)
    after_ours = after(HELD, ours)
    assert was_stored(ours, after(after_ours, settling(after_ours, 1, 2, 3))) is True
    longer = transitions.extend(after_ours, TOKEN, LATER)
    assert longer is not None
    assert was_stored(ours, longer) is True


def test_a_settlement_another_one_beat_is_lost() -> None:
    assert was_stored(settling(HELD, 0, 1), after(HELD, settling(HELD, 1))) is False
    assert was_stored(settling(HELD, 0), after(HELD, settling(HELD, 0, fate=Disposition.RETRY))) is False
    assert was_stored(settling(HELD, 0, fate=Disposition.RETRY), after(HELD, settling(HELD, 0))) is False


def test_behind_a_later_claim_a_settlement_is_unknown_never_called_lost() -> None:
    for offsets in ((0, 1, 2, 3), (1,)):
        ours = settling(HELD, *offsets)
        after_ours = after(HELD, ours)
        assert was_stored(ours, after(after_ours, claiming(after_ours, "2.them"))) is None
        assert was_stored(ours, after(after_ours, claiming(after_ours, "2.them", now_ms=LATER))) is None


def test_a_lease_that_ran_out_unsettled_never_passes_for_our_settlement() -> None:
    for offsets in ((0, 1, 2, 3), (1,)):
        assert (
            was_stored(settling(HELD, *offsets), after(HELD, claiming(HELD, "2.them", now_ms=LATER)))
            is not True
        )


def test_a_settlement_is_lost_while_its_lease_still_holds_the_offsets() -> None:
    longer = transitions.extend(HELD, TOKEN, LATER)
    assert longer is not None
    after_theirs = after(longer, claiming(longer, "2.them"))
    assert was_stored(settling(HELD, 0, 1), after_theirs) is False


def test_an_extension_is_ours_while_its_deadline_stands() -> None:
    longer, other = (transitions.extend(HELD, TOKEN, LATER + n) for n in (0, 1))
    assert longer is not None
    assert other is not None
    ours = cursor_write.change(HELD, longer)
    assert was_stored(ours, longer) is True
    assert was_stored(ours, after(longer, claiming(longer, "2.them"))) is True
    assert was_stored(ours, other) is False
    assert was_stored(ours, HELD) is False


def test_a_seek_is_ours_while_nothing_came_behind_it_and_unknown_afterwards() -> None:
    ours = cursor_write.replacement(HELD, transitions.seek(HELD, 9))
    after_ours = after(HELD, ours)
    assert was_stored(ours, after_ours) is True
    assert was_stored(ours, after(after_ours, claiming(after_ours, "3.them"))) is None
    assert was_stored(ours, after(HELD, claiming(HELD, "2.them"))) is False
    assert was_stored(ours, CLOSED) is False


def test_neighbours_settled_at_the_same_time_do_not_lose_each_other() -> None:
    """Joining is for claims: two stale settlements around one entry would each replace it."""
    cursor = HELD
    for offset, token in enumerate("abc", start=4):
        cursor = after(cursor, claiming(cursor, token, most=1))
        assert list(cursor.leases[token].attempts()) == [offset]
    middle = transitions.settle(cursor, "b", [Result(5, Disposition.SUCCESS)])[0]
    stale = [
        transitions.settle(middle, token, [Result(o, Disposition.SUCCESS)])[0]
        for o, token in ((4, "a"), (6, "c"))
    ]
    both = after(middle, *(cursor_write.change(middle, other) for other in stale))
    assert raise_floor(both).settled == ((4, 7),)
