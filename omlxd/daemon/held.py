"""The listening sockets that somebody else holds for us, and how they compare with `listen`.

They are served through duplicates: a listener that closes leaves the original, and whoever holds
the socket goes on accepting into its backlog. No path of theirs is ever removed.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence

from omlxd.spec.fields import is_loopback, split_address


def address_of(sock: socket.socket) -> str:
    """Where it listens: "host:port" with IPv6 in brackets, or the path of a Unix socket."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return str(name)
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def resolved(listen: str) -> frozenset[str]:
    """Every address that `listen` can mean; blocks while a host name is resolved.

    Empty if it means none.
    """
    host, port = split_address(listen)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return frozenset()
    hosts = {str(address[0]) for *_, address in found}
    return frozenset(f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts)


def may_serve(address: str, *, has_keys: bool) -> bool:
    """Whether an address that `listen` does not name may be served: a reachable one needs keys."""
    return has_keys or address.startswith("/") or is_loopback(address)


class HeldSockets:
    """By address, in the order in which they were handed over."""

    def __init__(self, socks: Sequence[socket.socket] = ()) -> None:
        self._by_address = {address_of(sock): sock for sock in socks}

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._by_address)

    def duplicate(self, address: str) -> socket.socket:
        """Non-blocking and not inheritable, like the original."""
        sock = self._by_address[address].dup()
        sock.setblocking(False)
        return sock

    def close(self) -> None:
        """Ours only: the holder's own descriptor stays, and its backlog with it."""
        for sock in self._by_address.values():
            sock.close()


def drift(
    held: Collection[str], unheld: Sequence[str], meant: Collection[str], silent: Collection[str]
) -> str:
    """How the held addresses and `listen` differ, in words; "" if they do not.

    `unheld`: entries of `listen` that no held socket is for; `meant`: held addresses that an entry
    names; `silent`: held ones that are not served. Nothing is said before `listen` is known.
    """
    if not unheld and not meant:
        return ""
    said = []
    if extra := [address for address in held if address not in meant]:
        said.append(f"launchd holds {', '.join(extra)}, which server.listen does not name")
    if unheld:
        said.append(f"launchd does not hold {', '.join(unheld)}")
    if silent:
        said.append(
            f"nobody answers on {', '.join(silent)}, which other machines reach, "
            "since server.api_keys is empty"
        )
    return "; ".join(said)
