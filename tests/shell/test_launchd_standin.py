"""The stand-in for launchd does what launchd.plist(5) says, or tests under it mean nothing."""

from __future__ import annotations

import plistlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import free_port
from tests.support.launchd import Job, Launchd, build_library

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it preloads a library")
Load = Callable[..., Job]


@pytest.fixture
def launchd(tmp_path: Path) -> Iterator[Launchd]:
    launchd = Launchd(build_library(tmp_path), environment={}, throttle_s=0.0)
    yield launchd
    launchd.close()


@pytest.fixture
def load(launchd: Launchd, tmp_path: Path) -> Load:
    """Loads a plist whose program is a line of sh."""

    def run(line: str, **keys: Any) -> Job:
        program = ["/bin/sh", "-c", line]
        path = tmp_path / "x.plist"
        path.write_bytes(plistlib.dumps({"Label": "x.y", "ProgramArguments": program} | keys))
        assert launchd("bootstrap", "gui/1", str(path)) == 0
        assert launchd("bootstrap", "gui/1", str(path)) == 5
        job = launchd.job("gui/1/x.y")
        assert job is not None
        return job

    return run


def test_a_failure_is_started_again_and_no_sooner_than_it_may(load: Load) -> None:
    """KeepAlive with SuccessfulExit=false, and ThrottleInterval from start to start."""
    job = load("exit 1", KeepAlive={"SuccessfulExit": False}, ThrottleInterval=1)
    job.until_started(3)
    times = [when for when, _ in job.starts]
    assert all(later - earlier >= 1 for earlier, later in pairwise(times))
    assert {end.code for end in job.ends} == {1}


def test_success_stays_down_until_a_connection(load: Load) -> None:
    """And an order starts it too."""
    port = free_port()
    entry = {"SockNodeName": "127.0.0.1", "SockServiceName": str(port), "SockFamily": "IPv4"}
    job = load("exit 0", KeepAlive={"SuccessfulExit": False}, Sockets={"http": entry})
    job.until_ended(1)
    job.kickstart()
    job.until_ended(2)
    assert len(job.starts) == 2
    with socket.create_connection(("127.0.0.1", port)):
        job.until_started(3)


def test_without_run_at_load_it_waits(load: Load) -> None:
    """Nothing runs before the first order."""
    job = load("exit 0")
    assert job.starts == []
    job.kickstart()
    assert job.until_ended(1).code == 0


def test_who_does_not_end_in_time_is_killed(load: Load, launchd: Launchd, tmp_path: Path) -> None:
    """bootout returns at once, the job is gone after ExitTimeOut."""
    said = tmp_path / "err"
    line = "trap '' TERM; echo up >&2; while :; do sleep 0.05; done"
    job = load(line, RunAtLoad=True, ExitTimeOut=1, StandardErrorPath=str(said))
    job.until_started(1)
    while said.read_text() != "up\n":
        pass
    assert launchd("bootout", "gui/1/x.y") == 0
    assert launchd("print", "gui/1/x.y") == 0
    job.until(lambda job: job.gone, "it is gone")
    assert [(end.code, end.killed) for end in job.ends] == [(-signal.SIGKILL, True)]
    assert launchd("print", "gui/1/x.y") == 113


def test_the_environment_is_the_plists(load: Load, tmp_path: Path) -> None:
    """Variables, umask and folder; nothing of ours."""
    said = tmp_path / "err"
    keys = {"EnvironmentVariables": {"A": "b"}, "Umask": 63, "WorkingDirectory": str(tmp_path)}
    job = load(
        'echo "$A $HOME $(umask) $PWD" >&2', RunAtLoad=True, StandardErrorPath=str(said), **keys
    )
    job.until_ended(1)
    assert said.read_text() == f"b  0077 {tmp_path}\n"
