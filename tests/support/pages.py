"""Pages whose commands are run: every block marked `sh`, compared with the block of output that follows it.

A block marked `console` is only shown. In an output `…` stands for any text, in JSON for any other fields or elements;
neither white space nor the order of fields counts.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CHANGES = re.compile(r"-X|&$|\bcall (?!GET)|=\$\(|\bkill\b", re.MULTILINE)
ANY = "…"
_PATIENCE_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.2


@dataclass(frozen=True)
class Command:
    """A block of commands, and what the page says that they print ("" if it says nothing)."""

    text: str
    output: str = ""

    @property
    def is_a_look(self) -> bool:
        """It changes nothing, so a reader may repeat it until the answer is as expected."""
        return not _CHANGES.search(self.text)


def commands_of(page: str) -> list[Command]:
    """The blocks of a page that its reader types, in order."""
    commands: list[Command] = []
    end = -1
    for block in _BLOCK.finditer(page):
        if block["kind"] == "sh":
            commands.append(Command(block["text"]))
        elif block["kind"] in ("json", "text") and commands and not page[end : block.start()].strip():
            commands[-1] = Command(commands[-1].text, block["text"])
        end = block.end()
    return commands


def agrees(expected: str, output: str) -> bool:
    """Whether an output is as the page says: its JSON documents where the page has any, else its text."""
    if expected.lstrip().startswith("{"):
        documents = iter(_documents(output))
        return all(
            any(matches(page, answer) for answer in documents) for page in _documents(_closed(expected))
        )
    return _is_like(expected, output)


def matches(page: Any, answer: Any) -> bool:
    """Whether a JSON value is as the page shows it: fields in any order, and where it has `…`, more of them."""
    if isinstance(page, dict):
        if not isinstance(answer, dict) or not (ANY in page or page.keys() == answer.keys()):
            return False
        return all(name in answer and matches(page[name], answer[name]) for name in page.keys() - {ANY})
    if isinstance(page, list):
        if not isinstance(answer, list) or not (ANY in page or len(page) == len(answer)):
            return False
        rest = iter(answer)
        return all(any(matches(item, other) for other in rest) for item in page if item != ANY)
    return (
        _is_like(page, answer) if isinstance(page, str) and isinstance(answer, str) else bool(page == answer)
    )


def _is_like(expected: str, text: str) -> bool:
    """Whether the pieces between `…` stand in the text in their order."""
    rest = "".join(text.split())
    for piece in "".join(expected.split()).split(ANY):
        place = rest.find(piece)
        if place < 0:
            return False
        rest = rest[place + len(piece) :]
    return True


def _closed(page: str) -> str:
    """The page's JSON as JSON: `…` alone becomes a field or an element of that name."""
    written, inside = "", ""
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|.', page, re.DOTALL):
        inside = inside + token if token in "{[" else inside[:-1] if token in "}]" else inside
        field = f'"{ANY}": ""' if inside.endswith("{") else f'"{ANY}"'
        written += field if token == ANY else token
    return written


def _documents(text: str) -> list[Any]:
    """The JSON objects that begin a line."""
    decoder = json.JSONDecoder()
    documents, end = [], 0
    for start in (match.start() for match in re.finditer(r"^\{", text, re.MULTILINE)):
        if start >= end:
            document, end = decoder.raw_decode(text, start)
            documents.append(document)
    return documents


class Shell:
    """A reader's shell: what one block sets, the next one has."""

    def __init__(self, folder: Path, environment: Mapping[str, str], addresses: Mapping[str, str]) -> None:
        """`addresses`: what is written in the pages → what to use instead."""
        self._addresses = addresses
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={name: text for name, text in os.environ.items() if not name.startswith("HEADRACE_")}
            | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.run("set -m")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run("kill $(jobs -p) 2>/dev/null; true")
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def follow(self, command: Command) -> None:
        """Type a block and compare. AssertionError: it fails, or prints something else."""
        command = Command(self._here(command.text), self._here(command.output))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        status, output = self.run(command.text)
        while (
            command.is_a_look and not agrees(command.output, output) and time.monotonic() < deadline
        ):  # as a reader looks again
            time.sleep(_LOOK_AGAIN_SECONDS)
            status, output = self.run(command.text)
        assert status == 0, f"{command.text}\nfailed with {status}:\n{output}"
        assert agrees(command.output, output), f"{command.text}\nprinted\n{output}\nnot\n{command.output}"

    def _here(self, text: str) -> str:
        for written, used in self._addresses.items():
            text = text.replace(written, used)
        return text

    def run(self, text: str) -> tuple[int, str]:
        """Exit status and output of some lines."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{text}\nprintf '\\n=== %s\\n' $?\n")
        self._process.stdin.flush()
        output = ""
        for line in self._process.stdout:
            # A background job may write its line in two pieces, and this one between them.
            if match := re.fullmatch(r"(.*)=== (\d+)\n", line):
                return int(match[2]), output + match[1]
            output += line
        raise AssertionError(f"{text}\nended the shell:\n{output}")
