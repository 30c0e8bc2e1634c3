"""What texts and numbers of a request mean: each bound to the unit, each default, and nothing that goes unsaid."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from chalicelib.api import lists, parse, problems, settings
from chalicelib.api.calls import CALLS
from chalicelib.api.http import convert
from chalicelib.api.parse import MessageBody
from chalicelib.api.resources.archive import ArchivedBody
from chalicelib.api.resources.by_hand import AmendBody, changes
from chalicelib.domain import limits
from chalicelib.domain.errors import HeadraceError, Malformed
from chalicelib.domain.message import Draft
from chalicelib.domain.request import Request
from chalicelib.domain.times import SECOND_MS
from tests.support.clock import START_MS


def draft(raw: bytes = b"", **fields: Any) -> Draft:
    fields = {"body": 1} | fields if "body_base64" not in fields else fields
    return parse.draft_of(msgspec.convert(fields, MessageBody), START_MS, raw)


def time(at_ms: int) -> str:
    from chalicelib.api.fields import at

    return at(at_ms)


def refusal(attempt: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as error:
        attempt()
    return error.value


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (None, None),
        ("*", None),
        (" * ", None),
        ("paid || *", None),
        ("paid", ("paid",)),
        ("paid||refunded", ("paid", "refunded")),
        (" paid ||  refunded || paid ", ("paid", "refunded")),
        ("x" * limits.MAX_TAG_CHARS, ("x" * limits.MAX_TAG_CHARS,)),
        ("||".join(map(str, range(limits.MAX_FILTER_TAGS))), tuple(map(str, range(limits.MAX_FILTER_TAGS)))),
    ],
)
def test_a_filter_is_the_tags_that_pass(text: str | None, tags: tuple[str, ...] | None) -> None:
    assert settings.tags(text) == tags


def test_an_expiry_counts_from_when_the_message_is_due() -> None:
    assert draft().expires_ms is None
    assert draft(expires_in_seconds=5).expires_ms == START_MS + 5 * SECOND_MS
    assert draft(expires_in_seconds=5, delay_seconds=60).expires_ms == START_MS + 65 * SECOND_MS
    at = time(START_MS + 9 * SECOND_MS)
    assert draft(expires_in_seconds=5, deliver_at=at).expires_ms == START_MS + 14 * SECOND_MS


def test_of_a_messages_own_retries_only_what_it_says_is_its_own() -> None:
    def own(**retry: Any) -> tuple[Any, ...]:
        message = draft(retry=retry)
        return message.max_attempts, message.ladder, message.jitter

    assert own() == (None, None, None)
    assert own(max_attempts=3) == (3, None, None)
    assert own(jitter=0) == (None, None, 0)
    assert own(ladder=[1, 2]) == (None, (1, 2), None)
    assert own(ladder="fixed-30") == (4, (30, 30, 30), None), "DMQ's ladder ends after three retries"
    assert own(ladder="fixed-30", max_attempts=2) == (2, (30, 30, 30), None)
    assert own(base_seconds=7)[1] is not None
    assert own(cap_seconds=9)[1] is not None
    for name, value in {"base_seconds": 7, "factor": 3, "cap_seconds": 9}.items():
        assert own(ladder="exponential", **{name: value})[1] != own(ladder="exponential")[1], name


def test_a_change_says_only_what_it_changes() -> None:
    def changed(**fields: Any) -> dict[str, Any]:
        body = msgspec.convert(fields, AmendBody)
        return changes(body, msgspec.json.encode(fields), START_MS)

    whole = {"body": b"null", "is_json": True, "content_type": "application/json"}
    assert changed(body=None) == whole | {"blob": None, "blob_bytes": 0}, "nothing of a former body is left"
    assert changed(headers={}) == {"headers": {}}
    assert changed(deliver_at=time(START_MS - 1)) == {"due_ms": START_MS}
    assert changed(retry={"max_attempts": 2}) == {"max_attempts": 2}
    assert refusal(changed).code == "VALIDATION"


def test_a_text_that_does_not_match_is_refused_in_words() -> None:
    """A pattern does not say what to change."""
    kinds = {ArchivedBody, MessageBody, *(entry.body for entry in CALLS if entry.body)}
    _, schemas = msgspec.json.schema_components(kinds)
    assert set(_patterns(schemas)) == set(problems.PATTERNS)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tag": "a b"}, "tag: must have no spaces, no control characters and no |"),
        ({"keys": ["a", "\n"]}, "keys[1]: must not be blank, and have no control characters"),
        ({"headers": {"a b": "c"}}, "headers: names must have 1 to 128 letters, digits or !#$%&'*+.^_`~-"),
    ]
    for fields, words in cases:
        with pytest.raises(Malformed) as refusal:
            convert({"body": 1} | fields, MessageBody)
        assert refusal.value.detail == words


def _patterns(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (value for key, value in schema.items() if key == "pattern" and isinstance(value, str))
        for value in schema.values():
            yield from _patterns(value)
    if isinstance(schema, list):
        for value in schema:
            yield from _patterns(value)


def test_a_request_tells_its_name_and_for_how_long_it_has_been_sent() -> None:
    def request(**headers: str) -> Request | None:
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return parse.request(cast(Any, SimpleNamespace(headers=header_fields, received_ms=START_MS)))

    most = limits.MAX_RESEND_SECONDS
    assert request() is None
    assert request(headrace_request="r-1") == Request("r-1")
    assert request(headrace_request="r-1", headrace_resend="0") == Request("r-1", START_MS)
    assert request(headrace_request="r-1", headrace_resend=f"{most}") == Request(
        "r-1", START_MS - most * SECOND_MS
    )
    for wrong in (str(most + 1), "-1", "1.0", "٣", "", "0000001"):
        error = refusal(partial(request, headrace_request="r-1", headrace_resend=wrong))
        assert error.issues[0].path == "headrace-resend", wrong
    assert refusal(partial(request, headrace_resend="1")).issues[0].path == "headrace-resend"
    assert refusal(partial(request, headrace_request="a b")).issues[0].path == "headrace-request"


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_pages_of_what_the_caller_may_see_are_full_but_for_the_last(limit: int) -> None:
    context = cast(Any, SimpleNamespace(query={"limit": str(limit)}))
    names, marks = ["1 own", "2", "3 own", "4 own", "5", "6", "7 own"], [""]

    def read(after: str | None, rows: int) -> list[str]:
        return [name for name in names if name > (after or marks[-1])][:rows]

    pages: list[list[str]] = []
    mark: str | None = ""
    while mark is not None:
        items, mark = lists.visible_page(context, "topics", read, lambda name: name.endswith("own"), str)
        pages.append(items)
        marks.append(mark or "")
    assert [name for page in pages for name in page] == ["1 own", "3 own", "4 own", "7 own"]
    assert {len(page) for page in pages[:-1]} <= {limit}
    assert len(pages) == -(-4 // limit), "none is empty"
