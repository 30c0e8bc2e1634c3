"""The status of many: docs/state_machine.md has the table, and the code does what it says for every pair."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from chalicelib.domain.status import Status, combined
from chalicelib.services.inspect.statuses import DeliveryStatus, _broadcast_status

TABLE = Path(__file__).parents[2] / "docs" / "state_machine.md"
STATUSES = (Status.NEW, Status.RUNNING, Status.RETRYING, Status.SUCCESS, Status.DEAD)


def _table() -> dict[tuple[str, str], str]:
    """The rows between the table's marks: a status, and what it makes with each of the others."""
    text = TABLE.read_text().partition("<!-- combined -->")[2].partition("<!-- end -->")[0]
    rows = [re.findall(r"\w+", line) for line in text.splitlines() if line.startswith("| **")]
    return {(row[0], other): word for row in rows for other, word in zip(STATUSES, row[1:], strict=True)}


@pytest.mark.parametrize(("one", "other"), list(itertools.product(STATUSES, STATUSES)))
def test_two_statuses_make_what_the_table_says(one: Status, other: Status) -> None:
    assert combined([one, other]) == _table()[one, other]


@pytest.mark.parametrize("statuses", list(itertools.combinations_with_replacement(STATUSES, 3)))
def test_more_than_two_make_what_they_make_in_any_order_and_however_often(
    statuses: tuple[Status, ...],
) -> None:
    whole = combined(statuses)
    for order in itertools.permutations(statuses):
        assert combined(order) == whole
        assert combined((*order, order[0])) == whole
    over = {"SUCCESS", "DEAD"}
    assert (whole in over) == (set(statuses) <= over), "over when all are, and not before"


def test_nobody_makes_new_and_one_makes_its_own() -> None:
    assert combined([]) == "NEW"
    assert [combined([status]) for status in STATUSES] == list(STATUSES)


def test_a_broadcasts_next_attempt_is_the_first_of_its_consumers() -> None:
    times = {"one": None, "two": 7, "three": 5}
    statuses = {name: DeliveryStatus(Status.RETRYING, 1, at_ms) for name, at_ms in times.items()}
    assert _broadcast_status(statuses).next_attempt_ms == 5
    assert _broadcast_status({"one": statuses["one"]}).next_attempt_ms is None
