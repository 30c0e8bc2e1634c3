"""Each setting of the API that the console offers has a field, a label in two languages, and a place in the call."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from chalicelib import console
from chalicelib.api.requests import GroupBody, Retry, TopicBody
from chalicelib.console import forms
from chalicelib.console.chinese import PHRASES

TEMPLATES = Path(str(console.__file__)).parent / "templates"
ELSEWHERE = {
    "put_topic": {"key_shards", "retry.base_seconds", "retry.factor", "retry.cap_seconds"},
    "put_group": {
        *("mode", "from"),  # a new group's, in topic.html
        *("retry.jitter", "retry.base_seconds", "retry.factor", "retry.cap_seconds"),
    },
}
"""Settings that the page leaves to the API."""
_LABELLED = re.compile(r'<label[^>]*>{{ _\("([^"]+)"\) }}<(?:input|select) name="(\w+)"')
_LOOPED = re.compile(r'\("(\w+)", _\("([^"]+)"\), \[')


def settings(body: type[msgspec.Struct]) -> set[str]:
    """The names of a body's settings, with those of its retry policy."""
    names = {field.encode_name for field in msgspec.structs.fields(body)} - {"retry"}
    return names | {f"retry.{field.encode_name}" for field in msgspec.structs.fields(Retry)}


def labels(template: str) -> dict[str, str]:
    """The label of each field that a settings page shows."""
    text = (TEMPLATES / template).read_text()
    return {name: label for label, name in _LABELLED.findall(text)} | dict(_LOOPED.findall(text))


@pytest.mark.parametrize(
    ("deed", "body", "template"),
    [("put_topic", TopicBody, "topic_settings.html"), ("put_group", GroupBody, "group_settings.html")],
)
def test_each_setting_has_a_labelled_field_that_reaches_the_call(
    deed: str, body: type[msgspec.Struct], template: str
) -> None:
    shown = labels(template)
    offered = {name.removeprefix("retry.") for name in settings(body) - ELSEWHERE[deed]}
    assert offered <= shown.keys(), f"{template} needs a field for these, or ELSEWHERE their names"
    assert {shown[name] for name in offered} <= PHRASES.keys(), "console/chinese.py lacks a label"
    for name in offered:
        sent = forms.of({"deed": deed, "topic": "t", "group": "g", name: "1"}).deed.body
        assert name in sent or name in sent.get("retry", {}), f"console/forms.py does not read {name}"
