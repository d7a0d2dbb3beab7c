"""The sockets the daemon listens on, brought to what is wanted and kept there.

One uvicorn server per address and one for the control socket, all in the daemon's loop. A removed
address stops accepting and finishes the responses that run on it; if another one takes its place,
as soon as that is bound. A taken address is tried again until it is free. Sockets that launchd
holds are served whether they are wanted or not, since clients may be waiting in them. Signals are
the daemon's business, so uvicorn's own capture is off.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from omlxd.daemon.held import HeldSockets, address_of, drift, may_serve, resolved
from omlxd.observe import log
from omlxd.spec.fields import split_address

BACKLOG = 2048
LINGER_S = 0.1  # accepted connections get this long to speak before idle ones are closed
RETRY_S = 2.0


class Server(uvicorn.Server):
    """One listener. Closes its socket first on shutdown, so that nobody accepted is cut off."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self._asked = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    def stop(self) -> None:
        """Accept nothing more; `serve` returns when the running responses have ended."""
        self.should_exit = True
        for server in self.servers:
            server.close()
        self._asked.set()

    async def main_loop(self) -> None:
        """Once a second for the Date header, instead of uvicorn's ten times."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._asked.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await asyncio.sleep(LINGER_S)
        await super().shutdown(sockets)


@dataclass(slots=True)
class Listener:
    """A bound address and the task that serves it."""

    server: Server
    task: asyncio.Task[None]
    address: str  # as bound: a host name is resolved


def bind_tcp(listen: str) -> socket.socket:
    """A listening TCP socket; blocks while a host name is resolved.

    Raises OSError, or UnicodeError for what can be no host name.
    """
    host, port = split_address(listen)
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def bind_unix(path: Path) -> socket.socket:
    """A listening Unix socket, mode 0600 from its first moment.

    The caller holds the home's lock, so a socket file that is already there belongs to nobody.
    """
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        sock.bind(str(path))
        sock.listen(128)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock


async def serve(app: Any, sock: socket.socket, address: str) -> Listener:
    """Serve `app` on a bound socket; returns when it accepts."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        http="httptools",
        ws="none",
        timeout_keep_alive=75,
        server_header=False,
        proxy_headers=False,
    )
    server = Server(config)
    task = asyncio.create_task(server.serve(sockets=[sock]), name=f"listener {address}")
    up = asyncio.create_task(server.up.wait())
    await asyncio.wait({up, task}, return_when=asyncio.FIRST_COMPLETED)
    up.cancel()
    if task.done():
        task.result()
    return Listener(server, task, address)


