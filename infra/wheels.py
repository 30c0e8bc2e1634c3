"""`python -m infra.wheels 3.13 package …`: Chalice, for the Python that Lambda runs instead of the one that runs this.

Chalice takes the runtime from its own interpreter, and pip what fits this machine.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any


def fetch(version: str, machine: str, requirements: str, folder: str) -> None:
    """Unpack the pinned wheels for a Python version on Linux (`machine`: x86_64 or aarch64) into a folder. Raises
    CalledProcessError: a package has none, or pip does not reach its index."""
    platforms = [f"--platform=manylinux{each}_{machine}" for each in ("2014", "_2_17", "_2_5")]
    which = [
        f"--python-version={version}",
        "--implementation=cp",
        *platforms,
        "--only-binary=:all:",
        "--no-deps",
    ]
    quiet = ["--quiet", "--no-compile", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *quiet, *which, "--target", folder, "-r", requirements]
    subprocess.run(command, check=True)


def main(arguments: list[str]) -> int:
    """Chalice's command line, behind the version. Only here, in a process of its own, is it loaded."""
    version, *sys.argv[1:] = arguments

    def build_site_packages(self: Any, abi: str, requirements: str, folder: str) -> None:
        fetch(version, self._machine, requirements, folder)

    runtime = property(lambda self: f"python{version}")
    setattr(import_module("chalice.config").Config, "lambda_python_version", runtime)  # noqa: B010
    import_module("chalice.deploy.packager").DependencyBuilder.build_site_packages = build_site_packages
    return int(import_module("chalice.cli").main())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
