"""What is installed is what uv.lock pins, from PyPI, with a hash for each file."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from infra import package
from infra.template import StackError

_ROOT = Path(__file__).parents[2]
_UV = Path(sys.executable).with_name("uv")
_PYPI = "https://pypi.org/simple"
_SHIPPED_BY_LAMBDA = {"aws-lambda-powertools", "boto3", "jinja2", "msgspec", "pynamodb"}


def uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    """uv's answer, without the network."""
    command = [str(_UV), *arguments, "--offline", "--quiet", "--project", str(_ROOT)]
    return subprocess.run(command, capture_output=True, text=True)


def locked_packages() -> list[dict[str, Any]]:
    """The packages of uv.lock, without Headrace."""
    locked = tomllib.loads((_ROOT / "uv.lock").read_text())["package"]
    return [package for package in locked if "virtual" not in package["source"]]


def pins(requirements: str) -> list[str]:
    """The lines of a list that name a package or a hash."""
    return [line for line in requirements.splitlines() if not line.lstrip().startswith("#")]


def test_uv_lock_has_what_pyproject_asks_for() -> None:
    check = uv("lock", "--check", "--default-index", _PYPI)
    assert check.returncode == 0, f"run `make lock`: {check.stderr}"


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("requirements.txt", ("--prune", "chalice", "--prune", "cryptography")),
        ("requirements-uv.txt", ("--only-group", "uv")),
    ],
)
def test_exported_lists_have_the_pins_of_uv_lock(file: str, options: tuple[str, ...]) -> None:
    exported = uv("export", "--frozen", "--no-annotate", *options)
    text = (_ROOT / file).read_text()
    assert pins(text) == pins(exported.stdout), "run `make lock`"
    assert "://" not in text


def test_lambda_ships_neither_chalice_nor_cryptography() -> None:
    names = {re.split("[= ]", line)[0] for line in pins((_ROOT / "requirements.txt").read_text())}
    assert names >= _SHIPPED_BY_LAMBDA
    assert not {"chalice", "cryptography"} & names


def test_each_package_comes_from_pypi_and_each_file_has_a_hash() -> None:
    for locked in locked_packages():
        assert locked["source"] == {"registry": _PYPI}, locked["name"]
        for file in [*locked.get("wheels", []), locked.get("sdist")]:
            if file is not None:
                assert file["url"].startswith("https://files.pythonhosted.org/"), locked["name"]
                assert re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"]), locked["name"]


def test_no_wheel_for_lambda_is_packaged_whose_hash_is_not_pinned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As Chalice fetches them: by name and version, for another processor."""
    pins = (_ROOT / "requirements.txt").read_text()
    (tmp_path / "requirements.txt").write_text(re.sub("sha256:.", "sha256:0", pins))
    [wheel] = re.findall(r"^msgspec==\S+", pins, re.M)
    place = (
        "--no-deps",
        "--only-binary=:all:",
        "--platform",
        "manylinux2014_aarch64",
        "--dest",
        str(tmp_path),
    )
    command = (sys.executable, "-m", "pip", "download", *place, "--abi", "cp311", wheel)
    monkeypatch.setattr(package, "_CHALICE", command)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StackError, match="DO NOT MATCH THE HASHES"):
        package._chalice("3.11")
