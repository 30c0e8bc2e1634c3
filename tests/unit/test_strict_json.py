"""The strict parser agrees with Python's where JSON is valid, and refuses what the documentation says."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given

from chalicelib.api import parse
from chalicelib.api.resources.archive import ArchivedBody, archived
from chalicelib.domain import strict_json
from chalicelib.domain.errors import Malformed
from chalicelib.domain.limits import MAX_EXPONENT
from chalicelib.domain.message import Draft, holds_json
from chalicelib.store import codec

text = st.text(st.characters(codec="utf-8"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
    max_leaves=30,
)


def refused(raw: bytes) -> str:
    with pytest.raises(Malformed) as error:
        strict_json.parse(raw)
    assert error.value.code == "INVALID_JSON"
    return error.value.detail


@given(values, st.booleans(), st.sampled_from((None, 2)))
def test_valid_json_is_read_as_python_reads_it(value: Any, is_escaped: bool, indent: int | None) -> None:
    raw = json.dumps(value, ensure_ascii=is_escaped, indent=indent).encode()
    assert strict_json.parse(raw) == json.loads(raw) == value
    assert strict_json.parse(strict_json.dump(value)) == value


@given(st.binary(max_size=60) | text.map(str.encode))
def test_whatever_comes_is_read_or_refused(raw: bytes) -> None:
    try:
        value = strict_json.parse(raw)
    except Malformed:
        return
    assert strict_json.parse(strict_json.dump(value)) == value


@given(st.text('[]{}",:\\ 1a', max_size=80))
def test_whatever_looks_like_json_is_read_as_python_reads_it_or_refused(raw: str) -> None:
    try:
        value = strict_json.parse(raw.encode())
    except Malformed:
        return
    assert value == json.loads(raw)


digits = st.text("0123456789", min_size=1, max_size=30) | st.integers(1, 12_000).map("0".__mul__)
exponents = st.builds(
    str.__add__,
    st.sampled_from(("e", "E", "e-", "E+")),
    digits | st.integers(0, 2 * MAX_EXPONENT).map(str),
)
numbers = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(("", "-")),
    st.integers(0, 10**40).map(str),
    st.just("") | digits.map(".{}".format),
    st.just("") | exponents,
)


def as_stored(draft: Draft) -> Draft:
    """The draft as a row gives it back."""
    return codec.unpack(codec.pack([draft]).payload)[0]


@given(numbers, st.sampled_from(("{}", "[{}]", '{{"a": {}}}', "[1.5, {}]")))
@example("1e-999999999999999999999999999999", "{}")
@example("0e-999999999999999999999999999999", "[{}]")
@example("123456789012345678901234567890", "[1.5, {}]")
def test_a_number_is_refused_at_the_door_or_good_for_every_parser_behind_it(number: str, around: str) -> None:
    text = around.format(number).encode()
    text_draft = Draft(text, False)
    archived_body = ArchivedBody("m", 0, base64.b64encode(text).decode(), "application/json")
    assert archived(archived_body).draft.body == as_stored(text_draft).body == text
    try:
        value = strict_json.parse(text)
    except Malformed:
        assert not holds_json(text_draft)
        return
    assert holds_json(text_draft)
    request = b'{"body":%s}' % text
    compact_text = strict_json.compact(text, value)
    assert parse.json_body(request, value) == compact_text
    assert strict_json.compact(compact_text, strict_json.parse(compact_text)) == compact_text, (
        "what is replayed is JSON again, and the same"
    )
    stored_draft = as_stored(Draft(compact_text))
    assert stored_draft.body == compact_text
    assert as_doubles(stored_draft.body) == as_doubles(json.dumps(value))
    parsed_answer = msgspec.json.decode(msgspec.json.encode({"body": msgspec.Raw(stored_draft.body)}))["body"]
    assert as_doubles(json.dumps(parsed_answer)) == as_doubles(json.dumps(value))


def as_doubles(text: bytes | str) -> object:
    """The value as any JSON reader has it: a whole number may have come with a fraction of zero."""
    return json.loads(text, parse_int=float)


def nested(depth: int, opening: str) -> bytes:
    pairs = {"[": ("[", "]"), "{": ('{"k":', "}"), "mixed": ('[{"k":', "}]")}
    opener, right = pairs[opening]
    steps = depth // 2 if opening == "mixed" else depth
    odd = depth % 2 if opening == "mixed" else 0
    return ("[" * odd + opener * steps + "0" + right * steps + "]" * odd).encode()


@pytest.mark.parametrize("opening", ["[", "{", "mixed"])
def test_nesting_is_allowed_to_32_levels(opening: str) -> None:
    for depth in (31, 32):
        beside = b"[[]," + nested(depth - 1, opening) + b",{}]"
        for raw in (nested(depth, opening), beside):
            assert strict_json.parse(raw) == json.loads(raw)
    assert "32" in refused(nested(33, opening))


def test_deep_nesting_never_reaches_the_parser() -> None:
    for raw in (b"[" * 500_000, b'{"a":' * 100_000, b'["' + b"[" * 100_000 + b'"' + b"[" * 40):
        assert "nested" in refused(raw)


def test_brackets_in_strings_and_beside_one_another_are_no_nesting() -> None:
    values: list[Any] = [
        "[{" * 100,
        '"[' * 100,
        "\\" * 99 + "[" * 50,
        [[]] * 100,
        [{}] * 100,
        {"[" * 50: "]" * 50},
    ]
    for value in values:
        assert strict_json.parse(strict_json.dump(value)) == value


def test_a_string_that_never_ends_is_refused_in_linear_time() -> None:
    raw = b"[" * 20 + b"{" * 20 + b'"' + b'\\"' * 500_000
    start = time.process_time()
    refused(raw)
    assert time.process_time() - start < 5, "at 16 KB the squared time was a second"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        (b'"\xff"', "UTF-8"),
        (b'"\xc0\x80"', "UTF-8"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "NaN"),
        (b'{"a":-Infinity}', "NaN"),
        (b"1e400", "too large"),
        (b"[-1e400]", "too large"),
        (b"9" * 400 + b".0", "too large"),
        (b"9" * 5_000, "too long"),
        (b"1e-999999999999999999999999999999", "exponent"),
        (b'{"a":[-0.5E-999999999999999999999999999999]}', "exponent"),
        (b"0e999999999999999999999999999999", "exponent"),
        (b"1e-%d" % (MAX_EXPONENT + 1), "exponent"),
        (b"0." + b"0" * MAX_EXPONENT + b"1", "exponent"),
        (b'{"a":1,"a":1}', "same key"),
        (b'[{"b":{"a":1,"\\u0061":2}}]', "same key"),
        (b'"\\ud800"', "surrogate"),
        (b'"\\uDBFFx"', "surrogate"),
        (b'"\\udc00"', "surrogate"),
        (b'["ok",{"\\uDFFF":1}]', "surrogate"),
        (b'"\\udc00\\ud800"', "surrogate"),
        (b"", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"[1,]", "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b"01", "not JSON"),
        (b'"a\nb"', "not JSON"),
        (b"nul", "not JSON"),
        (b"\x00", "not JSON"),
        ("\u00a0 1".encode(), "not JSON"),
    ],
)
def test_each_documented_refusal_says_its_reason(raw: bytes, reason: str) -> None:
    assert reason in refused(raw)


def test_what_only_looks_refusable_is_read() -> None:
    pair = b'"\\ud83d\\ude00 \\\\ud800"'
    assert strict_json.parse(pair) == "\U0001f600 \\ud800"
    assert strict_json.parse(b"9" * 4_300) == int("9" * 4_300)
    for text in (b"1e-400", b"1e-%d" % MAX_EXPONENT, b"0e-%d" % MAX_EXPONENT, b"0." + b"0" * 9_000):
        assert strict_json.parse(text) == 0.0
    assert strict_json.parse(b'{"a":{"a":1}}') == {"a": {"a": 1}}
    assert strict_json.parse(b'"NaN"') == "NaN"


def test_a_refusal_does_not_repeat_the_body() -> None:
    assert "hunter2" not in refused(b'{"password": "hunter2", "password": "hunter2"}') + refused(
        b'["hunter2"'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1.10", b"1.10"),
        (b"12345678901234567890.123", b"12345678901234567890.123"),
        (b"1e-400", b"1E-400"),
        (b"-0", b"-0"),
        (b'{ "a" : [1 , 2.50] }', b'{"a":[1,2.50]}'),
        (b'"\\u00e9 1.5"', '"é 1.5"'.encode()),
    ],
)
def test_a_compact_text_keeps_every_digit(text: bytes, expected: bytes) -> None:
    assert strict_json.compact(text, strict_json.parse(text)) == expected
