"""`python -m infra.stack deploy|destroy`: the packaged stack, in the account and region that the AWS CLI is set to."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from itertools import takewhile
from pathlib import Path
from typing import Any

from . import bucket, smoke
from .__main__ import add_options, given_options
from .cli import Aws, Refused
from .data import Data
from .package import BUILD, GLUE, TEMPLATE
from .stages import CONFIG, read
from .template import ALWAYS, Stack, StackError

_INTERRUPTED = 130  # as shells say it
_UNRESERVED = 100  # Lambda keeps so much for functions that reserve none
_CAPABILITIES = ("CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND")
_ADVICE = {
    "ROLLBACK_COMPLETE": "Its first deployment failed and it can only be deleted",
    "ROLLBACK_FAILED": "Its first deployment failed and it can only be deleted",
    "CREATE_FAILED": "Its first deployment failed and it can only be deleted",
    "DELETE_FAILED": "It was only deleted in part",
    "REVIEW_IN_PROGRESS": "It was described but never made",
    "UPDATE_ROLLBACK_FAILED": "An update failed, and so did the way back",
}
_WAYS = {
    "UPDATE_ROLLBACK_FAILED": "mend what its events name (`aws cloudformation describe-stack-events --stack-name {0}`)"
    " and run `aws cloudformation continue-update-rollback --stack-name {0}`; then deploy again",
}
_DELETE = "run `make destroy` with the same options, which keeps tables and bucket; then deploy again"


_RESERVED = "ReservedConcurrentExecutions"


def _reservations(template: dict[str, Any]) -> int:
    """How much of Lambda's concurrency a template's functions reserve."""
    properties = (each.get("Properties", {}) for each in template["Resources"].values())
    return sum(each.get(_RESERVED, 0) for each in properties)


def _without_reservations(template: dict[str, Any]) -> dict[str, Any]:
    """The template, its functions with what the account has left."""
    for each in template["Resources"].values():
        each.get("Properties", {}).pop(_RESERVED, None)
    return template


class Deployment:
    """One stack on AWS."""

    def __init__(self, aws: Aws, stack: Stack, build: Path = BUILD) -> None:
        self._aws = aws
        self._stack = stack
        self._build = build
        self._name = stack.prefix
        self._artifacts = bucket.artifacts(aws.account, aws.region)
        self._data = Data(aws, stack.prefix)
        self._reserves = True

    def deploy(self) -> dict[str, str]:
        """Create or update it and wait for the end; its outputs. Raises StackError."""
        self._check_certificate()
        status = self._status()
        self._check_status(status)
        new = not status or status == "REVIEW_IN_PROGRESS"
        self._reserves = self._may_reserve(0 if new else self._reserved_concurrency())
        self._make_artifacts()
        if new:
            self._drop_logs()
        template_url = self._upload()
        is_first = new and not self._data.is_left()
        change = self._create_change_set("CREATE" if new else "UPDATE", template_url)
        try:
            if change:
                self._execute(change, "create" if new else "update")
        except StackError as error:
            raise (StackError(f"{error}\n{self._take_back()}") if is_first else error) from None
        return self._outputs()

    def _take_back(self) -> str:
        """Delete what a first deployment has made that failed: before it, nothing was there. How that went."""
        try:
            self._aws.run("cloudformation", "delete-stack", "--stack-name", self._name)
            self._wait("delete")
            self._data.delete()
        except StackError as error:
            return (
                f"What it had made is not all deleted: {error}\n`make destroy` with ARGS=--with-data goes on."
            )
        return "What it had made is deleted again, so nothing is left of it."

    def destroy(self, *, with_data: bool) -> list[str]:
        """Delete it, and what it keeps only `with_data`; what is left, in words. Raises StackError."""
        if not self._status() and not (with_data and self._data.is_left()):
            raise StackError(
                f"There is no stack {self._name} in {self._aws.region} of account {self._aws.account}. If it is "
                "elsewhere, set AWS_REGION or AWS_PROFILE."
            )
        self._aws.run("cloudformation", "delete-stack", "--stack-name", self._name)
        self._wait("delete")
        uploads = f"s3://{self._artifacts}/{self._name}/"
        self._aws.run("s3", "rm", "--recursive", "--quiet", uploads, check=False)
        if with_data:
            try:
                self._data.delete()
            except Refused as error:
                raise StackError(
                    f"The stack {self._name} is deleted, its data not all of it: {error}\n"
                    "The same command goes on with what is left."
                ) from None
        return self._left()

    def _left(self) -> list[str]:
        """The tables and bucket that are left, in words. If AWS refuses the question, a message is printed, without an
        error: what was to be deleted is gone."""
        try:
            buckets = [f"bucket {self._data.bucket}"] if self._data.has_bucket() else []
            return [*(f"table {table}" for table in self._data.tables()), *buckets]
        except Refused as error:
            print(
                f"Which tables of {self._name} are left, and whether its bucket is, AWS does not say: {error}",
                file=sys.stderr,
            )
            return []

    def _check_certificate(self) -> None:
        certificate = self._stack.certificate
        if certificate and certificate.split(":")[3] != self._aws.region:
            raise StackError(
                f"The certificate is of another region than the stack, {self._aws.region}: set AWS_REGION to "
                f"{certificate.split(':')[3]}, or request the certificate here."
            )

    def _check_status(self, status: str) -> None:
        if status in _ADVICE:
            command = _WAYS.get(status, _DELETE).format(self._name)
            if status != "REVIEW_IN_PROGRESS":
                raise StackError(f"The stack {self._name} is {status}. {_ADVICE[status]}: {command}.")
        elif status.endswith("_IN_PROGRESS"):
            raise StackError(
                f"The stack {self._name} is {status}: somebody else works on it. Try again when it has ended."
            )

    def _reserved_concurrency(self) -> int | None:
        """How much of Lambda's concurrency the present stack reserves; None if unknown."""
        answer = self._aws.ask("cloudformation", "get-template", "--stack-name", self._name, check=False)
        body = answer["TemplateBody"] if answer else None
        return _reservations(json.loads(body) if isinstance(body, str) else body) if body else None

    def _may_reserve(self, reservations: int | None) -> bool:
        """Does the account lend what the functions reserve? Lambda would refuse it in the middle of a deployment.
        `reservations` are the stack's so far. Raises StackError where it does not, unless the stage may do without."""
        if reservations is None:
            return True
        additions = _reservations(json.loads((self._build / TEMPLATE).read_text())) - reservations
        if additions <= 0:
            return True
        limits = self._aws.ask("lambda", "get-account-settings")["AccountLimit"]
        free = limits["UnreservedConcurrentExecutions"]
        if free - additions >= _UNRESERVED:
            return True
        short = (
            f"The stage {self._stack.stage} reserves {additions} more of Lambda's concurrency, and {_UNRESERVED} must "
            f"stay unreserved, but the account has only {free} left in {self._aws.region}."
        )
        advice = (
            "Ask for more (`aws service-quotas request-service-quota-increase --service-code lambda --quota-code "
            "L-B99A9384 --desired-value 1000`)"
        )
        # A flood at a public URL would take what REST needs.
        if self._stack.reserve == ALWAYS or self._stack.url:
            raise StackError(f"{short} {advice}, or set lower numbers of reserved_concurrency in {CONFIG}.")
        print(
            f"{short} It is deployed without: subscribers that hang may use up what callers need. {advice} and deploy "
            "again.",
            file=sys.stderr,
        )
        return False

    def _status(self) -> str:
        """The stack's status; empty if there is none. Refused, where AWS does not say: who took that for none would
        delete the logs of a stack that is at work."""
        try:
            answer = self._aws.ask("cloudformation", "describe-stacks", "--stack-name", self._name)
        except Refused as error:
            if "does not exist" not in str(error):
                raise
            return ""
        return str(answer["Stacks"][0]["StackStatus"])

    def _outputs(self) -> dict[str, str]:
        answer = self._aws.ask("cloudformation", "describe-stacks", "--stack-name", self._name)
        return {each["OutputKey"]: each["OutputValue"] for each in answer["Stacks"][0].get("Outputs", [])}

    def _make_artifacts(self) -> None:
        """The bucket for what is deployed, one for all stacks of an account's region."""
        if self._aws.run(*self._head_bucket_arguments(), check=False):
            return
        self._aws.run("s3", "mb", f"s3://{self._artifacts}", check=False)
        try:
            self._aws.run(*self._head_bucket_arguments())
        except Refused as error:
            raise StackError(
                f"The bucket {self._artifacts} is not this account's, or you may not use it ({error}). Names of "
                "buckets are the world's: whoever made it could change what is deployed. Take another region."
            ) from None

    def _head_bucket_arguments(self) -> tuple[str, ...]:
        """Asks for the bucket, if it is this account's."""
        owner = ("--expected-bucket-owner", self._aws.account)
        return ("s3api", "head-bucket", "--bucket", self._artifacts, *owner)

    def _upload(self) -> str:
        """Send the zips and the template; its URL."""
        template_file = self._build / "packaged.json"
        place = ("--s3-bucket", self._artifacts, "--s3-prefix", self._name)
        source = ("--template-file", str(self._build / TEMPLATE))
        output = ("--output-template-file", str(template_file))
        self._aws.run("cloudformation", "package", "--use-json", *source, *output, *place)
        if self._stack.glue:
            jobs = f"s3://{self._artifacts}/{self._stack.glue_key}/"
            self._aws.run("s3", "cp", "--quiet", "--recursive", str(self._build / GLUE), jobs)
        template = json.loads(template_file.read_text())
        # Only what has its name in plain text is taken in again.
        template["Resources"][bucket.BUCKET]["Properties"]["BucketName"] = self._data.bucket
        if not self._reserves:
            template = _without_reservations(template)
        template_file.write_text(json.dumps(template))
        key = f"{self._name}/{TEMPLATE}"
        self._aws.run("s3", "cp", "--quiet", str(template_file), f"s3://{self._artifacts}/{key}")
        return f"https://s3.{self._aws.region}.amazonaws.com/{self._artifacts}/{key}"

    def _create_change_set(self, kind: str, template_url: str) -> str:
        """The change set; empty if nothing changes. Tables and bucket of an earlier stack are taken in again, and in an
        update a table that an earlier update left behind: one that failed, or was taken back."""
        name = f"headrace-{time.time_ns()}"
        stack = ("--stack-name", self._name, "--change-set-name", name)
        self._aws.run(
            *("cloudformation", "create-change-set", *stack, "--change-set-type", kind),
            *("--import-existing-resources", "--template-url", template_url),
            *("--capabilities", *_CAPABILITIES),
            *("--tags", f"Key=headrace,Value={self._name}"),  # on all that the stack makes: the bill by stack
            f"Key=headrace-stage,Value={self._stack.stage}",
        )
        self._aws.run("cloudformation", "wait", "change-set-create-complete", *stack, check=False)
        change_set = self._aws.ask("cloudformation", "describe-change-set", *stack)
        if change_set["Status"] != "FAILED":
            return name
        self._aws.run("cloudformation", "delete-change-set", *stack, check=False)
        reason = str(change_set.get("StatusReason", ""))
        if "didn't contain changes" in reason or "No updates" in reason:
            return ""
        raise StackError(f"AWS does not take the template: {reason}")

    def _execute(self, change: str, deed: str) -> None:
        self._aws.run(
            *("cloudformation", "execute-change-set", "--stack-name", self._name, "--change-set-name", change)
        )
        self._wait(deed)

    def _wait(self, deed: str) -> None:
        """Wait for the end. Raises StackError, with what failed."""
        try:
            self._aws.run("cloudformation", "wait", f"stack-{deed}-complete", "--stack-name", self._name)
        except Refused as error:
            raise StackError(
                f"The stack {self._name} could not be {deed.rstrip('e')}ed:\n{self._failures(deed) or error}\n"
                f"It is {self._status()} now. Mend that and run it again."
            ) from None

    def _failures(self, deed: str) -> str:
        """The failures since the operation began, with reasons. The rollback's many events come after them."""
        answer = self._aws.ask(
            "cloudformation", "describe-stack-events", "--stack-name", self._name, check=False
        )
        newest_first: list[Any] = (answer or {}).get("StackEvents", [])
        beginning = (self._name, f"{deed.upper()}_IN_PROGRESS")
        events = takewhile(
            lambda each: (each["LogicalResourceId"], each["ResourceStatus"]) != beginning, newest_first
        )
        failures = [each for each in events if each["ResourceStatus"].endswith("_FAILED")]
        return "\n".join(
            f"  {each['LogicalResourceId']}: {each.get('ResourceStatusReason', each['ResourceStatus'])}"
            for each in reversed(failures)
        )

    def _drop_logs(self) -> None:
        """Delete logs that functions and jobs have opened again while their stack was being deleted."""
        for each in json.loads((self._build / TEMPLATE).read_text())["Resources"].values():
            if each.get("Type") == "AWS::Logs::LogGroup":
                log = each["Properties"]["LogGroupName"]
                self._aws.run("logs", "delete-log-group", "--log-group-name", log, check=False)


