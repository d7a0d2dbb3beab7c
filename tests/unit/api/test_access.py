"""Access rules: the peer decides, headers only take away, everything else is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.access import Caller, check, host_name, is_local
from omlxd.api.ports import ServerSettings
from omlxd.errors import Forbidden, OmlxError, RequestInvalid, Unauthorized

LAN = "192.168.1.7"
KEYS = ServerSettings(api_keys=("k1", "schlüssel"))


def caller(*headers: tuple[str, str], host: str | None = "localhost:8000", **facts: Any) -> Caller:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    if host is not None:
        raw.append((b"host", host.encode("latin-1")))
    return Caller(headers=raw, **{"peer": "127.0.0.1", **facts})


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]"]
)
def test_default_hosts(host: str) -> None:
    """The names of this machine pass, whatever the port."""
    assert check(ServerSettings(), caller(host=host)) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "192.168.1.5", "0.0.0.0"]
)
def test_foreign_hosts(host: str) -> None:
    """A rebound domain carries its own name and is refused."""
    with pytest.raises(Forbidden, match=r"allowed_hosts"):
        check(ServerSettings(listen_hosts=("0.0.0.0",)), caller(host=host))


def test_hosts_we_listen_on() -> None:
    """The listen host, the socket's own address and listed names pass; a wildcard is no name."""
    settings = ServerSettings(listen_hosts=("192.168.1.5",), allowed_hosts=("mac.local",))
    check(settings, caller(host="192.168.1.5:8000"))
    check(settings, caller(host="Mac.local:8000"))
    check(settings, caller(host="10.0.0.9:8000", local="10.0.0.9"))
    check(settings, caller(host="[fe80::1]:8000", local="fe80::1"))
    with pytest.raises(Forbidden):
        check(settings, caller(host="localhost"))


@pytest.mark.parametrize("hosts", [[], ["", ""], ["localhost", "localhost"], [" "]])
def test_exactly_one_host(hosts: list[str]) -> None:
    """A missing, empty or doubled Host header is a bad request."""
    with pytest.raises(RequestInvalid, match="exactly one Host"):
        check(ServerSettings(), caller(*[("Host", host) for host in hosts], host=None))


@pytest.mark.parametrize(
    "origin", ["http://localhost:8000", "HTTP://LOCALHOST:8000/", "https://app.example"]
)
def test_origins_that_pass(origin: str) -> None:
    """Our own origin needs no CORS headers; a listed one is given back for them."""
    settings = ServerSettings(cors_origins=("https://app.example:443",))
    expected = origin if "app.example" in origin else None
    assert check(settings, caller(("Origin", origin))) == expected


@pytest.mark.parametrize(
    "origins",
    [
        ["http://evil.example"],
        ["https://localhost:8000"],
        ["http://localhost:9000"],
        ["http://localhost"],
        ["null"],
        ["*"],
        [""],
        ["http://localhost:8000", "http://evil.example"],
    ],
)
def test_other_origins(origins: list[str]) -> None:
    """Any other page is refused, and so is a request with two of them."""
    settings = ServerSettings(cors_origins=("https://app.example",))
    with pytest.raises(Forbidden, match="cors_origins"):
        check(settings, caller(*[("Origin", origin) for origin in origins]))


def test_default_port_of_the_host_is_same_origin() -> None:
    """Port 80 may be written or left out on either side."""
    assert (
        check(ServerSettings(), caller(("Origin", "http://localhost"), host="localhost:80")) is None
    )


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", "Bearer k1")],
        [("authorization", "bearer   k1 ")],
        [("x-api-key", "k1")],
        [("Authorization", "Bearer k1"), ("x-api-key", "k1")],
        [("Authorization", "Bearer k1"), ("Authorization", "Bearer k1")],
        [("Authorization", "Basic abc"), ("x-api-key", "k1")],
    ],
)
def test_keys_that_open(headers: list[tuple[str, str]]) -> None:
    """A key opens in either header, or in both if they agree."""
    check(KEYS, caller(*headers, peer=LAN))


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([], "No API key"),
        ([("Authorization", "Basic k1")], "No API key"),
        ([("Authorization", "k1")], "No API key"),
        ([("x-api-key", "")], "not one of"),
        ([("x-api-key", "k")], "not one of"),
        ([("x-api-key", "K1")], "not one of"),
        ([("x-api-key", "k1"), ("Authorization", "Bearer k2")], "different keys"),
        ([("x-api-key", "k1"), ("x-api-key", "k2")], "different keys"),
    ],
)
def test_keys_that_do_not_open(headers: list[tuple[str, str]], message: str) -> None:
    """No key, a wrong key and two different keys are each told apart."""
    with pytest.raises(Unauthorized, match=message):
        check(KEYS, caller(*headers, peer=LAN))


def test_admin_keys_open_nothing_here() -> None:
    """An admin key is no API key."""
    settings = ServerSettings(api_keys=("k1",), admin_keys=("boss",))
    with pytest.raises(Unauthorized):
        check(settings, caller(("x-api-key", "boss"), peer=LAN))


def test_no_keys_set_asks_for_none() -> None:
    """Without keys every key is welcome, conflicting dummies too."""
    headers = [("x-api-key", "dummy"), ("Authorization", "Bearer other")]
    check(ServerSettings(), caller(*headers, peer=LAN))


def test_open_routes_ask_for_none() -> None:
    """Probes need no key, but the host rule holds for them as well."""
    check(KEYS, caller(peer=LAN, open_route=True))
    with pytest.raises(Forbidden):
        check(KEYS, caller(peer=LAN, open_route=True, host="evil.example"))


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        (LAN, False),
        ("::ffff:192.168.1.7", False),
        ("fe80::1%en0", False),
        ("localhost", False),
        ("", False),
        (None, False),
    ],
)
def test_who_is_local(peer: str | None, local: bool) -> None:
    """Only a loopback address of the socket is local; a name or nothing is not."""
    assert is_local(caller(peer=peer)) is local


def test_loopback_is_trusted_unless_told_otherwise() -> None:
    """On loopback no key is asked, even a wrong one is not looked at, until the setting says so."""
    check(KEYS, caller(("x-api-key", "wrong")))
    strict = ServerSettings(api_keys=("k1",), require_key_on_loopback=True)
    with pytest.raises(Unauthorized):
        check(strict, caller())
    check(strict, caller(("x-api-key", "k1")))


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Host"])
def test_forwarding_headers_only_take_away(name: str) -> None:
    """A forwarding header ends loopback trust, whatever it says, and never gives any."""
    for value in ("127.0.0.1", "for=127.0.0.1", ""):
        with pytest.raises(Unauthorized):
            check(KEYS, caller((name, value)))
        with pytest.raises(Unauthorized):
            check(KEYS, caller((name, value), peer=LAN))


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:1", "a"), ("[::1]:80", "::1"), ("::1", "::1"), (" A ", "a"), ("[::1", "::1"), ("", "")],
)
def test_host_name(host: str, name: str) -> None:
    """Port, brackets and case do not count."""
    assert host_name(host) == name


latin = st.text(st.characters(max_codepoint=255), max_size=12)


@given(
    st.lists(st.tuples(st.sampled_from(["host", "origin", "x-api-key", "authorization"]), latin))
)
def test_nothing_but_a_key_opens(headers: list[tuple[str, str]]) -> None:
    """Whatever a stranger sends without a key, the only outcome is a refusal of ours."""
    with pytest.raises(OmlxError):
        check(ServerSettings(api_keys=("a long secret key",)), caller(*headers, peer=LAN))
