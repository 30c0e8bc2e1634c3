"""`make console`: a link that signs a browser in to the console, of a service on this machine or anywhere else."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import urllib3

from local import Unusable
from local.data_folder import read_token

_SECONDS = 10


def link(url: str, token: str) -> str:
    """A link of the service at a URL, for a token's holder. Raises Unusable."""
    if not (token.isascii() and token.isprintable()):
        raise Unusable("HEADRACE_TOKEN has characters that no token has: copy all of it, as it was printed.")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        place = url.rstrip("/").removesuffix("/v1") + "/v1/sign-in-links"
        answer = urllib3.request(
            "POST", place, body=b"{}", headers=headers, timeout=_SECONDS, redirect=False, retries=False
        )  # a redirection would get the token
        if answer.status == 201:
            return str(answer.json()["url"])
    except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError) as error:
        raise Unusable(
            f"{url} does not answer as Headrace ({str(error).strip()}): start it (make run), or set HEADRACE_URL."
        ) from None
    raise Unusable(f"{url} refuses ({answer.status}): is HEADRACE_TOKEN a token of this service?")


def main() -> None:
    """The command line."""
    default = f"http://127.0.0.1:{os.environ.get('HEADRACE_PORT') or 8700}"
    parser = argparse.ArgumentParser(prog="python -m local.console", description=__doc__)
    url = os.environ.get("HEADRACE_URL") or default
    parser.add_argument("--url", default=url, help="HEADRACE_URL (%(default)s)")
    options = parser.parse_args()
    file = Path(os.environ.get("HEADRACE_DATA") or ".data") / "token"
    token = os.environ.get("HEADRACE_TOKEN") or read_token(file)
    if not token:
        raise Unusable(f"Set HEADRACE_TOKEN: there is no token in {file}.")
    print(link(options.url, token))


if __name__ == "__main__":
    main()
