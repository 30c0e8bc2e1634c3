"""The TypeScript client: its types are those of today's interface, and it works against the local service."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.local_service import ROOT, serving

CLIENT = ROOT / "clients" / "typescript"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", CLIENT / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_types_are_made_of_todays_interface() -> None:
    generator = _generator()
    with generator.SCHEMA.open() as schema:
        assert schema.readline() == generator.head(generator.document()), "run `make typescript`"


def test_what_says_that_all_is_built_goes_with_what_is_built() -> None:
    options = json.loads((CLIENT / "tsconfig.json").read_text())["compilerOptions"]
    note, built = Path(options["tsBuildInfoFile"]), Path(options["outDir"])
    assert built in note.parents, "after `rm -rf dist`, `npm pack` would make a package without code"


def test_a_machine_without_npm_is_told_so_in_a_sentence(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, CLIENT / "generate.py"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "npm" in run.stderr
    assert len(run.stderr.splitlines()) == 1, "a traceback"


def _node_is_missing() -> bool:
    if shutil.which("npm") is None or shutil.which("node") is None:
        return True
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return int(version.strip().lstrip("v").partition(".")[0]) < 20


@pytest.mark.skipif(_node_is_missing(), reason="npm with Node 20 or newer is missing")
@pytest.mark.skipif(not (CLIENT / "node_modules").exists(), reason="`make typescript` prepares it")
def test_it_is_well_typed_and_sends_receives_and_settles() -> None:
    with serving() as service:
        environment = {**os.environ, "HEADRACE_URL": service.url, "HEADRACE_TOKEN": service.token}
        run = subprocess.run(
            ["npm", "test", "--silent"], cwd=CLIENT, env=environment, capture_output=True, text=True
        )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "is stored once" in run.stdout, "its tests were not found"