def _check_confirmation(stack: Stack, name: str | None, with_data: bool) -> None:
    """Raises StackError unless the user typed the prefix."""
    effect = (
        "its tables and its bucket, with everything in them" if with_data else "but not its tables and bucket"
    )
    if name is None:
        if not sys.stdin.isatty():
            raise StackError(
                f"Nobody is there to confirm: add CONFIRM={stack.prefix} (or --confirm {stack.prefix})."
            )
        try:
            name = input(f"This deletes the stack {stack.prefix}, {effect}. Type its name to go on: ")
        except EOFError:
            name = ""
    if name.strip() != stack.prefix:
        raise StackError(f"Not confirmed: nothing was done. The stack's name is {stack.prefix}.")


def _prefix(options: argparse.Namespace, stack: Stack) -> None:
    print(stack.prefix)


def _deploy(options: argparse.Namespace, stack: Stack) -> None:
    file = options.build / TEMPLATE
    template = json.loads(file.read_text()) if file.exists() else {}
    if template.get("Description") != f"Headrace, stage {stack.stage}, prefix {stack.prefix}":
        raise StackError(f"{file} is not of this stage and prefix: run `make package` with the same first.")
    aws = Aws()
    outputs = Deployment(aws, stack, options.build).deploy()
    print(f"{stack.prefix} is deployed in {aws.region} of account {aws.account}.")
    smoke.show(aws, stack, outputs)
    print(f"The first admin token: make token {_make_arguments(options, stack)}")
    smoke.run(aws, stack, outputs["EndpointURL"], os.environ.get("HEADRACE_TOKEN", ""))


