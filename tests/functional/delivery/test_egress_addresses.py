"""An egress calls only addresses and certificates that passed the rules."""

from __future__ import annotations

import ssl
import time

import pytest
import trustme

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress, Reply, Unreached
from tests.functional.delivery.egress_peers import (
    HOOKS,
    PUBLIC,
    UNUSABLE,
    Dialled,
    certified,
    detail,
    get,
    outward,
    polite,
)
from tests.functional.delivery.receivers import Receiver, raw_receiver


def test_the_checked_address_is_the_one_that_is_called(
    authority: trustme.CA, client_tls: ssl.SSLContext
) -> None:
    with raw_receiver(polite, certified(authority, "hooks.example.com")) as receiver:
        dialled = Dialled(receiver.port)
        with outward(lambda host: (PUBLIC,), dialled, client_tls) as egress:
            assert isinstance(get(egress, HOOKS), Reply)
    assert dialled.asked == [(PUBLIC, 443)]


def test_a_name_that_changes_its_mind_is_judged_again_though_a_connection_is_open(
    authority: trustme.CA, client_tls: ssl.SSLContext
) -> None:
    answers = iter([(PUBLIC,), (PUBLIC,), ("127.0.0.1",), ("10.0.0.1",), (PUBLIC,)])
    with raw_receiver(polite, certified(authority, "hooks.example.com")) as receiver:
        dialled = Dialled(receiver.port)
        with outward(lambda host: next(answers), dialled, client_tls) as egress:
            assert isinstance(get(egress, HOOKS), Reply)
            assert isinstance(get(egress, HOOKS), Reply)
            assert detail(egress, HOOKS) == UNUSABLE
            assert detail(egress, HOOKS) == UNUSABLE
            assert isinstance(get(egress, HOOKS), Reply)
    assert dialled.asked == [(PUBLIC, 443)]


@pytest.mark.parametrize(
    "addresses",
    [
        (),
        ("127.0.0.1",),
        ("10.1.2.3",),
        ("169.254.169.254",),
        (PUBLIC, "10.0.0.1"),
        ("192.168.1.1", PUBLIC),
        (PUBLIC, "8.8.8.8", "1.1.1.1", "9.9.9.9", "::1"),
        ("64:ff9b::a9fe:a9fe",),
        ("fe80::1%eth0",),
        ("nonsense",),
    ],
)
def test_one_bad_address_blocks_the_host_in_the_words_for_a_name_without_any(
    addresses: tuple[str, ...],
) -> None:
    dialled = Dialled()
    with outward(lambda host: addresses, dialled) as egress:
        assert detail(egress, HOOKS) == UNUSABLE
        assert egress.refusal(HOOKS) == "has no address that may be called"
    assert dialled.asked == []


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1/", "http://localhost/"],
)
def test_without_leave_not_even_loopback_is_called(url: str) -> None:
    dialled = Dialled()
    with outward(lambda host: ("127.0.0.1",), dialled) as egress:
        assert detail(egress, url) == UNUSABLE
        assert egress.refusal(url)
    assert dialled.asked == []


def test_a_public_name_for_loopback_is_blocked_even_where_loopback_is_allowed(receiver: Receiver) -> None:
    egress = Egress(
        rules=Rules(frozenset({receiver.port}), allow_loopback=True),
        monotonic=time.monotonic,
        resolve=lambda host: ("127.0.0.1",),
    )
    assert detail(egress, f"https://hooks.example.com:{receiver.port}/") == UNUSABLE
    assert receiver.seen == []


def test_a_good_url_may_be_registered_and_a_bad_one_gets_a_reason() -> None:
    with outward(lambda host: (PUBLIC,), Dialled()) as egress:
        assert egress.refusal(HOOKS) is None
        assert egress.refusal("http://hooks.example.com/") == "must begin with https://"


def test_the_next_good_address_is_tried_when_the_first_takes_no_connection(
    authority: trustme.CA, client_tls: ssl.SSLContext
) -> None:
    with raw_receiver(polite, certified(authority, "hooks.example.com")) as receiver:
        dialled = Dialled(receiver.port, frozenset({"2606:4700::1111"}))
        with outward(lambda host: ("2606:4700::1111", PUBLIC), dialled, client_tls) as egress:
            assert isinstance(get(egress, HOOKS), Reply)
    assert [address for address, _ in dialled.asked] == ["2606:4700::1111", PUBLIC]


def test_the_certificate_must_be_for_the_host(authority: trustme.CA, client_tls: ssl.SSLContext) -> None:
    with raw_receiver(polite, certified(authority, "other.example.com", PUBLIC)) as receiver:
        with outward(lambda host: (PUBLIC,), Dialled(receiver.port), client_tls) as egress:
            assert detail(egress, HOOKS) == "the certificate is not valid for the host"
        assert not receiver.arrived.acquire(blocking=False)


def test_a_certificate_nobody_vouches_for_is_refused(authority: trustme.CA) -> None:
    with (
        raw_receiver(polite, certified(authority, "hooks.example.com")) as receiver,
        outward(lambda host: (PUBLIC,), Dialled(receiver.port)) as egress,
    ):
        assert detail(egress, HOOKS) == "the certificate is not valid for the host"


def test_an_address_may_have_a_certificate_of_its_own(
    authority: trustme.CA, client_tls: ssl.SSLContext
) -> None:
    with (
        raw_receiver(polite, certified(authority, PUBLIC)) as receiver,
        outward(lambda host: (), Dialled(receiver.port), client_tls) as egress,
    ):
        assert isinstance(get(egress, f"https://{PUBLIC}/"), Reply)


def test_a_server_without_tls_is_no_https_server(client_tls: ssl.SSLContext) -> None:
    with (
        raw_receiver(polite) as receiver,
        outward(lambda host: (PUBLIC,), Dialled(receiver.port), client_tls) as egress,
    ):
        assert isinstance(get(egress, HOOKS, 0.5), Unreached)
