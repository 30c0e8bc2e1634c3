"""Which URLs and functions may be called, with the guard as it is on AWS."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import trustme

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress
from chalicelib.delivery.functions import LocalFunctions
from chalicelib.delivery.sender import Sender
from tests.functional.conftest import ORIGIN
from tests.functional.delivery.receivers import Receiver, public_egress_to
from tests.support.background import Background
from tests.support.http import Client, Group
from tests.support.webhooks import is_signed


def subscribe(group: Group, name: str = "c", **fields: Any) -> Any:
    return group.api.put(f"{group.path}/consumers/{name}", fields).expect(201)


@pytest.fixture
def go_out_by(background: Background, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Egress], None]]:
    """Gives the service another way out."""
    egresses: list[Egress] = []

    def go(egress: Egress) -> None:
        egresses.append(egress)
        sender = Sender(
            egress=egress,
            functions=LocalFunctions(None),
            clock=background.clock,
            real_clock=background.clock,
            monotonic=time.monotonic,
            origin=ORIGIN,
        )
        deps = background.deps
        context = replace(deps.dispatcher.context, sender=sender)
        monkeypatch.setitem(vars(deps), "sender", sender)
        monkeypatch.setitem(vars(deps), "dispatcher", replace(deps.dispatcher, context=context))

    yield go
    for egress in egresses:
        egress.close()


def test_a_url_whose_owner_has_not_agreed_is_not_called(
    api: Client, background: Background, receiver: Receiver, go_out_by: Callable[[Egress], None]
) -> None:
    authority, tls = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(tls)
    receiver.secure(authority.issue_cert("hooks.example.com"))
    go_out_by(public_egress_to(receiver, tls))
    topic = api.topic()
    group = topic.group()
    consumer = subscribe(group, url="https://hooks.example.com/in")
    assert (consumer["state"], consumer["why"]) == (
        "PENDING",
        "OPTIONS: HTTP 200 without WebHook-Allowed-Origin for us",
    )
    topic.produce("x")
    assert background.push(topic) == {}
    [request] = receiver.seen
    assert (request.method, request.headers["webhook-request-origin"]) == ("OPTIONS", ORIGIN)
    receiver.headers["WebHook-Allowed-Origin"] = ORIGIN
    again = api.put(f"{group.path}/consumers/c", {"url": "https://hooks.example.com/in"}).expect(200)
    assert (again["state"], again["why"], "secret" in again) == ("ACTIVE", None, False)
    assert background.run(topic) == {"DONE": 1}
    assert is_signed(consumer["secret"], receiver.seen[-1].headers, receiver.seen[-1].body)


def refuse_to_dial(address: str, port: int, seconds: float) -> socket.socket:
    raise AssertionError("nothing may be called")


@pytest.mark.parametrize(
    "target",
    [
        {"url": "http://127.0.0.1:1/"},
        {"url": "https://127.0.0.1/"},
        {"url": "https://[::1]/"},
        {"url": "https://localhost/"},
        {"url": "https://10.0.0.1/"},
        {"url": "https://192.168.0.1/"},
        {"url": "https://169.254.169.254/latest/meta-data/"},
        {"url": "https://[fd00::1]/"},
        {"url": "https://[::ffff:10.0.0.1]/"},
        {"url": "https://2130706433/"},
        {"url": "https://inside.example.com/"},
        {"url": "https://nowhere.example.com/"},
        {"url": f"https://{ORIGIN}/v1/publish/x"},
        {"url": "http://hooks.example.com/"},
        {"url": "https://hooks.example.com:8443/"},
        {"url": "https://user:secret@hooks.example.com/"},
        {"url": "https://hooks.example.com/#here"},
        {"url": "ftp://hooks.example.com/"},
        {"url": ""},
        {"function": "nobody"},
        {"function": ""},
    ],
    ids=lambda target: " ".join(target.values()),
)
def test_what_must_not_be_called_cannot_be_registered(
    api: Client, go_out_by: Callable[[Egress], None], target: dict[str, str]
) -> None:
    names = {"hooks.example.com": ("93.184.216.34",), "inside.example.com": ("93.184.216.34", "10.0.0.5")}
    rules = Rules(own_hosts=frozenset({ORIGIN}))
    go_out_by(
        Egress(
            rules=rules,
            monotonic=time.monotonic,
            resolve=lambda host: names.get(host, ()),
            dial=refuse_to_dial,
        )
    )
    group = api.topic().group()
    reply = api.put(f"{group.path}/consumers/c", target)
    reply.refused(422, "TARGET_REFUSED")
    assert not any(value and value in reply.raw.decode() for value in target.values())
    api.get(f"{group.path}/consumers/c").refused(404, "CONSUMER_NOT_FOUND")
