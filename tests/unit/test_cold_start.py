"""What a function imports at its start: of the console the list of its paths, and nothing that only a page needs. The
store comes with the first adapters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PRINT = "import sys; print(*sorted(sys.modules))"
_SCRIPT = f"import app; {_PRINT}"
_ROOT = Path(__file__).parents[2]
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
