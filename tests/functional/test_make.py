"""What the Makefile starts: the console's link and the jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from local import Unusable
from local.console import main
from tests.support.local_service import ROOT
from tests.support.receiver import How, Receiver, Reply

Run = Callable[[str], tuple[str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs it for the service at a URL: what it prints, and what it complains of."""

    def run(url: str) -> tuple[str, str]:
        monkeypatch.setenv("HEADRACE_TOKEN", "hr_secret")
        monkeypatch.setattr("sys.argv", ["console", "--url", url])
        try:
            main()
        except Unusable as complaint:
            return capsys.readouterr().out, str(complaint)
        return capsys.readouterr().out, ""

    return run


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_it_prints_the_link_that_the_service_makes(run: Run, end: str) -> None:
    answer = Reply(201, {}, b'{"url": "http://here/console?ticket=t"}')
    with Receiver(lambda _: answer) as service:
        assert run(service.url("").rstrip("/") + end) == ("http://here/console?ticket=t\n", "")
    assert [visit.path for visit in service.visits] == ["/v1/sign-in-links"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_refused_and_takes_the_token_nowhere(run: Run, status: int) -> None:
    with Receiver() as elsewhere:
        place = elsewhere.url("elsewhere")
        with Receiver(lambda _: Reply(status, {"Location": place})) as service:
            printed, complaint = run(service.url(""))
    assert (printed, elsewhere.visits) == ("", [])
    assert complaint.startswith(f"{service.url('')} refuses ({status})")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:port",
        "http://localhost:99999",
        "http://[::1",
        "http://",
        "localhost:8700",
        "http://a b",
        "http://127.0.0.1:1",
    ],
)
def test_what_is_no_url_of_a_service_is_told_in_one_line(run: Run, url: str) -> None:
    printed, complaint = run(url)
    assert printed == ""
    assert complaint.startswith(f"{url} does not answer as Headrace (")
    assert "\n" not in complaint


@pytest.mark.parametrize(
    "answer",
    [Reply(99_999), Reply(201, {}, b"{}" * 99, how=How.CUT), Reply(201, {}, b"<p>"), Reply(201, {}, b"{}")],
)
def test_what_is_no_answer_of_a_service_is_told_in_one_line(run: Run, answer: Reply) -> None:
    with Receiver(lambda _: answer) as service:
        _, complaint = run(service.url(""))
    assert "does not answer" in complaint
    assert "\n" not in complaint


def test_an_empty_variable_is_one_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HEADRACE_URL", "HEADRACE_TOKEN", "HEADRACE_DATA"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("sys.argv", ["console"])
    with pytest.raises(Unusable, match=r"Set HEADRACE_TOKEN: there is no token in \.data/token\.$"):
        main()
    (tmp_path / ".data").mkdir()
    (tmp_path / ".data" / "token").write_text("hr_secret")
    with Receiver(lambda _: Reply(201, {}, b'{"url": "http://here/"}')) as service:
        monkeypatch.setenv("HEADRACE_PORT", service.url("").rstrip("/").rpartition(":")[2])
        main()


@pytest.mark.parametrize("token", ["hr_\u2026", "hr_a\nb"])
def test_what_is_no_token_is_told_and_not_shown(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", token)
    monkeypatch.setattr("sys.argv", ["console", "--url", "http://127.0.0.1:1"])
    with pytest.raises(Unusable, match=r"that no token has: copy all of it, as it was printed\.$"):
        main()


_PYTHON = f"""#!{sys.executable}
import json, sys
print(json.dumps(sys.argv[1:]))
"""
_THERE = ("-o", ".venv/.runs", "-o", ".venv/.spark")


def make(job: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A job, started with a Python that prints its arguments."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(_PYTHON)
    python.chmod(0o755)
    return subprocess.run(
        ["make", *_THERE, job, f"BIN={python.parent}"],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("job", ["archive", "asof", "compare"])
def test_a_data_folder_may_have_any_name(tmp_path: Path, job: str) -> None:
    (tmp_path / "java").touch(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    data = tmp_path / "my 'data'; (of today)"
    arguments = json.loads(make(job, tmp_path, HEADRACE_DATA=str(data), PATH=path, JAVA_HOME="").stdout)
    assert arguments[arguments.index("--folder") + 1] == str(data / "bucket")
    if job == "archive":
        assert arguments[:6] == ["-m", "local", "env", "--data", str(data), "--"]


def test_a_machine_without_java_is_told_how_to_get_it(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "make"):
        (tools / name).symlink_to(str(shutil.which(name)))
    refused = make("archive", tmp_path, PATH=str(tools), JAVA_HOME="")
    assert refused.returncode == 2
    assert refused.stderr.startswith("The jobs of the archive need Java 17 or newer: apt-get install ")
