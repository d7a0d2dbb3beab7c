"""The whole daemon in the test's own process; only its workers are fakes."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

from omlxd.control.wire import SettingsPatch, Status
from omlxd.daemon.daemon import Daemon
from omlxd.daemon.main import make_home
from omlxd.daemon.supervisor import Supervisor
from omlxd.errors import Conflict, ModelNotFound, ModelUnavailable
from omlxd.observe import log
from tests.fakes.supervised import FAKE_WORKER
from tests.support.control_socket import short_home
from tests.support.daemon import config
from tests.support.engines import is_whole, request

LLM = {"model_type": "llama", "max_position_embeddings": 512}
PINNED = "[models.a]\npin = true\n"


def make_model(folder: Path, facts: Any = None) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLM if facts is None else facts))
    save_file({"w": np.zeros(64, np.uint8)}, folder / "model.safetensors")


class Inside:
    """One daemon and its home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ends: list[int] = []  # exit codes it wanted to end the process with
        self.daemon = Daemon(home, home / "omlx.toml")
        self.running = asyncio.create_task(self.daemon.run())

    async def until(self, met: Callable[[Status], Any]) -> Status:
        following = self.daemon.service.follow_status()
        async for status in following:
            assert self.ends == [], self.log("task_failed")
            if met(status):
                await following.aclose()  # type: ignore[attr-defined]
                return status
        raise AssertionError("the stream of status ended")

    async def until_phase(self, phase: str, model: str = "a") -> Status:
        return await self.until(lambda s: any((m.id, m.phase) == (model, phase) for m in s.models))

    def save(self, text: str) -> None:
        (self.home / "omlx.toml").write_text(text)

    def log(self, type_: str) -> list[dict[str, Any]]:
        lines = (self.home / "logs" / "server.log").read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["type"] == type_]

    async def stop(self) -> int:
        self.daemon.ask_stop()
        return await self.running


@pytest.fixture
def home() -> Any:
    with short_home() as home:
        make_home(home)
        make_model(home / "models" / "a")
        yield home


@asynccontextmanager
async def inside(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str, **script: Any
) -> AsyncIterator[Inside]:
    environ = os.environ | {"OMLXD_FAKE_WORKER": json.dumps(script)}
    supervisor = functools.partial(Supervisor, command=FAKE_WORKER, environ=environ)
    monkeypatch.setattr("omlxd.daemon.daemon.Supervisor", supervisor)
    log.configure(home / "logs" / "server.log", "info", max_size=2**20, keep=1)
    (home / "omlx.toml").write_text(text)
    try:
        made = Inside(home)
        monkeypatch.setattr("omlxd.daemon.daemon.os._exit", made.ends.append)
        yield made
        if not made.running.done():
            assert await made.stop() == 0
    finally:
        log.close()


async def test_from_start_to_a_clean_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pinned model comes up, is patched, answers, and goes; the last status was the truth."""
    text = config(home / "models", body=PINNED)
    async with inside(home, monkeypatch, text) as it:
        status = await it.until_phase("ready")
        assert status.models[0].pin
        accepted = await it.daemon.service.patch_settings(SettingsPatch("a", {"ttl": "1m"}))
        assert (accepted.generation, accepted.changed) == (2, True)
        await it.until(lambda s: s.observed_generation == 2)
        async with it.daemon.gateway.generate(request("a")) as events:
            assert is_whole([event async for event in events])
        assert it.daemon.readiness().ready
        assert b"omlxd_requests_running" in it.daemon.render_metrics()
    assert psutil.Process().children() == []
    assert not (home / "run" / "omlxd.sock").exists()


async def test_a_stop_is_no_death_of_its_models(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with nobody listening, where the end comes at once, engines are stopped, not lost."""
    text = config(home / "models", body=PINNED).replace("127.0.0.1", "192.0.2.1")
    text = text.replace("[paths]", 'api_keys = ["k"]\n[paths]')
    async with inside(home, monkeypatch, text) as it:
        await it.until_phase("ready")
        assert it.daemon.listeners.failures
        await it.stop()
        assert [line["level"] for line in it.log("worker_exit")] == ["info"]
        assert [line["reason"] for line in it.log("model_unload")] == ["shutdown"]