def _destroy(options: argparse.Namespace, stack: Stack) -> None:
    _check_confirmation(stack, options.confirm, options.with_data)
    resources = Deployment(Aws(), stack, options.build).destroy(with_data=options.with_data)
    print(f"The stack {stack.prefix} is deleted.")
    if resources:
        print(f"Kept on purpose, and found again by the next deployment: {', '.join(resources)}.")
        print(f"To delete these too: make destroy {_make_arguments(options, stack)} ARGS=--with-data")


def _make_arguments(options: argparse.Namespace, stack: Stack) -> str:
    """The arguments that name the stack to `make`."""
    return f"STAGE={stack.stage}" + (f" PREFIX={options.prefix}" if options.prefix else "")


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m infra.stack", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="deploy|destroy|prefix")
    deploy = commands.add_parser("deploy", help="create or update the stack from what `make package` wrote")
    deploy.set_defaults(run=_deploy)
    destroy = commands.add_parser("destroy", help="delete the stack")
    destroy.set_defaults(run=_destroy)
    destroy.add_argument("--with-data", action="store_true", help="its tables and its bucket, too")
    destroy.add_argument(
        "--confirm", metavar="PREFIX", help="the stack's name, where nobody is there to type it"
    )
    prefix = commands.add_parser("prefix", help="print the stack's name")
    prefix.set_defaults(run=_prefix)
    for each in (deploy, destroy, prefix):
        add_options(each)
        each.add_argument(
            "--build", type=Path, default=BUILD, help="the folder that was packaged into (build)"
        )
    options = parser.parse_args(arguments)
    try:
        options.run(options, read(options.stage, given_options(options)))
    except StackError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "\nInterrupted. What AWS has begun it goes on with; when that has ended, the same command does the rest.",
            file=sys.stderr,
        )
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
