"""Where the service is, and with which token a job calls it."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from glue_jobs.common.failures import JobError
from glue_jobs.common.service import Service

_HERE = "http://127.0.0.1:8700"
_TOKEN = re.compile(r"hr_[A-Za-z0-9_-]+")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for both."""
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
    return bool(arguments.token_secret or os.environ.get("HEADRACE_TOKEN") or _token_file())


def service(arguments: argparse.Namespace) -> Service:
    """The service, called with the token that the secret, HEADRACE_TOKEN or the data folder holds. Raises JobError
    where that is none."""
    return Service(arguments.url.rstrip("/").removesuffix("/v1"), _token(arguments))


def _token_file() -> Path | None:
    data = os.environ.get("HEADRACE_DATA")
    file = Path(data, "token") if data else None
    return file if file and file.exists() else None


def _token_here() -> str:
    file = _token_file()
    return os.environ.get("HEADRACE_TOKEN") or (file.read_text() if file else "")


def _token(arguments: argparse.Namespace) -> str:
    """A text that cannot be sent must not come as far as HTTP, whose errors show it."""
    secret = arguments.token_secret
    token = (_token_of(secret) if secret else _token_here()).strip()
    if not _TOKEN.fullmatch(token):
        place = f"The secret {secret}" if secret else "HEADRACE_TOKEN (or HEADRACE_DATA/token)"
        raise JobError(f"{place} holds no token: put hr_… there as it was printed, and nothing else.")
    return token


def _token_of(secret: str) -> str:
    import boto3

    answer = boto3.client("secretsmanager").get_secret_value(SecretId=secret)
    return str(answer.get("SecretString", ""))
