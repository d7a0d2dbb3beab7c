"""The real daemon under a stand-in for launchd, with the very plist that is installed."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omlxctl.servicelaunchctl import LAUNCHCTL, PLUTIL
from omlxctl.serviceplist import OPEN_FILES
from omlxctl.servicerun import Doer, carry_out, find_program, job_for
from omlxctl.servicesteps import Outcome, Result
from omlxctl.serviceverbs import VERBS
from tests.support.chat import streams
from tests.support.daemon import TIMEOUT_S, Daemon, Status, config, free_port
from tests.support.launchd import Job, Launchd, build_library

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-in preloads a library"),
]
TARGET = "gui/501/io.omlx.omlxd"
ROOT = Path(__file__).resolve().parents[2]


class Service:
    """A home, its launchd, and `omlxctl service` between them."""

    def __init__(self, home: Path, library: Path) -> None:
        environment = {"HOME": str(home), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        self.launchd = Launchd(library, environment=environment)
        self.daemon = Daemon(home / "omlx", "")
        self.agents = home / "LaunchAgents"

    def verb(self, name: str) -> Outcome:
        job, _ = job_for(self.daemon.home, self.agents, uid=501, program=find_program())
        socket_path = self.daemon.home / "run" / "omlxd.sock"
        return carry_out(VERBS[name](job), Doer(socket_path, self._run))

    def _run(self, argv: tuple[str, ...], stdin: bytes) -> Result:
        if argv[0] == PLUTIL:
            return Result(0 if stdin.startswith(b"<?xml") else 1)
        assert argv[0] == LAUNCHCTL
        return Result(self.launchd(*argv[1:]))

    @property
    def job(self) -> Job:
        job = self.launchd.job(TARGET)
        assert job is not None
        return job

    def drift(self) -> str:
        """Status of the condition, once it is there."""
        status = self.daemon.until(lambda s: "ListenDrift" in conditions(s), "ListenDrift")
        return conditions(status)["ListenDrift"]


def conditions(status: Status) -> dict[str, str]:
    return {c["type"]: c["status"] for c in status["conditions"]}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("launchd"))


@pytest.fixture
def service(home: Path, library: Path) -> Iterator[Service]:
    service = Service(home, library)
    yield service
    service.launchd.close()


def health(port: int) -> int:
    """HTTP status, on a connection of its own; raises ConnectionRefusedError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def until_written(path: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not path.stat().st_size:
        assert time.monotonic() < deadline, f"nothing in {path}"
        time.sleep(0.02)  # nothing tells when a file grows


# ------------------------------------------------------------------ starts and restarts


def test_it_is_there_after_login(service: Service, tmp_path: Path) -> None:
    """Installed, it serves on launchd's own socket, and everything is where the plist says."""
    port = free_port()
    service.daemon.save(config(tmp_path, port=port))
    outcome = service.verb("install")
    assert outcome.pid == service.job.until_started(1) == service.daemon.status()["pid"]
    assert service.daemon.until_listening() == f"http://127.0.0.1:{port}"
    assert service.daemon.status()["listen"] == [f"127.0.0.1:{port}"]
    assert health(port) == 200
    assert service.drift() == "False"
    logs = service.daemon.home / "logs"
    assert (logs / "stderr.log").read_text() == ""
    assert (logs / "server.log").stat().st_mode & 0o777 == 0o600
    soft, hard = resource.prlimit(outcome.pid, resource.RLIMIT_NOFILE)
    assert soft == min(OPEN_FILES, hard)  # mlx_lm, once imported here, lowers the hard one
    assert os.readlink(f"/proc/{outcome.pid}/cwd") == str(service.daemon.home)


def test_nobody_is_refused_while_it_is_dead(service: Service, tmp_path: Path) -> None:
    """Killed, it is started again, and each of 100 connections made meanwhile is answered."""
    port = free_port()
    service.daemon.save(config(tmp_path, port=port))
    service.verb("install")
    pid = service.job.until_started(1)
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.005)  # from here on nobody accepts
    with contextlib.ExitStack() as stack:
        callers = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(100)]
        for caller in callers:
            stack.callback(caller.close)
            caller.request("GET", "/healthz")
        os.kill(pid, signal.SIGKILL)
        assert service.job.until_ended(1).code == -signal.SIGKILL
        assert service.job.until_started(2) != pid
        answers = [caller.getresponse().status for caller in callers]
    assert answers == [200] * 100


def test_after_a_clean_end_the_next_connection_starts_it(service: Service, tmp_path: Path) -> None:
    """SIGTERM is exit 0 and it stays down, also when omlxctl asks; a client brings it back."""
    port = free_port()
    service.daemon.save(config(tmp_path, port=port))
    service.verb("install")
    service.job.signal(signal.SIGTERM)
    assert service.job.until_ended(1).code == 0
    assert service.daemon.ctl("status").returncode == 3
    assert service.verb("status").status == "loaded"
    assert len(service.job.starts) == 1
    assert health(port) == 200
    assert len(service.job.starts) == 2


