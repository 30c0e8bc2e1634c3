"""Tokens that are no good are no good alike."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given

import app
from chalicelib.domain.errors import (
    ChangedMeanwhile,
    Refused,
    Unauthorized,
    Unavailable,
    unavailable,
)
from chalicelib.domain.limits import MAX_OVERLAPPING_SECRETS
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import Caller, Token
from chalicelib.services.manage.tokens import Tokens, checksum
from chalicelib.store.control import Control
from tests.support.clock import ManualClock, SeededRandom
from tests.support.embedded import embedded_dynamo


class Stage:
    """One process's tokens, and another's on the same store."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.control = Control(embedded_dynamo())
        self.mine = Tokens(self.control, self.clock, SeededRandom(1))
        self.other = Tokens(self.control, self.clock, SeededRandom(2))


def _expired(stage: Stage) -> str:
    _, text = stage.mine.create("ci", ("admin",), expires_in_days=1)
    stage.mine.authenticate(text)
    stage.clock.advance(DAY_MS)
    return text


def _revoked(stage: Stage) -> str:
    token, text = stage.mine.create("ci", ("admin",))
    stage.mine.authenticate(text)
    stage.mine.revoke(token.id)
    return text


def _changed(stage: Stage) -> str:
    _, text = stage.mine.create("ci", ("admin",))
    return text[:-1] + ("0" if text[-1] != "0" else "1")


def _anothers_secret(stage: Stage) -> str:
    mine, _ = stage.mine.create("ci", ("admin",))
    _, other = stage.mine.create("ci", ("admin",))
    return f"hr_{mine.id}_{other.split('_', 2)[2]}"


names = st.text("AZaz09.-_", min_size=1, max_size=5).filter(lambda name: name[0].isalnum())
patterns = st.text("AZaz09.-_*", min_size=1, max_size=4)


BAD: dict[str, Callable[[Stage], str]] = {
    "missing": lambda _: "",
    "malformed": lambda _: "Bearer x",
    "trailing newline": lambda stage: stage.mine.create("ci", ("admin",))[1] + "\n",
    "not ASCII": lambda _: "hr_é_ééééééééé",
    "unknown": lambda _: "hr_0123456789ab_" + "a" * 59,
    "changed": _changed,
    "another's secret": _anothers_secret,
    "revoked": _revoked,
    "expired": _expired,
}


@pytest.mark.parametrize("why", BAD)
def test_tokens_that_are_no_good_are_refused_alike(why: str) -> None:
    stage = Stage()
    with pytest.raises(Unauthorized) as error:
        stage.mine.authenticate(BAD[why](stage))
    with pytest.raises(Unauthorized) as malformed:
        stage.mine.authenticate("x")
    assert (error.value.code, error.value.detail) == (malformed.value.code, malformed.value.detail)


def test_a_token_is_good_up_to_its_last_millisecond() -> None:
    stage = Stage()
    _, text = stage.mine.create("ci", ("admin",), expires_in_days=1)
    stage.clock.advance(DAY_MS - 1)
    stage.mine.authenticate(text)
    stage.clock.advance(1)
    with pytest.raises(Unauthorized):
        stage.mine.authenticate(text)


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_token_that_is_used_during_its_revocation_is_worthless_afterwards(is_answered: bool) -> None:
    stage = Stage()
    token, text = stage.mine.create("ci", ("admin",))
    delete_token = stage.control.delete_token

    def use_and_delete(token_id: str) -> bool:
        stage.mine.authenticate(text)
        is_deleted = delete_token(token_id)
        if not is_answered:
            raise unavailable()
        return is_deleted

    stage.control.delete_token = use_and_delete  # type: ignore[method-assign]
    with nullcontext() if is_answered else pytest.raises(Unavailable):
        stage.mine.revoke(token.id)
    with pytest.raises(Unauthorized):
        stage.mine.authenticate(text)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0, 5, 60]), st.integers(0, 12_000)), max_size=8))
def test_the_newest_text_of_a_token_is_valid_in_every_process_at_once(
    rotations: list[tuple[bool, int, int]],
) -> None:
    """Also in a process that cached the token before another one rotated it."""
    stage = Stage()
    token, text = stage.mine.create("ci", ("admin",))
    maker = Caller("m", frozenset({"admin"}))
    for is_mine, overlap_seconds, wait_ms in rotations:
        processes = (stage.mine, stage.other)
        assert {process.authenticate(text).token_id for process in processes} == {token.id}
        stage.clock.advance(wait_ms)
        _, text = (stage.mine if is_mine else stage.other).rotate(token.id, overlap_seconds, maker)
    stage.other.authenticate(text)
    stage.mine.authenticate(text)


def test_a_revocation_is_felt_within_thirty_seconds_behind_the_gateway() -> None:
    [gateway] = app.app.builtin_auth_handlers
    kept_ms = (gateway.ttl_seconds or 0) * 1000
    stage = Stage()
    token, text = stage.mine.create("ci", ("admin",))
    stage.other.authenticate(text)
    stage.mine.revoke(token.id)
    stage.clock.advance(30_000 - kept_ms + 1)
    with pytest.raises(Unauthorized):
        stage.other.authenticate(text)


def test_a_text_with_a_wrong_checksum_is_refused_without_asking_the_store() -> None:
    stage = Stage()
    ids: list[str] = []
    stage.control.token = lambda token_id: ids.append(token_id)  # type: ignore[method-assign]
    checking = Tokens(cast(Any, stage.control), stage.clock, SeededRandom(3), checked=True)
    for text in ("hr_0123456789ab_" + "a" * 59, "hr_me_12345678"):
        with pytest.raises(Unauthorized):
            checking.authenticate(text)
    assert ids == []
    with pytest.raises(Unauthorized):
        checking.authenticate(f"hr_ab_{'a' * 52}{checksum('ab', 'a' * 52)}")
    assert ids == ["ab"]


