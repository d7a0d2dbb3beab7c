"""`omlxctl wait`, and --wait of others, against a real Unix socket."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import msgspec
import pytest

from omlxctl.client import Client, Disconnected
from omlxctl.verdicts import Verdict
from omlxctl.waiting import wait_for
from omlxd.control.wire import Condition
from tests.fakes.fake_control import TIME, FakeControl, a_model
from tests.support.control_socket import serving
from tests.support.ctl import Ctl, Done

# ------------------------------------------------------------------ wait


async def test_waiting_ends_when_it_is_so(up: Ctl, fake_daemon: FakeControl) -> None:
    """wait MODEL --for ready follows the model until it is."""
    fake_daemon.set_model("org/Alpha", waiting=1)
    async with up.running("wait", "Alpha", "--for", "ready") as running:
        await fake_daemon.followed.wait()
        fake_daemon.set_model("org/Alpha", phase="loading")
        fake_daemon.set_model("org/Alpha", phase="ready")
        assert await running.done() == Done(0, "", "")


async def test_a_wait_that_times_out_says_what_is_missing(
    up: Ctl, fake_daemon: FakeControl
) -> None:
    """Exit 5 comes with the phase and the daemon's reason."""
    fake_daemon.set_model("org/Alpha", phase="starting", reason="waits for 3GB of memory")
    done = await up("wait", "org/Alpha", "--for", "ready", "--timeout", "0.3s")
    assert (done.code, done.err) == (
        5,
        "omlxctl: timed out after 0.3s: org/Alpha is starting, not ready: "
        "waits for 3GB of memory\n",
    )


async def test_a_failed_model_ends_the_wait(up: Ctl, fake_daemon: FakeControl) -> None:
    """A model that fails is exit 1 at once, with the reason."""
    fake_daemon.set_model("org/Alpha", waiting=1)
    async with up.running("wait", "org/Alpha") as running:
        await fake_daemon.followed.wait()
        why = Condition("Ready", "False", "LoadFailed", "weights are corrupt", TIME)
        fake_daemon.set_model("org/Alpha", phase="failed", conditions=[why])
        done = await running.done()
    assert done.code == 1
    assert done.err.startswith("omlxctl: org/Alpha is failed, not ready: weights are corrupt\n")


async def test_waiting_for_the_daemon(up: Ctl, fake_daemon: FakeControl) -> None:
    """Without a MODEL the pinned ones count; --json prints the snapshot that ended the wait."""
    done = await up("wait", "--json")
    assert (done.code, json.loads(done.out)["generation"]) == (0, 3)
    fake_daemon.set_model("Beta", phase="loading")
    assert (await up("wait", "--timeout", "0.2s")).code == 5
    assert (await up("wait", "--all", "--for", "absent", "--timeout", "0.2s")).code == 5


async def test_waiting_survives_a_restart(down: Ctl, fake_daemon: FakeControl) -> None:
    """A daemon that comes up late, or goes away and comes back, is waited for."""
    path = down.home / "run" / "omlxd.sock"
    fake_daemon.set_model("org/Alpha", waiting=1)
    async with down.running("wait", "org/Alpha") as running:
        async with serving(fake_daemon, path):
            await fake_daemon.followed.wait()
        fake_daemon.set_model("org/Alpha", phase="ready")
        async with serving(fake_daemon, path):
            assert await running.done() == Done(0, "", "")


async def test_models_not_yet_found_are_waited_for(up: Ctl, fake_daemon: FakeControl) -> None:
    """A daemon that has just come up may not know the model yet; later it is exit 4."""
    fake_daemon.set_status(uptime_s=0.5)
    async with up.running("wait", "Gamma") as running:
        await fake_daemon.followed.wait()
        fake_daemon.set_status(models=[a_model("Gamma", phase="ready")])
        assert (await running.done()).code == 0
    assert (await up("wait", "Delta", "--timeout", "0.2s")).code == 4
    fake_daemon.followed.clear()
    async with up.running("wait", "Delta") as running:
        await fake_daemon.followed.wait()
        fake_daemon.current = msgspec.structs.replace(fake_daemon.current, uptime_s=60.0)
        done = await running.done()
    assert (done.code, done.err) == (4, "omlxctl: no model named 'Delta'; models: Gamma\n")


async def test_an_idle_model_is_told_how_to_load_it(up: Ctl, fake_daemon: FakeControl) -> None:
    """A wait for what nothing will load says so at once, once, and goes on."""
    fake_daemon.set_status(uptime_s=60.0)
    async with up.running("wait", "Alpha") as running:
        await fake_daemon.followed.wait()
        fake_daemon.set_status(generation=3)
        fake_daemon.set_model("org/Alpha", phase="ready")
        done = await running.done()
    assert done == Done(
        0,
        "",
        "omlxctl: org/Alpha is not loaded and nothing asks for it; "
        "`omlxctl load org/Alpha` would load it. Waiting goes on.\n",
    )


