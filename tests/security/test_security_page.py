"""The tables of docs/security.md are made of the code. `HEADRACE_WRITE_PAGES=1 pytest` on this file writes them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType

import pytest

from chalicelib.api import resources
from chalicelib.api.audit import is_audited
from chalicelib.api.calls import CALLS, Call
from infra import names, roles

PAGE = Path("docs/security.md")
SCOPES = ("produce", "consume", "admin")
_NAMED = ("topic", "into", "group", "consumer", "on_dead", "on_success")
assert resources


def calls() -> Iterable[str]:
    """Which scope may make which call, and which calls leave an entry in the audit trail."""
    yield "| call | produce | consume | admin | audited |"
    yield "|---|---|---|---|---|"
    for entry in sorted(CALLS, key=lambda entry: (entry.path, entry.method)):
        may = (
            ["yes" if scope in entry.scopes else "" for scope in SCOPES] if entry.scopes else ["no token"] * 3
        )
        cells = [f"`{entry.method} {entry.path}`", *may, "yes" if is_audited(entry) else ""]
        yield "| " + " | ".join(cells) + " |"


def functions() -> Iterable[str]:
    """What each function's role may do with which part of the table of control data."""
    yield "| function | calls hosts of others | topics | groups, consumers | tokens | signing key |"
    yield "|---|---|---|---|---|---|"
    for name in names.FUNCTIONS:
        tables = roles._TABLES[name]
        whole = tables.get("control", "")
        parts = [
            tables.get(f"control#{part}", whole) for part in ("topics", "topic", "tokens", "signing-key")
        ]
        calls_others = "yes" if name in ("deliver", "check", "assign") else ""
        yield "| " + " | ".join([f"`{name}`", calls_others, *map(_in_words, parts)]) + " |"


def secrets() -> Iterable[str]:
    """What each function's role may do with which kind of secret."""
    yield "| function | subscribers' secrets | callbacks' secrets | signing key |"
    yield "|---|---|---|---|"
    columns = ("subscriber", "callback", "signing-key")
    for name in names.FUNCTIONS:
        if kinds := roles._SECRETS.get(name):
            cells = [kinds.get(kind, "").lower().replace(" ", ", ") for kind in columns]
            yield "| " + " | ".join([f"`{name}`", *cells]) + " |"


def unseen() -> Iterable[str]:
    """What a call reaches that its path does not name, so that no policy of IAM can limit it."""
    yield "| call | what a policy does not see |"
    yield "|---|---|"
    for entry in sorted(CALLS, key=lambda entry: (entry.path, entry.method)):
        if entry.scopes and (reasons := list(_reaches(entry))):
            yield f"| `{entry.method} {entry.path}` | {'; '.join(reasons)} |"


def _reaches(entry: Call) -> Iterable[str]:
    body = [field for field in getattr(entry.body, "__struct_fields__", ()) if field in _NAMED]
    for place, names_in in (("body", body), ("query", [name for name in entry.query if name in _NAMED])):
        if names_in:
            yield f"{', '.join(f'`{name}`' for name in names_in)} in the {place}"
    if entry.path.startswith(("/v1/transactions/", "/v1/replays/", "/v1/schedules/{")):
        yield "of which topic the id is"
    elif "{topic}" not in entry.path and "{name}" not in entry.path:
        yield "all of the stage"


def _in_words(actions: str) -> str:
    words = {"read": {"GetItem", "Query"}, "write": {"PutItem", "UpdateItem"}, "delete": {"DeleteItem"}}
    return ", ".join(word for word, of in words.items() if of & set(actions.split()))


@pytest.mark.parametrize("table", [calls, unseen, functions, secrets], ids=lambda table: table.__name__)
def test_a_table_is_what_the_code_says(table: FunctionType) -> None:
    name = table.__name__
    begin, end = f"<!-- {name}: made by tests/security/test_security_page.py -->\n", f"<!-- end of {name} -->"
    lines = "\n".join(table()) + "\n"
    text = PAGE.read_text()
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if os.environ.get("HEADRACE_WRITE_PAGES"):
        PAGE.write_text(f"{before}{begin}\n{lines}\n{end}{after}")
        return
    assert text == f"{before}{begin}\n{lines}\n{end}{after}", "run this file with HEADRACE_WRITE_PAGES=1"
