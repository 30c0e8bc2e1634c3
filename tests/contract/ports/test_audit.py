"""store.Audit: what was done, the newest first."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain.audit import AuditEntry, month_of, months_back
from chalicelib.domain.times import DAY_MS
from chalicelib.store.audit import Audit
from tests.support.clock import START_MS
from tests.support.stages import Stage


def entry(at_ms: int, request_id: str = "r", **fields: str) -> AuditEntry:
    """An entry, with all that it can have."""
    return AuditEntry(
        at_ms=at_ms,
        token_id="t1",
        token_name="ci",
        method="PUT",
        path="/v1/topics/{topic}",
        object="topic orders",
        result="OK",
        request_id=request_id,
        **fields,
    )


@pytest.fixture
def audit(empty_stage: Stage) -> Audit:
    return empty_stage.adapters.audit


def test_entries_are_read_as_they_were_added_the_newest_first(audit: Audit) -> None:
    entries = [entry(START_MS + n * 20 * DAY_MS, topic="orders", source="1.2.3.4") for n in range(4)]
    entries.append(entry(entries[-1].at_ms, "s"))
    for each in (*entries, entries[0]):
        audit.add(each)
    end_ms = entries[-1].at_ms + 1
    assert list(audit.entries(START_MS, end_ms, None)) == entries[::-1]
    assert list(audit.entries(START_MS + 1, end_ms - 1, None)) == entries[2:0:-1]
    assert list(audit.entries(START_MS, end_ms, entries[3].key)) == entries[2::-1]
    assert list(audit.entries(START_MS, entries[2].at_ms, entries[3].key)) == entries[1::-1], (
        "the nearer end counts"
    )
    assert list(audit.entries(end_ms, end_ms + 1, None)) == []


def test_a_walk_that_went_on_until_its_last_entries_were_too_old_is_at_its_end(audit: Audit) -> None:
    old = entry(START_MS)
    audit.add(old)
    assert list(audit.entries(START_MS + 1, START_MS + 2, old.key)) == []


def test_many_entries_are_read_page_after_page(audit: Audit) -> None:
    for n in range(120):
        audit.add(entry(START_MS, f"{n:03}"))
    request_ids = [each.request_id for each in islice(audit.entries(START_MS, START_MS + 1, None), 115)]
    assert request_ids == [f"{n:03}" for n in range(119, 4, -1)]


@given(st.integers(0, 2**42), st.integers(0, 400 * DAY_MS))
def test_the_months_of_a_span_are_all_of_them(from_ms: int, length_ms: int) -> None:
    months = months_back(from_ms, from_ms + length_ms)
    assert (months[0], months[-1]) == (month_of(from_ms + length_ms), month_of(from_ms))
    days = {month_of(ms) for ms in range(from_ms, from_ms + length_ms + 1, DAY_MS)}
    assert days <= set(months)
    assert months == sorted(set(months), reverse=True)
    assert all(datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC) for month in months)
