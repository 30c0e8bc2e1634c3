"""Two releases at one stage: what the one before wrote, this one reads and works on (and the other way round, as far as
rows tell; the soak has both at work)."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.conftest import SOAK
from tests.releases.deeds import fill, found, work
from tests.releases.fixture import kept, moved_in
from tests.releases.house import House
from tests.releases.release import Here, There, exported

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


@pytest.mark.skipif(not SOAK, reason="minutes of two releases: in the soak only")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("commit", BESIDE)
def test_two_releases_work_side_by_side(tmp_path: Path, commit: str, seed: int) -> None:
    tree = exported(commit, tmp_path / "tree")
    if tree is None:
        pytest.skip(f"this copy of the repository has no {commit} to work with")
    prefix, release = here(tmp_path)
    with There(tree, prefix, tmp_path) as other:
        house = House(prefix, [release, other], seed=seed)
        found(house)
        # The stage was the older one's: it made the signing key, which it could not read if this one had encrypted it.
        made = ["GET", "/v1/topics?limit=1", None, house.token]
        assert "next_page_token" in other.answer({"at_ms": house.at_ms, "http": made})["body"]
        house.call("POST", "/topics/orders/groups/hook/consumers/url/rotate-secret", {}, newest=True)
        assert "'~" in repr(house.rows()["control"]), "no secret is encrypted"
        for deeds in (fill, work):
            deeds(house)
    assert not house.complaints, house.story()
