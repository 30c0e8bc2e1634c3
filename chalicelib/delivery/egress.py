"""The one way out: deliveries, handshakes and checks all leave through `Egress.call`.

Each call judges the URL, resolves its name and judges every address again, and connects to an address it has judged.
It follows no redirect and knows no proxy, netrc or cookie. What comes back is hostile until proved otherwise.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import NamedTuple

from . import connections as net
from .addresses import UNUSABLE, Rules, Target, parse_url
from .connections import Connection, Deadline, Monotonic
from .connections import Reply as Reply

HOP_HEADER = "Headrace-Hop"  # we send it, the front door refuses it: no message goes in circles
_OURS = {"User-Agent": "headrace", "Accept-Encoding": "identity", HOP_HEADER: "1"}
_MAX_ADDRESSES = 4  # of one host to try
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_FRAMING = {"host", "content-length", "transfer-encoding", "trailer", "te", "expect", "upgrade", "connection"}
_FRAMING |= {"keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"}
_FRAMING |= {name.lower() for name in _OURS}
_REGISTRATION_SECONDS = 5.0
_STALE_MS = 1000  # who was silent for longer before a reset may have been at work on the request


Headers = Mapping[str, str]


class Unreached(NamedTuple):
    """No answer, and why, in words that may be shown."""

    detail: str
    duration_ms: int


@dataclass(kw_only=True, eq=False)
class Egress:
    """Calls URLs. It is shared by threads; a host that hangs delays only its own callers."""

    rules: Rules
    monotonic: Monotonic
    resolve: net.Resolve = net.system_resolve
    tls: ssl.SSLContext | None = None
    dial: net.Dial = net.dial

    def __post_init__(self) -> None:
        self._lookups = net.Lookups(self.resolve)
        self._tls_lock = threading.Lock()
        self._pool = net.Pool(self.monotonic)

    def call(self, method: str, url: str, headers: Headers, body: bytes, seconds: float) -> Reply | Unreached:
        """Make one request, which ends within `seconds` of wall-clock time.

        Headers that belong to the connection, or are Headrace's own, are left out.
        """
        deadline = Deadline(self.monotonic, seconds)
        try:
            answer = self._try(method, url, headers, body, deadline)
        except (OSError, HTTPException, ValueError) as error:
            return Unreached(_detail(error, seconds), deadline.spent_ms())
        return answer or Unreached("the address cannot be used", deadline.spent_ms())

    def refusal(self, url: str) -> str | None:
        """Why a URL may not be called, judged by its text and the addresses it resolves to now; None: it may."""
        target = parse_url(url, self.rules)
        if isinstance(target, str):
            return target
        try:
            addresses = self._addresses(target, Deadline(self.monotonic, _REGISTRATION_SECONDS))
        except TimeoutError:
            addresses = ()
        return None if addresses else UNUSABLE

    def close(self) -> None:
        """Close the connections that were kept."""
        self._pool.close()

    def _try(self, method: str, url: str, headers: Headers, body: bytes, deadline: Deadline) -> Reply | None:
        target = parse_url(url, self.rules)
        if isinstance(target, str) or not (addresses := self._addresses(target, deadline)):
            return None
        request = _request(method, target, headers, body)
        for address in addresses:
            connection = self._pool.take(_key(target, address))
            if connection is None:
                continue
            try:
                return self._exchange(connection, method, request, deadline)
            except net.Unread:
                break  # a new one has to do
        return self._exchange(self._connect(target, addresses, deadline), method, request, deadline)

    def _addresses(self, target: Target, deadline: Deadline) -> tuple[str, ...]:
        """The target's addresses now; none if a single one may not be called."""
        addresses = target.addresses or self._lookups.addresses(target.host, deadline.seconds_left())
        return addresses[:_MAX_ADDRESSES] if all(map(target.may_use, addresses)) else ()

    def _connect(self, target: Target, addresses: tuple[str, ...], deadline: Deadline) -> Connection:
        """A connection to the first address that takes one; each may use its share of the time left."""
        for tries_left in range(len(addresses), 0, -1):
            address = addresses[-tries_left]
            try:
                sock = self.dial(address, target.port, deadline.seconds_left() / tries_left)
                break
            except OSError:
                if tries_left == 1:
                    raise
        try:
            if target.scheme == "https":
                sock = net.encrypt(sock, self._context(), target.host, deadline.seconds_left())
        except BaseException:
            sock.close()
            raise
        return Connection(_key(target, address), sock)

    def _exchange(self, connection: Connection, method: str, request: bytes, deadline: Deadline) -> Reply:
        reusable = False
        begun_ms = deadline.spent_ms()
        try:
            answer, reusable = connection.exchange(method, request, deadline)
            return answer
        except (ConnectionError, ssl.SSLError) as error:
            is_prompt = deadline.spent_ms() - begun_ms <= _STALE_MS
            may_be_unread = is_prompt and connection.has_served and not connection.heard
            if may_be_unread and connection.was_reset(deadline):
                raise net.Unread from error
            raise
        finally:
            if reusable:
                self._pool.keep(connection)
            else:
                connection.close()

    def _context(self) -> ssl.SSLContext:
        """The common one. Making it reads all certificates of authorities, so calls that begin together wait for it."""
        with self._tls_lock:
            self.tls = self.tls or ssl.create_default_context()
            return self.tls


def _key(target: Target, address: str) -> tuple[str, str, int, str]:
    return target.scheme, target.host, target.port, address


def _request(method: str, target: Target, headers: Headers, body: bytes) -> bytes:
    given = ((name, value) for name, value in headers.items() if name.lower() not in _FRAMING)
    others = {name: _CONTROL.sub(" ", value) for name, value in given if _TOKEN.fullmatch(name)}
    ours = {"Host": target.authority, **_OURS, "Content-Length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in (ours | others).items()]
    return "\r\n".join((f"{method} {target.path} HTTP/1.1", *lines, "", "")).encode() + body


def _detail(error: Exception, seconds: float) -> str:
    match error:
        case TimeoutError():
            return f"no answer within {seconds:g} s"
        case ssl.SSLCertVerificationError():
            return "the certificate is not valid for the host"
        case ssl.SSLError():
            return "no secure connection"
        case net.HeadersTooLong():
            return "the answer's headers are too long"
        case net.BrokenOff() | ConnectionResetError() | BrokenPipeError():
            return "the connection broke off"
        case OSError():
            return "no connection"
        case _:
            return "no proper HTTP answer"
