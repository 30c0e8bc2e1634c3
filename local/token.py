"""`make token`: the first admin token of a deployed stage, written into its table from this machine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from chalicelib.domain.errors import HeadraceError
from local import Unusable


def first_token(prefix: str, another: bool) -> str:
    """The text of a new admin token. Raises Unusable."""
    check_stage(prefix)
    from chalicelib.services.manage.tokens import SCOPES
    from chalicelib.wiring import deps

    tokens = deps().tokens
    text = tokens.create("admin", SCOPES)[1] if another else tokens.ensure_admin(None)
    if text is None:
        raise Unusable(
            f"{prefix} has tokens already, and their texts are kept nowhere. Make another with yours "
            "(POST /v1/tokens), or, if they are lost, with `make token STAGE=... ARGS=--another`."
        )
    return text


def check_stage(prefix: str) -> None:
    """Is the stage there?"""
    try:
        boto3.client("dynamodb").describe_table(TableName=f"{prefix}-control")
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        raise Unusable(
            f"There is no table {prefix}-control in this account and region: deploy the stage first, or set "
            "AWS_REGION and the credentials to where it is."
        ) from None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m local.token", description=__doc__)
    parser.add_argument("--prefix", required=True, help="the prefix of the stack")
    parser.add_argument("--another", action="store_true", help="make one although there are tokens already")
    options = parser.parse_args()
    os.environ["HEADRACE_PREFIX"] = options.prefix
    with on_stage():
        print(first_token(options.prefix, options.another))


@contextmanager
def on_stage() -> Iterator[None]:
    """For work on the tables of a stage, or of this machine: finds the region. What goes wrong becomes Unusable."""
    try:
        region = os.environ.get("AWS_REGION") or boto3.Session().region_name
        if region:  # boto3 reads only the other
            os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = region
        yield
    except HeadraceError as error:  # the store refuses, or does not answer
        raise Unusable(error.detail) from None
    except ClientError as error:
        raise Unusable(f"AWS refuses: {error}") from None
    except BotoCoreError as error:
        why = f"AWS was not reached: {error} Are AWS_REGION, AWS_PROFILE and the credentials right?"
        raise Unusable(why) from None


if __name__ == "__main__":
    main()
