"""Every command of the quickstart and of the how-to pages, and every program of the migration pages, does what its page
says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.engine.dynamodb_local import free_port
from tests.support.local_service import serving
from tests.support.pages import ROOT, Command, Shell, commands_of

QUICKSTART = ROOT / "docs" / "quickstart.md"
HOW_TO = sorted((ROOT / "docs" / "howto").glob("*.md"))
MIGRATE = sorted((ROOT / "docs" / "migrate").glob("*.md"))
_PROGRAM = re.compile(r"^```python\n(?P<code>.*?)^```\n```text\n(?P<output>.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder as `make run` leaves it, and where the service is: in memory, so that it is there at once."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "examples").symlink_to(ROOT / "examples")
    with serving("--functions", str(ROOT / "examples" / "functions.py")) as local_service:
        (folder / ".data").mkdir()
        (folder / ".data" / "token").write_text(local_service.token + "\n")
        yield folder, local_service.url


@pytest.fixture
def shell(service: tuple[Path, str]) -> Iterator[Shell]:
    (folder, url), subscriber = service, free_port()
    addresses = {
        "http://127.0.0.1:8700": url,
        "127.0.0.1:9000": f"127.0.0.1:{subscriber}",
        "--port 9000": f"--port {subscriber}",
    }
    with Shell(folder, {}, addresses) as new_shell:
        yield new_shell


def test_the_commands_of_the_quickstart_do_what_it_says(shell: Shell) -> None:
    for command in commands_of(QUICKSTART.read_text()):
        shell.follow(command)


def _blocks(page: Path) -> list[str]:
    """The indented and the Python blocks of a README."""
    text = page.read_text()
    indented = re.findall(
        r"(?:^    .*\n(?:\n(?=    ))?)+", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M
    )
    return [*indented, *re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def test_the_commands_of_the_readme_work(shell: Shell, service: tuple[Path, str]) -> None:
    token = (service[0] / ".data" / "token").read_text().strip()
    blocks = _blocks(ROOT / "README.md")
    first, push = (
        next(b for b in blocks if f"export {name}=" in b) for name in ("HEADRACE_TOKEN", "WEBHOOK_SECRET")
    )
    shell.follow(
        Command(
            first.replace("hr_…", token),
            '{"results": [{"receipt": "…", "error": {"code": "RECEIPT_INVALID", …}}]}',
        )
    )
    shell.follow(Command(push, '{"consumer": "me", "state": "ACTIVE", …}'))


def test_the_chinese_readme_has_the_same_commands() -> None:
    assert _blocks(ROOT / "README.zh-CN.md") == _blocks(ROOT / "README.md")


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_the_commands_of_a_how_to_page_do_what_it_says(page: Path, shell: Shell) -> None:
    set_up, *_ = commands_of(QUICKSTART.read_text())
    shell.follow(set_up)
    for command in commands_of(page.read_text()):
        shell.follow(command)


@pytest.mark.parametrize("page", MIGRATE, ids=lambda page: page.stem)
def test_the_program_of_a_migration_page_prints_what_it_says(
    page: Path,
    service: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, url = service
    monkeypatch.setenv("HEADRACE_URL", url)
    monkeypatch.setenv("HEADRACE_TOKEN", (folder / ".data" / "token").read_text().strip())
    (program,) = _PROGRAM.finditer(page.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(program["code"], str(page), "exec"), names)
    finally:
        names["hr"].close()
    assert capsys.readouterr().out == program["output"]
