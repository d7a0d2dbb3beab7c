"""Who may ask: Host, Origin and key. Decisions only; `guard` carries them out.

Trust is the socket peer's, never a header's. A header can only take trust away: on a loopback
peer, any sign of a proxy means that the real client is somebody else.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from omlxd.api.ports import ServerSettings
from omlxd.errors import Forbidden, RequestInvalid, Unauthorized

Headers = Sequence[tuple[bytes, bytes]]  # names in lower case, as ASGI has them

_FORWARDING = frozenset(
    (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")
)
_WILDCARDS = frozenset(("0.0.0.0", "::", ""))  # a bind address, never the name of a server
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One request as the access rules see it."""

    headers: Headers
    peer: str | None = None  # address of the socket's other end; None = unknown
    local: str | None = None  # our own address on that socket
    scheme: str = "http"
    open_route: bool = False  # asks for no key
    tool_route: bool = False  # runs tools: no web page may, and local callers are asked for a key

    def all(self, name: bytes) -> list[str]:
        return [value.decode("latin-1") for key, value in self.headers if key == name]


def check(settings: ServerSettings, caller: Caller) -> str | None:
    """Raises the refusal, or returns the Origin to answer with CORS headers."""
    host = check_host(settings, caller)
    if caller.tool_route:
        refuse_pages(caller)
    origin = check_origin(settings, caller, host)
    if not caller.open_route:
        check_key(settings, caller, also_local=caller.tool_route)
    return origin


def check_host(settings: ServerSettings, caller: Caller) -> str:
    """The Host header, which must name us: a page of a rebound domain carries its own name."""
    hosts = caller.all(b"host")
    if len(hosts) != 1 or not hosts[0].strip():
        raise RequestInvalid("The request needs exactly one Host header.")
    name = host_name(hosts[0])
    ours = {host_name(host) for host in (*settings.allowed_hosts, *settings.listen_hosts)}
    if caller.local is not None:
        ours.add(caller.local)
    if name not in ours - _WILDCARDS:
        raise Forbidden(
            f"Host {hosts[0]!r} is not one of ours; add its name to server.allowed_hosts."
        )
    return hosts[0].strip().lower()


def check_origin(settings: ServerSettings, caller: Caller, host: str) -> str | None:
    """The Origin if it is a listed one; None without one or for our own."""
    origins = set(caller.all(b"origin"))
    if not origins:
        return None
    origin = origins.pop()
    if not origins and _same(origin, f"{caller.scheme}://{host}"):
        return None
    if not origins and any(_same(origin, listed) for listed in settings.cors_origins):
        return origin
    raise Forbidden(f"Origin {origin!r} is not listed; add it to server.cors_origins.")


def is_page(caller: Caller) -> bool:
    """A web page sent it: browsers say so, also where they send no Origin (images, links)."""
    sites = caller.all(b"sec-fetch-site")
    return bool(caller.all(b"origin")) or any(site != "none" for site in sites)


def refuse_pages(caller: Caller) -> None:
    """Tools act on this machine, so no list of origins lets a page use them."""
    if is_page(caller):
        raise Forbidden(
            "Tools that omlxd runs are not for web pages. Use them from a program that sends "
            "neither Origin nor Sec-Fetch-Site."
        )


def check_key(settings: ServerSettings, caller: Caller, *, also_local: bool = False) -> None:
    """Raises Unauthorized unless no key is asked or one of ours was given."""
    asks_all = also_local or settings.require_key_on_loopback
    if not settings.api_keys or (not asks_all and is_local(caller)):
        return
    presented = set(_presented(caller))
    if not presented:
        raise Unauthorized(
            "No API key. Send one of server.api_keys as Authorization: Bearer KEY or x-api-key."
        )
    if len(presented) > 1:
        raise Unauthorized("Authorization and x-api-key hold different keys. Send one of them.")
    if not _is_one_of(presented.pop(), settings.api_keys):
        raise Unauthorized("The API key is not one of server.api_keys.")


def is_local(caller: Caller) -> bool:
    """The peer is on this machine, and nothing says that it speaks for somebody else."""
    if caller.peer is None or any(name in _FORWARDING for name, _ in caller.headers):
        return False
    try:
        address = ip_address(caller.peer.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def host_name(host: str) -> str:
    """A Host header or a listed host without port and brackets, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") > 1:  # a bare IPv6 address
        return host
    return host.partition(":")[0]


def _presented(caller: Caller) -> Iterable[str]:
    for value in caller.all(b"authorization"):
        scheme, _, key = value.strip().partition(" ")
        if scheme.lower() == "bearer":
            yield key.strip()
    for value in caller.all(b"x-api-key"):
        yield value.strip()


def _is_one_of(presented: str, keys: Iterable[str]) -> bool:
    """Compares with every key in full, so the time taken tells nothing."""
    given = presented.encode("latin-1")
    matches = [hmac.compare_digest(given, key.encode()) for key in keys]
    return any(matches)


def _same(origin: str, other: str) -> bool:
    return _normal_origin(origin) == _normal_origin(other)


def _normal_origin(origin: str) -> str:
    """Lower case, no trailing slash, the scheme's own port left out."""
    origin = origin.strip().lower().rstrip("/")
    scheme, _, _ = origin.partition("://")
    port = _DEFAULT_PORTS.get(scheme)
    return origin.removesuffix(f":{port}") if port else origin
