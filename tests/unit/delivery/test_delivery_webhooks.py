"""Standard Webhooks: secrets in and out, signatures that the package's own receiver accepts, Retry-After."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from email.utils import format_datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given
from standardwebhooks import Webhook

from chalicelib.delivery.sender import asked_wait_ms, live_secrets
from chalicelib.delivery.webhooks import format_secret, parse_secret, sign, verify
from chalicelib.domain.signing import Secret
from chalicelib.domain.times import DAY_MS
from tests.support import factories
from tests.support.clock import START_MS

SECRET = bytes(range(32))


@given(st.binary(min_size=24, max_size=64).filter(lambda secret: len(set(secret)) > 1))
def test_a_secret_comes_back_as_it_was_given(secret: bytes) -> None:
    assert parse_secret(format_secret(secret)) == secret


@pytest.mark.parametrize("byte", [b"\0", b"A"])
def test_a_secret_of_one_byte_again_and_again_is_refused(byte: bytes) -> None:
    assert "random" in str(parse_secret(format_secret(byte * 32)))


@given(st.binary(max_size=23) | st.binary(min_size=65, max_size=200))
def test_a_secret_of_the_wrong_length_is_refused(secret: bytes) -> None:
    assert isinstance(parse_secret(format_secret(secret)), str)


@given(st.text(max_size=120) | st.text("whsec_AZaz09+/=-", max_size=100).map("whsec_{}".format))
def test_junk_is_a_secret_only_where_it_is_the_one_way_to_write_it(text: str) -> None:
    secret = parse_secret(text)
    assert isinstance(secret, str) or format_secret(secret) == text


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(SECRET).decode(),
        "WHSEC_" + base64.b64encode(SECRET).decode(),
        "whsec_" + base64.b64encode(SECRET).decode().rstrip("="),
        "whsec_" + base64.b64encode(SECRET).decode() + "\n",
        "whsec_" + base64.b64encode(SECRET).decode().replace("8=", "9="),
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        "whsec_",
        "whsec_é",
    ],
)
def test_other_spellings_of_a_secret_are_refused_without_showing_it(text: str) -> None:
    reason = parse_secret(text)
    assert isinstance(reason, str)
    assert base64.b64encode(SECRET).decode()[:10] not in reason


@given(st.text(max_size=50), st.integers(0, 2**33), st.sampled_from(("msg-1", "abc-0-1")))
def test_we_sign_as_the_standard_package_does(text: str, timestamp: int, id: str) -> None:
    moment = datetime.fromtimestamp(timestamp, UTC)
    expected = Webhook(SECRET).sign(id, moment, text)
    assert sign([SECRET], id, timestamp, text.encode())["webhook-signature"] == expected


def test_two_secrets_give_two_signatures_and_either_verifies() -> None:
    headers = sign([SECRET, b"o" * 32], "m1", 1_700_000_000, b"body")
    assert len(headers["webhook-signature"].split(" ")) == 2
    for secret in (SECRET, b"o" * 32):
        assert verify([secret], "m1", 1_700_000_000, b"body", headers["webhook-signature"])


@pytest.mark.parametrize(
    ("id", "timestamp", "body", "secret"),
    [
        ("m2", 1, b"body", SECRET),
        ("m1", 2, b"body", SECRET),
        ("m1", 1, b"Body", SECRET),
        ("m1", 1, b"body", b"x" * 32),
    ],
)
def test_a_signature_holds_for_its_id_time_body_and_secret_alone(
    id: str, timestamp: int, body: bytes, secret: bytes
) -> None:
    signatures = sign([SECRET], "m1", 1, b"body")["webhook-signature"]
    assert verify([SECRET], "m1", 1, b"body", signatures)
    assert not verify([secret], id, timestamp, body, signatures)


def test_an_old_secret_signs_until_its_time_and_not_at_it() -> None:
    consumer = factories.consumer(
        factories.group(factories.topic()),
        secrets=(Secret("aa" * 32), Secret("bb" * 32, START_MS + 1), Secret("cc" * 32, START_MS)),
    )
    assert live_secrets(consumer, START_MS) == [b"\xaa" * 32, b"\xbb" * 32]
    assert live_secrets(consumer, START_MS + 1) == [b"\xaa" * 32]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("120", 120_000),
        (" 7 ", 7_000),
        ("2592000", 30 * DAY_MS),
        ("2592001", 30 * DAY_MS),
        ("9" * 5000, 30 * DAY_MS),
        ("Fri, 01 Jan 2100 00:00:30 GMT", 30_000),
        ("Fri Jan  1 00:01:00 2100", 60_000),
        ("Friday, 01-Jan-99 00:00:30 GMT", 0),
        ("Thu, 31 Dec 2099 23:59:59 GMT", 0),
        ("Fri, 01 Jan 2100 00:00:30 UTC", 30_000),
        ("Fri, 01 Jan 2100 00:00:30 +0000", 30_000),
        ("Fri, 01 Jan 2100 01:00:30 +0100", 30_000),
        ("1 Jan 2100 00:00:30 -0000", 30_000),
        ("Sun, 01 Jan 2102 00:00:00 GMT", 30 * DAY_MS),
    ],
)
def test_a_wait_is_read_and_capped_at_30_days(text: str, ms: int) -> None:
    assert asked_wait_ms(text, START_MS) == ms


@pytest.mark.parametrize(
    "text",
    [
        None, "", "-1", "+5", "1.5", "1e3", "soon", "٣", "²", "5 s", "0x10", "2100-01-01", "1,000", "NaN",
        "Fri, 32 Jan 2100 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:30 +9900", "Fri, 01 Jan 2100",
    ],
)  # fmt: skip
def test_a_wait_that_is_nonsense_is_ignored(text: str | None) -> None:
    assert asked_wait_ms(text, START_MS) is None


@given(st.integers(1, 30 * 86_400))
def test_a_date_waits_until_that_date(seconds: int) -> None:
    date = datetime.fromtimestamp(START_MS // 1000 + seconds, UTC)
    assert asked_wait_ms(format_datetime(date, usegmt=True), START_MS) == seconds * 1000


@given(st.text(max_size=60) | st.text("0123456789 ,:-GMTJanFri", max_size=40))
def test_any_text_gives_a_wait_within_30_days_or_none(text: str) -> None:
    wait = asked_wait_ms(text, START_MS)
    assert wait is None or 0 <= wait <= 30 * DAY_MS
