"""The rights in IAM's policies and the functions' roles, also for a thief of their credentials."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from chalicelib.api import resources
from chalicelib.api.calls import CALLS
from chalicelib.domain.errors import Unavailable
from infra import names
from tests.support import factories as make
from tests.support.day import a_world
from tests.support.roles import PREFIX, Guard, at_work

PAGE = Path("docs/security.md").read_text()
SECTION = PAGE.partition("## Callers inside AWS")[2].partition("\n## ")[0]
HERE = {"topic": "orders", "group": "mailer", "consumer": "me", "name": "jmq", "id": "some-id", "job": "j"}
HERE["schedule"] = "daily"
ELSEWHERE = {**HERE, "topic": "payroll", "group": "bank"}
OTHER_GROUP = {**HERE, "group": "bank"}
GUARDED = [entry for entry in CALLS if entry.scopes]
assert resources


def documented() -> dict[str, list[str]]:
    """Each policy's resources behind `<api>/api/`, by what it is for."""
    table = SECTION.partition("| to allow |")[2].partition("\n\n")[0]
    rows = (line.split("|") for line in table.splitlines()[2:])
    return {cells[1].strip(): re.findall(r"`([^`]+)`", cells[2]) for cells in rows}


def allows(resources: Iterable[str], method: str, path: str) -> bool:
    """As IAM matches: `*` is any text, slashes too; `?` one character."""
    route = f"{method}{path}"
    patterns = (re.escape(each).replace(r"\*", ".*").replace(r"\?", ".") for each in resources)
    return any(re.fullmatch(pattern, route) for pattern in patterns)


def allowed(resources: Iterable[str], names: dict[str, str]) -> set[str]:
    """The calls that a policy allows, where paths name these."""
    arns = list(resources)
    return {
        f"{entry.method} {entry.path}"
        for entry in GUARDED
        if allows(arns, entry.method, entry.path.format(**names))
    }


G, T = "/v1/topics/{topic}/groups/{group}", "/v1/topics/{topic}"
MEANT = {
    "produce to `orders`": {f"POST {T}/messages", f"POST {T}/messages/batch", "POST /v1/publish/{topic}"},
    "prepare, commit, roll back": {
        f"POST {T}/transactions",
        "POST /v1/transactions/{id}/commit",
        "POST /v1/transactions/{id}/rollback",
    },
    "put and delete jobs": {f"PUT {T}/jobs/{{job}}", f"DELETE {T}/jobs/{{job}}"},
    "pull as the group `mailer`": {
        *(f"POST {G}/{verb}" for verb in ("receive", "ack", "nack", "extend")),
        f"POST {G}/consumers/{{consumer}}/heartbeat",
    },
    "register push consumers": {f"PUT {G}/consumers/{{consumer}}", f"DELETE {G}/consumers/{{consumer}}"},
    "edit and redrive dead letters": {
        f"{entry.method} {entry.path}" for entry in GUARDED if entry.path.startswith(f"{G}/dead-letters")
    },
    "read a topic": {
        f"GET {entry.path}" for entry in GUARDED if entry.method == "GET" and entry.path.startswith(T)
    },
    "set up topics and groups": {
        f"{entry.method} {entry.path}"
        for entry in GUARDED
        if entry.method in ("PUT", "DELETE") and entry.path.startswith(T)
    },
    "administer": {f"{entry.method} {entry.path}" for entry in GUARDED},
}
BY_ID = {"POST /v1/transactions/{id}/commit", "POST /v1/transactions/{id}/rollback"}
WIDE = {"set up topics and groups", "administer"}


def test_every_documented_policy_is_evaluated() -> None:
    assert documented().keys() == MEANT.keys()


@pytest.mark.parametrize("name", MEANT)
def test_a_policy_allows_what_it_is_for_and_nothing_else(name: str) -> None:
    resources = documented()[name]
    assert allowed(resources, HERE) == MEANT[name], resources


@pytest.mark.parametrize("name", sorted(MEANT.keys() - WIDE))
def test_a_policy_for_a_topic_and_a_group_reaches_no_other(name: str) -> None:
    resources = documented()[name]
    assert allowed(resources, ELSEWHERE) <= BY_ID
    of_group = {call for call in allowed(resources, OTHER_GROUP) if "{group}" in call}
    assert of_group == (
        {call for call in MEANT[name] if "{group}" in call} if name == "read a topic" else set()
    )


