"""The AWS CLI, asked in JSON; what goes wrong becomes a sentence with what to do next."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from .template import StackError


class Refused(StackError):
    """AWS said no; the text is its own."""


class Aws:
    """The account and region that this machine's settings lead to."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Raises StackError if the AWS CLI, a region or valid credentials are missing."""
        self._environment = dict(os.environ if environment is None else environment)
        self._command = self._environment.get("AWS_CLI", "aws")
        if not shutil.which(self._command, path=self._environment.get("PATH")):
            raise StackError(
                f"The AWS CLI is needed, and there is no command {self._command!r}. Install it "
                "(https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html; "
                "`pip install awscli` will do), or name yours in AWS_CLI."
            )
        self.region = self._region()
        self.account = self._account()

    def run(self, *arguments: str, check: bool = True) -> str:
        """What a command printed. Refused, with the CLI's words, where it failed and `check`; else nothing."""
        process = subprocess.run(
            [self._command, *arguments],
            env={**self._environment, "AWS_PAGER": ""},
            capture_output=True,
            text=True,
        )
        if process.returncode and check:
            raise Refused(process.stderr.strip() or process.stdout.strip())
        return "" if process.returncode else process.stdout

    def ask(self, *arguments: str, check: bool = True) -> Any:
        """The answer of a command; None for none."""
        text = self.run(*arguments, "--output", "json", check=check)
        return json.loads(text) if text.strip() else None

    def _region(self) -> str:
        region = self._environment.get("AWS_REGION") or self._environment.get("AWS_DEFAULT_REGION")
        region = region or self._configured_region()
        if not region:
            raise StackError("No region is set. Say where the stack is to be: export AWS_REGION=eu-central-1")
        self._environment["AWS_REGION"] = self._environment["AWS_DEFAULT_REGION"] = region
        return region

    def _configured_region(self) -> str:
        """Empty where none is set: then the CLI fails, too, and says nothing."""
        try:
            return self.run("configure", "get", "region").strip()
        except Refused as error:
            if str(error):
                raise
            return ""

    def _account(self) -> str:
        try:
            return str(self.ask("sts", "get-caller-identity")["Account"])
        except Refused as error:
            if "Could not connect" in str(error) or "Invalid endpoint" in str(error):
                raise StackError(
                    f"There is no region {self.region!r}, or no way to it. Set AWS_REGION to one of "
                    "`aws ec2 describe-regions`, or see to the network."
                ) from None
            raise StackError(
                f"AWS does not know who you are: {error}\nSign in (`aws configure`, `aws sso login`), or set "
                "AWS_PROFILE, and see that `aws sts get-caller-identity` answers."
            ) from None
