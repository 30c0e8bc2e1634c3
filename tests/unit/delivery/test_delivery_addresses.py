"""What may be called: tables of addresses and URLs, good and bad, and junk that must never raise."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.delivery.addresses import Rules, Target, is_good, parse_url
from chalicelib.domain.limits import MAX_URL_CHARS

PUBLIC = Rules(ports=frozenset({8443}), own_hosts=frozenset({"queue.example.com"}))
LOOPBACK = Rules(allow_loopback=True)

GOOD_ADDRESSES = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1
168.63.129.15 168.63.129.17 169.253.255.255 172.15.255.255 172.32.0.0 192.0.1.1 192.167.255.255 198.17.255.255
198.20.0.0 203.0.112.255 223.255.255.255 ::ffff:8.8.8.8 2606:4700:4700::1111 2a00:1450:4001:800::200e 2001:200::1
2001:4860:4860::8888 2600::1 2003::1 3ffd::1
"""

BAD_ADDRESSES = """
0.0.0.0 0.1.2.3 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.255
168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1
192.31.196.1 192.52.193.1 192.88.99.1 192.168.0.1 192.175.48.1 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9
224.0.0.1 233.252.0.1 239.255.255.250 240.0.0.1 255.255.255.255
:: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:8.8.8.8
64:ff9b::8.8.8.8 64:ff9b::a00:1 64:ff9b:1::1 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1
2001:10::1 2001:20::1 2001:30::1 2001:1ff::1 2001:db8::1 2002:7f00:1::1 2002:808:808::1 2620:4f:8000::1 3ffe::1
3fff::1 3fff:fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 2606:4700::1%eth0
::ffff:8.8.8.8%eth0 fec0::1 ff02::1 ff0e::1
localhost example.com 127.1 0x7f.0.0.1 0177.0.0.1 2130706433 1.2.3 1.2.3.4.5 1.2.3.4/8 [::1]
"""
ODD_TEXTS = ["", " 8.8.8.8", "8.8.8.8 ", "8.8.8.8\n", "8.8.8.\uff18"]


@pytest.mark.parametrize("address", GOOD_ADDRESSES.split())
def test_global_unicast_is_good(address: str) -> None:
    assert is_good(address)


@pytest.mark.parametrize("address", BAD_ADDRESSES.split() + ODD_TEXTS)
def test_nothing_special_private_or_odd_is_good(address: str) -> None:
    assert not is_good(address)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_judged_as_what_it_is(ip: IPv4Address) -> None:
    assert is_good(f"::ffff:{ip}") == is_good(str(ip))


@given(st.ip_addresses(v=6, network="2000::/3"))
def test_a_good_ipv6_address_is_global_for_the_standard_library_too(ip: IPv6Address) -> None:
    assert not is_good(str(ip)) or ip.is_global


@given(st.ip_addresses(v=4))
def test_a_good_ipv4_address_is_global_for_the_standard_library_too(ip: IPv4Address) -> None:
    assert not is_good(str(ip)) or ip.is_global


