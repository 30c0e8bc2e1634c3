"""What one function tells another of a test event, who may be of another release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.exchange import Exchange
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.stages import embedded_stage

RESULT = CallResult(Verdict.FAILED, "HTTP 500", status=500)


class Answering:
    """An invoker of a function that answers like the release before."""

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        raise AssertionError("it is asked, not started")

    def ask(self, function: str, event: Mapping[str, Any], seconds: int) -> Mapping[str, Any]:
        fields = {"url": "https://a.example/", "headers": {"a": "b"}, "body": b"{}", "outcome": RESULT}
        return {"exchange": msgspec.to_builtins({**fields, "answer_headers": {}, "answer_body": b"no"})}


def test_an_exchange_is_read_as_the_release_before_writes_it() -> None:
    deps = Deps(replace(embedded_stage().adapters, invoker=Answering()))
    topic = make.topic()
    group = make.group(topic)
    assert deps.outbound.ping(topic, group, make.consumer(group), "id") == Exchange(
        url="https://a.example/",
        headers={"a": "b"},
        body=b"{}",
        result=RESULT,
        answer_headers={},
        answer_body=b"no",
    )
