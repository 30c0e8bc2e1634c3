"""What the commands print: tables for people, one JSON document a line for programs. Messages go to standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TextIO

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..models import Answer, plain

_PLAIN_WIDTH = 240
_BODY_CHARS = 80
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # all but ends of lines


class ReaderGoneError(Exception):
    """The reader of standard output is gone. No BrokenPipeError: the parser and rich would make an exit code 1 of it,
    which means here that the service refuses."""


class Pipe:
    """Standard output, which says so."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            raise ReaderGoneError from None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise ReaderGoneError from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def failure(error: str | None, answer: Answer | None) -> str:
    """What went wrong with an attempt, with what the subscriber said about it."""
    return f"{error}: {' '.join(answer.text.split())}" if error and answer else error or ""


class Output:
    """Standard output and standard error."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.out = _console(sys.stdout)
        self.err = _console(sys.stderr, stderr=True)

    def document(self, value: Any) -> None:
        """One JSON document on a line of its own."""
        sys.stdout.write(msgspec.json.encode(plain(value)).decode() + "\n")
        sys.stdout.flush()

    def one(self, value: Any, fields: Iterable[tuple[str, Any]]) -> None:
        """A thing: its JSON, or names and values."""
        if self.as_json:
            self.document(value)
            return
        table = Table.grid(padding=(0, 2))
        for name, each in fields:
            if each not in (None, "", [], {}):
                table.add_row(f"[dim]{name}[/dim]", visible(text(each)))
        self.out.print(table)

    def did(self, what: str, message: str) -> None:
        """Something was done to one thing: its JSON, or a sentence."""
        if self.as_json:
            self.document({what: 1})
        else:
            self.say(message)

    def many(self, columns: Sequence[str], rows: Iterable[tuple[Any, Sequence[Any]]], nothing: str) -> None:
        """A list: a JSON document for each thing as it comes, or a table of their cells; `nothing` if there is none."""
        if self.as_json:
            for value, _ in rows:
                self.document(value)
            return
        table = table_of(columns, (cells for _, cells in rows))
        if table.row_count:
            self.out.print(table)
        else:
            self.say(nothing)

    def say(self, message: str) -> None:
        """Something for people, beside the result."""
        self.err.print(visible(message))

    def fail(self, message: str) -> None:
        """What went wrong."""
        self.err.print(f"[bold red]error:[/bold red] {visible(message)}")

    def progress(self) -> Progress:
        """A counter on standard error, on a terminal."""
        columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self.err, transient=True, disable=not self.err.is_terminal)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table with a line for each row."""
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for cells in rows:
        table.add_row(*(visible(text(cell)) for cell in cells))
    return table


def number_of(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    nouns = f"{noun.removesuffix('y')}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else nouns}"


def visible(value: str) -> str:
    """A value of others for a terminal, which would obey control characters, and rich its own marks."""
    return escape(_CONTROL.sub(lambda match: repr(match[0])[1:-1], value))


def text(value: Any) -> str:
    """A value as a cell."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(text(each) for each in value)
    return str(value) if isinstance(value, str | int | float) else msgspec.json.encode(value).decode()


def short(body: Any) -> str:
    """A body on one line."""
    text = repr(body) if isinstance(body, bytes) else msgspec.json.encode(body).decode()
    return text if len(text) <= _BODY_CHARS else text[: _BODY_CHARS - 1] + "…"


def _console(stream: Any, stderr: bool = False) -> Console:
    """Nothing is cut where no terminal sets the width."""
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else _PLAIN_WIDTH)