def test_the_denial_takes_away_every_call_that_reaches_further_than_its_path_names_a_topic() -> None:
    [text] = re.findall(r"```json\n(.*?)```", SECTION, re.DOTALL)
    statement = json.loads(text)
    assert (statement["Effect"], statement["Action"]) == ("Deny", "execute-api:Invoke")
    denied_routes = [each.partition("<api>/api/")[2] for each in statement["Resource"]]
    unseen_part = SECTION.partition("<!-- unseen")[2]
    reasons = dict(re.findall(r"^\| `(\S+ \S+)` \| (.*) \|$", unseen_part, re.MULTILINE))
    of_a_topic = {
        call
        for call, why in reasons.items()
        if "/{topic}" in call and re.search("`(group|consumer|on_dead)`", why)
    }
    denied_calls = {call for call in reasons if call in allowed(denied_routes, HERE)}
    assert reasons.keys() - denied_calls <= of_a_topic
    # A policy for a topic's calls is often older than its purge.
    assert allowed(denied_routes, HERE) <= reasons.keys() | {"POST /v1/topics/{topic}/purge"}


TABLE = f"arn:aws:dynamodb:us-east-1:000000000000:table/{PREFIX}-control"
TALKERS = ("deliver", "check", "assign")
"""The functions that call hosts of others."""
MAY = {
    "check": {"read the signing key"},  # what it asks is signed with what is made of the key
    names.RECEIVE: {"read the signing key"},
    names.RECEIVE_URL: {"look at a token", "read the signing key"},
    # The first call that needs the key makes it.
    names.API_URL: {"look at a token", "set up a topic", "read the signing key", "replace the signing key"},
}


def test_of_rates_each_role_changes_only_the_accounts_that_it_uses() -> None:
    def holders(account: str, action: str = "UpdateItem") -> set[str]:
        place = f"{TABLE.replace('control', 'rates')}#{account}"
        everybody = {name for name in names.FUNCTIONS if guard.allowed(name, f"dynamodb:{action}", place)}
        return everybody - {names.API, names.API_URL, "mover"}

    guard, receives = Guard(), {names.RECEIVE, names.RECEIVE_URL}
    assert holders("group#g#10") == receives | {"deliver"}
    assert holders("token#t") == receives
    assert holders("handshakes#host") == {"check", "assign", "deliver"}  # before callbacks
    assert holders("uid-of-a-topic") == set()
    assert holders("group#g#10", "PutItem") == holders("group#g#10", "DeleteItem") == set()


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
    is_read, is_put = action == "GetItem", action == "PutItem"
    rows = {names.API_URL} if action in ("GetItem", "Query", "PutItem", "DeleteItem") else set()
    receives = {names.RECEIVE, names.RECEIVE_URL}
    assert holders("tokens") == ({names.AUTHORIZE, *names.URLS} if is_read else set())
    assert holders("stage") == (
        {"check", *receives, names.API_URL} if is_read else {names.API_URL} if is_put else set()
    )
    assert holders("retired") == rows
    assert holders("replays#x") == (rows if action != "DeleteItem" else set())
    if action in ("PutItem", "UpdateItem", "DeleteItem"):
        assert holders("topics") == rows
        assert holders("topic#x") == ({"deliver", "assign", *receives, *rows} if is_put else rows)


def test_who_calls_hosts_of_others_or_has_another_door_makes_no_token(engine: str, tmp_path: Path) -> None:
    with a_world(Guard(), tmp_path) as world:
        assert world.api.topic().group().receive() == [], "the key is there, which this may not make"
        token = world.api.post("/v1/tokens", {"name": "t", "scopes": ["produce"]}).expect(201)
        thefts: dict[str, Callable[[], object]] = {
            "make a token": lambda: world.deps.tokens.create("mine", ("admin",)),
            "look at a token": lambda: world.deps.tokens.authenticate(token["token"]),
            "list tokens": lambda: world.deps.tokens.with_last_use(None, 10),
            "revoke a token": lambda: world.deps.tokens.revoke(token["id"]),
            "rotate a token": lambda: world.deps.tokens.rotate(token["id"], 0, None),
            "read the audit trail": lambda: next(world.deps.adapters.audit.entries(0, 2**43, None)),
            "replace the signing key": lambda: world.deps.signing_keys.rotate(0),
            "set up a topic": lambda: world.adapters.control.put_topic(make.topic("mine"), None),
            "read the signing key": lambda: world.deps.signing_key,
        }
        tries = [each for each in product((*TALKERS, *MAY), thefts) if each[1] not in MAY.get(each[0], ())]
        for function, name in tries:
            with at_work(function), pytest.raises((ClientError, Unavailable), match=r"not authorized|KMS"):
                thefts[name]()
        print(f"{len(tries)} tries with stolen roles, all denied")
