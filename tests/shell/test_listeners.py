"""The sockets the daemon listens on: real ports, real connections."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from omlxd.daemon.listeners import Listeners, bind_tcp, bind_unix, serve
from tests.support.control_socket import short_home
from tests.support.daemon import free_port
from tests.support.serving import ask


class App:
    """Answers "ok" at once, or on /slow the second half of it when `finish` is set."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.finish = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
        if scope["path"] == "/slow":
            self.started.set()
            await self.finish.wait()
        await send({"type": "http.response.body", "body": b"k"})


class Open:
    """Listeners at work, and a way to wait for what they report."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._changed = asyncio.Event()
        self.changes = 0
        self.listeners = Listeners(app, on_change=self._on_change)
        self.running = asyncio.create_task(self.listeners.run())

    def _on_change(self) -> None:
        self.changes += 1
        self._changed.set()

    def want(self, *addresses: str) -> None:
        self.listeners.want(addresses)

    async def until(self, met: Callable[[], Any]) -> None:
        while not met():
            self._changed.clear()
            await self._changed.wait()

    async def until_bound(self, *addresses: str) -> None:
        await self.until(lambda: self.listeners.addresses == list(addresses))

    async def close(self) -> None:
        self.app.finish.set()
        self.listeners.close()
        await self.listeners.closed(10)
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    opened = Open(App())
    yield opened
    await opened.close()


def refused(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0


# ------------------------------------------------------------------ addresses come and go


async def test_every_address_is_served(opened: Open) -> None:
    """In the order of the file, IPv4 and IPv6."""
    first, second = free_port(), free_port()
    opened.want(f"127.0.0.1:{first}", f"[::1]:{second}")
    await opened.until_bound(f"127.0.0.1:{first}", f"[::1]:{second}")
    assert (await ask(first, "GET", "/")).body == b"ok"
    opened.want(f"[::1]:{second}", f"127.0.0.1:{first}")
    assert opened.listeners.addresses == [f"[::1]:{second}", f"127.0.0.1:{first}"]


async def test_a_rebind_cuts_nobody_off(opened: Open) -> None:
    """The old address accepts no one, what runs on it ends as it should, the new one answers."""
    old, new = free_port(), free_port()
    opened.want(f"127.0.0.1:{old}")
    await opened.until_bound(f"127.0.0.1:{old}")
    running = asyncio.create_task(ask(old, "GET", "/slow"))
    await opened.app.started.wait()
    opened.want(f"127.0.0.1:{new}")
    await opened.until_bound(f"127.0.0.1:{new}")
    assert refused(old)
    assert (await ask(new, "GET", "/")).body == b"ok"
    assert not running.done()
    opened.app.finish.set()
    assert (await running).body == b"ok"


async def test_who_was_accepted_may_still_ask(opened: Open) -> None:
    """A connection made just before its address goes is answered, not reset."""
    port = free_port()
    opened.want(f"127.0.0.1:{port}")
    await opened.until_bound(f"127.0.0.1:{port}")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.sleep(0)
    opened.want(f"127.0.0.1:{free_port()}")
    await opened.until(lambda: opened.listeners.addresses != [f"127.0.0.1:{port}"])
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()


async def test_the_same_wish_again_is_nothing(opened: Open) -> None:
    """A save that keeps the addresses touches no listener."""
    port = free_port()
    opened.want(f"127.0.0.1:{port}")
    await opened.until_bound(f"127.0.0.1:{port}")
    listener = opened.listeners._bound[f"127.0.0.1:{port}"]
    changes = opened.changes
    opened.want(f"127.0.0.1:{port}")
    for _ in range(10):
        await asyncio.sleep(0)
    assert opened.listeners._bound[f"127.0.0.1:{port}"] is listener
    assert opened.changes == changes


# ------------------------------------------------------------------ addresses that fail


async def test_a_taken_port_is_tried_again(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is shown once, other addresses are served meanwhile, and it binds when free."""
    monkeypatch.setattr("omlxd.daemon.listeners.RETRY_S", 0.02)
    tries: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def bind(listen: str) -> socket.socket:
        loop.call_soon_threadsafe(tries.put_nowait, listen)
        return bind_tcp(listen)

    monkeypatch.setattr("omlxd.daemon.listeners.bind_tcp", bind)
    other = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taker:
        port = taker.getsockname()[1]
        opened.want(f"127.0.0.1:{port}", f"127.0.0.1:{other}")
        await opened.until_bound(f"127.0.0.1:{other}")
        await opened.until(lambda: opened.listeners.failures)
        assert "in use" in opened.listeners.failures[f"127.0.0.1:{port}"]
        changes = opened.changes
        for _ in range(3):
            await tries.get()
        assert opened.changes == changes
    await opened.until_bound(f"127.0.0.1:{port}", f"127.0.0.1:{other}")
    assert opened.listeners.failures == {}


async def test_a_failure_nobody_wants_any_more(opened: Open) -> None:
    """The condition is told when its address leaves the file."""
    kept = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as taker:
        opened.want(kept, f"127.0.0.1:{taker.getsockname()[1]}")
        await opened.until(lambda: opened.listeners.failures)
        opened.want(kept)
        await opened.until(lambda: not opened.listeners.failures)
    assert opened.listeners.addresses == [kept]


