"""Two groups over the same messages: what a shadow did otherwise."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from glue_jobs.common import job
from glue_jobs.common.arguments import DONE, FAILED
from glue_jobs.reporting import options, shadow

from .archives import delivery, fill, message
from .journals import Place

NAMES = ("same", "fixed", "broken", "slower", "open")


def run(place: Place, *arguments: str) -> int:
    here = ["--bucket", place.name, "--folder", str(place.folder), "--topic", "orders", "--group", "g"]
    argv = [*here, "--shadow", "shade", "--shadow-group", "next", *arguments]
    code = job.guarded(
        "compare", lambda: shadow.run(place.start, place.bucket, options.of_compare(None, argv))
    )
    place.pull()
    return code


def again(number: int, of: str, replay: str, minutes: float) -> dict[str, Any]:
    headers = {"headrace-replay": replay, "headrace-replay-of": of}
    return message(number, "shade", minutes=minutes, id=f"{of}-{replay}", headers=headers)


@pytest.fixture
def filled(place: Place) -> Place:
    """Five messages, each replayed twice; the second time counts."""
    first = {name: message(n, id=name) for n, name in enumerate((*NAMES, "not replayed"))}
    once = [again(n, name, "r1", 60) for n, name in enumerate(NAMES)]
    twice = {name: again(100 + n, name, "r2", 90) for n, name in enumerate(NAMES)}
    tries = [delivery(first[name], duration_ms=10) for name in ("same", "broken", "slower")]
    tries += [
        delivery(first["fixed"], seconds=n, attempt=n, outcome=end) for n, end in ((1, "RETRY"), (2, "DEAD"))
    ]
    tries += [delivery(each, "next", outcome="DEAD") for each in once]
    tries += [delivery(twice[name], "next", duration_ms=40) for name in ("same", "fixed")]
    tries += [delivery(twice["broken"], "next", outcome="DEAD", detail="HTTP 489", duration_ms=40)]
    tries += [delivery(twice["slower"], "next", seconds=n, attempt=n, duration_ms=40) for n in (1, 2)]
    fill(place, messages=[*first.values(), *once, *twice.values()], deliveries=tries)
    return place


def test_each_message_is_compared_and_all_are_summed_up(
    filled: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(filled) == DONE
    *_, last = capsys.readouterr().out.splitlines()
    told = json.loads(last)
    expected = {"messages": 5, "differ": 3, "attempts": 5, "shadow_attempts": 5}
    assert told.items() >= {**expected, "duration_p50_ms": 10, "shadow_duration_p50_ms": 40}.items()
    assert told["outcomes"] == {
        "SUCCESS -> SUCCESS": 2, "DEAD -> SUCCESS": 1, "OPEN -> OPEN": 1, "SUCCESS -> DEAD": 1,
    }  # fmt: skip
    [table] = filled.folder.glob("reports/shadows/*.csv")
    rows = duckdb.execute(
        f"select id, outcome, shadow_outcome, attempts, shadow_attempts from '{table}'"
    ).fetchall()
    assert rows == [
        ("broken", "SUCCESS", "DEAD", 1, 1),
        ("fixed", "DEAD", "SUCCESS", 2, 1),
        ("slower", "SUCCESS", "SUCCESS", 1, 2),
        ("open", None, None, 0, 0),
        ("same", "SUCCESS", "SUCCESS", 1, 1),
    ]


def test_one_replay_may_be_chosen_and_nothing_to_compare_is_said(
    filled: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(filled, "--replay", "r1") == DONE
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["outcomes"]["SUCCESS -> DEAD"] == 3
    assert run(filled, "--replay", "r3") == FAILED
    assert "no message of orders" in json.loads(capsys.readouterr().out)["error"]