async def test_a_daemon_that_keeps_breaking_off_ends_the_wait(ctl_home: Path) -> None:
    """Connections that end without an answer are tried again some times only, with pauses."""
    path, calls = ctl_home / "run" / "omlxd.sock", 0

    def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.close()

    server = await asyncio.start_unix_server(cut, path)
    async with server:
        wait = partial(wait_for, Client(path), lambda _: Verdict(False), coming_up_s=0.5)
        with pytest.raises(Disconnected, match="broke off"):
            await asyncio.to_thread(wait)
    assert 2 <= calls <= 8  # after 0.2 and 0.4 s, each time for the stream and for one status


async def test_an_error_of_the_daemon_ends_the_wait(ctl_home: Path) -> None:
    """A status that is answered with an error is not asked for again; its message is shown."""
    path, calls = ctl_home / "run" / "omlxd.sock", 0
    body = b'{"code": "internal", "message": "it broke"}'

    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 Oh\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async with await asyncio.start_unix_server(fail, path):
        done = await Ctl(ctl_home)("wait", "M")
    assert (done, calls) == (Done(1, "", "omlxctl: it broke\n"), 1)


async def test_a_status_that_cannot_be_written_is_an_error_in_the_stream(
    up: Ctl, fake_daemon: FakeControl
) -> None:
    """A followed status that fails in the daemon ends the wait, and not with a time-out."""
    fake_daemon.current = msgspec.structs.replace(fake_daemon.current, pid=object())
    done = await up("wait", "M", "--timeout", "30s")
    assert (done.code, "GET /v1/status: TypeError" in done.err) == (1, True)


@pytest.mark.parametrize(
    "args", [("--for", "redy"), ("--timeout", "soon"), ("M", "--all"), ("--for", "")]
)
async def test_a_wait_for_nothing_known_is_usage(up: Ctl, args: tuple[str, ...]) -> None:
    """An unknown phase, a time that is none, and a MODEL with --all are exit 2."""
    assert (await up("wait", *args)).code == 2


# ------------------------------------------------------------------ --wait


async def test_pin_can_wait_for_the_model(up: Ctl, fake_daemon: FakeControl) -> None:
    """pin --wait comes back when the model is ready."""
    async with up.running("pin", "org/Alpha", "--wait") as running:
        assert await running.line() == "accepted (generation 4)\n"
        fake_daemon.set_model("org/Alpha", phase="loading")
        fake_daemon.set_model("org/Alpha", phase="ready")
        assert await running.done() == Done(0, "", "")


@pytest.mark.parametrize(("command", "phase"), [("load", "ready"), ("unload", "absent")])
async def test_load_and_unload_can_wait(
    up: Ctl, fake_daemon: FakeControl, command: str, phase: str
) -> None:
    """load --wait ends when the model is ready, unload --wait when it is absent."""
    async with up.running(command, "org/Alpha", "--wait") as running:
        assert await running.line() == f"{command} of org/Alpha accepted\n"
        fake_daemon.set_model("org/Alpha", phase=phase)
        assert await running.done() == Done(0, "", "")


async def test_a_load_that_has_come_and_gone_is_done(up: Ctl, fake_daemon: FakeControl) -> None:
    """A model that was loaded since the call and is gone again, by a ttl of 0, is enough."""
    fake_daemon.emit("Loaded", "an earlier time", model="org/Alpha")
    async with up.running("load", "org/Alpha", "--wait") as running:
        assert await running.line() == "load of org/Alpha accepted\n"
        await fake_daemon.followed.wait()
        fake_daemon.emit("Loaded", "of another", model="Beta")
        fake_daemon.set_model("org/Alpha", phase="loading")
        fake_daemon.emit("Loaded", "now", model="org/Alpha")
        fake_daemon.set_model("org/Alpha", phase="absent")
        assert await running.done() == Done(0, "", "")


async def test_an_earlier_load_does_not_count(up: Ctl, fake_daemon: FakeControl) -> None:
    """A model that was loaded before the call and is absent is still waited for."""
    fake_daemon.emit("Loaded", "an earlier time", model="org/Alpha")
    async with up.running("load", "org/Alpha", "--wait", "--timeout", "0.5s") as running:
        await fake_daemon.followed.wait()
        fake_daemon.emit("Loaded", "of another", model="Beta")
        fake_daemon.set_model("org/Alpha", phase="absent")
        assert (await running.done()).code == 5


@pytest.mark.parametrize("command", ["load", "pin", "unload", "unpin"])
async def test_a_wait_after_a_change_has_a_bound(
    up: Ctl, fake_daemon: FakeControl, command: str
) -> None:
    """--timeout bounds --wait, and means nothing without it."""
    fake_daemon.lags = True
    done = await up(command, "org/Alpha", "--wait", "--timeout", "0.3s")
    assert (done.code, "timed out after 0.3s" in done.err) == (5, True)
    alone = await up(command, "org/Alpha", "--timeout", "0.3s")
    assert (alone.code, "--timeout goes with --wait" in alone.err) == (2, True)


async def test_a_change_is_waited_for_until_it_is_in_force(
    up: Ctl, fake_daemon: FakeControl
) -> None:
    """A model that is ready under the old generation does not end pin --wait."""
    fake_daemon.lags = True
    async with up.running("pin", "Beta", "--wait") as running:
        await running.line()
        await fake_daemon.followed.wait()
        assert fake_daemon.current.observed_generation == 3
        fake_daemon.set_status(observed_generation=4)
        assert (await running.done()).code == 0
