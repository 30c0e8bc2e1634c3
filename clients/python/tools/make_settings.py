"""Makes the tables of docs/settings.md, and the client's types of settings, of the table of settings
(chalicelib/domain/settings.py).

make settings
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from types import NoneType
from typing import get_args, get_type_hints

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from chalicelib.domain.ladder import EXPONENTIAL, NAMED, Retry  # noqa: E402
from chalicelib.domain.settings import Destination, GroupSettings, Setting, TopicSettings, rows_of  # noqa: E402

PAGE = ROOT / "docs" / "settings.md"
MODULE = ROOT / "clients" / "python" / "src" / "headrace" / "models" / "settings.py"
_HEAD = '''"""The settings of topics and groups. Made by `make settings` of the service's table: change that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, TypedDict

from .base import Model

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

__all__ = [
    "Callbacks",
    "CallbacksFields",
    "Destination",
    "DestinationFields",
    "GroupFields",
    "GroupSettings",
    "RetryFields",
    "RetryPolicy",
    "TopicFields",
    "TopicSettings",
    "Unpack",
]


'''
_CLASSES = '''class Callbacks(Model, frozen=True, kw_only=True):
    """The hosts that a message's `callback_url` may name."""

    hosts: list[str]


class CallbacksFields(TypedDict):
    """What `callbacks` takes."""

    hosts: Sequence[str]


class Destination(Model, frozen=True, kw_only=True):
    """Where messages about a group's messages go."""

    topic: str
    include_body: bool = False


class DestinationFields(TypedDict, total=False):
    """What `on_dead` and `on_success` take: a topic, and whether its messages include bodies."""

    topic: str
    include_body: bool


'''


def page() -> str:
    """docs/settings.md with its tables as they should be."""
    text = PAGE.read_text()
    for title, settings in (("A topic", TopicSettings), ("A group", GroupSettings)):
        start = text.index("\n| setting |", text.index(f"\n## {title}\n")) + 1
        lines = [
            "| setting | default | values | meaning |",
            "|---|---|---|---|",
            *map(_line, rows_of(settings)),
        ]
        text = text[:start] + "\n".join(lines) + text[text.index("\n\n", start) :]
    return text


def _line(row: Setting) -> str:
    values = ""
    if row.choices:
        values = ", ".join(f'"{choice}"' for choice in row.choices)
    elif row.given in (int, float):
        values = f"{_bound(row.least)} to {row.most:,}"
    elif row.given is bool:
        values = "true, false"
    elif row.given is list:
        values = f"up to {row.most}"
    elif row.given is Destination:
        values = '`{"topic": "…", "include_body": false}`'
    elif row.given is dict:
        values = '`{"hosts": ["…"]}`'
    cells = (f"`{row.name}`", row.usual or _default(row.default), values, row.help)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _bound(value: int | float | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def _default(value: object) -> str:
    if isinstance(value, str | bool):
        return json.dumps(value)
    if isinstance(value, tuple):
        return json.dumps(value)
    return f"{value:,}" if isinstance(value, int) else "null"


def module() -> str:
    """The client's types of settings."""
    parts = [_HEAD, _CLASSES, *_retry()]
    for name, settings in (("Topic", TopicSettings), ("Group", GroupSettings)):
        rows = rows_of(settings)
        rename = {row.field: row.name for row in rows if row.field != row.name and row.name == "from"}
        renamed = f", rename={rename!r}".replace("'", '"') if rename else ""
        parts += [
            f"\n\nclass {name}Settings(Model, frozen=True, kw_only=True{renamed}):\n",
            f'    """A {name.lower()}\'s settings, as answers show them."""\n\n',
            *(f"    {_field(row)}: {_shown(row)}\n" for row in rows),
            f"\n\nclass {name}Fields(TypedDict, total=False):\n",
            f'    """What `put_{name.lower()}` takes."""\n\n',
            *(f"    {row.name}: {_given(row)}\n{_doc(row)}" for row in rows if row.name != "from"),
        ]
    return "".join(parts)


def _retry() -> Iterator[str]:
    always = {"max_attempts": "int", "ladder": "str | list[int]", "jitter": "float"}
    choices = {
        "ladder": f"{_literal((*NAMED, EXPONENTIAL))} | Sequence[int]",
        "steps_from": _literal(("failure", "start")),
    }
    kinds = get_type_hints(Retry)
    yield "class RetryPolicy(Model, frozen=True, kw_only=True):\n"
    yield '    """How failed deliveries are retried, as answers show it."""\n\n'
    yield from (
        f"    {name}: {always.get(name) or f'{kinds[name].__name__} | None = None'}\n" for name in kinds
    )
    yield "\n\nclass RetryFields(TypedDict, total=False):\n"
    yield '    """What `retry` takes; what is not given stays as it is. A `ladder` of numbers: waits in seconds."""\n\n'
    yield from (f"    {name}: {choices.get(name) or kinds[name].__name__}\n" for name in kinds)


def _field(row: Setting) -> str:
    return row.field if row.name == "from" else row.name


def _shown(row: Setting) -> str:
    of = {Retry: "RetryPolicy", list: "list[str]", dict: "Callbacks"}.get(row.given, row.given.__name__)
    return f"{of} | None = None" if NoneType in get_args(row.type) and row.given is not str else of


def _given(row: Setting) -> str:
    kinds = {
        Retry: "RetryFields",
        Destination: "DestinationFields",
        dict: "CallbacksFields",
        list: "Sequence[str]",
    }
    of = kinds.get(row.given, row.given.__name__)
    if row.choices:
        of = _literal(row.choices)
    return f"{of} | None" if row.nullable else of


def _literal(choices: Sequence[str]) -> str:
    return f"Literal[{', '.join(map(repr, choices))}]".replace("'", '"')


def _doc(row: Setting) -> str:
    text = "\n    ".join(wrap(f'"""{row.plain_help}"""', 112))
    return f"    {text}\n"


def main() -> None:
    for path, text in ((PAGE, page()), (MODULE, module())):
        path.write_text(text)
        print(f"{path.relative_to(ROOT)} is made.")


if __name__ == "__main__":
    main()
