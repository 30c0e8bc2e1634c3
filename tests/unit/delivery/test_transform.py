"""JMESPath transforms: what they make of a message, and their bounds."""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest

from chalicelib.delivery import transform
from chalicelib.domain.call_result import Attempt, PushBatch
from tests.support import factories as make

BIG: dict[str, Any] = {
    "s": "x" * 100_000,
    "l": list(range(20_000)),
    "o": [{"a": [{"b": [1, 2, 3]}] * 30}] * 30,
    "pairs": [[n, str(n)] for n in range(5_000)],
}
BYTES = 262_144


@pytest.fixture(autouse=True)
def rests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, float]]]:
    """Which thread rested, and for how long; it takes no time here."""
    taken: list[tuple[int, float]] = []
    nap = SimpleNamespace(wait=lambda seconds: taken.append((threading.get_ident(), seconds)))
    monkeypatch.setattr(transform, "_never", nap)
    before = sys.getswitchinterval()
    yield taken
    sys.setswitchinterval(before)


def made(expression: str, body: Any, most_bytes: int = BYTES) -> bytes:
    assert transform.refusal(expression) is None
    draft = make.draft(body, keys=("k",), tag="paid", headers={"a": "1"})
    attempt = Attempt(make.message(3, draft, accepted_ms=0), 2)
    return transform.apply(expression, PushBatch("orders", "billing", "binary", (), most_bytes), attempt)


def test_it_sees_the_message_and_its_place() -> None:
    text = made("[id, topic, group, body.n, headers.a, keys[0], tag, attempt, accepted_at]", {"n": "é"})
    assert text.decode() == (
        '["000000000003-0-0","orders","billing","é","1","k","paid",2,"1970-01-01T00:00:00.000Z"]'
    )


@pytest.mark.parametrize(
    "expression",
    [
        "a" * 1025,
        "[@" + ",@" * 63 + "]",
        "!" * 16 + "a",
        "(" * 400 + "a" + ")" * 400,
        "|".join(["[@,@]"] * 16),
        "nope(a)",
        "length()",
        "map(&nope(@), a)",
        "a[",
        "",
    ],
)
def test_what_is_too_long_too_deep_or_no_expression_is_refused_at_registration(expression: str) -> None:
    why = transform.refusal(expression)
    assert why is not None
    assert "aaa" not in why


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        pytest.param("|".join(["[@,@]"] * 15), transform.TOO_LARGE, id="doubling"),
        pytest.param("|".join(["{a:@,b:@}"] * 9) + "|to_string(@)", transform.TOO_LONG, id="doubled text"),
        pytest.param("body.s|" + "|".join(["join('',[@,@])"] * 7), transform.TOO_LARGE, id="join"),
        pytest.param("body.l|" + "|".join(["[@,@][]"] * 8), transform.TOO_LONG, id="flatten"),
        pytest.param(
            "body.l|map(&map(&map(&@,@),@),[[@,@],[@,@],[@,@]])", transform.TOO_LONG, id="nested map"
        ),
        pytest.param(
            "sort_by([body.pairs,body.pairs,body.pairs,body.pairs][][],&[1])",
            transform.TOO_LONG,
            id="sort_by",
        ),
        pytest.param("map(&sort(@),[body.l,body.l,body.l,body.l,body.l])", transform.TOO_LONG, id="sort"),
        pytest.param("[body.o,body.o]|[@,@]|[@,@]|@==@", transform.TOO_LONG, id="equality"),
        pytest.param("contains([body.l,body.l,body.l,body.l,body.l],`1`)", transform.TOO_LONG, id="contains"),
        pytest.param("map(&reverse(@),[body.s,body.s][*])|[@,@,@,@][]", transform.TOO_LARGE, id="strings"),
        pytest.param("abs(body.s)", transform.FAILED, id="type"),
        pytest.param("sum([body.l,`[1e308,1e308]`][1])", transform.FAILED, id="infinite"),
        pytest.param("body.l[::0]", transform.FAILED, id="no step"),
        pytest.param("&body", transform.FAILED, id="no value"),
        pytest.param("body.none", transform.IS_NULL, id="null"),
    ],
)
def test_an_evaluation_is_bounded_in_time_and_memory_and_fails_in_our_words(
    expression: str, sentence: str
) -> None:
    began = time.process_time()
    with pytest.raises(transform.TransformFailed) as failed:
        made(expression, BIG)
    assert str(failed.value) == sentence
    assert time.process_time() - began < 2, "a fraction of a second, on a quiet machine"


def test_long_evaluations_come_one_by_one_with_rests(rests: list[tuple[int, float]]) -> None:
    """Beside six of them half of the pushes that take 53 ms take over 57 ms in their process; it was 173 ms."""

    def long() -> None:
        with pytest.raises(transform.TransformFailed):
            made("[body.o,body.o]|[@,@]|[@,@]|@==@", BIG)

    threads = [threading.Thread(target=long) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    turns = [thread for thread, _ in groupby(thread for thread, _ in rests)]
    assert len(turns) == len(threads)
    assert sum(seconds for _, seconds in rests) > 0.1 * len(threads)


@pytest.mark.parametrize("step", ["[@,@]", "join('',[@,@])", "[@,@][]"])
def test_doubling_takes_no_memory(step: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(transform.TransformFailed):
            made(
                "body|" + "|".join([step] * 5), "x" * 50_000 if "join" in step else list(range(9_000)), 90_000
            )
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_a_result_may_have_as_many_bytes_as_a_body() -> None:
    assert len(made("body.s", BIG)) == 100_002
    assert made("body", "é" * 9, 20) == b'"' + "é".encode() * 9 + b'"'
    with pytest.raises(transform.TransformFailed, match="too large"):
        made("body", "é" * 9, 19)
