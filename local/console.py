"""`make console`: a link that signs a browser in to the console, of a service on this machine or anywhere else."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from local import Unusable
from local.data_folder import TokenFile

_SECONDS = 10


class _FollowsNothing(urllib.request.HTTPRedirectHandler):
    """Followed, a redirection would take the token to another host, and make a GET of the POST."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def link(url: str, token: str) -> str:
    """A link of the service at a URL, for a token's holder. Raises Unusable."""
    _check(url)
    if not (token.isascii() and token.isprintable()):
        raise Unusable("HEADRACE_TOKEN has characters that no token has: copy all of it, as it was printed.")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    base = url.rstrip("/").removesuffix("/v1")
    request = urllib.request.Request(f"{base}/v1/sign-in-links", b"{}", headers)
    try:
        with urllib.request.build_opener(_FollowsNothing).open(request, timeout=_SECONDS) as answer:
            body = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code // 100 == 3:
            raise Unusable(
                f"{url} redirects to {error.headers.get('Location')}, and no redirection is followed: set HEADRACE_URL "
                "to the service itself."
            ) from None
        raise Unusable(f"{url} refuses ({error.code}): is HEADRACE_TOKEN a token of this service?") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unusable(
            f"{url} does not answer ({str(error).strip()}): start it (make run), or set HEADRACE_URL."
        ) from None
    if not (isinstance(body, dict) and isinstance(body.get("url"), str)):
        raise Unusable(f"{url} answers without a link: is HEADRACE_URL that of Headrace?")
    return str(body["url"])


def _check(url: str) -> None:
    """Raises Unusable for what is no URL of a service."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
        why = "one is like http://127.0.0.1:8700"
    except ValueError as error:
        why = str(error)
    raise Unusable(f"{url!r} (HEADRACE_URL) is no URL of a service: {why}.")


def main() -> int:
    """The command line."""
    default = f"http://127.0.0.1:{os.environ.get('HEADRACE_PORT') or 8700}"
    parser = argparse.ArgumentParser(prog="python -m local.console", description=__doc__)
    parser.add_argument(
        "--url", default=os.environ.get("HEADRACE_URL") or default, help="HEADRACE_URL (%(default)s)"
    )
    options = parser.parse_args()
    token_file = TokenFile(Path(os.environ.get("HEADRACE_DATA") or ".data") / "token")
    try:
        token = os.environ.get("HEADRACE_TOKEN") or token_file.read()
        if not token:
            raise Unusable(f"Set HEADRACE_TOKEN: there is no token in {token_file.path}.")
        print(link(options.url, token))
    except Unusable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
