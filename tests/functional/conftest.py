"""Functional tests run under the roles that the functions have on AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.roles import Guard, guarded


@pytest.fixture(scope="session", autouse=True)
def guard() -> Iterator[Guard]:
    """What the functions' roles allow, enforced on every client made from here on."""
    with guarded(Guard()) as guard:
        yield guard


@pytest.fixture(autouse=True)
def _nothing_is_denied(guard: Guard) -> Iterator[None]:
    """A denial may be swallowed, as any fault of the store's may: so it is looked for."""
    before = len(guard.denied)
    yield
    assert guard.denied[before:] == []
