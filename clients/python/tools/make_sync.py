"""Makes `headrace/_sync` of `headrace/_async`: `python clients/python/tools/make_sync.py`. A test says when to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import unasync

PACKAGE = Path(__file__).parents[1] / "src" / "headrace"
NAMES = {
    "AsyncAfterBlock": "AfterBlock",
    "AsyncCaller": "Caller",
    "AsyncClient": "Client",
    "AsyncConnections": "Connections",
    "AsyncConsumes": "Consumes",
    "AsyncGroups": "Groups",
    "AsyncMany": "Many",
    "AsyncMessages": "Messages",
    "AsyncOperations": "Operations",
    "AsyncPager": "Pager",
    "AsyncSends": "Sends",
    "AsyncTopics": "Topics",
    "AsyncTransactionBlock": "TransactionBlock",
    "AsyncTransport": "Transport",
    "AsyncIterator": "Iterator",
    "aclose": "close",
    "_async_http": "_http",
    "async_pause": "pause",
    "async_to_its_end": "to_its_end",
}


def make(target: Path) -> None:
    """Write the sync twin of every module into a folder."""
    rule = unasync.Rule(str(PACKAGE / "_async"), str(target), additional_replacements=NAMES)
    modules = [str(each) for each in (PACKAGE / "_async").glob("*.py") if each.name != "__init__.py"]
    unasync.unasync_files(modules, [rule])
    (target / "__init__.py").write_text(
        '"""The client for threads. Made of `_async` by `tools/make_sync.py`: change that."""\n'
    )
    ruff = str(Path(sys.executable).with_name("ruff"))
    config = str(PACKAGE.parents[1] / "pyproject.toml")
    subprocess.run(
        [ruff, "check", "-q", "--config", config, "--fix-only", "--select", "I,F401", str(target)], check=True
    )
    subprocess.run([ruff, "format", "-q", "--config", config, str(target)], check=True)


if __name__ == "__main__":
    make(PACKAGE / "_sync")
