"""Which tests a change needs: `make test OF=settings`. A subject is a line below, or a part of file names.

`python -m tests.subjects settings` prints the files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

PLACES = ("tests", "clients/python/tests")
_DOCUMENTED = ("front_door/test_documented*", "api/test_contract*", "test_typescript*", "unit/test_pages*")
SUBJECTS: dict[str, tuple[str, ...]] = {
    "archive": ("tests/glue/", "api/test_api_archive*", "api/test_api_replays*"),
    "calls": (*_DOCUMENTED, "api/", "front_door/", "security/", "test_client_operations*", "local/test_cli*"),
    "claims": (
        "test_claiming*",
        "test_consuming*",
        "test_cursor*",
        "test_receiving*",
        "test_modes*",
        "crash/",
    ),
    "clients": ("clients/python/tests/", "test_typescript*"),
    "console": ("functional/console/", "unit/test_console*", "browser/"),
    "deployment": ("tests/infra/", "security/test_iam*"),
    "push": (
        "services/test_push*",
        "test_delivering*",
        "functional/delivery/",
        "unit/delivery/",
        "test_api_push*",
    ),
    "settings": (
        *_DOCUMENTED,
        "api/test_api_limits*",
        "api/test_api_topics*",
        "api/test_api_groups*",
        "api/test_api_in_another_process*",
        "front_door/test_api_request_fields*",
        "unit/test_settings*",
        "unit/test_console*",
        "unit/test_control_rows*",
        "ports/test_control*",
        "test_client_operations*",
    ),
    "store": ("contract/ports/", "tests/oracle/", "unit/test_stored_rows*", "unit/test_dynamo_calls*"),
    "traces": (
        "test_traces*",
        "test_attempt_rows*",
        "test_api_trace*",
        "test_journal*",
        "tests/glue/test_transforms*",
    ),
}


def main(subjects: Iterable[str]) -> int:
    """Print the files of these subjects; of a word that is no subject, those whose names contain it."""
    files = [file for place in PLACES for file in sorted(Path(place).rglob("test_*.py"))]
    for subject in subjects:
        for part in SUBJECTS.get(subject, (f"test_*{subject}*",)):
            if not (found := [file for file in files if _is_of(file, part)]):
                print(f"No test file is {part}; subjects are {', '.join(SUBJECTS)}.", file=sys.stderr)
                return 1
            print(*found)
    return 0


def _is_of(file: Path, part: str) -> bool:
    return f"/{part}" in f"/{file}" if part.endswith("/") else file.match(part)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
