"""Whatever a job is told, it begins, or ends in a sentence, a summary and exit code 2."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.archiving.options import of_archive, of_compact
from glue_jobs.common import arguments
from glue_jobs.common.arguments import BAD_ARGUMENTS
from glue_jobs.replaying.options import of_replay
from glue_jobs.reporting.options import of_asof, of_compare, of_report

Read = Callable[[str | None, list[str]], argparse.Namespace]
ASOF = ["--topic", "orders", "--at", "2026-11-20T09:30:00Z"]
COMPARE = ["--topic", "orders", "--group", "g", "--shadow", "shade"]
REPLAY = ["--topic", "orders", "--from", "2026-11-20", "--to", "2026-11-21"]


@pytest.mark.parametrize(
    ("job", "read_options", "argv", "sentence"),
    [
        ("archive", of_archive, ["--window", "2026-02-30"], "no day such as"),
        ("archive", of_archive, ["--window", "0001-01-01"], "no day such as"),
        ("archive", of_archive, ["--look-back-days", "99999999"], "no whole number from 1 to 36,500"),
        ("archive", of_archive, ["--lateness-minutes", "9999999999"], "no whole number from 0 to 525,600"),
        ("archive", of_archive, ["--rows-per-file", "9" * 5000], "no whole number from 1 to 2,147,483,647"),
        ("archive", of_archive, ["--backfill-edits", "1"], "'1' is neither yes nor no"),
        ("archive", of_archive, ["--backfill", "no", "--backfill-edits", "yes"], "it needs --backfill yes"),
        ("compact", of_compact, ["--from", "2026-11-22", "--to", "2026-11-21"], "--from is after --to"),
        ("report", of_report, ["--topic", "ünïcode"], "'ünïcode' is no name"),
        ("report", of_report, ["--to", "9999-12-31"], "no day such as"),
        ("asof", of_asof, [], "--topic, --at"),
        ("asof", of_asof, [*ASOF, "--at", "0001-01-01T00:00:00Z"], "no time such as"),
        ("asof", of_asof, [*ASOF, "--at", "0001-01-01T00:00:00+14:00"], "no time such as"),
        ("asof", of_asof, [*ASOF, "--list", "99999999999999999999"], "no whole number"),
        ("asof", of_asof, [*ASOF, "--group", "a b"], "'a b' is no name"),
        ("compare", of_compare, [*COMPARE, "--shadow-group", "../../../g"], "is no name"),
        ("replay", of_replay, [*REPLAY, "--into", "a/b"], "is no name"),
        ("replay", of_replay, [*REPLAY, "--rate", "-1"], "no whole number"),
        ("replay", of_replay, [*REPLAY, "--url", "localhost:8700"], "one is like http://127.0.0.1:8700"),
        ("replay", of_replay, [*REPLAY, "--url", "http://localhost:port"], "Port could not be cast"),
        ("replay", of_replay, [*REPLAY, "--url", "http://localhost:99999"], "Port out of range"),
    ],
)
def test_what_a_job_refuses_is_one_sentence_a_summary_and_exit_code_2(
    job: str,
    read_options: Read,
    argv: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        read_options(None, ["--folder", str(tmp_path), *argv])
    assert exit_info.value.code == BAD_ARGUMENTS
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert summary["job"] == job
    assert sentence in summary["error"]
    assert err.splitlines()[-1] == f"python -m glue_jobs.{job}: error: {summary['error']}"


@given(st.text(max_size=30) | st.datetimes().map(str) | st.dates().map(str) | st.integers().map(str))
def test_a_value_is_taken_or_refused(text: str) -> None:
    kinds: list[Callable[[str], Any]] = [
        *(arguments.day, arguments.instant, arguments.name),
        *(arguments.positive, arguments.days, arguments.minutes, arguments.yes_no),
    ]
    for kind in kinds:
        with suppress(argparse.ArgumentTypeError):
            kind(text)
