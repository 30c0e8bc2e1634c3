"""Wiring finds a constructor's arguments by the names of its parameters. mypy does not see that, so their types are
compared here."""

from __future__ import annotations

import inspect

import pytest

from chalicelib.adapters import Adapters, SystemClock, SystemRandom
from chalicelib.wiring import Deps
from tests.support.embedded import embedded_adapters

TYPES = Adapters.__annotations__ | Deps.__annotations__


@pytest.fixture(scope="module")
def deps() -> Deps:
    return Deps(embedded_adapters(SystemClock(), SystemRandom()))


@pytest.mark.parametrize(
    "name", [name for name, made in vars(Deps).items() if getattr(made, "given", None) is not None]
)
def test_a_service_gets_what_its_constructor_asks_for(name: str, deps: Deps) -> None:
    parameters = inspect.signature(type(getattr(deps, name))).parameters.values()
    given = vars(Deps)[name].given
    found = {p.name: p.annotation for p in parameters if p.name not in given and p.default is p.empty}
    found = {name: kind for name, kind in found.items() if not inspect.isfunction(vars(Deps).get(name))}
    assert found == {name: TYPES[name].removeprefix("store.") for name in found}
