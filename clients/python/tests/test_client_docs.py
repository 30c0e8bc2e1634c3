"""What the pages show of the Python client can be called as they show it."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import Headrace, Outgoing, webhook

ROOT = Path(__file__).parents[3]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("clients/python/*.md")]
CODE = re.compile(r"^( *)```python\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:hr\.)?\w+\([^`]*\))`")
CLASSES = {name: getattr(headrace, name) for name in headrace.__all__} | {"Webhook": webhook.Webhook}


def calls(page: Path) -> Iterator[ast.Call]:
    """The calls on a page, in blocks and within sentences."""
    text = page.read_text()
    for code in [match[2] for match in CODE.finditer(text)] + INLINE.findall(text):
        try:
            tree = ast.parse(textwrap.dedent(code))
        except SyntaxError:  # only a part, or with an ellipsis
            continue
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def signature(call: ast.Call) -> tuple[str, inspect.Signature] | None:
    """What of ours is called: a class, or a method of the client."""
    target: Callable[..., Any] | None = None
    match call.func:
        case ast.Name(name):
            target = CLASSES.get(name)
        case ast.Attribute(ast.Name("hr"), name):
            target = getattr(Headrace("http://127.0.0.1", "hr_x"), name)
    return (name, inspect.signature(target)) if target is not None else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_shows_calls_that_the_client_takes(page: Path) -> None:
    for call in calls(page):
        ours = signature(call)
        is_starred = any(isinstance(each, ast.Starred) for each in call.args)
        if ours is None or is_starred or any(keyword.arg is None for keyword in call.keywords):
            continue
        name, parameters = ours
        try:
            parameters.bind(*call.args, **{str(keyword.arg): keyword for keyword in call.keywords})
        except TypeError as error:
            raise AssertionError(f"{name}{parameters}: {error}: {ast.unparse(call)}") from None


def test_a_message_is_made_of_its_body_by_position() -> None:
    assert Outgoing({"order": 1}, ordering_key="customer-7").body == {"order": 1}
