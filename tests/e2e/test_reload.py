"""Saving omlx.toml while requests run: what changes, what does not, what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from openai import NotFoundError

from tests.support.chat import client, streams
from tests.support.daemon import Daemon, config, free_port

pytestmark = pytest.mark.e2e

MODEL = "tiny-llama"


def entry(*lines: str, model: str = MODEL) -> str:
    return "\n".join([f'[models."{model}"]', *lines, ""])


async def until(daemon: Daemon, generation: int) -> dict[str, object]:
    return await asyncio.to_thread(daemon.until_generation, generation)


async def test_live_change_breaks_nothing(home: Path, tiny_models: Path) -> None:
    """A ttl and an alias change while three streams run: all finish, the worker is the same."""
    text = config(tiny_models, body=entry("pin = true"))
    with Daemon(home, text) as daemon:
        await asyncio.to_thread(daemon.until_phase, MODEL, "ready")
        url, before = daemon.until_listening(), daemon.model(MODEL)["pid"]
        async with streams(url, 3, model=MODEL) as running:
            port_line = text.replace("pin = true", 'ttl = "7m"\naliases = ["little"]')
            daemon.save(port_line)
            await until(daemon, 2)
            changed = daemon.model(MODEL)
            assert changed["ttl_s"] == 420
            assert changed["aliases"] == ["little"]
            assert changed["pid"] == before
            await asyncio.gather(*(stream.rest() for stream in running))
            assert [stream.finish for stream in running] == ["length"] * 3
        assert daemon.model(MODEL)["pid"] == before
        assert daemon.model(MODEL)["restarts"] == 0
        applied = daemon.log("config_applied")[-1]
        assert applied["generation"] == 2
        assert any("ttl" in change for change in applied["changes"])


async def test_same_content_is_no_change(home: Path, tiny_models: Path) -> None:
    """Saving the same content, or only a comment more, restarts nothing and keeps the worker."""
    text = config(tiny_models, body=entry("pin = true"))
    with Daemon(home, text) as daemon:
        status = await asyncio.to_thread(daemon.until_phase, MODEL, "ready")
        daemon.save(text)
        code, answer = daemon.control("POST", "/v1/reload")
        assert code == 200
        assert answer["changed"] is False
        assert answer["generation"] == status["generation"]
        assert len(daemon.log("config_applied")) == 1


async def test_rebind_keeps_running_responses(home: Path, tiny_models: Path) -> None:
    """After a change of address the new one answers, the old one refuses, its stream finishes."""
    text = config(tiny_models, port=free_port(), body=entry("pin = true"))
    with Daemon(home, text) as daemon:
        await asyncio.to_thread(daemon.until_phase, MODEL, "ready")
        old = daemon.until_listening()
        new = f"127.0.0.1:{free_port()}"
        async with streams(old, 1, model=MODEL) as (running,):
            daemon.save(text.replace(old.removeprefix("http://"), new))
            await asyncio.to_thread(daemon.until, lambda s: s["listen"] == [new], "rebound")
            async with client(f"http://{new}") as openai:
                assert [m.id for m in (await openai.models.list()).data]
            with pytest.raises(OSError, match="Connect call failed"):
                await asyncio.open_connection("127.0.0.1", int(old.rpartition(":")[2]))
            await running.rest()
            assert running.finish == "length"


async def test_bad_save_changes_nothing(home: Path, tiny_models: Path) -> None:
    """A bad save leaves everything running and says where it is wrong; the next good one counts."""
    text = config(tiny_models, body=entry("pin = true"))
    with Daemon(home, text) as daemon:
        await asyncio.to_thread(daemon.until_phase, MODEL, "ready")
        before = daemon.model(MODEL)["pid"]
        async with streams(daemon.until_listening(), 1, model=MODEL) as (running,):
            daemon.save(text + 'ttl = "7 parsecs"\n')
            status = await asyncio.to_thread(
                daemon.until, lambda s: not s["config"]["valid"], "the problem is seen"
            )
            problem = status["config"]["problems"][0]
            assert problem["line"] == len(text.splitlines()) + 1
            assert problem["key"].endswith("ttl")
            condition = next(c for c in status["conditions"] if c["type"] == "ConfigValid")
            assert condition["status"] == "False"
            assert f":{problem['line']}:" in condition["message"]
            await running.rest()
            assert running.finish == "length"
        daemon.save(text + 'ttl = "7m"\n')
        await until(daemon, 2)
        assert daemon.status()["config"]["valid"] is True
        assert daemon.model(MODEL)["pid"] == before
        assert len(daemon.log("config_rejected")) == 1


async def test_removed_model_drains(home: Path, tiny_models: Path) -> None:
    """A model taken out of the files finishes its stream, takes nothing new, and goes."""
    declared = config(tiny_models, body="[discovery]\nserve_undeclared = false\n")
    with Daemon(home, declared + entry("pin = true")) as daemon:
        await asyncio.to_thread(daemon.until_phase, MODEL, "ready")
        url = daemon.until_listening()
        async with streams(url, 1, model=MODEL) as (running,):
            daemon.save(declared)
            await until(daemon, 2)
            await asyncio.to_thread(daemon.until_phase, MODEL, "draining")
            async with client(url) as openai:
                with pytest.raises(NotFoundError, match="does not exist"):
                    await openai.chat.completions.create(
                        model=MODEL, messages=[{"role": "user", "content": "x"}]
                    )
            await running.rest()
            assert running.finish == "length"
        await asyncio.to_thread(daemon.until, lambda s: s["models"] == [], "gone")
        assert daemon.log("model_unload")[-1]["reason"] == "removed"


async def test_drain_class_change_replaces(home: Path, tiny_models: Path) -> None:
    """A change of class drain lets the stream finish, then another worker takes over."""
    text = config(tiny_models, body=entry("pin = true"))
    with Daemon(home, text) as daemon:
        await asyncio.to_thread(daemon.until_phase, MODEL, "ready")
        before = daemon.model(MODEL)["pid"]
        async with streams(daemon.until_listening(), 1, model=MODEL) as (running,):
            daemon.save(text + 'max_memory = "2GB"\n')
            await asyncio.to_thread(daemon.until_phase, MODEL, "draining")
            await running.rest()
            assert running.finish == "length"
        await asyncio.to_thread(
            daemon.until,
            lambda s: any(m["phase"] == "ready" and m["pid"] != before for m in s["models"]),
            "another worker is ready",
        )
        assert daemon.model(MODEL)["restarts"] == 0


def test_drop_ins_and_last_writer(home: Path, tiny_models: Path) -> None:
    """`omlxctl set` is kept in a drop-in over the file until a save of the file sets the key."""
    text = config(tiny_models, body=entry('ttl = "9m"'))
    with Daemon(home, text) as daemon:
        assert daemon.ctl("set", MODEL, "ttl=5m").returncode == 0
        assert daemon.model(MODEL)["ttl_s"] == 300
        assert "ttl" in (home / "omlx.d" / "90-omlxctl.toml").read_text()
        origins = daemon.ctl("config", "show", "--origin").stdout
        assert "90-omlxctl.toml" in origins
        daemon.save(text.replace("9m", "8m"))
        daemon.until(
            lambda s: any(m["id"] == MODEL and m["ttl_s"] == 480 for m in s["models"]), "8 minutes"
        )
        assert "ttl" not in (home / "omlx.d" / "90-omlxctl.toml").read_text()
        assert "OverrideReleased" in daemon.ctl("events").stdout
