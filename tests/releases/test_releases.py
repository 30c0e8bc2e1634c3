"""Two releases at one stage: what the one before wrote, this one reads and works on (and the other way round, as far as
rows tell; the soak has both at work)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import SOAK
from tests.releases.deeds import fill, found, work
from tests.releases.fixture import kept, moved_in
from tests.releases.house import House, Notes
from tests.releases.release import CheckAnswer, Here, Request, There, exported

pytestmark = pytest.mark.usefixtures("engine")
OLD = "38f1826"
BESIDE = ["d39e090"]  # from control rows of format 2 on (docs/adr/0041)


def here(tmp_path: Path) -> tuple[str, Here]:
    prefix = f"hr-{uuid4().hex[:8]}"
    return prefix, Here(prefix, str(tmp_path))


def test_rows_of_the_release_before_are_worked_on(tmp_path: Path) -> None:
    prefix, release = here(tmp_path)
    house = moved_in(prefix, kept(OLD), [release])
    work(house)
    assert not house.complaints, house.story()


class Slow:
    """A release that answers receives with nothing at first, as one does that others are faster than."""

    def __init__(self, empty: int) -> None:
        self._empty = empty
        self._left = ["late"]

    def answer(self, request: Request) -> CheckAnswer:
        answer = {"token": "t", "status": 200, "report": {}, "asked": [], "calls": []}
        messages: list[Any] = []
        if request.get("http", ("", ""))[1].endswith("/receive"):
            self._empty -= 1
            if self._empty < 0 and self._left:
                messages = [{"body": self._left.pop(), "receipt": "r"}]
        stats = {"stats": {"groups": {"mail": {"backlog": 0, "in_flight": 0, "retrying": 0}}}}
        return {
            **answer,
            "at_ms": request["at_ms"],
            "body": {"messages": messages, "results": [{"ok": True}], **stats},
        }


@pytest.mark.parametrize(("empty", "does_come"), [(0, True), (3, True), (1000, False)])
def test_an_empty_answer_ends_no_drain_while_something_is_owed(empty: int, does_come: bool) -> None:
    house = House("none", [Slow(empty)], notes=Notes(owed={"orders/mail": ["late"]}))
    house.drain_all(["orders/mail"])
    assert house.judge() == ([] if does_come else ["orders/mail was never given ['late']"])


@pytest.mark.skipif(not SOAK, reason="minutes of two releases: in the soak only")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("commit", BESIDE)
def test_two_releases_work_side_by_side(tmp_path: Path, commit: str, seed: int) -> None:
    tree = exported(commit, tmp_path / "tree")
    if tree is None:
        pytest.skip(f"this copy of the repository has no {commit} to work with")
    prefix, release = here(tmp_path)
    with There(tree, prefix, tmp_path) as other_release:
        house = House(prefix, [release, other_release], seed=seed)
        found(house)
        # The stage was the older one's: it made the signing key, which it could not read if this one had encrypted it.
        request = ["GET", "/v1/topics?limit=1", None, house.token]
        assert "next_page_token" in other_release.answer({"at_ms": house.at_ms, "http": request})["body"]
        house.call("POST", "/topics/orders/groups/hook/consumers/url/rotate-secret", {}, newest=True)
        assert "'~" in repr(house.rows()["control"]), "no secret is encrypted"
        for deeds in (fill, work):
            deeds(house)
    assert not house.complaints, house.story()
