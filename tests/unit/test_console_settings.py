"""Each setting that the console offers has a place in the call, and is put back where its change is undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from chalicelib.api.lists import LETTER_FILTERS, DeadFilter
from chalicelib.api.resources.dead_letters import RedriveBody
from chalicelib.console import forms
from chalicelib.domain.errors import Malformed
from chalicelib.domain.ladder import Retry
from chalicelib.domain.settings import Destination, Mode, Setting
from chalicelib.domain.topic import Group, Topic

ROWS = [("put_topic", row) for row in forms.TOPIC_ROWS] + [("put_group", row) for row in forms.GROUP_ROWS]


def sent_by(action: str, fields: Mapping[str, str]) -> dict[str, object]:
    """The body of the call that a form with these fields makes."""
    body: dict[str, object] = forms.of({"call": action, "topic": "t", "group": "g", **fields}).action.body
    return body


@pytest.mark.parametrize(("action", "row"), ROWS, ids=lambda each: getattr(each, "name", each))
def test_each_setting_of_a_form_reaches_the_call(action: str, row: Setting) -> None:
    text = row.options[0] if row.options else "7"
    assert sent_by(action, {row.name: text}) == {
        row.name: {
            **{int: 7, float: 7, bool: True, list: ["7"]},
            Destination: {"topic": "7", "include_body": False},
            dict: {"hosts": ["7"]},
        }.get(row.given, text)
    }
    empty: dict[str, object] = {row.name: []} if row.given is list else {}
    assert sent_by(action, {row.name: ""}) == ({row.name: None} if row.nullable else empty)


def test_a_form_of_a_new_group_takes_nothing_away() -> None:
    fields = {"from": "latest", **{row.name: "" for row in forms.GROUP_ROWS}}
    assert sent_by("put_group", fields) == {"from": "latest"}


@pytest.mark.parametrize(
    ("action", "rows", "fields"),
    [
        ("put_topic", forms.TOPIC_ROWS, forms.topic_fields(Topic("t", "u", 0))),
        ("put_group", forms.GROUP_ROWS, forms.group_fields(Group("t", "g", "u", 0, mode=Mode.QUEUE))),
    ],
)
def test_undo_puts_back_each_setting(action: str, rows: Sequence[Setting], fields: Mapping[str, str]) -> None:
    cannot_be_put_back = {"shards"}
    assert sent_by(action, fields).keys() == {row.name for row in rows} - cannot_be_put_back | {"retry"}


def test_a_setting_that_is_zero_is_shown_so() -> None:
    assert forms.topic_fields(Topic("t", "u", 0, retry=Retry(1, "jmq", jitter=0)))["jitter"] == "0"


@pytest.mark.parametrize(
    ("text", "number"), [("5", 5), ("-5", -5), (" 5 ", 5), (".5", 0.5), ("0.10", 0.1), ("1e-05", 0.00001)]
)
def test_a_number_is_sent_as_it_is_typed(text: str, number: float) -> None:
    assert sent_by("put_topic", {"rate_limit": text}) == {"rate_limit": number}


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-Infinity", "1e400", "1_000", "²", "\u0661", "--5", "x", "9" * 5000]
)
def test_what_is_no_number_is_refused_and_takes_no_limit_away(text: str) -> None:
    with pytest.raises(Malformed, match="must be a number"):
        sent_by("put_topic", {"rate_limit": text})
    assert sent_by("put_topic", {"ladder": text}) == {"retry": {"ladder": text}}, "no list of seconds"
    assert sent_by("seek_group", {"to": text}) == {"to": text}, "no offset"


@pytest.mark.parametrize("name", LETTER_FILTERS)
def test_each_filter_of_dead_letters_reaches_a_redrive(name: str) -> None:
    sent = msgspec.convert(sent_by("redrive", {name: "1"}), RedriveBody)
    assert isinstance(sent.filter, DeadFilter), "without a filter it would redrive all letters"
    assert getattr(sent.filter, name) is not None
