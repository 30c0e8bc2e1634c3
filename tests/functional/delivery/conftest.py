"""Delivery on real sockets, all of them on this machine."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator

import pytest
import trustme

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress
from tests.functional.delivery.receivers import Receiver, http_receiver, public_egress_to


@pytest.fixture
def egress() -> Iterator[Egress]:
    """A way out to this machine."""
    egress = Egress(rules=Rules(allow_loopback=True), monotonic=time.monotonic)
    yield egress
    egress.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def public_egress() -> Iterator[Callable[[Receiver], Egress]]:
    """Makes a way out as on AWS, for which a receiver's place is hooks.example.com's."""
    authority = trustme.CA()
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    egresses: list[Egress] = []

    def make(receiver: Receiver) -> Egress:
        receiver.secure(authority.issue_cert("hooks.example.com"))
        egresses.append(public_egress_to(receiver, tls))
        return egresses[-1]

    yield make
    for egress in egresses:
        egress.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context
