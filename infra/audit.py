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

_SECONDS = 15  # for each question


def weaknesses(pip_audit: Path, requirements: Path) -> list[str] | None:
    """The weaknesses of a list's packages, a line for each; None where nobody could be asked."""
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
        subprocess.run(command, capture_output=True)
        return list(_lines(answer)) if answer.exists() else None


def _lines(answer: Path) -> Iterator[str]:
    for package in json.loads(answer.read_text())["dependencies"]:
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
    is_weak = False
    for requirements in options.lists or sorted(Path().glob("requirements*.txt")):
        lines = weaknesses(options.pip_audit, requirements)
        if lines is None:
            print(f"{requirements}: not looked at, for nobody could be asked (is there a network?)")
            continue
        print(f"{requirements}: {len(lines) or 'no'} known weaknesses")
        for line in lines:
            print(f"  {line}")
        is_weak = is_weak or bool(lines)
    return int(is_weak)


if __name__ == "__main__":
    sys.exit(main())
