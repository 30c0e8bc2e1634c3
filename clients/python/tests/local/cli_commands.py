"""The command line in this process, for its tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.app import run
from headrace.testing import LocalHeadrace

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def command(headrace: LocalHeadrace, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command that must end with `code`; what it printed, with --json as the documents."""
    headrace.put_topic("orders", retry={"max_attempts": 2, "ladder": [60]})
    headrace.put_group("orders", "mailer", begin="earliest")

    def done(*arguments: str, code: int = 0) -> Any:
        exit_code = run(arguments)
        out, err = capsys.readouterr()
        assert exit_code == code, out + err
        if code:
            return err
        return [json.loads(line) for line in out.splitlines()] if "--json" in arguments else out

    return done
