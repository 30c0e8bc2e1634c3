"""Rows of every table as an old release wrote them, kept in the repository: `rows_<commit>.json`.

    python -m tests.releases.fixture 38f1826

writes them anew, from that commit's tree. Tests only read them.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.releases.deeds import fill
from tests.releases.house import House, Notes, Rows, fill_tables
from tests.releases.release import Release, There, exported

FOLDER = Path(__file__).parent
_BASE64 = "base64"


def kept(commit: str) -> dict[str, Any]:
    """What the fixture of a commit holds: `rows`, and what its House told."""
    fixture: dict[str, Any] = json.loads((FOLDER / f"rows_{commit}.json").read_text(), object_hook=_restored)
    return fixture


def moved_in(prefix: str, fixture: dict[str, Any], releases: list[Release]) -> House:
    """A house in which the old release has lived before."""
    rows: Rows = fixture["rows"]
    fill_tables(prefix, rows)
    return House(
        prefix,
        releases,
        token=fixture["token"],
        at_ms=fixture["at_ms"],
        notes=Notes(**fixture["notes"]),
    )


def _restored(value: dict[str, Any]) -> Any:
    return base64.b64decode(value[_BASE64]) if value.keys() == {_BASE64} else value


def _told(value: bytes) -> dict[str, str]:
    return {_BASE64: base64.b64encode(bytes(value)).decode()}


def make(commit: str) -> Path:
    """Have the commit's release write rows of each kind, and keep them."""
    from local.engine.dynamodb_local import DynamoDBLocal

    local = {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }
    with DynamoDBLocal() as engine, tempfile.TemporaryDirectory() as folder:
        os.environ |= {**local, "AWS_ENDPOINT_URL_DYNAMODB": engine.endpoint}
        tree = exported(commit, Path(folder) / "tree")
        assert tree, f"this repository does not have {commit}"
        prefix = f"made{uuid4().hex[:8]}"
        with There(tree, prefix, Path(folder)) as release:
            house = House(prefix, [release])
            from tests.releases.deeds import found

            found(house)
            fill(house)
            assert not house.complaints, house.story()
            rows = house.rows()
    file = FOLDER / f"rows_{commit}.json"
    file.write_text(json.dumps({**house.told(), "rows": rows}, default=_told, sort_keys=True) + "\n")
    return file


if __name__ == "__main__":
    print(make(sys.argv[1]))
