"""Spans, leases, cursors and messages as they are written into rows, and back."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain.cursor import Cursor, Lease
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES, COMPRESS_ABOVE_BYTES, MAX_SEGMENT_BYTES
from chalicelib.domain.message import Draft, Origin
from chalicelib.domain.spans import Span
from chalicelib.domain.trace import TraceEntry
from chalicelib.store import codec
from chalicelib.store.cursors import _item, cursor_of, parse_span, span_text
from tests.support import factories as make

numbers = st.integers(0, 2**53)
plain_spans = st.builds(
    Span,
    numbers,
    st.integers(1, 10**6),
    st.integers(1, 1000),
    st.sampled_from(("", "-", "0a1b2c", "ffffff")),
    numbers,
)
masks = st.integers(0, 2**1000).map(lambda bits: bits << 1 | 1)
spans = plain_spans | st.builds(
    lambda span, mask: replace(span, count=mask.bit_count(), mask=mask), plain_spans, masks
)
granted_spans = spans.map(lambda span: span if span.mask else replace(span, count=min(span.count, 1000)))
leases = st.builds(
    Lease,
    st.just("1f.0abc"),
    st.lists(granted_spans, min_size=1, max_size=9).map(tuple),  # no claim grants more than 10,000
    numbers,
    st.text(max_size=9),
)


@given(spans)
def test_a_span_is_read_as_it_was_written(span: Span) -> None:
    assert parse_span(span_text(span)) == span
    assert parse_span(span_text(span, start=False), span.start) == span


def test_a_plain_span_is_its_number_alone() -> None:
    assert span_text(Span(17)) == "17"
    assert span_text(Span(17), start=False) == ""
    assert span_text(Span(17, 3, 2, "0a1b2c", 99)) == "17+3*2~0a1b2c@99"
    assert span_text(Span(17, 3, 2, "0a1b2c", 99, 0b1000101)) == "17%51*2~0a1b2c@99"


@pytest.mark.parametrize("junk", ["x", "1+", "1*2+3", "1@2@3", "-1", "1 ", "1+2+3", "1~a,b", "", "1\n"])
def test_junk_is_no_span(junk: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any reason will do)
        parse_span(junk)


@given(st.lists(leases, max_size=3), numbers)
def test_a_cursor_is_read_as_it_was_written(leases: list[Lease], number: int) -> None:
    spans = tuple(Span(number + n, 1, 2, "-", n) for n in range(3))
    cursor = Cursor(
        number,
        max([number + 9, *(span.end for lease in leases for span in lease.spans)]),
        {f"{n}.{lease.token}": Lease(f"{n}.{lease.token}", *_rest(lease)) for n, lease in enumerate(leases)},
        spans,
        number % 7,
        number // 2,
        number // 3,
    )
    assert cursor_of(_item(cursor)) == cursor


def _rest(lease: Lease) -> tuple[tuple[Span, ...], int, str]:
    return lease.spans, lease.deadline_ms, lease.owner


words = st.text(st.characters(codec="utf-8"), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner),
    max_leaves=12,
)
drafts = st.one_of(
    st.builds(make.draft, json_values),
    st.builds(
        Draft, st.binary(max_size=300), st.just(False), st.sampled_from(("image/png", "text/plain", ""))
    ),
    st.builds(
        Draft,
        words.map(str.encode),
        st.just(False),
        st.just("text/plain"),
        dead_reason=st.just("RATE_LIMITED"),
    ),
    st.builds(
        make.draft,
        json_values,
        keys=st.lists(words, max_size=3).map(tuple),
        tag=st.none() | words,
        ordering_key=st.none() | words,
        headers=st.dictionaries(words, words, max_size=3),
        expires_ms=st.none() | st.integers(0, 2**53),
        max_attempts=st.none() | st.integers(1, 1000),
    ),
    st.builds(Draft, st.just(b""), st.booleans(), blob=words.filter(bool), blob_bytes=st.integers(1, 2**32)),
)


origins = st.builds(
    Origin,
    words,
    st.integers(0, 255),
    numbers,
    numbers,
    st.integers(0, 1000),
    st.integers(0, 1000),
)


@given(drafts, origins)
def test_an_entry_of_a_retry_lane_keeps_its_origin_and_only_a_whole_one_its_body(
    draft: Draft, origin: Origin
) -> None:
    reference, whole = replace(draft, origin=origin), replace(draft, origin=replace(origin, whole=True))
    assert codec.unpack(codec.pack([reference, whole]).payload) == (replace(reference, body=b""), whole)


entries = st.lists(
    st.builds(
        TraceEntry,
        st.integers(0, 2**50),
        st.integers(1, 2),
        st.sampled_from(("SUCCESS", "RETRY")),
        st.integers(0, 2),
        words,
    ),
    min_size=1,
    unique_by=lambda t: t.offset,
)


@given(entries)
def test_attempts_are_read_as_they_were_packed(entries: list[TraceEntry]) -> None:
    entries.sort(key=lambda t: t.offset)
    assert codec.unpack_entries(codec.pack_entries(entries), entries[0].offset) == tuple(entries)


@given(st.lists(drafts, min_size=1, max_size=6))
def test_messages_are_read_as_they_were_packed(given_drafts: list[Draft]) -> None:
    pack = codec.pack(given_drafts)
    assert pack.drafts == tuple(given_drafts)
    assert codec.unpack(pack.payload) == tuple(given_drafts)
    assert pack.size == len(pack.payload if isinstance(pack.payload, bytes) else pack.payload.encode())


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"\x00" * 50, "ünï".encode(), b'"\\', bytes(range(256))])
def test_a_body_that_is_no_json_comes_back_byte_for_byte(body: bytes) -> None:
    draft = Draft(body, is_json=False, content_type="application/octet-stream")
    assert codec.unpack(codec.pack([draft]).payload) == (draft,)


def test_numbers_keep_the_digits_they_were_sent_with() -> None:
    draft = Draft(b"[1.10,1e2,123456789012345678901234567890]")
    assert codec.unpack(codec.pack([draft]).payload)[0].body == draft.body


def test_what_grows_by_compressing_is_stored_as_text() -> None:
    assert isinstance(codec.pack([make.draft(1)]).payload, str)
    long = codec.pack([make.draft("x" * 2 * COMPRESS_ABOVE_BYTES)])
    assert isinstance(long.payload, bytes)
    assert long.size < COMPRESS_ABOVE_BYTES
    assert json.loads(zlib.decompress(long.payload))


@given(st.lists(st.integers(1, BLOB_THRESHOLD_BYTES - 2), min_size=1, max_size=7))
def test_a_pack_takes_the_first_drafts_up_to_the_limit_of_a_segment(sizes: list[int]) -> None:
    given_drafts = [make.draft("x" * size) for size in sizes]
    rest, packs = given_drafts, []
    while rest:
        packs.append(codec.pack(rest))
        assert packs[-1].drafts, "at least one, so that it ends"
        rest = rest[len(packs[-1].drafts) :]
    assert [d for p in packs for d in p.drafts] == given_drafts
    for this, next_pack in zip(packs, [*packs[1:], None], strict=True):
        taken = sum(len(codec.encode(d)) + 1 for d in this.drafts)
        assert taken <= MAX_SEGMENT_BYTES
        if next_pack:
            assert taken + len(codec.encode(next_pack.drafts[0])) + 1 > MAX_SEGMENT_BYTES, (
                "another would have fitted"
            )


def test_the_worst_body_that_needs_no_blob_fits_a_segment_uncompressed() -> None:
    worst = [b"\xff", b"\x01", b'"', "\u2028".encode()]
    for unit in worst:
        body = unit * (BLOB_THRESHOLD_BYTES // len(unit))
        headers = {str(n): "\u00e9" * 1000 for n in range(8)}
        draft = Draft(body, False, "x", tuple("\u4e2d" * 256 + str(n) for n in range(16)), headers=headers)
        assert len(codec.encode(draft)) < MAX_SEGMENT_BYTES