def test_a_bad_file_makes_no_loop(service: Service, tmp_path: Path) -> None:
    """It comes up once, says what is wrong, and serves on the held socket when it is mended."""
    port = free_port()
    service.daemon.save(config(tmp_path, port=port))
    service.verb("install")
    service.job.signal(signal.SIGTERM)
    service.job.until_ended(1)
    service.daemon.save("no toml at all")
    (service.daemon.home / "state" / "last-good.json").unlink()
    assert health(port) == 200  # and so it is started
    status = service.daemon.status()
    assert status["config"]["valid"] is False
    service.daemon.save(config(tmp_path, port=port))
    service.daemon.until(lambda s: s["config"]["valid"], "the mended file")
    assert service.drift() == "False"
    assert len(service.job.starts) == 2


def test_a_second_instance_waits(service: Service, tmp_path: Path) -> None:
    """Beside a daemon by hand the service is not installed; launchd's own waits for its end."""
    port = free_port()
    service.daemon.save(config(tmp_path, port=port))
    service.verb("install")
    service.job.signal(signal.SIGTERM)
    service.job.until_ended(1)
    service.daemon.save(config(tmp_path, port=free_port()))
    with service.daemon as by_hand:
        service.job.kickstart()
        waiting = service.job.until_started(2)
        words = service.daemon.home / "logs" / "stderr.log"
        until_written(words)
        assert words.read_text() == (
            f"omlxd: waits for the end of process {by_hand.pid}, which serves {by_hand.home}\n"
        )
        assert by_hand.status()["pid"] == by_hand.pid
        assert by_hand.stop() == 0
    assert health(port) == 200
    assert service.daemon.status()["pid"] == waiting
    assert len(service.job.starts) == 2


def test_one_that_waits_can_be_stopped(service: Service, tmp_path: Path) -> None:
    """SIGTERM ends the wait with 0, so launchd does not start another one to wait."""
    service.daemon.save(config(tmp_path))
    service.verb("install")
    service.job.signal(signal.SIGTERM)
    service.job.until_ended(1)
    service.daemon.save(config(tmp_path, port=free_port()))
    with service.daemon as by_hand:
        service.job.kickstart()
        service.job.until_started(2)
        until_written(service.daemon.home / "logs" / "stderr.log")
        service.job.signal(signal.SIGTERM)
        assert service.job.until_ended(2).code == 0
        assert by_hand.stop() == 0
    assert len(service.job.starts) == 2


# ------------------------------------------------------------------ changes and the end


def test_another_address_is_served_beside_the_held_one(service: Service, tmp_path: Path) -> None:
    """Both answer, and status and diff say what to do; installing again ends it."""
    old, new = free_port(), free_port()
    service.daemon.save(config(tmp_path, port=old))
    service.verb("install")
    fresh = config(tmp_path, port=new)
    told = service.daemon.ctl("diff", "-", stdin=fresh)
    assert "omlxctl service install" in told.stdout
    service.daemon.save(fresh)
    status = service.daemon.until(lambda s: conditions(s).get("ListenDrift") == "True", "it drifts")
    assert status["listen"] == [f"127.0.0.1:{new}", f"127.0.0.1:{old}"]
    assert (health(new), health(old)) == (200, 200)
    assert f"launchd holds 127.0.0.1:{old}" in service.daemon.ctl("status").stdout
    service.verb("install")
    assert service.drift() == "False"
    assert service.daemon.status()["listen"] == [f"127.0.0.1:{new}"]
    with pytest.raises(ConnectionRefusedError):
        health(old)


async def test_it_drains_within_its_time(service: Service, tiny_models: Path) -> None:
    """bootout lets a running stream end; the exit is 0, before launchd would kill it."""
    service.daemon.save(config(tiny_models, body='[models."tiny-llama"]\npin = true\n'))
    await asyncio.to_thread(service.verb, "install")
    await asyncio.to_thread(service.daemon.until_phase, "tiny-llama", "ready")
    url, job = service.daemon.until_listening(), service.job
    async with streams(url, 1, model="tiny-llama") as (running,):
        stopping = asyncio.create_task(asyncio.to_thread(service.verb, "stop"))
        await running.rest()
        assert running.finish == "length"
        assert (await stopping).status == "stopped"
    assert [(end.code, end.killed) for end in job.ends] == [(0, False)]
    assert service.launchd.job(TARGET) is None


def test_the_verbs_go_round(service: Service, tmp_path: Path) -> None:
    """Twice the same is nothing the second time; restart is another process, uninstall the end."""
    service.daemon.save(config(tmp_path))
    first = service.verb("install")
    assert service.verb("install").told.startswith("unchanged")
    assert service.verb("start").pid == first.pid
    again = service.verb("restart")
    assert again.pid not in (None, first.pid)
    assert service.verb("stop").status == service.verb("stop").status == "stopped"
    assert service.verb("start").status == service.verb("status").status == "running"
    assert service.verb("uninstall").status == service.verb("uninstall").status == "absent"
    assert not list(service.agents.iterdir())
    assert service.launchd.job(TARGET) is None
