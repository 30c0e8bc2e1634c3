"""Each setting of the API that the console offers has a field, a label in two languages, and a place in the call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import get_args

import msgspec
import pytest

from chalicelib import console
from chalicelib.api.lists import LETTER_FILTERS, DeadFilter
from chalicelib.api.resources.dead_letters import RedriveBody
from chalicelib.api.settings import GroupBody, Retry, TopicBody
from chalicelib.console import forms
from chalicelib.domain.errors import Malformed
from chalicelib.domain.topic import Group, Mode, Topic

TEMPLATES = Path(str(console.__file__)).parent / "templates"
ELSEWHERE = {
    "put_topic": {"key_shards", "retry.base_seconds", "retry.factor", "retry.cap_seconds"},
    "put_group": {
        *("mode", "from"),  # a new group's, in topic.html
        *("retry.jitter", "retry.base_seconds", "retry.factor", "retry.cap_seconds"),
    },
}
"""Settings that the page leaves to the API."""
PAGES = [("put_topic", TopicBody, "topic_settings.html"), ("put_group", GroupBody, "group_settings.html")]
_LABELLED = re.compile(r'<label[^>]*>{{ _\("([^"]+)"\) }}<(?:input|select) name="(\w+)"')
_SHOWN = re.compile(r'name="(\w+)"[^>]* value="{{ ([^}]+) }}"')
_IN_A_MAP = re.compile(r'"(\w+)": _\("([^"]+)"\)')
_LOOPED = re.compile(r'\("(\w+)", _\("([^"]+)"\), \[')


def settings(body: type[msgspec.Struct]) -> set[str]:
    """The names of a body's settings, with those of its retry policy."""
    names = {field.encode_name for field in msgspec.structs.fields(body)} - {"retry"}
    return names | {f"retry.{field.encode_name}" for field in msgspec.structs.fields(Retry)}


def labels(template: str) -> dict[str, str]:
    """The label of each field that a settings page shows."""
    text = (TEMPLATES / template).read_text()
    return {name: label for label, name in _LABELLED.findall(text)} | dict(_LOOPED.findall(text))


def offered_by(action: str, body: type[msgspec.Struct]) -> set[str]:
    """The fields of the form."""
    return {name.removeprefix("retry.") for name in settings(body) - ELSEWHERE[action]}


def sent_by(action: str, fields: Mapping[str, str]) -> dict[str, object]:
    """The body of the call that a form with these fields makes."""
    body: dict[str, object] = forms.of({"call": action, "topic": "t", "group": "g", **fields}).action.body
    return body


@pytest.mark.parametrize(("action", "body", "template"), PAGES)
def test_each_setting_has_a_labelled_field_that_reaches_the_call(
    action: str, body: type[msgspec.Struct], template: str
) -> None:
    label_of = labels(template)
    names = offered_by(action, body)
    assert names <= label_of.keys(), f"{template} needs a field for these, or ELSEWHERE their names"
    for name in names:
        fields_sent = sent_by(action, {name: "1"})
        retry = fields_sent.get("retry")
        assert name in fields_sent or (isinstance(retry, dict) and name in retry), (
            f"console/forms.py does not read {name}"
        )


def zeros_lost(html: str, body: type[msgspec.Struct]) -> set[str]:
    """Settings that may be 0, and that the page shows by `or`, which makes nothing of 0."""
    may_be_zero = {
        field.encode_name
        for field in (*msgspec.structs.fields(body), *msgspec.structs.fields(Retry))
        if _takes(field, 0)
    }
    return {name for name, value in _SHOWN.findall(html) if " or " in value} & may_be_zero


def _takes(field: msgspec.structs.FieldInfo, value: object) -> bool:
    try:
        msgspec.convert(value, field.type)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize(("body", "template"), [page[1:] for page in PAGES])
def test_a_setting_that_is_zero_is_shown_so(body: type[msgspec.Struct], template: str) -> None:
    html = (TEMPLATES / template).read_text()
    assert len(_SHOWN.findall(html)) > 5
    assert zeros_lost(html, body) == set(), "an empty field is saved as null: write `if … is not none`"
    assert zeros_lost("""<input name="jitter" size="5" value="{{ topic.retry.jitter or '' }}">""", body) == {
        "jitter"
    }


@pytest.mark.parametrize(("action", "body"), [page[:2] for page in PAGES])
def test_a_refused_form_is_shown_with_the_label_of_each_setting(
    action: str, body: type[msgspec.Struct]
) -> None:
    label_of = dict(_IN_A_MAP.findall((TEMPLATES / "correction.html").read_text()))
    names = offered_by(action, body)
    assert names <= label_of.keys(), "correction.html needs a label for these"


@pytest.mark.parametrize(("action", "body"), [page[:2] for page in PAGES])
def test_an_empty_field_takes_away_each_setting_that_can_be_null(
    action: str, body: type[msgspec.Struct]
) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(body)}
    nullable = {name for name, field in fields.items() if NoneType in get_args(field.type)}
    assert nullable
    fields_sent = sent_by(action, dict.fromkeys(offered_by(action, body), ""))
    assert fields_sent == dict.fromkeys(nullable), "of these console/forms.py has to send null (`_or_null`)"


@pytest.mark.parametrize(
    ("action", "body", "fields"),
    [
        ("put_topic", TopicBody, forms.topic_fields(Topic("t", "u", 0))),
        ("put_group", GroupBody, forms.group_fields(Group("t", "g", "u", 0, Mode.QUEUE))),
    ],
)
def test_undo_puts_back_each_setting(
    action: str, body: type[msgspec.Struct], fields: Mapping[str, str]
) -> None:
    cannot_be_put_back = {"shards"}
    names = offered_by(action, body) - cannot_be_put_back
    assert names <= fields.keys(), "console/forms.py needs these"
    put_back = {"retry" if f"retry.{name}" in settings(body) else name for name in names}
    assert put_back <= sent_by(action, fields).keys()


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