async def test_a_shell_that_breaks_takes_all_down(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon ends with 1 and every worker with it, one that was just reaped included."""
    text = config(home / "models", body=PINNED)
    async with inside(home, monkeypatch, text) as it:
        await it.until_phase("ready")
        (worker,) = (psutil.Process(pid) for pid in it.daemon.controller.fleet.pids())
        worker.kill()
        worker.wait(10)  # the loop has not turned: it is still one of the workers

        async def break_down() -> None:
            raise RuntimeError("a shell broke")

        others = set(it.daemon._tasks)
        it.daemon._start("a shell", break_down())
        await asyncio.wait(it.daemon._tasks - others)
        assert it.ends == [1]
        assert "a shell broke" in it.log("task_failed")[0]["exception"]


@pytest.mark.parametrize(
    "body",
    [
        '[models.b]\npath = "~omlxd-no-such-user/b"\n',
        f'[models.b]\npath = "/{"x" * 300}"\n',
        '[models.b]\npath = "a\\u0000b"\n',
        '[models.b]\npath = "loop/loop"\n',
    ],
    ids=["nobody's home", "too long", "NUL", "loop"],
)
async def test_a_path_that_leads_nowhere(
    home: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    """The model is shown as not servable with the reason, and everything else is served."""
    (home / "loop").symlink_to("loop")
    async with inside(home, monkeypatch, config(home / "models", body=PINNED + body)) as it:
        await it.until_phase("ready")
        status = await it.until(lambda s: {m.id for m in s.models} == {"a", "b"})
        (broken,) = (model for model in status.models if model.id == "b")
        assert not broken.servable
        assert "there is no folder" in broken.reason
        with pytest.raises(ModelUnavailable, match="cannot be served"):
            it.daemon.resolve("b")
        with pytest.raises(ModelNotFound):
            it.daemon.resolve("c")


async def test_hostile_model_folders(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in a model folder, the daemon serves what can be served."""
    for name, facts in (("list", []), ("null", {"model_type": None}), ("deep", {"a": {"b": 1}})):
        make_model(home / "models" / name, facts)
    (home / "models" / "torn").mkdir()
    (home / "models" / "torn" / "config.json").write_bytes(b'{"model_type": "ll\xff')
    (home / "models" / "gone").symlink_to("nowhere")
    os.mkfifo(home / "models" / "pipe")
    async with inside(home, monkeypatch, config(home / "models", body=PINNED)) as it:
        await it.until_phase("ready")


async def test_names_that_are_not_utf8(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, or what a link leads to, may have any bytes as its name: status can still be sent,
    and what no frame can carry is never loaded."""
    odd = Path(os.fsdecode(os.fsencode(home) + b"/\xff"))
    make_model(odd)
    make_model(Path(os.fsdecode(os.fsencode(home / "models") + b"/\xfe")))
    (home / "models" / "found").symlink_to(odd)
    (home / "link").symlink_to(odd)
    body = PINNED + '[models.b]\npath = "link"\npin = true\n'
    async with inside(home, monkeypatch, config(home / "models", body=body)) as it:
        await it.until_phase("ready")
        status = await it.until(lambda s: {m.id for m in s.models} >= {"a", "b"})
        assert msgspec.json.encode(status)
        (broken,) = (model for model in status.models if model.id == "b")
        assert (broken.servable, "not UTF-8" in broken.reason) == (False, True)


async def test_one_name_one_model(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alias that is the name of a found model leads to that one, everywhere, and is told."""
    make_model(home / "models" / "b")
    body = '[models.a]\naliases = ["b", "c"]\n'
    text = config(home / "models", server='fallback_model = "typo"', body=body)
    async with inside(home, monkeypatch, text) as it:
        status = await it.until(lambda s: len(s.models) == 2)
        assert {m.id: m.aliases for m in status.models} == {"a": ["c"], "b": []}
        assert {m.id: m.aliases for m in it.daemon.served()} == {"a": ("c",), "b": ()}
        assert [it.daemon.resolve(name).id for name in "abc"] == ["a", "b", "a"]
        told = {c.type: (c.status, c.reason) for c in status.conditions}
        assert told["Aliases"] == ("False", "AliasTaken")
        assert told["FallbackModel"] == ("False", "NotFound")
        with pytest.raises(ModelNotFound):
            it.daemon.resolve("another")


async def test_files_that_change_while_it_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Good, bad, gone and good again: status follows, and the engine goes on throughout."""
    text = config(home / "models", body=PINNED)
    async with inside(home, monkeypatch, text) as it:
        pid = (await it.until_phase("ready")).models[0].pid
        it.save(text + 'ttl = "soon"\n')
        await it.until(lambda s: not s.config.valid)
        (home / "omlx.toml").unlink()
        await it.until(lambda s: any(p.message == "is gone" for p in s.config.problems))
        it.save(text + 'ttl = "9m"\n')
        status = await it.until(lambda s: s.config.valid and s.generation == 2)
        assert status.models[0].pid == pid
        await it.daemon.service.reload()
        assert it.daemon.config.generation == 2


async def test_nothing_new_is_accepted_at_the_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a stream holds up the stop, who wants something is told that it is too late."""
    script = {"tokens": 10_000, "token_delay_s": 0.01}
    text = config(home / "models", body=PINNED)
    async with inside(home, monkeypatch, text, **script) as it:
        await it.until_phase("ready")
        async with it.daemon.gateway.generate(request("a")) as events:
            await anext(events)
            it.daemon.ask_stop()
            await it.until_phase("draining")
            service = it.daemon.service
            for late in (
                service.load("a"),
                service.reload(),
                service.patch_settings(SettingsPatch("a", {"ttl": "1m"})),
            ):
                with pytest.raises(Conflict, match="omlxd is stopping"):
                    await late


async def test_a_key_file_is_followed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing one that is mended and one that is rotated take effect by themselves."""
    text = config(home / "models", server='api_keys = ["file:key"]')
    async with inside(home, monkeypatch, text) as it:
        await it.until(lambda s: not s.config.valid)
        (home / "key").write_text("one")
        await it.until(lambda s: s.generation == 1)
        assert it.daemon.server_settings().api_keys == ("one",)
        (home / "key").write_text("two")
        await it.until(lambda s: s.generation == 2)
        assert it.daemon.server_settings().api_keys == ("two",)


async def test_an_emptied_file_is_looked_at_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No further event comes of a file that stays empty; the daemon takes it as an order then."""
    monkeypatch.setattr("omlxd.daemon.config.BLANK_BELIEVED_S", 0.3)
    async with inside(home, monkeypatch, config(home / "models", body=PINNED)) as it:
        await it.until_phase("ready")
        assert it.daemon.config.spec is not None
        it.save("")
        await it.until(lambda s: s.generation == 2)
        assert it.daemon.config.spec.models == {}
