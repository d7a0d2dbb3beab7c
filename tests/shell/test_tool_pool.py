"""omlxd.mcp.pool and its owners, over connections without processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from omlxd.errors import Forbidden, NotFound, RequestTimeout, ToolServerUnavailable
from omlxd.mcp.pool import ToolPool
from omlxd.mcp.server import retry_delay_s
from omlxd.mcp.types import Limits, Result, ServerView
from tests.fakes.fake_tools import ECHO, SECRET, FakeTools, asked, desired, lose


def view(pool: ToolPool, name: str = "lab") -> ServerView:
    return next(one for one in pool.servers() if one.name == name)


async def call(pool: ToolPool, name: str = "lab__echo", **arguments: Any) -> Result:
    return await pool.call(name, arguments, request_id="req_1")


async def test_nothing_starts_before_its_first_use() -> None:
    """Asking for servers starts none; a call starts its own, once, and no other."""
    world = FakeTools()
    pool = world.pool(asked(), asked("other"))
    assert (world.events, view(pool).state, view(pool).tools) == ([], "idle", None)
    results = await asyncio.gather(call(pool, a=1), call(pool, a=2))
    assert [result.text for result in results] == ["echo {'a': 1}", "echo {'a': 2}"]
    assert world.events == ["start lab"]
    assert (view(pool).state, view(pool).starts) == ("ready", 1)
    await pool.close()
    assert world.events == ["start lab", "end lab"]


async def test_the_allow_list_holds_for_offers_and_calls() -> None:
    """A tool that is not listed is neither offered nor run, and status names it."""
    world = FakeTools()
    pool = world.pool(asked(allowed=("echo", "gone")))
    assert [tool.name for tool in (await pool.offered()).tools] == ["lab__echo"]
    with pytest.raises(Forbidden, match="not in the allow-list of tool server lab"):
        await call(pool, "lab__secret")
    assert world.calls == []
    assert (view(pool).refused, view(pool).missing) == (("secret",), ("gone",))
    await pool.close()


@pytest.mark.parametrize("name", ["nope__echo", "lab__nope", "lab", "", "__"])
async def test_what_is_not_there_is_refused(name: str) -> None:
    """An unknown server or tool is named, with what there is."""
    pool = FakeTools().pool(asked())
    with pytest.raises(NotFound, match="lab"):
        await call(pool, name)
    await pool.close()


async def test_a_server_that_is_off_is_never_started() -> None:
    """The reason why it is off is the answer to whoever wants it."""
    world = FakeTools()
    pool = world.pool(asked(off="its file says so"), asked("good"))
    offer = await pool.offered()
    assert [tool.server for tool in offer.tools] == ["good", "good"]
    assert "its file says so" in str(offer.off["lab"])
    assert world.events == ["start good"]
    assert view(pool).state == "off"
    await pool.close()


async def test_an_idle_server_is_stopped_and_started_again() -> None:
    """After `ttl` without a call it ends; the next call finds it again."""
    world = FakeTools()
    pool = world.pool(asked(), limits=Limits(ttl_s=0.01))
    await call(pool)
    await world.until("end lab")
    assert (await call(pool, a=1)).text == "echo {'a': 1}"
    assert world.events[:3] == ["start lab", "end lab", "start lab"]
    await pool.close()


async def test_a_call_keeps_its_server() -> None:
    """A call that takes longer than `ttl` is not cut off."""
    gate = asyncio.Event()

    async def wait(name: str, arguments: dict[str, Any]) -> Result:
        await gate.wait()
        return Result(text="late")

    world = FakeTools(answer=wait)
    pool = world.pool(asked(), limits=Limits(ttl_s=0.0))
    running = asyncio.create_task(call(pool))
    await world.until("start lab")
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.events == ["start lab"]
    gate.set()
    assert (await running).text == "late"
    await world.until("end lab")
    await pool.close()


def test_delays_grow_to_a_minute() -> None:
    """The first failure costs nothing, a crash loop is tried once a minute."""
    delays = [retry_delay_s(failures) for failures in (1, 2, 3, 4, 9, 500)]
    assert delays == [0.0, 1.0, 2.0, 4.0, 60.0, 60.0]


async def test_a_server_that_does_not_start_backs_off() -> None:
    """It is tried again at once, then not before a delay; the reason has its last words."""
    world = FakeTools()
    world.broken["lab"] = OSError("no secret-value here")
    pool = world.pool(asked(env={"KEY": "secret-value"}))
    for _ in range(5):
        with pytest.raises(ToolServerUnavailable, match="cannot be reached: no ") as caught:
            await call(pool)
    assert "secret-value" not in str(caught.value)
    assert caught.value.retry_after_s is not None
    assert world.events == ["start lab"] * 2
    assert view(pool).state == "backoff"
    assert view(pool).reason.endswith("it wrote: last words")
    await pool.close()


async def test_a_slow_start_is_given_up() -> None:
    """After start_timeout the server is ended, and whoever waited is told."""
    world = FakeTools()
    world.hang_list = asyncio.Event()
    pool = world.pool(asked(), limits=Limits(start_timeout_s=0.01))
    with pytest.raises(ToolServerUnavailable, match=r"did not start within 0.01 s"):
        await call(pool)
    assert world.events == ["start lab", "end lab"]
    await pool.close()


async def test_a_call_has_a_limit() -> None:
    """A call without an answer is cancelled; the server goes on."""
    cancelled = asyncio.Event()

    async def hang(name: str, arguments: dict[str, Any]) -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Result(text="")

    world = FakeTools(answer=hang)
    pool = world.pool(asked(), limits=Limits(call_timeout_s=0.01))
    with pytest.raises(RequestTimeout, match=r"no answer within 0.01 s \(mcp.call_timeout\)"):
        await call(pool)
    assert cancelled.is_set()
    assert (view(pool).state, view(pool).calls) == ("ready", 0)
    await pool.close()


async def test_a_server_that_dies_fails_its_call_and_starts_again() -> None:
    """The call is not repeated, since nobody knows what it did; the next one is served."""
    world = FakeTools(answer=lose)
    pool = world.pool(asked())
    with pytest.raises(ToolServerUnavailable, match="what the call did is not known"):
        await call(pool)
    world.answer = FakeTools().answer
    assert not (await call(pool)).is_error
    assert len(world.calls) == 2
    assert world.events == ["start lab", "end lab", "start lab"]
    await pool.close()


async def test_a_death_between_calls_is_noticed() -> None:
    """A server whose process ended is shown as that, before anybody uses it."""
    world = FakeTools()
    pool = world.pool(asked())
    await call(pool)
    changed = asyncio.Event()
    pool.on_change = changed.set
    world.opened["lab"].gone()
    await changed.wait()
    assert view(pool).state == "backoff"
    assert "ended by itself" in view(pool).reason
    await pool.close()


async def test_a_change_touches_its_own_server_only() -> None:
    """A server that changed ends, one that did not keeps running, and one that went is gone."""
    world = FakeTools()
    pool = world.pool(asked(), asked("other"), asked("gone"))
    await pool.offered()
    pool.want(desired(asked(args=("new",)), asked("other")))
    await world.until("end lab")
    await world.until("end gone")
    assert "end other" not in world.events
    assert [one.name for one in pool.servers()] == ["lab", "other"]
    await call(pool)
    assert world.events.count("start lab") == 2
    assert view(pool, "other").starts == 1
    await pool.close()


async def test_a_running_call_outlives_its_server_s_change() -> None:
    """A server that is no longer asked for ends with its last call, not under it."""
    gate, begun = asyncio.Event(), asyncio.Event()

    async def wait(name: str, arguments: dict[str, Any]) -> Result:
        begun.set()
        await gate.wait()
        return Result(text="whole")

    world = FakeTools(answer=wait)
    pool = world.pool(asked())
    running = asyncio.create_task(call(pool))
    await begun.wait()
    pool.want(desired())
    for _ in range(20):
        await asyncio.sleep(0)
    assert "end lab" not in world.events
    gate.set()
    assert (await running).text == "whole"
    await world.until("end lab")
    await pool.close()


async def test_limits_change_without_a_restart() -> None:
    """A shorter ttl ends an idle server at once, without a word to the others."""
    world = FakeTools()
    pool = world.pool(asked())
    await call(pool)
    pool.want(desired(asked(), limits=Limits(ttl_s=0.0)))
    await world.until("end lab")
    assert world.events == ["start lab", "end lab"]
    await pool.close()


async def test_a_changed_list_is_read_again() -> None:
    """Tools are listed once, and anew after the server says that they changed."""
    world = FakeTools(tools=(ECHO,))
    pool = world.pool(asked())
    await call(pool)
    await call(pool)
    assert world.lists == 1
    world.tools = (ECHO, SECRET)
    world.live["lab"].tools_changed = True
    assert len((await pool.offered()).tools) == 2
    assert world.lists == 2
    await pool.close()


async def test_the_older_protocol_is_remembered() -> None:
    """A server that speaks it is not asked for the newer one at its next start."""
    world = FakeTools(answer=lose)
    world.is_legacy = True
    pool = world.pool(asked())
    for _ in range(2):
        with pytest.raises(ToolServerUnavailable):
            await call(pool)
    assert [settings.is_legacy for settings in world.settings] == [False, True]
    await pool.close()


async def test_closing_ends_a_start() -> None:
    """At shutdown nobody waits for a server that is still coming up."""
    world = FakeTools()
    world.hang_list = asyncio.Event()
    pool = world.pool(asked())
    running = asyncio.create_task(call(pool))
    await world.until("start lab")
    await pool.close()
    assert world.events == ["start lab", "end lab"]
    with pytest.raises(ToolServerUnavailable, match="shuts down"):
        await running


async def test_every_call_is_counted() -> None:
    """Metrics get the server and how it ended, also when the caller left."""
    world = FakeTools()
    pool = world.pool(asked(allowed=("echo",)))
    seen: list[tuple[str, str]] = []
    pool.on_call = lambda server, outcome: seen.append((server, outcome))
    await call(pool)
    with pytest.raises(Forbidden):
        await call(pool, "lab__secret")

    async def hang(name: str, arguments: dict[str, Any]) -> Result:
        running.cancel()
        await asyncio.Event().wait()
        return Result(text="")

    world.answer = hang
    running = asyncio.create_task(call(pool))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen == [("lab", "ok"), ("lab", "forbidden"), ("lab", "cancelled")]
    await pool.close()
