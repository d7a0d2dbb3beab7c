"""Workers that misbehave, and what they print; the program is tests/fakes/fake_worker.py."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from omlxd.daemon.supervisor import WorkerExit
from omlxd.errors import WorkerDied
from omlxd.ipc.messages import (
    Delta,
    GenerateRequest,
    Loaded,
    Submit,
)
from omlxd.observe import log
from tests.fakes.supervised import LOAD, Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    await desk.close()


# ------------------------------------------------------------------ faults of the worker


async def test_another_protocol_is_killed_with_a_reason(desk: Desk) -> None:
    """A worker of another release is never used, and the exit says why."""
    worker = await desk.supervisor(protocol=99).spawn()
    ended = await desk.recorder.first(worker, WorkerExit)
    assert "speaks protocol 99" in ended.reason
    assert (ended.signal, ended.asked) == ("SIGKILL", False)
    assert desk.recorder.of(worker) == [ended]


async def test_a_silent_worker_is_killed(desk: Desk) -> None:
    """Without Hello in time a worker is of no use."""
    worker = await desk.supervisor(hello=False, hello_timeout_s=0.2).spawn()
    ended = await desk.recorder.first(worker, WorkerExit)
    assert ended.reason == "did not say Hello within 0.2 s"
    assert ended.asked is False


async def test_garbage_ends_the_worker_with_a_reason(desk: Desk) -> None:
    """After a frame that is no message nothing is believed and the process is killed."""
    worker = await desk.supervisor(garbage_after_tokens=2).spawn()
    worker.send(LOAD)
    worker.send(Submit(GenerateRequest(request_id="r1", model="tiny", prompt="x")))
    ended = await desk.recorder.first(worker, WorkerExit)
    assert "its channel broke" in ended.reason
    assert ended.signal == "SIGKILL"
    assert sum(isinstance(event, Delta) for event in desk.recorder.events(worker)) == 2


async def test_a_worker_that_only_closes_its_channel_is_killed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deaf and mute but alive, it would hold its memory for ever."""
    monkeypatch.setattr("omlxd.daemon.supervisor.LINGER_S", 0.1)
    worker = await desk.supervisor(close_channel=True).spawn()
    ended = await desk.recorder.first(worker, WorkerExit)
    assert ended.reason == "closed its channel and did not exit"
    assert ended.signal == "SIGKILL"


async def test_a_program_that_cannot_be_started(desk: Desk) -> None:
    """The error names the program, and the supervisor goes on."""
    supervisor = desk.supervisor(command=("/no/such/program",))
    with pytest.raises(WorkerDied, match="/no/such/program"):
        await supervisor.spawn()
    assert supervisor.workers == {}


async def test_a_grandchild_that_holds_the_pipes_does_not_delay_the_exit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The end of the process counts, not the end of what it left behind."""
    monkeypatch.setattr("omlxd.daemon.supervisor.DRAIN_S", 0.1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    program = (
        "import subprocess, sys\n"
        f"subprocess.Popen(['/bin/sh', '-c', 'read line < {fifo}'], close_fds=False)\n"
        "print('done')"
    )
    worker = await desk.supervisor(command=(sys.executable, "-c", program)).spawn()
    ended = await desk.recorder.first(worker, WorkerExit)
    with fifo.open("w"):  # the grandchild may go
        assert (ended.code, ended.last_lines) == (0, ("done",))


# ------------------------------------------------------------------ output


@pytest.fixture
def server_log(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "server.log"
    log.configure(path, "info", max_size=1024**2, keep=1)
    yield path
    log.close()


def records_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_output_goes_to_the_log_with_its_model(desk: Desk, server_log: Path) -> None:
    """Each line, also of a bar that redraws itself, is a `worker_output` record."""
    worker = await desk.supervisor(print_in_load=["50%\r100%", "loaded"]).spawn()
    worker.send(LOAD)
    await desk.recorder.first(worker, Loaded)
    worker.stop(30)
    ended = await desk.recorder.first(worker, WorkerExit)
    assert ended.last_lines == ("50%", "100%", "loaded")
    records = records_of(server_log)
    assert [record["line"] for record in records] == ["50%", "100%", "loaded"]
    assert {(r["type"], r["level"], r["model"], r["pid"]) for r in records} == {
        ("worker_output", "info", "tiny", worker.pid)
    }


async def test_only_the_last_lines_are_kept(desk: Desk) -> None:
    """The exit report carries the end of the output, which is where the reason is."""
    lines = [f"line {number}" for number in range(100)]
    worker = await desk.supervisor(print_at_start=lines, protocol=99).spawn()
    ended = await desk.recorder.first(worker, WorkerExit)
    assert ended.last_lines == tuple(lines[-30:])
