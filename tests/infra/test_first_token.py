"""`make token` says what stands in its way."""

from __future__ import annotations

import json
import re

import pytest

from chalicelib import adapters, settings, wiring
from local import Unusable
from local.gateway import Answer
from local.server import serve
from local.token import main


class Refusing:
    """A DynamoDB whose caller may look at tables; into them, all is refused with this code."""

    def __init__(self, code: str) -> None:
        self._code = code

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        target = {name.lower(): value for name, value in headers.items()}["x-amz-target"]
        if target.endswith(".DescribeTable"):
            return 200, {}, json.dumps({"Table": {"TableStatus": "ACTIVE"}}).encode()
        refusal = {"__type": f"com.amazon.coral.service#{self._code}", "Message": f"not {target}"}
        return 400, {}, json.dumps(refusal).encode()


@pytest.mark.parametrize("options", [(), ("--another",)])
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("AccessDeniedException", "AWS refuses: An error occurred (AccessDeniedException)"),
        ("ProvisionedThroughputExceededException", "The store did not answer in time; try again."),
    ],
)
def test_who_cannot_write_the_table_is_told_so(
    code: str,
    why: str,
    options: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = serve(Refusing(code))
    server.start()
    for name, value in (
        ("AWS_ENDPOINT_URL_DYNAMODB", f"http://127.0.0.1:{server.port}"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_REGION", "eu-west-1"),
        ("AWS_DEFAULT_REGION", "eu-west-1"),
        ("HEADRACE_PREFIX", "of-readers"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(wiring, "deps", lambda: wiring.Deps(adapters.dynamo_adapters(settings.read({}))))
    monkeypatch.setattr("sys.argv", ["token", "--prefix", "of-readers", *options])
    try:
        with pytest.raises(Unusable, match=re.escape(why)):
            main()
    finally:
        server.shutdown()


@pytest.mark.parametrize("region", [None, "eu-west-1"])
def test_who_names_no_profile_of_aws_is_told_so(region: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_PROFILE", "no-such"),
        ("AWS_REGION", region),
        ("AWS_DEFAULT_REGION", region),
        ("HEADRACE_PREFIX", "headrace-dev"),
    ):
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["token", "--prefix", "headrace-dev"])
    with pytest.raises(
        Unusable, match=r"^AWS was not reached: The config profile \(no-such\) could not be found"
    ):
        main()
