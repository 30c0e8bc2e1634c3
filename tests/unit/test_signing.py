"""Receipts and page tokens: one changed character makes them invalid."""

from __future__ import annotations

import base64
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain.errors import ChangedMeanwhile
from chalicelib.domain.receipt import Receipt, sign_receipt, verify_receipt
from chalicelib.domain.signing import opened, sealed, sign, verified
from tests.support.stages import embedded_stage

KEY = b"k" * 32
RECEIPT = Receipt(
    group_uid="g1",
    consumer_uid="c1",
    id="0123456789ab-3-1000",
    shard=3,
    offset=2**15,
    token="1f.0abc",
    last_attempt=16,
    claimed_ms=1_000,
)
URL_SAFE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.sampled_from(("receipt", "page:topics", "")))
def test_what_was_signed_or_sealed_opens_for_its_purpose_alone(text: str, purpose: str) -> None:
    for shut, open in ((sign, verified), (sealed, opened)):
        token = shut(KEY, purpose, text)
        assert set(token) <= set(URL_SAFE)
        assert open(KEY, purpose, token) == text
        assert open(KEY, purpose + "x", token) is None
        assert open(b"j" * 32, purpose, token) is None


def test_nothing_of_a_sealed_text_can_be_read_and_any_flipped_bit_is_noticed() -> None:
    texts = [sealed(KEY, "topics", f"foreign-{n}") for n in range(2)]
    raws = [base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) for text in texts]
    assert not any(b"foreign"[n : n + 2] in raw for raw in raws for n in range(6))
    assert raws[0][-9:-1] != raws[1][-9:-1], "equal beginnings do not look alike"
    for at in range(len(raws[0])):
        for bit in range(8):
            damaged_raw = bytes([*raws[0][:at], raws[0][at] ^ 1 << bit, *raws[0][at + 1 :]])
            damaged = base64.urlsafe_b64encode(damaged_raw).rstrip(b"=").decode()
            assert opened(KEY, "topics", damaged) is None


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_a_receipt_comes_back_as_it_was_given(id: str) -> None:
    for receipt in (
        RECEIPT,
        replace(RECEIPT, id=id),  # a damaged row's may have any characters
        replace(
            RECEIPT,
            consumer_uid="",
            expires_ms=2_000,
            claimed_ms=0,
            entry=7,
            attempts_before_entry=3,
            attempts_before_redrive=2,
        ),
        replace(RECEIPT, id="0123456789ab", entry=0),  # its id, of a delayed message, does not tell its place
    ):
        assert verify_receipt(KEY, sign_receipt(KEY, receipt)) == receipt


def test_attempts_are_counted_anew_from_a_redrive_on() -> None:
    receipt = replace(RECEIPT, last_attempt=9, attempts_before_redrive=7)
    assert [receipt.attempt_since_redrive(attempt) for attempt in (8, 9)] == [1, 2]
    assert RECEIPT.attempt_since_redrive(1) == 1


def test_any_flipped_bit_of_a_receipt_is_noticed() -> None:
    text = sign_receipt(KEY, RECEIPT)
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    for at in range(len(raw)):
        for bit in range(8):
            damaged_raw = bytes([*raw[:at], raw[at] ^ 1 << bit, *raw[at + 1 :]])
            assert verify_receipt(KEY, base64.urlsafe_b64encode(damaged_raw).rstrip(b"=").decode()) is None


@pytest.mark.parametrize("junk", ["", "A", "====", "AAAA" * 10, "é", "\x00"])
def test_short_and_strange_texts_are_no_receipts(junk: str) -> None:
    assert verify_receipt(KEY, junk) is None


def test_a_page_token_is_no_receipt() -> None:
    token = sign(KEY, "page:messages", "g1|c1|3|1|1f.0abc|16")
    assert verify_receipt(KEY, token) is None


def test_i20_a_rotation_of_the_key_whose_answer_was_lost_is_answered_as_done() -> None:
    deps = embedded_stage().process()
    deps.signing_keys.present()
    put_key_ring = deps.adapters.control.put_key_ring
    deps.adapters.control.put_key_ring = (  # type: ignore[method-assign]
        lambda ring, old: put_key_ring(ring, old) and put_key_ring(ring, old)  # the SDK sends it again
    )
    ring = deps.signing_keys.rotate(60)
    assert deps.signing_keys.present().hex() == ring.keys[0].hex
    deps.adapters.control.put_key_ring = lambda ring, old: False  # type: ignore[method-assign]
    with pytest.raises(ChangedMeanwhile):
        deps.signing_keys.rotate(60)
