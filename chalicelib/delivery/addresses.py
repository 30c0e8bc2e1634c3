"""What may be called. Pure: URLs are judged on their raw text, addresses by tables of our own.

`ipaddress.is_global` and `is_private` are not asked: they pass NAT64, 6to4 and several special blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from ..domain.limits import MAX_URL_CHARS

_SPECIAL_V4 = (
    "0.0.0.0/8",  # this network
    "10.0.0.0/8",  # private
    "100.64.0.0/10",  # carriers' NAT; metadata of one cloud
    "127.0.0.0/8",  # loopback
    "168.63.129.16/32",  # Azure's host, though it looks public
    "169.254.0.0/16",  # link-local; metadata of most clouds
    "172.16.0.0/12",  # private
    "192.0.0.0/24",  # IETF protocols; metadata of one cloud
    "192.0.2.0/24",  # documentation
    "192.31.196.0/24",  # AS112
    "192.52.193.0/24",  # AMT
    "192.88.99.0/24",  # 6to4 relays
    "192.168.0.0/16",  # private
    "192.175.48.0/24",  # AS112
    "198.18.0.0/15",  # benchmarks
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, broadcast
)
_DENIED_V4 = tuple(map(IPv4Network, _SPECIAL_V4))
_GLOBAL_V6 = IPv6Network("2000::/3")  # so NAT64, site-local, unique local, multicast and the rest are out
_SPECIAL_V6 = (
    "2001::/23",  # IETF protocols: Teredo, ORCHID, benchmarks, drones …
    "2001:db8::/32",  # documentation
    "2002::/16",  # 6to4: an IPv4 address in disguise
    "2620:4f:8000::/48",  # AS112
    "3ffe::/16",  # the former 6bone
    "3fff::/20",  # documentation
)
_DENIED_V6 = tuple(map(IPv6Network, _SPECIAL_V6))
_LOOPBACK_V4 = IPv4Network("127.0.0.0/8")
_LOOPBACK_V6 = IPv6Address("::1")

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?:\[(?P<v6>[0-9a-f:.]{2,45})\]|(?P<name>[a-z0-9._-]{1,253}))"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<path>(?:/[!-~]*)?(?:\?[!-~]*)?)",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS = {"http": 80, "https": 443}

UNUSABLE = "has no address that may be called"  # blocked, or without an answer in DNS: the caller does not learn which
_OURS = "is Headrace's own: messages would go in circles"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a stage allows: ports besides 443; its own host names (lower case), which may never be called; and
    whether loopback may be, even by http and on any port but its own (local runs only)."""

    ports: frozenset[int] = frozenset()
    own_hosts: frozenset[str] = frozenset()
    allow_loopback: bool = False
    own_port: int | None = None


@dataclass(kw_only=True, frozen=True, slots=True)
class Target:
    """A URL that may be called, if its addresses are good, too. `host` is lower case, without brackets.

    `addresses` are known without a look-up for an address and for localhost. `path` includes the query.
    """

    scheme: str
    host: str
    port: int
    path: str
    loopback: bool = False
    addresses: tuple[str, ...] = ()

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def may_use(self, address: str) -> bool:
        """May this target be called at this address?"""
        return is_loopback(address) if self.loopback else is_good(address)


@lru_cache(maxsize=1024)
def is_good(address: str) -> bool:
    """Is it global unicast, and of no special block? A mapped IPv4 address is judged as what it is."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        if ip.scope_id is not None:
            return False
        if ip.ipv4_mapped is None:
            return ip in _GLOBAL_V6 and not any(ip in net for net in _DENIED_V6)
        ip = ip.ipv4_mapped
    return not any(ip in net for net in _DENIED_V4)


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    """Is it 127.0.0.0/8 or ::1?"""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    return ip in _LOOPBACK_V4 if isinstance(ip, IPv4Address) else ip == _LOOPBACK_V6


@lru_cache(maxsize=1024)
def parse_url(text: str, rules: Rules) -> Target | str:
    """The target a URL names, or the reason why it may not be called: a sentence that never repeats it."""
    reason = _text_problem(text)
    if reason:
        return reason
    match = _URL.fullmatch(text)
    if not match:
        return "is no URL of the form https://host/path in plain ASCII"
    host = match["v6"] or match["name"].lower()
    addresses = _known_addresses(host, bool(match["v6"]), rules)
    if isinstance(addresses, str):
        return addresses
    scheme = match["scheme"].lower()
    path = match["path"]
    target = Target(
        scheme=scheme,
        host=addresses[0] if match["v6"] else host,
        port=int(match["port"] or _PORTS[scheme]),
        path=path if path.startswith("/") else "/" + path,
        loopback=rules.allow_loopback and bool(addresses) and is_loopback(addresses[0]),
        addresses=addresses,
    )
    return _why_forbidden(target, rules) or target


def _text_problem(text: str) -> str | None:
    """What is wrong with the raw text: standard parsers would drop or rewrite some of it in silence."""
    if len(text) > MAX_URL_CHARS:
        return f"may have {MAX_URL_CHARS} characters"
    if any(char <= " " or char == "\x7f" for char in text):
        return "may hold neither spaces nor control characters"
    if "\\" in text or "#" in text:
        return "may hold neither a backslash nor a fragment"
    if "@" in text.partition("://")[2].partition("/")[0].partition("?")[0]:
        return "may hold no user name or password"
    return None


def _known_addresses(host: str, is_v6: bool, rules: Rules) -> tuple[str, ...] | str:
    """The addresses a host means by itself; none for a name; a reason if it is neither."""
    if is_v6:
        try:
            return (str(IPv6Address(host)),)
        except AddressValueError:
            return "holds no IPv6 address in its brackets"
    if host == "localhost" and rules.allow_loopback:
        return ("127.0.0.1", "::1")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):  # as browsers do: then all of it is an address, however it is spelt
        try:
            return (str(IPv4Address(host)),)
        except AddressValueError:
            return "must write an IPv4 address as four decimal numbers"
    if len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)):
        return "needs a full host name"
    return ()


def _why_forbidden(target: Target, rules: Rules) -> str | None:
    if target.loopback:
        return _OURS if target.port == rules.own_port else None if target.port < 65536 else "names no port"
    if target.scheme != "https":
        return "must begin with https://"
    if target.port != _PORTS["https"] and target.port not in rules.ports:
        return "must use port 443"
    if target.host in rules.own_hosts:
        return _OURS
    return None if all(map(is_good, target.addresses)) else UNUSABLE
