"""Real tool servers: processes over stdio, and streamable HTTP on loopback."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from omlxd.errors import RequestTimeout, ToolServerUnavailable
from omlxd.mcp.pool import ToolPool
from omlxd.mcp.types import Limits, Result, Server
from tests.fakes.fake_tools import desired

PROGRAM = str(Path(__file__).parents[1] / "support" / "tool_server.py")


def lab(**facts: Any) -> Server:
    asked = {"command": sys.executable, "args": (PROGRAM,), **facts}
    return Server(name="lab", source="omlx.toml", **asked)


@asynccontextmanager
async def pool_of(folder: Path, *servers: Server, **limits: Any) -> AsyncIterator[ToolPool]:
    pool = ToolPool(folder)
    pool.want(desired(*servers, limits=Limits(**limits)))
    try:
        yield pool
    finally:
        await pool.close()


async def call(pool: ToolPool, name: str, **arguments: Any) -> Result:
    return await pool.call(f"lab__{name}", arguments, request_id="req_1")


async def appears(path: Path) -> None:
    there = await asyncio.to_thread(_waits_for, path)
    assert there, path


def _waits_for(path: Path) -> bool:
    """Another process makes it, and says nothing else."""
    deadline = time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return path.exists()


async def test_a_server_of_our_own(tmp_path: Path) -> None:
    """It runs in the given folder, in a process group of its own, and answers several at a time."""
    async with pool_of(tmp_path, lab()) as pool:
        sums = await asyncio.gather(*(call(pool, "add", a=n, b=n) for n in range(8)))
        assert [result.text for result in sums] == [str(2 * n) for n in range(8)]
        folder, pid, group = (await call(pool, "where")).text.split()
        assert (folder, group) == (str(tmp_path), pid)
        (view,) = pool.servers()
        assert (view.pid, view.starts) == (int(pid), 1)
    assert not psutil.pid_exists(int(pid))


async def test_no_variable_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees PATH, HOME and the like, and what is configured; nothing else of omlxd's."""
    monkeypatch.setenv("OMLXD_TEST_SECRET", "leaked")
    monkeypatch.setenv("PYTHONPATH", "leaked")
    async with pool_of(tmp_path, lab(env={"TOKEN": "given"})) as pool:
        text = (await call(pool, "variables")).text
    assert "TOKEN=given" in text.split("\n")
    assert "PATH=" in text
    assert "leaked" not in text


async def test_results_are_text_of_a_bounded_size(tmp_path: Path) -> None:
    """Too much text is cut between characters; a picture leaves a line; a failure is an error."""
    async with pool_of(tmp_path, lab(), max_output_bytes=1001) as pool:
        huge = await call(pool, "big", size=1_000_000)
        assert huge.text.startswith("ü" * 500 + "\n[cut: 1,001 of 2,000,000 bytes are shown")
        assert "image omitted: image/png, 8 bytes" in (await call(pool, "picture")).text
        assert (await call(pool, "boom")).is_error
        wrong = await call(pool, "add", a="x")
        assert wrong.is_error
        assert "add" in wrong.text


async def test_a_crash_costs_one_call(tmp_path: Path) -> None:
    """The call fails, its last words are the reason with secrets blanked, the next one works."""
    async with pool_of(tmp_path, lab(env={"KEY": "hush-hush"})) as pool:
        with pytest.raises(ToolServerUnavailable, match="was lost under the call"):
            await call(pool, "die", word="the word is hush-hush")
        assert (await call(pool, "add", a=1, b=2)).text == "3"
        (view,) = pool.servers()
        assert (view.state, view.starts) == ("ready", 2)


async def test_a_death_between_calls_is_seen(tmp_path: Path) -> None:
    """A server that somebody kills while it is idle is shown as off, with what it wrote."""
    async with pool_of(tmp_path, lab()) as pool:
        await call(pool, "add", a=1, b=2)
        changed = asyncio.Event()
        pool.on_change = changed.set
        os.kill(pool.servers()[0].pid or 0, 9)
        await changed.wait()
        assert pool.servers()[0].state == "backoff"


async def test_a_hanging_call_is_cancelled_in_the_server(tmp_path: Path) -> None:
    """At its limit, and when the caller leaves; the server goes on."""
    async with pool_of(tmp_path, lab()) as pool:
        await call(pool, "add", a=1, b=2)
        mark = tmp_path / "left"
        running = asyncio.create_task(call(pool, "hang", mark=str(mark)))
        await appears(mark.with_suffix(".begun"))
        running.cancel()
        await appears(mark.with_suffix(".cancelled"))
        pool.want(desired(lab(), limits=Limits(call_timeout_s=0.3)))
        with pytest.raises(RequestTimeout):
            await call(pool, "hang", mark=str(tmp_path / "late"))
        await appears(tmp_path / "late.cancelled")
        assert (await call(pool, "add", a=1, b=2)).text == "3"
        assert pool.servers()[0].starts == 1


async def test_what_a_server_left_behind_ends_with_it(tmp_path: Path) -> None:
    """A process that a server started and forgot does not outlive it."""
    async with pool_of(tmp_path, lab()) as pool:
        left = psutil.Process(int((await call(pool, "child")).text))
        assert left.is_running()
    left.wait(timeout=10)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"command": "no-such-program"}, "no-such-program is not a program on PATH"),
        ({"command": "/bin/sh", "args": ("-c", "echo sorry >&2; exit 3")}, "it wrote: sorry"),
        ({"command": "/bin/sh", "args": ("-c", "exec sleep 600")}, "did not start within 0.5 s"),
    ],
)
async def test_a_server_that_cannot_start_says_why(
    tmp_path: Path, facts: dict[str, Any], why: str
) -> None:
    """Not found, ended at once, or silent: the reason tells which."""
    async with pool_of(tmp_path, lab(**facts), start_timeout_s=0.5) as pool:
        await warm()
        with pytest.raises(ToolServerUnavailable, match=why):
            await call(pool, "add", a=1, b=2)


async def warm() -> None:
    """The SDK's own import is no part of a start that is timed here."""
    import omlxd.mcp.connection

    assert omlxd.mcp.connection


async def test_nothing_is_found_in_the_folder_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of that name in the working directory, or on a relative PATH, is no program."""
    planted = tmp_path / "planted"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}:")
    async with pool_of(tmp_path, lab(command="planted")) as pool:
        with pytest.raises(ToolServerUnavailable, match="is not a program on PATH"):
            await call(pool, "add", a=1, b=2)


@asynccontextmanager
async def over_http(port: int) -> AsyncIterator[None]:
    """The same server on a port, up."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, str(port), stdout=quiet, stderr=quiet
    )
    try:
        assert await asyncio.to_thread(_opens, port)
        yield
    finally:
        process.kill()
        await process.wait()


def _opens(port: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port)):
                return True
        except OSError:
            time.sleep(0.02)
    return False


async def test_a_server_over_http(tmp_path: Path) -> None:
    """It is called like one over stdio; when it goes away, calls fail, and it is found again."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    web = Server(name="lab", source="omlx.toml", url=f"http://127.0.0.1:{port}/mcp")
    async with pool_of(tmp_path, web, call_timeout_s=5.0) as pool:
        async with over_http(port):
            assert (await call(pool, "add", a=1, b=2)).text == "3"
            assert (await call(pool, "boom")).is_error
        with pytest.raises(ToolServerUnavailable):
            await call(pool, "add", a=1, b=2)
        async with over_http(port):
            pool.want(desired())
            pool.want(desired(web))
            assert (await call(pool, "add", a=1, b=2)).text == "3"
