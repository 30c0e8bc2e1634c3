"""What a function imports at its start: of the console the list of its paths, and nothing that only a page needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCRIPT = "import app, sys; print(*sorted(sys.modules))"
_OF_PAGES = (
    *("jinja2", "markupsafe", "difflib", "http.cookies", "chalicelib.services.inspect.survey"),
    *(
        f"chalicelib.console.{name}"
        for name in ("views", "templating", "deeds", "forms", "chinese", "session")
    ),
)


def test_nothing_that_only_pages_need_is_imported_with_the_app() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        cwd=Path(__file__).parents[2],
        env={"AWS_DEFAULT_REGION": "us-east-1"},
        check=True,
        capture_output=True,
        text=True,
    )
    modules = run.stdout.split()
    assert "chalicelib.console.routes.overview" in modules
    assert [module for module in modules if module.startswith(_OF_PAGES)] == []
