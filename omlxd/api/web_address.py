"""Which hosts may be asked for a picture: URLs and addresses, no sockets.

A client must not be able to make this machine ask its own services, its network or a cloud's
metadata service. So it is addresses that are judged, never names: a name says nothing about where
it leads, and it may lead elsewhere a moment later.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal
from urllib.parse import quote, urljoin, urlsplit

Address = IPv4Address | IPv6Address

_PORTS: dict[str, int] = {"http": 80, "https": 443}
_KEPT = "%/:@!$&'()*+,;=~-._?"  # stays as it is in a path and a query
# In these an IPv4 address stands for a host, and it is that one that counts.
_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")  # all of IPv6 that is given out
# Special blocks that `ipaddress` knows in some versions only.
_SPECIAL: tuple[IPv4Network | IPv6Network, ...] = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv6Network("2001::/23"),
    IPv6Network("3fff::/20"),
)


class BadUrl(Exception):
    """What is wrong with it, as a part of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    scheme: Literal["http", "https"]
    host: str  # a name in ASCII, or an address without brackets
    port: int
    path: str  # with the query

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def target_of(url: str) -> Target:
    """Raises BadUrl."""
    if any(character.isspace() or not character.isprintable() for character in url):
        raise BadUrl("has blanks or control characters")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise BadUrl(f"cannot be read ({error})") from None
    if parts.scheme not in ("http", "https"):
        raise BadUrl(f"has the scheme {parts.scheme!r}; only http and https are fetched")
    if "@" in parts.netloc:
        raise BadUrl("has a user or a password in it, and none are sent")
    try:
        name = (host or "").encode("ascii" if ":" in (host or "") else "idna").decode()
    except UnicodeError:
        name = ""
    if not name or "%" in name:  # an address with a zone is a neighbour's
        raise BadUrl("names no host that can be looked up")
    path = quote(parts.path or "/", safe=_KEPT)
    query = f"?{quote(parts.query, safe=_KEPT)}" if parts.query else ""
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Target(
        scheme=scheme,
        host=name,
        port=_PORTS[scheme] if port is None else port,
        path=path + query,
    )


def redirected(url: str, location: str) -> str:
    """The URL that a Location header means. Raises BadUrl."""
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise BadUrl(f"cannot be read ({error})") from None


def is_public(address: Address) -> bool:
    """Whether it belongs to a host of the public Internet, also where it wraps an IPv4 address."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
        if (inner := address.ipv4_mapped or address.sixtofour) is not None:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    if address.is_multicast or address.is_reserved:
        return False
    return address.is_global and not any(address in network for network in _SPECIAL)
