"""An attacker who has a function's role, and with it all that the role allows: what stays out of reach."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from infra import names
from tests.support import factories as make
from tests.support.day import a_world
from tests.support.roles import PREFIX, Guard, at_work

TABLE = f"arn:aws:dynamodb:us-east-1:000000000000:table/{PREFIX}-control"
TALKERS = ("deliver", "check", "assign")
"""The functions that call hosts of others."""


@pytest.mark.parametrize(
    "action", ["GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "Scan"]
)
def test_of_control_data_each_role_has_only_its_partitions(action: str) -> None:
    def holders(partition: str) -> set[str]:
        everybody = {
            name: guard.allowed(name, f"dynamodb:{action}", f"{TABLE}#{partition}")
            for name in names.FUNCTIONS
        }
        return {name for name, grants in everybody.items() if grants} - {names.API}

    guard = Guard()
    assert holders("tokens") == ({names.AUTHORIZE} if action == "GetItem" else set())
    assert holders("stage") == ({"check"} if action == "GetItem" else set())
    assert holders("retired") == holders("replays#x") == set()
    if action in ("PutItem", "UpdateItem", "DeleteItem"):
        assert holders("topics") == set()
        assert holders("topic#x") == ({"deliver", "assign"} if action == "PutItem" else set())


def test_who_calls_hosts_of_others_makes_no_token_and_no_key(engine: str, tmp_path: Path) -> None:
    with a_world(Guard(), tmp_path) as world:
        token = world.api.post("/v1/tokens", {"name": "t", "scopes": ["produce"]}).expect(201)
        thefts: dict[str, Callable[[], object]] = {
            "make a token": lambda: world.deps.tokens.create("mine", ("admin",)),
            "look at a token": lambda: world.deps.tokens.authenticate(token["token"]),
            "list tokens": lambda: world.deps.tokens.with_last_use(None, 10),
            "revoke a token": lambda: world.deps.tokens.revoke(token["id"]),
            "set up a topic": lambda: world.adapters.control.put_topic(make.topic("mine"), None),
            "read the signing key": lambda: world.deps.signing_key,
        }
        # What `check` asks is signed with what is made of the key.
        tries = [each for each in product(TALKERS, thefts) if each != ("check", "read the signing key")]
        for function, name in tries:
            with at_work(function), pytest.raises(ClientError, match="not authorized"):
                thefts[name]()
        print(f"{len(tries)} tries with stolen roles, all denied")
