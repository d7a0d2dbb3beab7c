"""Which hosts may be asked for a picture."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.web_address import BadUrl, Target, is_public, redirected, target_of

PUBLIC = ("93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c")
CLOSED = (
    *("127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "192.0.2.7", "198.18.0.1", "224.0.0.1", "239.255.255.250"),
    *("240.0.0.1", "255.255.255.255", "192.0.0.8", "203.0.113.9", "192.88.99.1"),
    *("::1", "::", "fe80::1", "fe80::1%7", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1"),
    *("2001:db8::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "::127.0.0.1", "::8.8.8.8"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
    *(
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "3fff::1",
        "5f00::1",
        "2001:1::1",
    ),
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_asked(address: str) -> None:
    """Hosts of the Internet, also where they are written into an IPv6 address."""
    assert is_public(ip_address(address))
    if ":" not in address:
        number = int(IPv4Address(address))
        assert is_public(IPv6Address((0xFFFF << 32) | number))  # ::ffff:a.b.c.d
        assert is_public(IPv6Address((0x64FF9B << 96) | number))  # NAT64


@pytest.mark.parametrize("address", CLOSED)
def test_no_other_address_may_be_asked(address: str) -> None:
    """This machine, its networks, metadata services, groups, and all of them in disguise."""
    assert not is_public(ip_address(address))


@given(st.integers(0, 2**32 - 1))
def test_a_disguise_changes_nothing(number: int) -> None:
    """An IPv4 address is judged alike bare, mapped, behind NAT64 and behind 6to4."""
    bare = is_public(IPv4Address(number))
    assert is_public(IPv6Address((0xFFFF << 32) | number)) == bare
    assert is_public(IPv6Address((0x64FF9B << 96) | number)) == bare
    assert is_public(IPv6Address((0x2002 << 112) | (number << 80) | 1)) == bare


def target(scheme: str, host: str, port: int, path: str) -> Target:
    return Target(scheme=scheme, host=host, port=port, path=path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "wanted", "authority"),
    [
        ("http://Example.com", target("http", "example.com", 80, "/"), "example.com"),
        ("https://a.b:8443/x?y=1#z", target("https", "a.b", 8443, "/x?y=1"), "a.b:8443"),
        ("https://a.b:443/", target("https", "a.b", 443, "/"), "a.b"),
        ("http://[::1]:8080/x", target("http", "::1", 8080, "/x"), "[::1]:8080"),
        ("http://bücher.de/ü%20x", target("http", "xn--bcher-kva.de", 80, "/%C3%BC%20x"), None),
    ],
)
def test_urls(url: str, wanted: Target, authority: str | None) -> None:
    """Where to connect, what to ask for, and what the Host header says."""
    assert target_of(url) == wanted
    assert authority in (None, target_of(url).authority)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///x",
        "http://a b/",
        "http://a/\r\nHost: b",
        "http://a/\x00",
        "http://u:p@a/",
        "http://good.com\\@evil.com/",
        "http://a:99999/",
        "http://a:x/",
        "http://[::1/",
        "http://[fe80::1%25lo]/",
        "http://a..b/",
        f"http://{'a' * 64}.com/",
        "file:///etc/passwd",
        "ftp://a/x",
        "data:image/png;base64,AAAA",
    ],
)
def test_urls_that_lead_nowhere(url: str) -> None:
    """Other schemes, credentials, and what two readers could read in two ways."""
    with pytest.raises(BadUrl):
        target_of(url)


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    """Nothing else comes out, and what goes on the wire is one line of ASCII."""
    try:
        found = target_of(f"http://{text}")
    except BadUrl:
        return
    for part in (found.path, found.authority):
        assert part.isascii()
        assert part.isprintable()
        assert " " not in part


def test_a_redirect_is_read_against_the_page_it_came_from() -> None:
    """Relative or absolute; it may name any scheme, which is then judged like any other."""
    assert redirected("https://a.b/c/d?e", "../f") == "https://a.b/f"
    assert redirected("https://a.b/c", "//x/y") == "https://x/y"
    assert redirected("https://a.b/c", "file:///etc/passwd") == "file:///etc/passwd"
    with pytest.raises(BadUrl):
        redirected("https://a.b/c", "http://[x")
