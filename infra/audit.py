"""`python -m infra.audit`: which packages of our lists have weaknesses that are known (pip-audit asks PyPI).

Where nobody answers it says so and ends well: a machine without a network is no reason to stop. Exit code 1: there
are weaknesses.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SECONDS = 15  # for each question


class NotAsked(Exception):
    """Nobody could be asked; the text is pip-audit's last word."""


def packages(pip_audit: Path, requirements: Path) -> list[dict[str, Any]]:
    """What is known of each package of a list. Raises NotAsked."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        manner = (
            "--disable-pip",
            "--require-hashes",
            "--progress-spinner",
            "off",
            "--timeout",
            str(_SECONDS),
        )
        output = ("--format", "json", "--output", str(answer))
        command = [str(pip_audit), *manner, *output, "--requirement", str(requirements)]
        run = subprocess.run(command, capture_output=True, text=True)
        if not answer.exists():
            raise NotAsked((run.stderr.strip() or f"exit code {run.returncode}").splitlines()[-1])
        return list(json.loads(answer.read_text())["dependencies"])


def _lines(known: list[dict[str, Any]]) -> Iterator[str]:
    for package in known:
        for weakness in package.get("vulns", ()):
            versions = ", ".join(weakness["fix_versions"]) or "no version yet"
            yield f"{package['name']} {package['version']}: {weakness['id']}, mended in {versions}"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m infra.audit", description=__doc__)
    parser.add_argument("lists", nargs="*", type=Path, help="the lists to look at (requirements*.txt)")
    parser.add_argument(
        "--pip-audit", type=Path, default=Path(sys.executable).with_name("pip-audit"), help="the command"
    )
    options = parser.parse_args(arguments)
    if missing := [str(file) for file in (options.pip_audit, *options.lists) if not file.is_file()]:
        parser.error(f"there is no {', no '.join(missing)}")
    is_weak = False
    for requirements in options.lists or sorted(Path().glob("requirements*.txt")):
        try:
            known = packages(options.pip_audit, requirements)
        except NotAsked as error:
            print(f"{requirements}: not looked at, for nobody could be asked (is there a network?): {error}")
            continue
        lines = list(_lines(known))
        skipped = [package["name"] for package in known if "skip_reason" in package]
        rest = (
            f", {len(skipped)} of {len(known)} packages not looked at: {', '.join(skipped)}"
            if skipped
            else ""
        )
        print(f"{requirements}: {len(lines) or 'no'} known weaknesses{rest}")
        for line in lines:
            print(f"  {line}")
        is_weak = is_weak or bool(lines)
    return int(is_weak)


if __name__ == "__main__":
    sys.exit(main())