GOOD_URLS = {
    "https://example.com": ("example.com", 443, "/"),
    "https://example.com/": ("example.com", 443, "/"),
    "HTTPS://Example.COM/Path": ("example.com", 443, "/Path"),
    "https://example.com:443/a": ("example.com", 443, "/a"),
    "https://example.com:8443/a": ("example.com", 8443, "/a"),
    "https://example.com?q=1": ("example.com", 443, "/?q=1"),
    "https://example.com/a?b=c&d=%20[x]|{y}": ("example.com", 443, "/a?b=c&d=%20[x]|{y}"),
    "https://example.com/a//b/../c": ("example.com", 443, "/a//b/../c"),
    "https://example.com/who@where": ("example.com", 443, "/who@where"),
    "https://example.com?mail=a@b": ("example.com", 443, "/?mail=a@b"),
    "https://a.b.c.d.example.co.uk/": ("a.b.c.d.example.co.uk", 443, "/"),
    "https://xn--bcher-kva.example/": ("xn--bcher-kva.example", 443, "/"),
    "https://my_host.example.com/": ("my_host.example.com", 443, "/"),
    "https://0xabc.example.com/": ("0xabc.example.com", 443, "/"),
    "https://1.2.3.4.example/": ("1.2.3.4.example", 443, "/"),
    "https://3com.com/": ("3com.com", 443, "/"),
    "https://8.8.8.8/": ("8.8.8.8", 443, "/"),
    "https://[2606:4700:4700::1111]/": ("2606:4700:4700::1111", 443, "/"),
    "https://[2606:4700:4700:0:0:0:0:1111]:8443": ("2606:4700:4700::1111", 8443, "/"),
    "https://" + "a" * 63 + ".example/": ("a" * 63 + ".example", 443, "/"),
    "https://queue.example.com.evil.example/": ("queue.example.com.evil.example", 443, "/"),
    "https://e.example/" + "x" * (MAX_URL_CHARS - 18): ("e.example", 443, "/" + "x" * (MAX_URL_CHARS - 18)),
}

BAD_URLS = [
    "",
    "example.com",
    "//example.com/",
    "https:example.com",
    "https:/example.com",
    "https:///path",
    "http://example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "javascript:alert(1)",
    "https://example.com:80/",
    "https://example.com:22/",
    "https://example.com:0443/",
    "https://example.com:/",
    "https://example.com:99999/",
    "https://example.com:443443/",
    "https://example.com:+443/",
    "https://example.com:\uff14\uff14\uff13/",
    "https://user@example.com/",
    "https://user:password@example.com/",
    "https://8.8.8.8@example.com/",
    "https://example.com#@evil.example/",
    "https://example.com/#fragment",
    "https://example.com\\@evil.example/",
    "https://example.com\\path",
    "https://example.com/a\\b",
    "https:\\\\example.com/",
    " https://example.com/",
    "https://example.com/ ",
    "https://exa mple.com/",
    "https://example.com/a b",
    "https://example.com/\r\nHost: evil",
    "https://exam\tple.com/",
    "https://example.com/\x00",
    "https://example.com/\x7f",
    "\x01https://example.com/",
    "https://example.com./",
    "https://.example.com/",
    "https://exa..mple.com/",
    "https://-a.example.com/",
    "https://a-.example.com/",
    "https://" + "a" * 64 + ".example/",
    "https://" + "a." * 130 + "example/",
    "https://bücher.example/",
    "https://\uff45xample.com/",
    "https://example\u3002com/",
    "https://example.com/bücher",
    "https://\u212aelvin.example/",
    "https://%65xample.com/",
    "https://localhost/",
    "https://intranet/",
    "https://queue.example.com/",
    "https://QUEUE.example.com/v1/publish/orders",
    "https://queue.example.com:8443/",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://1.1.1.0x",
    "https://1.1.1.1.1/",
    "https://256.1.1.1/",
    "https://01.1.1.1/",
    "https://example.0x7f/",
    "https://example.1/",
    "https://8.8.8.8./",
    "https://10.0.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://168.63.129.16/",
    "https://0/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[fe80::1%25eth0]/",
    "https://[2606:4700::1%eth0]/",
    "https://[fd00:ec2::254]/",
    "https://[::1",
    "https://::1/",
    "https://[8.8.8.8]/",
    "https://[2606:4700::1]x/",
    "https://[:::]/",
    "https://e.example/" + "x" * (MAX_URL_CHARS - 17),
]


