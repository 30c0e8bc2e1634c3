"""JSON merge patches: the examples of RFC 7386, and what a patch does not name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.strict_json import merged

# The appendix of RFC 7386, whole: original, patch, result.
RFC = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=2), children, max_size=3)
    ),
    max_leaves=8,
)


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(("original", "patch", "result"), RFC)
def test_the_examples_of_the_rfc(original: str, patch: str, result: str) -> None:
    assert merged(original.encode(), patch.encode()).decode() == result


def test_what_a_patch_does_not_name_keeps_every_digit() -> None:
    body = b'{"total": 1.10, "id": 12345678901234567890123, "x": -0, "big": 1e400}'
    assert (
        merged(body, b'{"y": 2.50}')
        == b'{"total":1.10,"id":12345678901234567890123,"x":-0,"big":1E+400,"y":2.50}'
    )


@given(JSON, JSON)
def test_a_patch_that_was_applied_changes_nothing_more(body: Any, patch: Any) -> None:
    once = merged(text(body), text(patch))
    assert merged(once, text(patch)) == once


@given(
    st.dictionaries(st.text(max_size=2), st.integers()), st.dictionaries(st.text(max_size=2), st.integers())
)
def test_members_are_set_and_others_stay(body: dict[str, int], patch: dict[str, int]) -> None:
    assert json.loads(merged(text(body), text(patch))) == {**body, **patch}
