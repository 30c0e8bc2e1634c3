"""The command line: `headrace listen` forwards messages as they would be pushed."""

from __future__ import annotations

import pytest
from cli_commands import Command
from standardwebhooks import Webhook

from headrace.testing import LocalHeadrace, Push

SECRET = "whsec_" + "AbCd" * 8


def test_what_is_listened_to_comes_as_it_would_be_pushed(command: Command, headrace: LocalHeadrace) -> None:
    options = {"key": "ключ 1%", "tag": "paid", "headers": {"Trace": "a b", "X-Name": "ü"}}
    with headrace.subscriber("orders", "shop") as subscriber:
        headrace.send("orders", {"order": 188, "price": 1.10}, **options)
        headrace.expect("orders", "shop").delivered(1)
        with headrace.subscriber("orders", "unused") as listener:
            command(
                *("listen", "orders", "--forward", listener.url, "--group", "mailer"),
                *("--secret", SECRET, "-n", "1"),
            )
            forwarded = next(push for push in listener.pushes if push.headers["headrace-group"] == "mailer")
    (original,) = subscriber.pushes
    assert forwarded.raw == original.raw
    assert _lasting(forwarded) == _lasting(original)
    assert Webhook(SECRET).verify(forwarded.raw, dict(forwarded.headers)) == {"order": 188, "price": 1.10}
    headrace.expect("orders", "mailer").delivered(1)


def _lasting(push: Push) -> dict[str, str]:
    """The headers that do not say when, by whom or for whom."""
    own = {"host", "connection", "accept", "content-length", "headrace-group"}
    names = own | {"webhook-timestamp", "webhook-signature"}
    return {name: value for name, value in push.headers.items() if name not in names}


@pytest.mark.parametrize(("status", "outcome"), [(500, "retrying"), (489, "dead")])
def test_an_answer_to_what_is_listened_to_counts(
    command: Command, headrace: LocalHeadrace, status: int, outcome: str
) -> None:
    headrace.send("orders", 1)
    with headrace.subscriber("orders", "unused", lambda push: status) as subscriber:
        (result,) = command(
            "listen", "orders", "--forward", subscriber.url, "--group", "mailer", "-n", "1", "--json"
        )
    assert result["status"] == status
    getattr(headrace.expect("orders", "mailer"), outcome)(1)


def test_a_listener_has_a_group_of_its_own_and_leaves_none(command: Command, headrace: LocalHeadrace) -> None:
    headrace.send("orders", 1)
    headrace.put_topic("invoices")
    with headrace.subscriber("invoices", "unused") as subscriber:
        command("listen", "orders", "--forward", subscriber.url, "--from", "earliest", "-n", "1")
        assert [push.headers["headrace-group"].partition("-")[0] for push in subscriber.pushes] == ["listen"]
    assert [group.group for group in headrace.list_groups("orders")] == ["mailer"]
    headrace.expect("orders", "mailer").delivered(0)


@pytest.mark.parametrize("user", ["SHOP\\Jörg Müller", "x" * 200, None])
def test_a_listener_has_a_name_whatever_the_users_is(
    command: Command, headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch, user: str | None
) -> None:
    def getuser() -> str:
        if user is None:
            raise KeyError("uid")
        return user

    monkeypatch.setattr("getpass.getuser", getuser)
    headrace.send("orders", 1)
    with headrace.subscriber("orders", "unused") as subscriber:
        command("listen", "orders", "--forward", subscriber.url, "--from", "earliest", "-n", "1")
        groups = {push.headers["headrace-group"] for push in subscriber.pushes} - {"unused"}
    assert [name.partition("-")[0] for name in groups] == ["listen"]
