"""What a function imports at its start: of the console the list of its paths, and nothing that only a page needs. The
store comes with the first adapters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PRINT = "import sys; print(*sorted(sys.modules))"
_SCRIPT = f"import app; {_PRINT}"
_ROOT = Path(__file__).parents[2]
_USERS_OF_THE_STORE = ("services", "scheduler", "delivery", "observe.py")
_OF_PAGES = (
    *("jinja2", "markupsafe", "difflib", "http.cookies", "chalicelib.services.inspect.survey"),
    *(
        f"chalicelib.console.{name}"
        for name in ("pages.", "visit", "http", "templating", "actions", "forms", "session")
    ),
)


def test_nothing_that_only_pages_need_is_imported_with_the_app() -> None:
    modules = modules_after(_SCRIPT)
    assert "chalicelib.console.pages" in modules
    assert [module for module in modules if module.startswith(_OF_PAGES)] == []


def test_the_services_import_no_store() -> None:
    files = [file for name in _USERS_OF_THE_STORE for file in _python_files(_ROOT / "chalicelib" / name)]
    names = [".".join(file.relative_to(_ROOT).with_suffix("").parts) for file in files]
    modules = modules_after(f"import {', '.join(names)}; {_PRINT}")
    assert "chalicelib.services.produce.appender" in modules
    assert [module for module in modules if module.startswith("chalicelib.store")] == []


def modules_after(script: str) -> list[str]:
    """The modules that a new process has imported after a script that prints them."""
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=_ROOT,
        env={"AWS_DEFAULT_REGION": "us-east-1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout.split()


def _python_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("*.py"))
