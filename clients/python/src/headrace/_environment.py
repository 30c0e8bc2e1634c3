"""What the environment says of connections: which certificates are trusted, and which proxy is between."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl


def trust(urls: Sequence[str]) -> ssl.SSLContext | None:
    """The trusted certificates, for all clients of this process: to load them takes as long as some calls. None where
    no address has any."""
    return _context() if any(url.lower().startswith("https:") for url in urls) else None


@cache
def _context() -> ssl.SSLContext:
    import os
    import ssl

    import certifi

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        return ssl.create_default_context(
            cafile=file or (None if folder else certifi.where()), capath=folder or None
        )
    except OSError as error:
        raise ValueError(
            f"The certificates to trust cannot be read ({error}): see SSL_CERT_FILE and SSL_CERT_DIR."
        ) from error


def proxy_of(url: str) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name for a URL; None: there is none. ValueError
    for one that does not speak HTTP."""
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme.lower()) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.lower().startswith(("http://", "https://")):
        scheme = proxy.partition(":")[0]
        raise ValueError(
            f"The proxy for {url} is one of {scheme}, not of HTTP: add {parts.hostname} to NO_PROXY."
        )
    return proxy
