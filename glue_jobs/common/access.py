"""Where the service is, and with which token a job calls it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from urllib.parse import urlsplit

from glue_jobs.common.service import Service

_HERE = "http://127.0.0.1:8700"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let a job be told both."""
    url = os.environ.get("HEADRACE_URL") or _HERE
    parser.add_argument("--url", default=url, help=f"where Headrace is (HEADRACE_URL, else {_HERE})")
    secret = "the secret that holds the admin token, on AWS"
    parser.add_argument("--token-secret", metavar="NAME", help=secret)


def check_url(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Leave the process where the URL is none."""
    try:
        parts = urlsplit(arguments.url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
        why = f"one is like {_HERE}"
    except ValueError as error:
        why = str(error)
    parser.error(f"{arguments.url!r} (--url, HEADRACE_URL) is no URL of a service: {why}.")


def has_token(arguments: argparse.Namespace) -> bool:
    """Is there a token, or the name of one?"""
    return bool(arguments.token_secret or _token_here())


def service(arguments: argparse.Namespace) -> Service:
    """The service, called with the token that the secret, HEADRACE_TOKEN or the data folder holds."""
    return Service(arguments.url.rstrip("/").removesuffix("/v1"), _token(arguments))


def _token_here() -> str | None:
    data = os.environ.get("HEADRACE_DATA")
    file = Path(data, "token") if data else None
    return os.environ.get("HEADRACE_TOKEN") or (file.read_text().strip() if file and file.exists() else None)


def _token(arguments: argparse.Namespace) -> str:
    if not arguments.token_secret:
        return _token_here() or ""
    import boto3

    return str(
        boto3.client("secretsmanager").get_secret_value(SecretId=arguments.token_secret)["SecretString"]
    )
