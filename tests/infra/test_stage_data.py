"""What a deleted stage leaves behind, and how it goes with all its data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.cli import Aws, Refused
from infra.data import Data
from infra.stack import Deployment
from infra.stages import read
from infra.template import StackError


class Versions(Aws):
    """An AWS with a bucket that has so many versions and markers."""

    account, region = "123456789012", "eu-central-1"

    def __init__(self, versions: int, markers: int) -> None:
        kinds = ["Versions"] * versions + ["DeleteMarkers"] * markers
        self.left = [{"Key": f"k{n}", "VersionId": str(n), "kind": kind} for n, kind in enumerate(kinds)]
        self.deleted: list[str] = []

    def run(self, *arguments: str, check: bool = True) -> str:
        self.deleted += ["bucket"] * (arguments[:2] == ("s3", "rb") and not self.left)
        return ""

    def ask(self, *arguments: str, check: bool = True) -> Any:
        if "list-object-versions" in arguments:
            page = self.left[:1000]
            return {
                kind: [e for e in page if e["kind"] == kind] or None for kind in ("Versions", "DeleteMarkers")
            }
        if "delete-objects" in arguments:
            objects = json.loads(Path(arguments[-1].removeprefix("file://")).read_text())["Objects"]
            doomed = {(each["Key"], each["VersionId"]) for each in objects}
            self.left = [each for each in self.left if (each["Key"], each["VersionId"]) not in doomed]
        return None


@pytest.mark.parametrize(("versions", "markers"), [(0, 0), (3, 0), (0, 2), (1500, 700)])
def test_a_bucket_is_deleted_with_all_versions_of_whatever_is_in_it(versions: int, markers: int) -> None:
    aws = Versions(versions, markers)
    Data(aws, "headrace-dev").delete()
    assert aws.deleted == ["bucket"]


class Kept(Aws):
    """An AWS with what a stage leaves behind, and a trail of what was asked of it."""

    account, region = "123456789012", "eu-central-1"

    def __init__(self, *, refused_call: str = "") -> None:
        self.refuses = refused_call
        self.has_stack = self.has_bucket = True
        self.tables = ["headrace-dev-log", "headrace-dev-control", "headrace-dev2-log", "somebody-elses"]
        self.keys = [
            "arn:aws:kms:eu-central-1:123456789012:key/a",
            "arn:aws:kms:eu-central-1:123456789012:key/b",
        ]
        self.doomed_keys: list[str] = []
        self.going_tables: list[str] = []
        self.trail: list[tuple[str, ...]] = []

    def run(self, *arguments: str, check: bool = True) -> str:
        self.trail.append(arguments)
        if self.refuses and self.refuses in arguments and check:
            raise Refused("AccessDenied")
        if "head-bucket" in arguments and not self.has_bucket:
            raise Refused("An error occurred (404) when calling the HeadBucket operation: Not Found")
        if {"update-table", "delete-table"} & {*arguments} and arguments[-1] in self.going_tables:
            raise Refused("An error occurred (ResourceInUseException): it is being deleted")
        if "delete-table" in arguments:
            self.going_tables.append(arguments[-1])
        if "table-not-exists" in arguments:
            self.going_tables.remove(arguments[-1])
            self.tables.remove(arguments[-1])
        self.has_stack &= "delete-stack" not in arguments
        self.has_bucket &= "rb" not in arguments
        if "schedule-key-deletion" in arguments:
            key = arguments[arguments.index("--key-id") + 1]
            if key in self.doomed_keys:
                raise Refused(f"An error occurred (KMSInvalidStateException): {key} is pending deletion.")
            self.doomed_keys.append(key)
        return ""

    def ask(self, *arguments: str, check: bool = True) -> Any:
        self.trail.append(arguments)
        if "list-tables" in arguments:
            return {"TableNames": self.tables}
        if "describe-table" in arguments:
            is_going = arguments[-1] in self.going_tables
            return {"Table": {"TableStatus": "DELETING" if is_going else "ACTIVE"}}
        if "describe-stacks" in arguments and not self.has_stack:
            raise Refused("An error occurred (ValidationError): Stack with id headrace-dev does not exist")
        if "describe-stacks" in arguments:
            return {"Stacks": [{"StackStatus": "UPDATE_COMPLETE"}]}
        if "get-resources" in arguments and "Key=headrace,Values=headrace-dev" in arguments:
            return {"ResourceTagMappingList": [{"ResourceARN": key} for key in self.keys]}
        if "describe-key" in arguments:
            is_doomed = arguments[arguments.index("--key-id") + 1] in self.doomed_keys
            return {"KeyMetadata": {"KeyState": "PendingDeletion" if is_doomed else "Enabled"}}
        return None

    def asked(self, operation: str) -> list[tuple[str, ...]]:
        return [each for each in self.trail if operation in each]


def test_without_its_data_a_stack_is_deleted_and_no_table_and_no_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    aws = Kept()
    names = Deployment(aws, read("dev")).destroy(with_data=False)
    assert names == [
        "table headrace-dev-log",
        "table headrace-dev-control",
        "bucket headrace-dev-123456789012-eu-central-1",
    ]
    assert aws.asked("delete-stack")
    assert not [each for each in aws.trail if {"delete-table", "rb", "schedule-key-deletion"} & set(each)]


def test_with_its_data_all_of_a_stage_goes_and_its_keys_after_a_week() -> None:
    aws = Kept()
    Deployment(aws, read("dev")).destroy(with_data=True)
    assert aws.tables == ["headrace-dev2-log", "somebody-elses"], "and nothing else"
    doomed = aws.asked("schedule-key-deletion")
    assert [each[each.index("--key-id") + 1] for each in doomed] == aws.keys
    assert {each[each.index("--pending-window-in-days") + 1] for each in doomed} == {"7"}
    order = [each[1] for each in aws.trail]
    places = [place for place, name in enumerate(order) if name == "update-table"]
    assert max(places) < order.index("delete-table")
    assert order.index("delete-stack") < min(places)
    assert order.index("schedule-key-deletion") > order.index("rb"), "keys last: the rows need them"


@pytest.mark.parametrize("call", ["delete-table", "table-not-exists", "rb", "schedule-key-deletion"])
def test_a_deletion_with_data_that_was_stopped_goes_on_where_it_was(call: str) -> None:
    """Stack and tables go first; the versions of a large bucket take hours."""
    aws = Kept(refused_call=call)
    with pytest.raises(
        StackError, match=r"headrace-dev is deleted, its data not all of it: .*AccessDenied.*\n.* goes on"
    ):
        Deployment(aws, read("dev")).destroy(with_data=True)
    aws.refuses = ""
    assert Deployment(aws, read("dev")).destroy(with_data=True) == []
    assert (aws.has_stack, aws.has_bucket, aws.doomed_keys) == (False, False, aws.keys)
    with pytest.raises(StackError, match="There is no stack"):
        Deployment(aws, read("dev")).destroy(with_data=True)


def test_a_bucket_that_could_not_be_asked_for_is_not_taken_for_none() -> None:
    """The words of the refusal may hold the account's number, by the bucket's name."""

    class Offline(Kept):
        account = "123404567890"

        def run(self, *arguments: str, check: bool = True) -> str:
            if "head-bucket" in arguments:
                raise Refused(f'Could not connect to the endpoint URL: "https://{arguments[-1]}.s3/"')
            return super().run(*arguments, check=check)

    with pytest.raises(StackError, match="Could not connect"):
        Deployment(Offline(), read("dev")).destroy(with_data=True)
