"""Each file that may be installed has its hash, whatever is shipped is listed, and known weaknesses are told."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra import audit

_ROOT = Path(__file__).parents[2]
_LISTS = sorted(_ROOT.glob("requirements*.in"))
_APART = ("requirements-ministack", "requirements-checkov")  # they have environments of their own
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def asked(of: Path) -> dict[str, str]:
    """The packages that a list asks for, and those of the lists that it goes on from: name and version."""
    packages: dict[str, str] = {}
    for line in of.read_text().splitlines():
        if line.startswith("-r "):
            packages |= asked(of.with_name(line[3:]))
        elif line and not line.startswith(("#", "-c ")):
            requirement = Requirement(line)
            packages[canonicalize_name(requirement.name)] = str(requirement.specifier)
    return packages


def entries(of: Path) -> list[str]:
    """The entries of a hashed list, each with its hashes."""
    lines = (line for line in of.read_text().splitlines() if not line.lstrip().startswith("#"))
    return re.split(r"\n(?=\S)", "\n".join(lines))


def test_there_is_a_hashed_list_for_each_that_is_written() -> None:
    assert len(_LISTS) > 5
    assert [each.with_suffix(".in") for each in sorted(_ROOT.glob("requirements*.txt"))] == _LISTS


def locked(of: Path) -> dict[str, list[str]]:
    """What a hashed list pins: names and versions, of which there may be one for each Python."""
    versions: dict[str, list[str]] = {}
    for entry in entries(of):
        pin = Requirement(entry.partition("\\")[0])
        assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), entry
        assert _HASH.search(entry), f"{pin.name} has no hash: make lock"
        versions.setdefault(canonicalize_name(pin.name), []).append(str(pin.specifier))
    return versions


@pytest.mark.parametrize("source", _LISTS, ids=lambda path: path.stem)
def test_each_package_is_pinned_and_hashed_and_as_asked_for(source: Path) -> None:
    pins = locked(source.with_suffix(".txt"))
    for name, version in asked(source).items():
        assert pins.get(name) == [version], f"{name}{version} of {source.name} is not locked: make lock"


@pytest.mark.parametrize("file", sorted(_ROOT.glob("requirements*")), ids=lambda path: path.name)
def test_lists_name_no_place_to_fetch_from(file: Path) -> None:
    assert not re.search(r"://|--(?:extra-)?index-url|--find-links|@ file", file.read_text())


def test_lists_that_share_an_environment_agree() -> None:
    versions_by_name: dict[str, set[frozenset[str]]] = {}
    for source in _LISTS:
        if source.stem not in _APART:
            for name, versions in locked(source.with_suffix(".txt")).items():
                versions_by_name.setdefault(name, set()).add(frozenset(versions))
    assert {name: each for name, each in versions_by_name.items() if len(each) > 1} == {}


def test_the_bill_of_materials_is_one_and_names_whatever_is_in_the_zips(package_folder: Path) -> None:
    text = (package_folder / "sbom.json").read_text()
    # Their import takes 2 s, of each process that collects tests.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    libraries = {each["name"]: each["version"] for each in bill["components"] if each["type"] == "library"}
    libraries_shipped = {name: version[2:] for name, [version] in locked(_ROOT / "requirements.txt").items()}
    chalice = locked(_ROOT / "requirements-run.txt")["chalice"][0][2:]
    assert libraries == {**libraries_shipped, "chalice": chalice}
    for file in (each for each in bill["components"] if each["type"] == "file"):
        digest = hashlib.sha256((package_folder / file["name"]).read_bytes()).hexdigest()
        assert file["hashes"] == [{"alg": "SHA-256", "content": digest}]


@pytest.fixture
def pip_audit(tmp_path: Path) -> Path:
    """A pip-audit that answers what is in `answer`, as far as there is anything."""
    command = tmp_path / "pip-audit"
    command.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\nanswer = pathlib.Path({str(tmp_path / 'answer')!r})\n"
        "if not answer.exists(): sys.exit('no connection')\n"
        "pathlib.Path(sys.argv[sys.argv.index('--output') + 1]).write_text(answer.read_text())\n"
    )
    command.chmod(0o755)
    return command


def test_packages_that_nobody_knew_are_told_and_not_taken_for_good_ones(
    pip_audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"name": "jinja2", "version": "1.0", "vulns": []}
    unknown = {"name": "boto3", "skip_reason": "Dependency not found on PyPI and could not be audited"}
    answer = tmp_path / "answer"
    answer.write_text(json.dumps({"dependencies": [good, unknown]}))
    assert audit.main(["requirements.txt", "--pip-audit", str(pip_audit)]) == 0
    assert "no known weaknesses, 1 of 2 packages not looked at: boto3" in capsys.readouterr().out


def test_why_a_list_was_not_looked_at_is_told(
    pip_audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(["requirements.txt", "--pip-audit", str(pip_audit)]) == 0
    assert "no connection" in capsys.readouterr().out
    for arguments in (["requirments.txt"], ["requirements.txt", "--pip-audit", str(tmp_path / "absent")]):
        with pytest.raises(SystemExit, match="2"):
            audit.main(arguments)


@pytest.mark.parametrize(
    ("weaknesses", "code", "line"),
    [
        ([], 0, "no known weaknesses"),
        ([{"id": "PYSEC-1", "fix_versions": ["1.2"]}], 1, "  jinja2 1.0: PYSEC-1, mended in 1.2"),
        ([{"id": "PYSEC-1", "fix_versions": []}], 1, "  jinja2 1.0: PYSEC-1, mended in no version yet"),
        (None, 0, "not looked at, for nobody could be asked"),
    ],
)
def test_known_weaknesses_are_told_and_a_machine_without_a_network_goes_on(
    pip_audit: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    weaknesses: list[dict[str, object]] | None,
    code: int,
    line: str,
) -> None:
    if weaknesses is not None:
        package = {"name": "jinja2", "version": "1.0", "vulns": weaknesses}
        (tmp_path / "answer").write_text(json.dumps({"dependencies": [package]}))
    assert audit.main(["requirements.txt", "--pip-audit", str(pip_audit)]) == code
    assert line in capsys.readouterr().out
