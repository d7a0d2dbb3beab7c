"""Listening sockets that launchd holds, served beside those we bind ourselves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from omlxd.daemon.conditions import listen_drift
from omlxd.daemon.held import HeldSockets, address_of, drift, may_serve, resolved
from omlxd.daemon.listeners import Listeners
from tests.support.daemon import free_port
from tests.support.serving import ask


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


class Held:
    """A launchd with one socket on 127.0.0.1, and listeners that took it over."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.holder = socket.create_server((host, 0))
        self.port: int = self.holder.getsockname()[1]
        self.address = f"{host}:{self.port}"
        ours = self.holder.dup()
        ours.setblocking(False)
        self._changed = asyncio.Event()
        self.listeners = Listeners(app, on_change=self._changed.set, held=HeldSockets([ours]))
        self.running = asyncio.create_task(self.listeners.run())

    async def until(self, met: Callable[[], Any]) -> None:
        while not met():
            self._changed.clear()
            await self._changed.wait()

    async def until_served(self, *addresses: str) -> None:
        await self.until(lambda: self.listeners.addresses == list(addresses))

    async def close(self) -> None:
        self.listeners.close()
        await self.listeners.closed(10)
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.holder.close()


@pytest.fixture
async def held() -> AsyncIterator[Held]:
    held = Held()
    yield held
    await held.close()


async def test_a_held_address_is_not_bound_again(held: Held) -> None:
    """It is served as what `listen` names; nothing differs and nothing fails."""
    held.listeners.want([held.address])
    await held.until_served(held.address)
    assert (await ask(held.port, "GET", "/")).body == b"ok"
    assert (held.listeners.failures, held.listeners.drift) == ({}, "")


async def test_a_name_can_mean_a_held_address(held: Held) -> None:
    """localhost is 127.0.0.1 among others."""
    held.listeners.want([f"localhost:{held.port}"])
    await held.until_served(held.address)
    assert (held.listeners.failures, held.listeners.drift) == ({}, "")


async def test_it_is_served_before_anything_is_wanted(held: Held) -> None:
    """Without a valid file clients get an answer, and not silence."""
    await held.until_served(held.address)
    assert (await ask(held.port, "GET", "/")).body == b"ok"
    assert held.listeners.drift == ""


async def test_another_address_comes_beside_the_held_one(held: Held) -> None:
    """The new one is bound, the held one goes on, and the difference is told until it ends."""
    new = f"127.0.0.1:{free_port()}"
    held.listeners.want([held.address])
    await held.until_served(held.address)
    held.listeners.want([new])
    await held.until_served(new, held.address)
    assert held.listeners.drift == (
        f"launchd holds {held.address}, which server.listen does not name; "
        f"launchd does not hold {new}"
    )
    assert (await ask(held.port, "GET", "/")).body == b"ok"
    held.listeners.want([held.address])
    await held.until_served(held.address)
    await held.until(lambda: held.listeners.drift == "")


async def test_a_reachable_one_without_keys_is_silent() -> None:
    """Nobody is served on an address that the file no longer opens, unless a key is asked for."""
    held = Held("0.0.0.0")
    own = f"127.0.0.1:{free_port()}"
    held.listeners.want([held.address], has_keys=True)
    await held.until_served(held.address)
    held.listeners.want([own])
    await held.until_served(own)
    await held.until(lambda: held.listeners.drift)
    assert f"nobody answers on {held.address}" in held.listeners.drift
    held.listeners.want([own], has_keys=True)
    await held.until_served(own, held.address)
    assert (await ask(held.port, "GET", "/")).body == b"ok"
    await held.close()


async def test_close_leaves_the_holders_socket(held: Held) -> None:
    """Connections made after the end wait for the next daemon."""
    held.listeners.want([held.address])
    await held.until_served(held.address)
    held.listeners.close()
    await held.listeners.closed(10)
    assert held.listeners.addresses == []
    with socket.create_connection(("127.0.0.1", held.port), timeout=5):
        held.holder.settimeout(5)
        held.holder.accept()[0].close()


async def test_the_end_while_it_comes_up(held: Held) -> None:
    """What is closed before the first pass is never served."""
    held.listeners.close()
    await held.listeners.brought.wait()
    assert held.listeners.addresses == []


def test_addresses_have_one_form(tmp_path: Path) -> None:
    """IPv6 in brackets, and the path of a Unix socket, which is not removed."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        assert address_of(unix) == str(path)
        HeldSockets([unix]).close()
    assert path.exists()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as six:
        assert address_of(six) == f"[::1]:{six.getsockname()[1]}"


def test_what_a_listen_entry_can_mean() -> None:
    """Literals mean themselves, a name that is none means nothing."""
    assert resolved("127.0.0.1:8000") == {"127.0.0.1:8000"}
    assert resolved("[::1]:8000") == {"[::1]:8000"}
    assert "127.0.0.1:8000" in resolved("localhost:8000")
    assert resolved("a..b:8000") == frozenset()


@pytest.mark.parametrize(
    ("address", "served"),
    [("127.0.0.1:1", True), ("[::1]:1", True), ("/run/s", True), ("0.0.0.0:1", False)],
)
def test_who_may_be_served_without_keys(address: str, served: bool) -> None:
    """This machine only; with keys everybody."""
    assert may_serve(address, has_keys=False) is served
    assert may_serve(address, has_keys=True)


def test_no_difference_has_no_words() -> None:
    """And the condition is there only where launchd holds something."""
    assert drift(["a:1"], [], ["a:1"], []) == ""
    assert listen_drift([], "") == ()
    (fine,) = listen_drift(["a:1"], "")
    assert (fine.type, fine.status) == ("ListenDrift", "False")
    (amiss,) = listen_drift(["a:1"], "launchd holds a:1")
    assert amiss.status == "True"
    assert amiss.message.endswith("omlxctl service install")
