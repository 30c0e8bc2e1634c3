"""ports.Cipher: what was encrypted comes back in its own context, and in no other; by KMS, and by a file's key."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from chalicelib.domain.errors import Unavailable
from chalicelib.ports.world import Cipher
from chalicelib.store.clients import Clients
from chalicelib.store.kms import KmsCipher
from local.key_file import FileCipher

PLACE = {"secret": "subscriber", "row": "t/g/c"}
SECRET = b"\x00" * 16 + b"\xff" * 16


@pytest.fixture(params=["kms", "file"])
def cipher(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cipher]:
    if request.param == "file":
        yield FileCipher(tmp_path / "key")
        return
    with mock_aws():
        key = boto3.client("kms", region_name="us-east-1").create_key()["KeyMetadata"]["Arn"]
        clients = Clients("us-east-1")
        yield KmsCipher(lambda: clients.get("kms"), key, "headrace-dev")


def test_a_secret_comes_back_and_is_not_to_be_seen(cipher: Cipher) -> None:
    once, again = cipher.encrypt(SECRET, PLACE), cipher.encrypt(SECRET, PLACE)
    assert cipher.decrypt(once, PLACE) == cipher.decrypt(again, PLACE) == SECRET
    assert once != again
    assert SECRET not in once


@pytest.mark.parametrize(
    "other",
    [
        {**PLACE, "row": "t/g/d"},
        {**PLACE, "secret": "signing-key"},
        {"secret": "subscriber"},
        {**PLACE, "more": "x"},
        {},
    ],
    ids=["row", "kind", "no row", "more", "nothing"],
)
def test_it_comes_back_in_no_other_context(cipher: Cipher, other: dict[str, str]) -> None:
    ciphertext = cipher.encrypt(SECRET, PLACE)
    with pytest.raises(Unavailable):
        cipher.decrypt(ciphertext, other)


def test_what_was_damaged_does_not_come_back(cipher: Cipher) -> None:
    ciphertext = cipher.encrypt(SECRET, PLACE)
    for damaged_text in (ciphertext[:-1] + bytes([ciphertext[-1] ^ 1]), ciphertext[:20], b""):
        with pytest.raises(Unavailable):
            cipher.decrypt(damaged_text, PLACE)


def test_a_stage_does_not_read_what_another_encrypted_with_the_same_key() -> None:
    with mock_aws():
        key = boto3.client("kms", region_name="us-east-1").create_key()["KeyMetadata"]["Arn"]
        clients = Clients("us-east-1")
        dev, prod = (KmsCipher(lambda: clients.get("kms"), key, stage) for stage in ("dev", "prod"))
        ciphertext = prod.encrypt(SECRET, PLACE)
        with pytest.raises(Unavailable):
            dev.decrypt(ciphertext, PLACE)


def test_a_key_that_is_gone_or_denied_is_told_as_such() -> None:
    with mock_aws():
        clients = Clients("us-east-1")
        arn = f"arn:aws:kms:us-east-1:123456789012:key/{'0' * 8}-0000-0000-0000-{'0' * 12}"
        with pytest.raises(Unavailable, match="encrypt a secret"):
            KmsCipher(lambda: clients.get("kms"), arn, "dev").encrypt(SECRET, PLACE)


def test_the_key_is_its_owners_only_and_stays_as_it_was_made(tmp_path: Path) -> None:
    path = tmp_path / "key"
    ciphertext = FileCipher(path).encrypt(SECRET, PLACE)
    assert path.stat().st_mode & 0o777 == 0o600
    assert FileCipher(path).decrypt(ciphertext, PLACE) == SECRET
    assert [file.name for file in tmp_path.iterdir()] == ["key"]
    path.write_bytes(b"x" * 32)
    with pytest.raises(Unavailable, match=json.dumps(str(path))[1:-1]):
        FileCipher(path).decrypt(ciphertext, PLACE)


def test_threads_that_begin_at_once_have_one_key(tmp_path: Path) -> None:
    for n in range(20):
        cipher, together = FileCipher(tmp_path / f"key-{n}"), threading.Barrier(8, timeout=60)

        def encrypt(_: int, cipher: Cipher = cipher, together: threading.Barrier = together) -> bytes:
            together.wait()
            return cipher.encrypt(SECRET, PLACE)

        with ThreadPoolExecutor(8) as pool:
            for ciphertext in list(pool.map(encrypt, range(8))):
                assert cipher.decrypt(ciphertext, PLACE) == SECRET
