"""Which certificates are trusted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def trust(urls: Sequence[str]) -> ssl.SSLContext | bool:
    """The machine's certificates, for all clients of this process: to load them takes as long as some calls. Nothing
    where no address has any."""
    return _context() if any(url.startswith("https:") for url in urls) else False


@cache
def _context() -> ssl.SSLContext:
    import httpx

    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise ValueError(
            f"The certificates to trust cannot be read ({error}): see SSL_CERT_FILE and SSL_CERT_DIR."
        ) from error