@pytest.mark.parametrize("url", GOOD_URLS)
def test_a_good_url_is_read(url: str) -> None:
    target = parse_url(url, PUBLIC)
    assert isinstance(target, Target), target
    assert (target.host, target.port, target.path) == GOOD_URLS[url]
    assert target.scheme == "https"
    assert not target.loopback


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_bad_url_is_refused_with_a_reason_that_does_not_repeat_it(url: str) -> None:
    reason = parse_url(url, PUBLIC)
    assert isinstance(reason, str)
    assert reason
    assert "evil" not in reason
    assert url not in reason or not url


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "LOCALHOST"])
def test_a_local_run_may_call_every_port_of_this_machine_but_its_own(host: str) -> None:
    rules = Rules(allow_loopback=True, own_port=8700)
    assert isinstance(parse_url(f"http://{host}:8701/v1/publish/orders", rules), Target)
    for scheme in ("http", "https"):
        reason = parse_url(f"{scheme}://{host}:8700/v1/publish/orders", rules)
        assert reason == "is Headrace's own: messages would go in circles"


def test_the_host_header_names_a_port_only_where_it_is_not_the_usual_one() -> None:
    urls = ("https://A.example/", "https://a.example:8443/", "https://[2606:4700::1]:8443/")
    targets = [parse_url(url, PUBLIC) for url in urls]
    assert [t.authority for t in targets if isinstance(t, Target)] == [
        "a.example",
        "a.example:8443",
        "[2606:4700::1]:8443",
    ]


def test_the_usual_port_of_the_other_scheme_is_named() -> None:
    target = parse_url("http://localhost:443/", LOOPBACK)
    assert isinstance(target, Target)
    assert target.authority == "localhost:443"


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("http://localhost:5000/in", ("127.0.0.1", "::1")),
        ("http://LOCALHOST/", ("127.0.0.1", "::1")),
        ("http://127.0.0.1:1/", ("127.0.0.1",)),
        ("http://127.3.2.1/", ("127.3.2.1",)),
        ("http://[::1]:65535/", ("::1",)),
        ("https://localhost:5000/", ("127.0.0.1", "::1")),
    ],
)
def test_loopback_may_be_called_where_that_is_allowed(url: str, addresses: tuple[str, ...]) -> None:
    target = parse_url(url, LOOPBACK)
    assert isinstance(target, Target)
    assert target.loopback
    assert target.addresses == addresses
    assert isinstance(parse_url(url, PUBLIC), str)


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/",
        "http://192.168.0.1:8080/",
        "https://169.254.169.254/",
        "http://example.com/",
        "https://example.com:8080/",
        "http://localhost.example/",
        "http://localhost:65536/",
        "http://[::ffff:127.0.0.1]/",
        "http://0.0.0.0/",
        "http://[::]/",
        "http://127.1/",
    ],
)
def test_allowing_loopback_allows_nothing_else(url: str) -> None:
    assert isinstance(parse_url(url, LOOPBACK), str)


def test_a_target_is_bound_to_its_kind_of_address() -> None:
    public, local = parse_url("https://example.com", LOOPBACK), parse_url("http://localhost", LOOPBACK)
    assert isinstance(public, Target)
    assert isinstance(local, Target)
    assert [public.may_use(a) for a in ("8.8.8.8", "127.0.0.1", "::1", "10.0.0.1")] == [True] + [False] * 3
    assert [local.may_use(a) for a in ("8.8.8.8", "127.0.0.1", "::1", "10.0.0.1")] == [
        False,
        True,
        True,
        False,
    ]


@given(
    st.text(max_size=60)
    | st.text("htps:/[]@#?\\.%0x127:abz ", max_size=40)
    | st.builds(
        "{}://{}{}".format,
        st.sampled_from(("https", "http")),
        st.text("0123456789abcx.:-[]%_", max_size=20),
        st.text(max_size=9),
    ),
    st.sampled_from((PUBLIC, LOOPBACK)),
)
def test_whatever_the_text_only_what_is_safe_passes(text: str, rules: Rules) -> None:
    target = parse_url(text, rules)
    if isinstance(target, str):
        return
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set(" #\\")
    assert target.path.startswith("/")
    assert all(map(target.may_use, target.addresses))
    assert target.loopback or (target.scheme == "https" and target.port in (443, 8443))
