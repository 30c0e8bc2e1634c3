"""How jobs call the service: what it answers, and what they do not follow."""

from __future__ import annotations

import pytest

from glue_jobs.common.service import Refused, Service
from tests.support.receiver import Receiver, Reply


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_a_redirection_is_refused_and_takes_the_token_nowhere(method: str, status: int) -> None:
    with Receiver() as elsewhere:
        place = elsewhere.url("elsewhere")
        with Receiver(lambda _: Reply(status, {"Location": place})) as receiver:
            url = receiver.url("").rstrip("/")
            with pytest.raises(Refused) as refusal:
                Service(url, "hr_secret").ask(method, "/v1/topics", None if method == "GET" else {})
    assert (len(receiver.visits), elsewhere.visits) == (1, [])
    assert str(refusal.value) == (
        f"REDIRECTED: {url} redirects to {place}, and no redirection is followed: --url (HEADRACE_URL) must be that "
        "of the service itself."
    )


def test_what_is_no_redirection_is_answered_as_ever() -> None:
    replies = [Reply(200, {}, b'{"items": []}'), Reply(403, {}, b'{"code": "FORBIDDEN", "detail": "No."}')]
    with Receiver(lambda _: replies.pop(0)) as receiver:
        service = Service(receiver.url("").rstrip("/"), "hr_secret")
        assert service.ask("GET", "/v1/topics") == {"items": []}
        with pytest.raises(Refused, match="FORBIDDEN"):
            service.ask("GET", "/v1/topics")
