"""Pages whose commands are run: every block marked `sh`, compared with the block of output that follows it.

A block marked `console` is only shown. In an output `…` means any text, in JSON for any other fields or elements;
neither white space nor the order of fields counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
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
_LOOK_AGAIN_SECONDS = 0.2
_PIPE_BYTES = 1 << 20  # as much as a pipe can hold


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
            any(matches(page, answer) for answer in documents) for page in _documents(_as_json(expected))
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


def _as_json(page: str) -> str:
    """The page's JSON as JSON: `…` alone becomes a field or an element of that name."""
    pattern, inside = "", ""
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|.', page, re.DOTALL):
        inside = inside + token if token in "{[" else inside[:-1] if token in "}]" else inside
        field = f'"{ANY}": ""' if inside.endswith("{") else f'"{ANY}"'
        pattern += field if token == ANY else token
    return pattern


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
    """A reader's shell: what one block sets, the next one has. It waits `patience_seconds` for the end of a block."""

    patience_seconds = 60.0

    def __init__(self, folder: Path, environment: Mapping[str, str], addresses: Mapping[str, str]) -> None:
        """`addresses`: what is written in the pages → what to use instead."""
        self._addresses = addresses
        # Statuses have a pipe of their own: among the output, a background job's line could come between.
        self._statuses, status_pipe = os.pipe()
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={name: text for name, text in os.environ.items() if not name.startswith("HEADRACE_")}
            | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(status_pipe,),
            start_new_session=True,
        )
        os.close(status_pipe)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._tell = f"echo $? >&{status_pipe}"
        self.run("set -m")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        os.close(self._statuses)

    def _end(self) -> None:
        """End the shell and its jobs, each of which is a process group of its own."""
        self._process.kill()
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                _, _, fields = stat.read_text().rpartition(")")
                if int(fields.split()[3]) == self._process.pid:
                    os.kill(int(stat.parent.name), signal.SIGKILL)
        self._process.wait()
        self._stdin.close()
        self._stdout.close()

    def follow(self, command: Command) -> None:
        """Type a block and compare. AssertionError: it fails, or prints something else."""
        command = Command(self._with_addresses(command.text), self._with_addresses(command.output))
        deadline = time.monotonic() + self.patience_seconds
        status, output = self.run(command.text)
        while (
            command.is_a_look and not agrees(command.output, output) and time.monotonic() < deadline
        ):  # as a reader looks again
            time.sleep(_LOOK_AGAIN_SECONDS)
            status, output = self.run(command.text)
        assert status == 0, f"{command.text}\nfailed with {status}:\n{output}"
        assert agrees(command.output, output), f"{command.text}\nprinted\n{output}\nnot\n{command.output}"

    def _with_addresses(self, text: str) -> str:
        for name, address in self._addresses.items():
            text = text.replace(name, address)
        return text

    def run(self, text: str) -> tuple[int, str]:
        """Exit status and output of some lines. AssertionError: they end the shell, or have no end."""
        self._stdin.write(f"{text}\n{self._tell}\n".encode())
        self._stdin.flush()
        output, status = b"", b""
        deadline = time.monotonic() + self.patience_seconds
        while not status:
            trouble = self._trouble(deadline)
            both = [self._stdout.fileno(), self._statuses]
            ready, _, _ = select.select(both, [], [], _LOOK_AGAIN_SECONDS)
            status += os.read(self._statuses, _PIPE_BYTES) if self._statuses in ready else b""
            output += self._output_so_far()
            if trouble and not status:
                self._end()
                raise AssertionError(f"{text}\n{trouble}:\n{output.decode()}")
        return int(status), output.decode()

    def _trouble(self, deadline: float) -> str:
        if self._process.poll() is not None:
            return "ended the shell"
        return "has no end" if time.monotonic() > deadline else ""

    def _output_so_far(self) -> bytes:
        """What is there by now."""
        ready, _, _ = select.select([self._stdout], [], [], 0)
        return os.read(self._stdout.fileno(), _PIPE_BYTES) if ready else b""
