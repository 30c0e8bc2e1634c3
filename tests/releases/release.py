"""A release at work: it answers requests and runs functions, at the time it is told, on the tables it is told.

This file runs in the tree of any release, for it uses only what each of them has: the app, its gateway, and the ports'
way in. `Here` is the release of this tree; `There` is another one in a process of its own, which speaks JSON by lines.
"""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]
Request = Mapping[str, Any]
CheckAnswer = dict[str, Any]


class Release(Protocol):
    """Answers {"at_ms", "http": [method, path, body]} or {"at_ms", "run": function, "event"} with what came of it, the
    functions that were started, [group, consumer, message's body, attempt, whether it succeeded] for each attempt, and
    the time it was when it ended."""

    def answer(self, request: Request) -> CheckAnswer: ...


class Sender:
    """ports.Sender: what begins with "bad" fails once, all else succeeds."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def send(self, consumer: Any, push_batch: Any, seconds: float) -> tuple[Any, ...]:
        outcomes = []
        for attempt in push_batch.attempts:
            label = json.loads(attempt.message.draft.body)
            is_failing = label.startswith("bad") and attempt.number == 1
            self.calls.append([push_batch.group, consumer.name, label, attempt.number, not is_failing])
            outcomes.append(_result("FAILED", "HTTP 500") if is_failing else _result("DONE"))
        return tuple(outcomes)

    def refusal(self, kind: str, target: str) -> str | None:
        return None

    def greet(self, url: str) -> Any:
        return _result("DONE")

    def ask(self, transaction: Any, secrets: Any, seconds: float) -> Any:
        """What has to be decided is committed."""
        from chalicelib.domain.transaction import CheckAnswer, TransactionState

        return CheckAnswer(TransactionState.COMMITTED, "commit")

    def ping(self, consumer: Any, id: str, seconds: float) -> Any:
        """Nobody pings here: the releases before had no test events."""
        raise NotImplementedError


def _result(verdict: str, detail: str = "") -> Any:
    """The result of a call, as this tree's release names it."""
    try:
        from chalicelib.domain import call_result

        return call_result.CallResult(call_result.Verdict(verdict), detail)
    except ImportError:  # a release from before that name
        outcome: Any = importlib.import_module("chalicelib.domain.outcome")
        return outcome.Outcome(outcome.Verdict(verdict), detail)


class Here:
    """The release of the tree that this process imports from."""

    def __init__(self, prefix: str, folder: str) -> None:
        import app
        from chalicelib import wiring
        from chalicelib.adapters import SystemRandom, dynamo_adapters
        from chalicelib.settings import Settings
        from local.functions import functions_of
        from local.gateway import Gateway
        from tests.support.clock import ManualClock
        from tests.support.inline import Inline
        from tests.support.push import Inbox

        self.clock, self._inbox, self._sender = ManualClock(), Inbox(), Sender()
        settings = Settings(prefix, "us-east-1", None, Path(folder))
        adapters = dynamo_adapters(settings, self.clock, SystemRandom())
        adapters.create_tables()
        if hasattr(adapters, "cipher"):
            from local.key_file import FileCipher

            adapters = replace(adapters, cipher=FileCipher(Path(folder) / "key"))
        self._wiring = wiring
        self.deps = wiring.Deps(
            replace(
                adapters,
                sender=lambda: self._sender,
                invoker=self._inbox,
                threads=lambda: Inline(),
            )
        )
        self._gateway = Gateway(app.app)
        self._functions = functions_of(app.app)

    def token(self) -> str:
        return str(self.deps.tokens.create("all", ("produce", "consume", "admin"))[1])

    def answer(self, request: Request) -> CheckAnswer:
        self.clock.at_ms = request["at_ms"]
        before, self._wiring.deps = self._wiring.deps, lambda: self.deps  # type: ignore[assignment]
        try:
            answer = self._answered(request)
        finally:
            self._wiring.deps = before
        questions, calls = list(self._inbox.asked), self._sender.calls
        self._inbox.asked.clear()
        self._sender.calls = []
        return {**answer, "asked": questions, "calls": calls, "at_ms": self.clock.at_ms}

    def _answered(self, request: Request) -> CheckAnswer:
        if "token" in request:
            return {"token": self.token()}
        if "http" in request:
            method, path, body, token = request["http"]
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            raw = None if body is None else json.dumps(body).encode()
            status, _, text = self._gateway.handle(method, path, headers, raw)
            return {"status": status, "body": json.loads(text) if text.strip() else None}
        if request["run"] == "mover":  # one look: its minute would be ours
            return {"report": self.deps.mover.tick(range(8)).as_dict()}
        return {"report": self._functions[request["run"]](request["event"], _Minute())}


class _Minute:
    """What a function is told about its invocation."""

    aws_request_id = "r"

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


class There:
    """The release of another tree, in a process of its own. A context manager."""

    def __init__(self, tree: Path, prefix: str, folder: Path) -> None:
        command = [sys.executable, "-P", str(Path(__file__)), prefix, str(folder)]
        self._process = subprocess.Popen(
            command,
            cwd=tree,
            env={**_environment(), "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self, request: Request) -> CheckAnswer:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the other release has ended"
        answer: CheckAnswer = json.loads(line)
        return answer

    def __enter__(self) -> There:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def exported(commit: str, to: Path) -> Path | None:
    """The tree of a commit; None where this repository does not have it (or is none)."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(to, filter="data")
    return to


def _serve(prefix: str, folder: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    release = Here(prefix, folder)
    for line in sys.stdin:
        print(json.dumps(release.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
