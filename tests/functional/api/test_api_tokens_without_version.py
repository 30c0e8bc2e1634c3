"""A token that release 0.1.0 stored: without a version. It can be replaced, and is not made anew once it is revoked."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.store.control import Control
from chalicelib.store.control_rows import Key, TokenRow
from tests.support.background import Background
from tests.support.factories import token
from tests.support.planting import Bug


def test_a_token_without_a_version_is_replaced_once_and_stays_revoked(services: Background) -> None:
    control: Any = services.deps.adapters.control
    old = token("of0")
    control._put(TokenRow.of(Key("tokens", old.id), old))
    stored_token = control.token(old.id)
    assert control.put_token(old, stored_token)
    assert not control.put_token(old, stored_token), "it has a version by now"
    control.delete_token(old.id)
    assert not control.put_token(old, stored_token)
    assert control.token(old.id) is None


def test_starting_with_such_a_token_ends(services: Background) -> None:
    control: Any = services.deps.adapters.control
    text = "hr_of1_secretsecret"
    control._put(TokenRow.of(Key("tokens", "of1"), token("of1")))
    assert services.deps.tokens.ensure_admin(text) == text


BUGS = {
    "a repair that makes a revoked token anew": Bug(
        Control,
        "put_token",
        'put_item", row.get_save_kwargs_from_instance(condition=TokenRow.pk.exists())',
        'put_item", {"Item": row.serialize()}',
    ),
    "a token of the first release that nobody can change": Bug(
        Control, "put_token", "old is None or old.version", "True"
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, services: Background, name: str) -> None:
    BUGS[name].plant(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_token_without_a_version_is_replaced_once_and_stays_revoked(services)
