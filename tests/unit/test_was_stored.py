"""After a lost answer the SDK repeats a write and is refused: whose write stands there? (I5, I16, I20)"""

from __future__ import annotations

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import CLOSED, Cursor, Disposition, Result, Selection, raise_floor
from chalicelib.domain.cursor_write import Change, was_stored
from chalicelib.domain.spans import Span
from tests.support import factories as make
from tests.support.clock import START_MS

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


def test_the_first_claim_of_a_cursor_stands_beside_a_later_one() -> None:
    ours = cursor_write.replacement(Cursor(), claiming(Cursor(), "1.ours").after)
    after_ours = after(Cursor(), ours)
    assert was_stored(ours, after_ours) is True
    assert was_stored(ours, after(after_ours, claiming(after_ours, "2.them"))) is True
    assert was_stored(ours, after(Cursor(), claiming(Cursor(), "1.them"))) is False


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
