"""Loading on demand, pins, idle time, memory, and workers that die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest
from openai import APIError, AsyncOpenAI, InternalServerError

from tests.support.chat import client, open_stream, streams
from tests.support.daemon import Daemon, config

pytestmark = pytest.mark.e2e

A, B = "tiny-llama", "tiny-qwen3"


def entry(model: str, *lines: str) -> str:
    return "\n".join([f'[models."{model}"]', *lines, ""])


def phases(status: dict[str, Any]) -> dict[str, str]:
    return {m["id"]: m["phase"] for m in status["models"]}


async def say(openai: AsyncOpenAI, model: str, **more: Any) -> str:
    answer = await openai.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "hello"}],
        **{"max_tokens": 4, "temperature": 0} | more,
    )
    return answer.choices[0].message.content or ""


async def test_loaded_once_on_demand(home: Path, tiny_models: Path) -> None:
    """Requests that arrive together for an absent model are all served by one load of it."""
    with Daemon(home, config(tiny_models)) as daemon:
        await asyncio.to_thread(daemon.until, lambda s: A in phases(s), "discovered")
        async with client(daemon.until_listening()) as openai:
            texts = await asyncio.gather(*(say(openai, A) for _ in range(5)))
        assert len(set(texts)) == 1
        assert len(daemon.log("model_load")) == 1
        assert daemon.log("model_load")[0]["reason"] == "request"


async def test_idle_engine_is_unloaded(home: Path, tiny_models: Path) -> None:
    """The ttl runs from the end of the last request: a reply longer than it is not cut."""
    text = config(tiny_models, body=entry(A, 'ttl = "1s"'))
    with Daemon(home, text) as daemon:
        await asyncio.to_thread(daemon.until, lambda s: A in phases(s), "discovered")
        async with streams(daemon.until_listening(), 1, model=A, tokens=3000) as (running,):
            await running.rest()
            assert running.finish == "length"
        await asyncio.to_thread(daemon.until_phase, A, "absent")
        unload = daemon.log("model_unload")[-1]
        assert unload["reason"] == "ttl"
        ended = datetime.fromisoformat(daemon.log("request")[-1]["time"])
        assert datetime.fromisoformat(unload["time"]) - ended > timedelta(seconds=0.9)


async def test_killed_worker_under_load(home: Path, tiny_models: Path) -> None:
    """kill -9: its stream ends with an error, what had sent nothing is retried, B never notices."""
    body = entry(A, "pin = true", "max_concurrent_requests = 1") + entry(B, "pin = true")
    with Daemon(home, config(tiny_models, body=body)) as daemon:
        await asyncio.to_thread(daemon.until_phase, A, "ready")
        await asyncio.to_thread(daemon.until_phase, B, "ready")
        url, victim, other = (
            daemon.until_listening(),
            daemon.model(A)["pid"],
            daemon.model(B)["pid"],
        )
        async with (
            client(url) as openai,
            streams(url, 1, model=A, tokens=20000) as (broken,),
            streams(url, 1, model=B, tokens=300) as (neighbour,),
        ):
            queued = asyncio.create_task(say(openai, A))
            await asyncio.to_thread(
                daemon.until,
                lambda s: any(m["id"] == A and m["waiting"] == 1 for m in s["models"]),
                "one waits behind the stream",
            )
            os.kill(victim, signal.SIGKILL)
            with pytest.raises(APIError, match="process"):
                await broken.rest()
            assert await queued
            await neighbour.rest()
            assert neighbour.finish == "length"
        await asyncio.to_thread(daemon.until_phase, A, "ready")
        assert daemon.model(A)["pid"] != victim
        assert daemon.model(A)["restarts"] == 1
        assert daemon.model(B)["pid"] == other
        died = daemon.log("worker_exit")[0]
        assert (died["pid"], died["signal"]) == (victim, "SIGKILL")


async def test_hang_up_frees_the_slot(home: Path, tiny_models: Path) -> None:
    """A client that goes away, streaming or queued, leaves nothing behind."""
    body = entry(A, "pin = true", "max_concurrent_requests = 1")
    with Daemon(home, config(tiny_models, body=body)) as daemon:
        await asyncio.to_thread(daemon.until_phase, A, "ready")
        url = daemon.until_listening()
        async with streams(url, 1, model=A, tokens=20000) as (running,):
            async with httpx.AsyncClient(timeout=30) as http:
                request = {"model": A, "messages": [{"role": "user", "content": "x"}]}
                queued = asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=request))
                await asyncio.to_thread(
                    daemon.until,
                    lambda s: any(m["id"] == A and m["waiting"] == 1 for m in s["models"]),
                    "queued",
                )
                queued.cancel()
                await asyncio.gather(queued, return_exceptions=True)
            await running.hang_up()
        await asyncio.to_thread(
            daemon.until,
            lambda s: any(
                m["id"] == A and (m["running"], m["waiting"]) == (0, 0) for m in s["models"]
            ),
            "at rest",
        )
        assert daemon.control("GET", "/v1/requests")[1]["requests"] == []
        assert {line["status"] for line in daemon.log("request")} == {499}


async def test_eviction_spares_pins(home: Path, tiny_models: Path) -> None:
    """Where two do not fit, the idle one goes for the wanted one; a pinned one stays: 507."""
    body = entry(A, 'ttl = "never"') + entry(B, 'ttl = "never"')
    text = config(tiny_models, body=body + '[memory]\nmax_process_memory = "310MB"\n')
    with Daemon(home, text) as daemon:
        await asyncio.to_thread(daemon.until, lambda s: A in phases(s), "discovered")
        async with client(daemon.until_listening()) as openai:
            await say(openai, A)
            await say(openai, B)
            status = daemon.status()
            assert (phases(status)[A], phases(status)[B]) == ("absent", "ready")
            assert daemon.log("model_unload")[0]["reason"] == "evicted"
            assert daemon.ctl("pin", B).returncode == 0
            tight = status["memory"]["footprint_bytes"] + 50 * 2**20
            daemon.save(text.replace('"310MB"', str(tight)))
            await asyncio.to_thread(
                daemon.until, lambda s: s["memory"]["limit_bytes"] == tight, "the new limit"
            )
            with pytest.raises(InternalServerError, match=B) as refused:
                await say(openai, A)
            assert refused.value.status_code == 507
            assert daemon.model(B)["phase"] == "ready"
            assert daemon.ctl("unload", B).returncode == 6


async def test_load_and_unload(home: Path, tiny_models: Path) -> None:
    """`omlxctl load` and `unload` act now and are not remembered."""
    with Daemon(home, config(tiny_models)) as daemon:
        daemon.until(lambda s: A in phases(s), "discovered")
        assert daemon.ctl("load", A, "--wait").returncode == 0
        assert daemon.model(A)["phase"] == "ready"
        assert daemon.ctl("unload", A, "--wait").returncode == 0
        assert daemon.model(A)["phase"] == "absent"
        assert daemon.ctl("load", "no-such-model").returncode == 4


async def test_broken_model_fails_fast(home: Path, tiny_models: Path, tmp_path: Path) -> None:
    """A folder that cannot be loaded fails every request at once, is not tried per request."""
    broken = tmp_path / "models" / "broken"
    broken.mkdir(parents=True)
    for file in (tiny_models / A).iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "config.json").write_text(
        (broken / "config.json")
        .read_text()
        .replace('"model_type": "llama"', '"model_type": "nope"')
    )
    with Daemon(
        home, config(tmp_path / "models", body=entry("broken", "preload = true"))
    ) as daemon:
        await asyncio.to_thread(daemon.until_phase, "broken", "failed")
        async with client(daemon.until_listening()) as openai:
            for _ in range(20):
                with pytest.raises(InternalServerError, match="nope"):
                    await say(openai, "broken")
        assert len([line for line in daemon.log("model_load") if "error" in line]) == 1


async def test_sigterm_drains(home: Path, tiny_models: Path) -> None:
    """SIGTERM lets a running stream finish, then exits 0."""
    with Daemon(home, config(tiny_models, body=entry(A, "pin = true"))) as daemon:
        await asyncio.to_thread(daemon.until_phase, A, "ready")
        async with streams(daemon.until_listening(), 1, model=A, tokens=600) as (running,):
            assert daemon.process is not None
            daemon.process.terminate()
            await running.rest()
            assert running.finish == "length"
        assert await asyncio.to_thread(daemon.process.wait, 20) == 0


async def test_grace_is_bounded(home: Path, tiny_models: Path) -> None:
    """When the grace is over, what still runs ends with an error, and the exit code is 0."""
    text = config(tiny_models, server='shutdown_grace = "1s"', body=entry(A, "pin = true"))
    with Daemon(home, text) as daemon:
        await asyncio.to_thread(daemon.until_phase, A, "ready")
        async with streams(daemon.until_listening(), 1, model=A, tokens=30000) as (running,):
            assert daemon.process is not None
            daemon.process.terminate()
            with pytest.raises(APIError, match="grace"):
                await running.rest()
        assert await asyncio.to_thread(daemon.process.wait, 20) == 0


def _until_dead(pid: int) -> None:
    """SIGKILL is sent at once; the system may take a while to carry it out."""
    deadline = time.monotonic() + 10
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            assert time.monotonic() < deadline, f"process {pid} lives on"
            time.sleep(0.01)


async def test_second_sigterm(home: Path, tiny_models: Path) -> None:
    """A second SIGTERM ends everything at once, workers too."""
    with Daemon(home, config(tiny_models, body=entry(A, "pin = true"))) as daemon:
        await asyncio.to_thread(daemon.until_phase, A, "ready")
        worker = daemon.model(A)["pid"]
        async with client(daemon.until_listening()) as openai:
            running = await open_stream(openai, A, "story", max_tokens=30000)
            await running.some()
            assert daemon.process is not None
            daemon.process.terminate()
            await asyncio.to_thread(
                daemon.until,
                lambda s: any(c["reason"] == "ShuttingDown" for c in s["conditions"]),
                "shutting down",
            )
            daemon.process.terminate()
            assert await asyncio.to_thread(daemon.process.wait, 5) == 0
        await asyncio.to_thread(_until_dead, worker)