def test_the_last_use_is_noted_once_an_hour_and_refuses_nobody() -> None:
    stage = Stage()
    token, text = stage.mine.create("ci", ("admin",))
    for _ in range(3):
        stage.mine.authenticate(text)
        stage.clock.advance(1_900_000)
    assert stage.mine.with_last_use(None, 1) == [
        (stage.control.token(token.id), stage.clock.now_ms() - 1_900_000)
    ]
    stage.control.note_use = _unavailable  # type: ignore[method-assign, assignment]
    stage.clock.advance(3_600_001)
    assert stage.mine.authenticate(text).token_id == token.id


def _unavailable(*_: object) -> None:
    raise unavailable()


def test_a_token_is_rotated_so_often_at_once_and_no_more() -> None:
    stage = Stage()
    token, _ = stage.mine.create("ci", ("admin",))
    maker = Caller("m", frozenset({"admin"}))
    for _ in range(MAX_OVERLAPPING_SECRETS):
        stage.mine.rotate(token.id, 60, maker)
    with pytest.raises(Refused):
        stage.mine.rotate(token.id, 60, maker)
    stage.mine.rotate(token.id, 0, maker)
    stage.mine.rotate(token.id, 60, maker)


@given(st.frozensets(names, max_size=3), patterns, patterns)
def test_what_a_pattern_covers_it_covers_whole(topics: frozenset[str], wide: str, narrow: str) -> None:
    caller = Caller("t", frozenset({"produce"}), (wide,))
    new_token = Token("n", "n", "", ("produce",), (narrow,))
    holder = Caller("n", frozenset({"produce"}), (narrow,))
    if caller.excess(new_token) is None:
        assert all(caller.may_use(topic) for topic in topics if holder.may_use(topic))


def test_the_first_admin_token_is_made_once() -> None:
    stage = Stage()
    text = stage.mine.ensure_admin(None)
    assert text is not None
    assert stage.mine.authenticate(text).scopes == {"produce", "consume", "admin"}
    assert stage.mine.ensure_admin(None) is None


def test_no_first_admin_token_is_valid_whose_text_could_not_be_kept() -> None:
    def full(text: str) -> None:
        raise OSError(text)

    stage, kept = Stage(), list[str]()
    with pytest.raises(OSError, match="hr_") as lost:
        stage.mine.ensure_admin(None, full)
    with pytest.raises(Unauthorized):
        stage.mine.authenticate(str(lost.value))
    assert [stage.mine.ensure_admin(None, kept.append)] == kept
    assert stage.mine.ensure_admin(None, full) is None


def test_a_given_admin_token_is_valid_exactly_as_given() -> None:
    stage = Stage()
    assert stage.mine.ensure_admin("hr_me_12345678") == "hr_me_12345678"
    stage.other.authenticate("hr_me_12345678")
    stage.mine.ensure_admin("hr_me_87654321")
    with pytest.raises(Unauthorized):
        stage.mine.authenticate("hr_me_12345678")
    for malformed in ("", "hr_me", "hr_me_short", "hr_me_1234 5678"):
        with pytest.raises(ValueError, match="HEADRACE_TOKEN"):
            stage.mine.ensure_admin(malformed)


ADMIN = Caller("maker", frozenset({"admin", "produce", "consume"}))


def test_a_former_text_of_a_token_is_good_until_its_overlap_ends_or_a_shorter_one() -> None:
    stage = Stage()
    token, first = stage.mine.create("ci", ("produce",))
    _, second = stage.mine.rotate(token.id, 60, ADMIN)
    fingerprint = stage.mine.fingerprint_of(first)
    stage.clock.advance(30_000)
    _, third = stage.mine.rotate(token.id, 10, ADMIN)
    stage.clock.advance(9_999)
    assert [stage.other.authenticate(text).token_id for text in (first, second, third)] == [token.id] * 3
    assert stage.mine.holder(token.id, fingerprint).id == token.id
    stage.clock.advance(1)
    for text in (first, second):
        with pytest.raises(Unauthorized):
            stage.mine.authenticate(text)
    with pytest.raises(Unauthorized, match="rotated"):
        stage.mine.holder(token.id, fingerprint)
    assert stage.mine.authenticate(third).token_id == token.id


def test_who_rotates_a_token_that_others_rotate_meanwhile_is_told() -> None:
    stage = Stage()
    token, _ = stage.mine.create("ci", ("produce",))
    stored_token = stage.control.token(token.id)
    _, text = stage.other.rotate(token.id, 0, ADMIN)
    stage.control.token = lambda token_id: stored_token  # type: ignore[method-assign]
    with pytest.raises(ChangedMeanwhile):
        stage.mine.rotate(token.id, 0, ADMIN)
    vars(stage.control).pop("token")
    assert stage.other.authenticate(text).token_id == token.id, "and theirs is good"


def test_i20_a_rotation_whose_answer_was_lost_gives_its_text_all_the_same() -> None:
    """The SDK sends it again, and the refusal that it meets is of our own success: the text is shown now or never."""
    stage = Stage()
    token, _ = stage.mine.create("ci", ("produce",))
    put_token = stage.control.put_token
    stage.control.put_token = lambda token, old: put_token(token, old) and put_token(token, old)  # type: ignore[method-assign]
    new_token, text = stage.mine.rotate(token.id, 0, ADMIN)
    assert stage.other.authenticate(text).token_id == new_token.id