class Listeners:
    """Owns the HTTP listeners. `want` may be called at any time; the rest follows."""

    def __init__(
        self, app: Any, *, on_change: Callable[[], None], held: HeldSockets | None = None
    ) -> None:
        self._app = app
        self._on_change = on_change
        self.held = held or HeldSockets()
        self._serving: dict[str, Listener] = {}  # held address → who serves it
        self._meant: dict[str, frozenset[str]] = {}  # what is wanted → held addresses it names
        self._has_keys = False
        self._wanted: tuple[str, ...] = ()
        self._coming: frozenset[str] = frozenset()  # what the last change of wishes added
        self._is_closed = False
        self._bound: dict[str, Listener] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self.brought = asyncio.Event()  # every address was tried once
        self.failures: dict[str, str] = {}  # address → why it could not be bound
        self.drift = ""  # how what launchd holds and what is wanted differ

    @property
    def addresses(self) -> list[str]:
        """What is served now, in the order of the spec, and then what it does not name."""
        named = [address for listen in self._wanted for address in self._addresses_of(listen)]
        rest = [listener.address for listener in (*self._bound.values(), *self._serving.values())]
        return list(dict.fromkeys([*named, *rest]))

    def _addresses_of(self, listen: str) -> list[str]:
        if listen in self._bound:
            return [self._bound[listen].address]
        return [address for address in self._serving if address in self._meant.get(listen, ())]

    def want(self, listen: Sequence[str], *, has_keys: bool = False) -> None:
        """Serve these addresses, and of others only held ones; nothing any more after `close`.

        `has_keys`: clients from elsewhere are asked for one, so any held address may be served.
        """
        if self._is_closed or (tuple(listen), has_keys) == (self._wanted, self._has_keys):
            return
        if tuple(listen) != self._wanted:
            self._coming = frozenset(listen) - frozenset(self._wanted)
        self._wanted, self._has_keys = tuple(listen), has_keys
        self._wake.set()

    async def run(self) -> None:
        """Bring the bound addresses to the wanted ones, for ever."""
        while True:
            self._wake.clear()
            await self._bring()
            self.brought.set()
            with contextlib.suppress(TimeoutError):  # the taken address may be free by then
                async with asyncio.timeout(RETRY_S if self.failures else None):
                    await self._wake.wait()

    async def _bring(self) -> None:
        wanted = self._wanted  # one wish for the whole pass; a newer one makes another pass
        await self._bring_held(wanted, has_keys=self._has_keys)
        failures: dict[str, str] = {}
        for listen in wanted:
            if listen in self._bound or self._meant.get(listen):
                continue
            if why := await self._open(listen):
                failures[listen] = why
        # Else the old ones stand in for the new.
        if all(listen in self._bound or self._meant.get(listen) for listen in self._coming):
            for gone in self._unwanted():
                self._close(gone)
        if failures != self.failures:
            self.failures = failures
            self._on_change()

    async def _bring_held(self, wanted: Sequence[str], *, has_keys: bool) -> None:
        """Serve every held socket that may be; says how they differ from what is wanted."""
        held = self.held.addresses
        if not held:
            return
        found = {listen: await asyncio.to_thread(resolved, listen) for listen in wanted}
        self._meant = {listen: names.intersection(held) for listen, names in found.items()}
        meant = frozenset().union(*self._meant.values())
        silent = [a for a in held if a not in meant and not may_serve(a, has_keys=has_keys)]
        for address in held:
            if address in silent and address in self._serving:
                self._stop(self._serving.pop(address))
            elif address not in silent and address not in self._serving:
                await self._serve_held(address)
        told = drift(held, [listen for listen in wanted if not self._meant[listen]], meant, silent)
        if told != self.drift:
            self.drift = told
            self._on_change()

    async def _serve_held(self, address: str) -> None:
        if self._is_closed:
            return
        sock = self.held.duplicate(address)
        self._serving[address] = await serve(self._app, sock, address)
        log.get().info("listen", address=address, held=True)
        self._on_change()
        self._stop_late(address)

    def _stop_late(self, address: str) -> None:
        """What came up while everything was closed."""
        if self._is_closed:
            self._stop(self._serving.pop(address))

    def _unwanted(self) -> list[str]:
        return [listen for listen in self._bound if listen not in self._wanted]

    def close(self) -> None:
        """Stop accepting everywhere, for good; running responses go on."""
        self.want(())
        self._is_closed = True
        for key in list(self._bound):
            self._close(key)
        while self._serving:
            self._stop(self._serving.popitem()[1])
        self.held.close()

    async def closed(self, timeout_s: float) -> None:
        """Wait until every response has ended, `timeout_s` at most."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=timeout_s)

    async def _open(self, listen: str) -> str:
        """Serve the address; returns why that cannot be, "" if it can."""
        try:
            sock = await self._bind(listen)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if self.failures.get(listen) != reason:
                log.get().error("listen", address=listen, error=reason, retry_s=RETRY_S)
            return reason
        address = address_of(sock)
        self._bound[listen] = await serve(self._app, sock, address)
        log.get().info("listen", address=address)
        self._on_change()
        return ""

    async def _bind(self, listen: str) -> socket.socket:
        """Raises as bind_tcp. One of ours that nobody wants any more makes way for it."""
        try:
            return await asyncio.to_thread(bind_tcp, listen)
        except OSError as error:
            port = split_address(listen)[1]
            ours = [key for key in self._unwanted() if split_address(key)[1] == port]
            if error.errno != errno.EADDRINUSE or not ours:
                raise
            for key in ours:
                self._close(key)
            return await asyncio.to_thread(bind_tcp, listen)

    def _close(self, listen: str) -> None:
        self._stop(self._bound.pop(listen))

    def _stop(self, listener: Listener) -> None:
        listener.server.stop()
        self._closing.add(listener.task)
        listener.task.add_done_callback(self._closed)
        log.get().info("listen", address=listener.address, closed=True)
        self._on_change()

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.get().error("listener_failed", listener=task.get_name(), error=repr(error))
