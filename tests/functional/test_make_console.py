"""`make console` prints a link, or says in one sentence what stands in its way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from local.console import main
from tests.support.receiver import Receiver, Reply

Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs it for the service at a URL: its exit code, and what it prints and complains of."""

    def run(url: str) -> tuple[int, str, str]:
        monkeypatch.setenv("HEADRACE_TOKEN", "hr_secret")
        monkeypatch.setattr("sys.argv", ["console", "--url", url])
        return main(), *capsys.readouterr()

    return run


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_it_prints_the_link_that_the_service_makes(run: Run, end: str) -> None:
    answer = Reply(201, {}, b'{"url": "http://here/console?ticket=t"}')
    with Receiver(lambda _: answer) as service:
        assert run(service.url("").rstrip("/") + end) == (0, "http://here/console?ticket=t\n", "")
    assert [visit.path for visit in service.visits] == ["/v1/sign-in-links"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_refused_and_takes_the_token_nowhere(run: Run, status: int) -> None:
    with Receiver() as elsewhere:
        place = elsewhere.url("elsewhere")
        with Receiver(lambda _: Reply(status, {"Location": place})) as service:
            code, printed, complaint = run(service.url(""))
    assert (code, printed, elsewhere.visits) == (1, "", [])
    assert complaint == (
        f"{service.url('')} redirects to {place}, and no redirection is followed: set HEADRACE_URL to the service "
        "itself.\n"
    )