async def test_a_rebind_to_a_taken_port_keeps_the_old_one(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients are served where they were until the new address is bound."""
    monkeypatch.setattr("omlxd.daemon.listeners.RETRY_S", 0.02)
    port = free_port()
    opened.want(f"127.0.0.1:{port}")
    await opened.until_bound(f"127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", 0)) as taker:
        taken = taker.getsockname()[1]
        opened.want(f"127.0.0.1:{taken}")
        await opened.until(lambda: opened.listeners.failures)
        assert opened.listeners.addresses == [f"127.0.0.1:{port}"]
        assert (await ask(port, "GET", "/")).body == b"ok"
    await opened.until_bound(f"127.0.0.1:{taken}")
    assert refused(port)


async def test_an_address_that_leaves_goes_whatever_else_fails(opened: Open) -> None:
    """Only an address that comes in the same save can keep one that goes."""
    kept, gone = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as taker:
        taken = f"127.0.0.1:{taker.getsockname()[1]}"
        opened.want(kept, gone, taken)
        await opened.until(lambda: opened.listeners.failures)
        opened.want(kept, taken)
        await opened.until_bound(kept)


async def test_a_rebind_that_is_taken_back(opened: Open) -> None:
    """The old address was never closed, and is the wanted one again."""
    old = f"127.0.0.1:{free_port()}"
    opened.want(old)
    await opened.until_bound(old)
    listener = opened.listeners._bound[old]
    with socket.create_server(("127.0.0.1", 0)) as taker:
        opened.want(f"127.0.0.1:{taker.getsockname()[1]}")
        await opened.until(lambda: opened.listeners.failures)
        opened.want(old)
        await opened.until(lambda: not opened.listeners.failures)
    assert opened.listeners._bound == {old: listener}


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "192.0.2.1"])
async def test_hosts_that_are_none(opened: Open, host: str) -> None:
    """A name that cannot exist is a failure like a taken port, not the end of the daemon."""
    opened.want(f"{host}:8000")
    await opened.until(lambda: opened.listeners.failures)
    assert opened.listeners.failures[f"{host}:8000"]
    assert not opened.running.done()


# ------------------------------------------------------------------ the end


async def test_close_lets_responses_finish(opened: Open) -> None:
    """Nobody is accepted any more; `closed` waits for what runs, as long as it may."""
    port = free_port()
    opened.want(f"127.0.0.1:{port}")
    await opened.until_bound(f"127.0.0.1:{port}")
    running = asyncio.create_task(ask(port, "GET", "/slow"))
    await opened.app.started.wait()
    opened.listeners.close()
    assert opened.listeners.addresses == []
    await opened.listeners.closed(0.01)
    assert not running.done()
    assert refused(port)
    opened.app.finish.set()
    await opened.listeners.closed(10)
    assert (await running).body == b"ok"


async def test_close_while_an_address_is_opened(opened: Open) -> None:
    """What comes up after the order to close goes down again at once."""
    ports = [free_port(), free_port()]
    opened.want(*(f"127.0.0.1:{port}" for port in ports))
    await opened.until(lambda: len(opened.listeners._bound) == 1)
    opened.listeners.close()
    await opened.until(lambda: opened.changes == 4)  # opened and closed, both
    assert opened.listeners.addresses == []
    assert [refused(port) for port in ports] == [True, True]


async def test_close_is_final(opened: Open) -> None:
    """A file that is read while the daemon stops brings no address back."""
    port = free_port()
    opened.want(f"127.0.0.1:{port}")
    await opened.until_bound(f"127.0.0.1:{port}")
    opened.listeners.close()
    opened.want(f"127.0.0.1:{port}")
    await opened.listeners.closed(10)
    assert opened.listeners.addresses == []
    assert refused(port)


def test_the_same_port_on_another_host() -> None:
    """From one address to all of them on the same port, on the daemon's own loop, at first try."""

    async def run() -> tuple[list[str], dict[str, str]]:
        opened = Open(App())
        port = free_port()
        opened.want(f"127.0.0.1:{port}")
        await opened.until_bound(f"127.0.0.1:{port}")
        running = asyncio.create_task(ask(port, "GET", "/slow"))
        await opened.app.started.wait()
        opened.want(f"0.0.0.0:{port}")
        await opened.until(lambda: opened.listeners.addresses == [f"0.0.0.0:{port}"])
        found = (await ask(port, "GET", "/")).body.decode()
        failures = dict(opened.listeners.failures)
        opened.app.finish.set()
        await running
        await opened.close()
        return [found], failures

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found, failures = runner.run(run())
    assert (found, failures) == (["ok"], {})


async def test_an_idle_listener_wakes_once_a_second(opened: Open) -> None:
    """Its loop keeps the Date header and does nothing else."""
    port = free_port()
    opened.want(f"127.0.0.1:{port}")
    await opened.until_bound(f"127.0.0.1:{port}")
    loop = asyncio.get_running_loop()
    due = [h.when() - loop.time() for h in loop._scheduled if not h.cancelled()]  # type: ignore[attr-defined]
    assert all(seconds > 0.5 for seconds in due), due


# ------------------------------------------------------------------ the Unix socket


async def test_the_control_socket_is_private() -> None:
    """Mode 0600, over a socket file that a crash left, and it answers."""
    with short_home() as home:
        path = home / "omlxd.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        umask = os.umask(0)
        try:
            sock = bind_unix(path)
            assert os.umask(0) == 0
        finally:
            os.umask(umask)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        listener = await serve(App(), sock, str(path))
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        listener.server.stop()
        await listener.task


def test_a_socket_that_cannot_be_bound_is_closed(tmp_path: Path) -> None:
    """The error is the system's, and no descriptor is left behind."""
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    with pytest.raises(OSError, match="too long"):
        bind_unix(tmp_path / ("x" * 200))
    with socket.create_server(("127.0.0.1", 0)) as taker, pytest.raises(OSError, match="in use"):
        bind_tcp(f"127.0.0.1:{taker.getsockname()[1]}")
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
