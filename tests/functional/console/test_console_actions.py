"""Rules for all actions on a page: they match curl, are counted before, reported afterwards, and undone where possible.

The list of actions is the forms'; what each page offers is read from the pages themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.api import audit
from chalicelib.console import actions, forms
from chalicelib.console.pages import do
from chalicelib.domain.errors import unavailable
from tests.functional.console.conftest import Scene
from tests.support.browser import HOST, Browser, Form, Screen

ACTIONS = forms.ACTIONS
COUNTED = {
    "redrive": ("redrive", "7 in all , 1 cause"),
    "retry_many": ("retry", "6 in all"),
    "recheck": ("recheck", "1 in all"),
    "change_delayed": ("many-later", "6 messages"),
    "merge_dead_letters": ("patch", "9 letters on this page 9 would change"),
    "delete_dead_letters": ("delete", "9 in all , 2 causes"),
    "seek_group": ("group-settings", "110 messages come again"),
    "purge_group": ("purge", "136 in all"),
    "purge_topic": ("purge-topic", "136 in all"),
    "create_replay": ("replays", "0 messages at most"),
    "delete_topic": ("settings", "Accepted 240 Groups 2 Dead letters mailer: 9"),
    "delete_group": ("group-settings", "Backlog 130 Dead letters 9 Consumers 2"),
}
"""What may concern many messages: the page, and how many it says before."""
OF_ONE = {
    *("put_topic", "put_group", "pause_group", "resume_group", "put_consumer", "delete_consumer"),
    *("produce", "amend_message", "cancel_message", "retry_now", "settle_message"),
    *("edit_dead_letter", "delete_dead_letter"),
    *("rotate_secret", "commit", "roll_back", "create_token", "rotate_token", "delete_token", "move_clock"),
    "rotate_callback_secrets",
    *("put_schedule", "delete_schedule", "pause_schedule", "resume_schedule", "run_schedule"),
    *("put_events", "delete_events"),
}
TRACED = {"produce", "amend_message", "cancel_message", "retry_now", "settle_message", "commit", "roll_back"}
"""What is done for one message: its trace says who it was."""
NOT_UNDONE = {
    **dict.fromkeys(
        (
            "produce",
            "run_schedule",
            "retry_now",
            "retry_many",
            "redrive",
            "commit",
            "recheck",
            "create_replay",
        ),
        "groups may have it already",
    ),
    **dict.fromkeys(
        (
            "cancel_message",
            "roll_back",
            "delete_dead_letter",
            "delete_dead_letters",
            "delete_topic",
            "delete_group",
            "delete_schedule",
            "delete_events",
        ),
        "it is gone",
    ),
    **dict.fromkeys(("settle_message", "purge_group", "purge_topic"), "it is over"),
    **dict.fromkeys(("delete_token", "rotate_token", "rotate_secret"), "the old secret is gone"),
    **dict.fromkeys(
        ("create_token", "put_consumer", "put_schedule", "put_events"), "it is removed by a button of its own"
    ),
    **{
        "seek_group": "what was settled behind it is forgotten",
        "merge_dead_letters": "bodies of many are not kept",
    },
    **{"move_clock": "time never goes back", "rotate_callback_secrets": "the old secrets end"},
}
NO_CALLS = {"sign-out", "language", "try", "take"}


def action_forms(screen: Screen) -> list[Form]:
    """The forms of a page that ask for a call."""
    return [form for form in screen.forms if form.method == "POST" and "call" in form.fields]


def polls(screen: Screen) -> bool:
    """Does the page ask for its moving part by itself?"""
    return any(" hx-get" in tag for tag in screen.tags)


def call_of(form: Form) -> str:
    """The method and the path of what the form asks for, as a pattern: what a person fills in may be anything."""
    call = actions._BY_NAME[form.fields["call"]]
    path = re.escape(call.path).replace(r"\{", "{").replace(r"\}", "}")
    for name in re.findall(r"{(\w+)}", path):
        value = "" if name in form.open_fields else form.fields.get(name, "")
        path = path.replace("{" + name + "}", re.escape(value) or "[^ /]+")
    return rf"curl -X {call.method} [^#]*?{path}(?![\w/-])"


def test_every_button_has_its_call_as_curl(scene: Scene) -> None:
    buttons_without = []
    for name, screen in scene.screens():
        for form in action_forms(screen):
            if form.disabled:
                continue
            open_fields = form.open_fields - {"csrf", "call"}
            pattern = (
                call_of(form)
                if open_fields
                else re.escape(forms.of(form.fields).action.curl(f"http://{HOST}"))
            )
            if not re.search(pattern, screen.text):
                buttons_without.append((name, form.fields["call"], form.buttons))
    assert buttons_without == []


def test_every_action_is_on_a_page(scene: Scene) -> None:
    actions = {form.fields["call"] for _, screen in scene.screens() for form in action_forms(screen)}
    assert actions == ACTIONS


def test_what_concerns_many_is_counted_before(scene: Scene) -> None:
    assert COUNTED.keys() | OF_ONE == ACTIONS
    assert COUNTED.keys().isdisjoint(OF_ONE)
    screens = dict(scene.screens())
    for action, (page, words) in COUNTED.items():
        assert any(form.fields["call"] == action for form in action_forms(screens[page])), action
        assert words in screens[page].text, action


def test_every_action_leaves_a_line_that_says_who_it_was(scene: Scene) -> None:
    silent = {name for name in ACTIONS if not audit.is_audited(actions._BY_NAME[name])}
    assert silent == TRACED


def test_every_action_is_undone_or_cannot_be() -> None:
    actions = {*forms.UNDONE_BY, *do._WAYS}
    assert actions | NOT_UNDONE.keys() == ACTIONS
    assert actions.isdisjoint(NOT_UNDONE)


def test_no_form_does_something_past_the_actions(scene: Scene) -> None:
    for name, screen in scene.screens():
        for form in screen.forms:
            if form.method == "POST" and "call" not in form.fields:
                place = form.action.rpartition("/")[2]
                previews = "body" in form.open_fields or "patch" in form.open_fields
                tests = place == "test" and "curl -X POST" in screen.text
                assert place in NO_CALLS or previews or tests, (name, form.action)


def test_a_refused_form_keeps_what_was_typed_and_is_corrected_where_it_is(scene: Scene) -> None:
    browser = scene.browser
    form = browser.get("/console/topics/clicks/send").form("produce")
    refusal = browser.submit(form, body='{"total": 17', keys="late-1", delay_seconds="soon", tag="<b>")
    assert refusal.status == 400
    assert "What you typed is still here" in refusal.text
    again = refusal.form("produce", topic="clicks", keys="late-1", body='{"total": 17', tag="<b>")
    assert "<b>" not in refusal.html
    refusal = browser.submit(again, body='{"total": 17}')
    assert "delay_seconds must be a number" in refusal.text
    assert "aria-invalid" in refusal.html
    screen = browser.submit(refusal.form("produce"), delay_seconds="60")
    assert (screen.status, "Sent." in screen.text, "late-1" in screen.text) == (200, True, True)


def test_a_form_of_no_session_of_ours_is_not_offered_again(scene: Scene) -> None:
    form = scene.browser.get("/console/topics/clicks/send").form("produce")
    for fields, origin in (({"csrf": "foreign"}, "http://evil.test"), ({"call": "explode"}, None)):
        headers = {"origin": origin} if origin else {}
        refusal = scene.browser.post("/console/do", {**form.fields, "body": "{", **fields}, **headers)
        assert refusal.status in (400, 403)
        assert not action_forms(refusal)


def test_a_form_of_an_earlier_session_is_sent_again_in_this_one(scene: Scene) -> None:
    form = scene.browser.get("/console/topics/clicks/send").form("produce")
    other = Browser(scene.client.gateway)
    other.sign_in(str(scene.client.token))
    refusal = other.post("/console/do", {**form.fields, "body": '{"n": 1}', "keys": "earlier-1"})
    assert (refusal.status, "FORM_EXPIRED" in refusal.text) == (403, True)
    assert "Sent." in other.submit(refusal.form("produce", keys="earlier-1")).text


def test_what_was_typed_survives_the_end_of_a_session(scene: Scene) -> None:
    browser = Browser(scene.client.gateway)
    browser.sign_in(str(scene.client.token))
    form = browser.get("/console/topics/clicks/send").form("produce")
    browser.cookies.clear()
    sign_in = browser.submit(form, body='{"n": "<ü>"}', keys="late-2", tag="")
    assert (sign_in.status, "Your session had ended" in sign_in.text) == (401, True)
    assert "not valid" not in sign_in.text
    refusal = browser.submit(sign_in.forms[0], token="hr_nobody_xxxxxxxxxxxxxxxx")
    assert (refusal.status, "not valid" in refusal.text) == (401, True)
    again = browser.submit(refusal.forms[0], token=str(scene.client.token))
    assert (again.status, "Signed in again" in again.text, polls(again)) == (200, True, False)
    assert "Sent." in browser.submit(again.form("produce", body='{"n": "<ü>"}', keys="late-2")).text
    messages = scene.client.get("/v1/topics/clicks/messages?key=late-2").expect(200)["items"]
    assert [message["body"] for message in messages] == [{"n": "<ü>"}]


def test_another_site_plants_nothing_in_the_page_that_asks_to_sign_in(scene: Scene) -> None:
    stranger = Browser(scene.client.gateway)
    fields = {"call": "produce", "topic": "clicks", "body": "planted"}
    for path in ("/console/do", "/console/sign-in"):
        screen = stranger.post(
            path, {**fields, "typed": "call=produce&body=planted"}, origin="http://evil.test"
        )
        assert (screen.status, "planted" in screen.html) == (403, False)


@dataclass
class Silent:
    """A port that does what one method says, and loses the answer to the first call."""

    port: Any
    method: str
    is_silent: bool = True

    def __getattr__(self, name: str) -> Any:
        return self._lose if name == self.method and self.is_silent else getattr(self.port, name)

    def _lose(self, *args: Any, **kwargs: Any) -> None:
        self.is_silent = False
        getattr(self.port, self.method)(*args, **kwargs)
        raise unavailable()


def lose_answer(monkeypatch: pytest.MonkeyPatch, port: str, method: str) -> None:
    """The store loses the answer to the next call of this method."""
    adapters = wiring.deps().adapters
    changes: dict[str, Any] = {port: Silent(getattr(adapters, port), method)}
    deps = wiring.Deps(replace(adapters, **changes))
    monkeypatch.setattr(wiring, "deps", lambda: deps)


@pytest.mark.parametrize(
    ("port", "method", "delay", "notice"),
    [("log", "put", "", "Sent."), ("timers", "store", "60", "It was stored before, and not once more")],
)
def test_a_message_sent_again_after_a_lost_answer_is_stored_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, port: str, method: str, delay: str, notice: str
) -> None:
    lose_answer(monkeypatch, port, method)
    form = scene.browser.get("/console/topics/clicks/send").form("produce")
    outage = scene.browser.submit(form, body='{"order": 1}', keys=f"once-{port}", delay_seconds=delay)
    assert (outage.status, "It may have been done" in outage.text) == (503, False)
    refusal = scene.browser.submit(outage.form("produce"), body='{"order": ')
    assert refusal.status == 400
    screen = scene.browser.submit(refusal.form("produce"), body='{"order": 1}')
    assert notice in screen.text
    messages = scene.client.get(f"/v1/topics/clicks/messages?key=once-{port}").expect(200)["items"]
    assert [message["body"] for message in messages] == [{"order": 1}]


def test_what_may_be_done_twice_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_answer(monkeypatch, "control", "put_token")
    form = scene.browser.get("/console/tokens").form("create_token")
    outage = scene.browser.submit(form, name="night")
    assert (outage.status, "It may have been done all the same" in outage.text) == (503, True)
    assert outage.form("create_token", name="night")
