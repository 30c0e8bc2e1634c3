"""Roles of the template name actions and resources; a star stands only where AWS or a function makes the name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infra import names
from infra.glue import job_names
from infra.glue import role_id as job_role
from infra.roles import role_id
from infra.stages import read
from infra.template import template

KNOW_NO_RESOURCE = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
MADE_BY_AWS = re.compile(r":log-group:/aws[^*]+:(?:log-stream:)?\*|:secret:[^*?]+-\?{6}$|:kms:.*:key/\*$")
MADE_BY_US = re.compile(r":s3:::[^*/]+(?:/[a-z0-9-]+)+/\*")


ANY_KEY = "arn:${AWS::Partition}:kms:${AWS::Region}:${AWS::AccountId}:key/*"
"""Which of them is the stage's, its tag says."""


def roles_of(template_file: Path) -> dict[str, Any]:
    """All roles of a template."""
    resources = json.loads(template_file.read_text())["Resources"]
    return {name: each for name, each in resources.items() if each["Type"] == "AWS::IAM::Role"}


def statements(resources: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every statement of every role, with the role's logical id."""
    for name, resource in resources.items():
        for policy in resource["Properties"]["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                yield name, statement


def needless_stars(resources: Mapping[str, Any]) -> list[str]:
    """What roles allow by a star where a name could stand."""
    stars = []
    for role, statement in statements(resources):
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        stars += [f"{role}: {action}" for action in actions if "*" in action]
        statement_resources = statement["Resource"]
        for resource in (
            statement_resources if isinstance(statement_resources, list) else [statement_resources]
        ):
            text = resource if isinstance(resource, str) else str(resource.get("Fn::Sub", ""))
            bare = MADE_BY_US.sub("", MADE_BY_AWS.sub("", text))
            if set("*?") & set(bare) and not (bare == "*" and set(actions) <= KNOW_NO_RESOURCE):
                stars.append(f"{role}: {text}")
    return stars


def test_no_star_stands_where_a_name_could(template_file: Path) -> None:
    role_resources = roles_of(template_file)
    assert needless_stars(role_resources) == []
    assert role_resources.keys() == {role_id(name) for name in names.FUNCTIONS} | {
        job_role(name) for name in job_names()
    }


def test_two_stages_have_nothing_in_common() -> None:
    def resources(stage: str) -> set[str]:
        stack_resources = template(read(stage))["Resources"]
        roles = {name: each for name, each in stack_resources.items() if each.get("Type") == "AWS::IAM::Role"}
        role_targets = [
            r for _, s in statements(roles) if isinstance(s["Resource"], list) for r in s["Resource"]
        ]
        return {resource["Fn::Sub"] for resource in role_targets if "Fn::Sub" in resource} - {ANY_KEY}

    assert not resources("dev") & resources("prod")


def test_a_key_is_used_for_its_own_stage_and_for_one_kind_of_secret(template_file: Path) -> None:
    for _, statement in statements(roles_of(template_file)):
        if any(action.startswith("kms:") for action in statement["Action"]):
            only = statement["Condition"]["StringEquals"]
            assert len({only["aws:ResourceTag/headrace"], only["kms:EncryptionContext:headrace"]}) == 1
            assert only["kms:EncryptionContext:secret"] in ("signing-key", "subscriber", "callback")


def test_a_part_of_a_table_is_of_one_kind(template_file: Path) -> None:
    """A partition is named whole, or by what stands before its `#`."""
    for _, statement in statements(roles_of(template_file)):
        condition = statement.get("Condition", {}).get("ForAllValues:StringLike", {})
        for partition in condition.get("dynamodb:LeadingKeys", ()):
            assert "*" not in partition.removesuffix("#*")


def test_a_log_group_is_named_as_its_creation_wants_it(template_file: Path) -> None:
    """Of most calls CloudWatch Logs compares the group's ARN with `:*` behind it, of some without."""
    names_by_role = {
        role: {resource["Fn::Sub"] for resource in s["Resource"]}
        for role, s in statements(roles_of(template_file))
        if "logs:CreateLogGroup" in s["Action"]
    }
    assert names_by_role.keys() == {job_role(name) for name in job_names()}
    for arns in names_by_role.values():
        bare = {arn for arn in arns if not arn.endswith(":*")}
        assert bare
        assert arns == bare | {f"{arn}:*" for arn in bare}


def test_only_a_stage_that_is_traced_may_write_traces(template_file: Path) -> None:
    actions_by_role = [(role, set(s["Action"])) for role, s in statements(roles_of(template_file))]
    writers = {role for role, actions in actions_by_role if actions == KNOW_NO_RESOURCE}
    assert writers == {role for role, actions in actions_by_role if actions & KNOW_NO_RESOURCE}
    assert len(writers) == (len(names.FUNCTIONS) if "prod" in str(template_file) else 0)


def allowances(role_resources: Mapping[str, Any], role: str) -> set[tuple[str, str]]:
    """What a role allows in buckets: each action, and the keys that it is for."""
    return {
        (action, str(resource.get("Fn::Sub", "")).rpartition(":::")[2].partition("/")[2])
        for name, statement in statements(role_resources)
        if name == role and statement["Resource"] != "*"
        for action in statement["Action"]
        for resource in statement["Resource"]
    }


def test_only_the_archives_own_job_changes_journal_and_archive(template_file: Path) -> None:
    role_resources = roles_of(template_file)
    writers: dict[str, set[str]] = {}
    for role in role_resources:
        for action, place in allowances(role_resources, role):
            if action in ("s3:PutObject", "s3:DeleteObject"):
                writers.setdefault(place, set()).add(role)
    assert writers["archive/*"] == {"ArchiveJobRole"}
    assert writers["journal/*"] == {"ArchiveJobRole", "JournalRole"}
    assert writers["reports/*"] == {"ReportJobRole"}


def test_only_jobs_that_call_the_api_read_its_token(template_file: Path) -> None:
    role_resources = roles_of(template_file)
    readers = {
        role for role, s in statements(role_resources) if "secretsmanager:GetSecretValue" in s["Action"]
    }
    assert readers == {"ReplayJobRole", "ReportJobRole"}


def test_what_is_replaced_or_deleted_can_be_had_back_whoever_did_it(template_file: Path) -> None:
    bucket = json.loads(template_file.read_text())["Resources"]["Bucket"]["Properties"]
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    [rule] = [r for r in bucket["LifecycleConfiguration"]["Rules"] if "NoncurrentVersionExpiration" in r]
    assert "Prefix" not in rule, "for whatever is in the bucket"
    actions = {
        action for _, statement in statements(roles_of(template_file)) for action in statement["Action"]
    }
    on_objects = {action for action in actions if action.startswith("s3:")}
    assert on_objects == {
        *("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListBucket")
    }, "neither DeleteObjectVersion nor PutBucketVersioning"
