"""The servers of a replay: started, watched and stopped here, on loopback, each in a new session.

Only processes of the tree that was started here are ever signalled.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from omlxd.daemon.memory import footprint
from omlxd.daemon.worker_environment import worker_environment

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 40.0  # more than omlxd's shutdown_grace
SETTLE_TIMEOUT_S = 120.0
REPORT_S = 1.2  # a worker reports its cache at most once a second
LOG_LINES = 15

SPEC = """\
[server]
listen = "127.0.0.1:{port}"

[paths]
models = [{models}]

[cache]
cold_min_free = "1GB"

[models.{model}]
pin = true
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How a server is run, and how it is asked."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    port: int
    model: str  # as requests name it
    ready_path: str  # answers 200 once requests can be sent
    home: Path | None = None  # of an omlxd; None = it keeps nothing on disk


def omlxd_program(folder: Path, scratch: Path) -> Program:
    """A home in `scratch` with the defaults of a new user, and the model pinned."""
    home = scratch / "home"
    home.mkdir(mode=0o700)
    port = _free_port()
    spec = SPEC.format(port=port, models=_toml(str(folder.parent)), model=_toml(folder.name))
    path = home / "omlx.toml"
    path.write_text(spec, encoding="utf-8")
    path.chmod(0o600)
    return Program(
        name="omlxd",
        command=(sys.executable, "-m", "omlxd", "--home", str(home)),
        environ=os.environ,
        port=port,
        model=folder.name,
        ready_path="/readyz",
        home=home,
    )


def mlx_lm_program(folder: Path) -> Program:
    """mlx-lm's own server with its defaults and the environment that omlxd gives to a worker."""
    port = _free_port()
    environ = worker_environment(
        sys.platform,
        os.environ,
        lambda path: Path(path).exists(),
        physical_cores=psutil.cpu_count(logical=False) or 1,
    )
    listen = ("--host", "127.0.0.1", "--port", str(port))
    return Program(
        name="mlx_lm",
        command=(sys.executable, "-m", "mlx_lm", "server", "--model", str(folder), *listen),
        environ=environ,
        port=port,
        model="default_model",
        ready_path="/health",
    )


class Server:
    """One program and its processes. Use as a context manager, which ends what is left."""

    def __init__(self, program: Program, log: Path) -> None:
        self.program = program
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
            if lines:
                told = (f"last lines of {self.program.name}:", *lines[-LOG_LINES:])
                print(*told, sep="\n  ", file=sys.stderr)
        if self._process is not None:
            self.stop(kill=error is not None)

    def start(self) -> None:
        """Returns once it takes requests."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.program.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.program.environ),
                start_new_session=True,  # a Ctrl-C is for the benchmark, which stops the servers
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None:
                raise SystemExit(
                    f"{self.program.name} ended with exit code {self._process.returncode}"
                )
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.program.name} was not up after {START_TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.program.port, timeout=5)
        try:
            connection.request("GET", self.program.ready_path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self, *, kill: bool = False) -> float:
        """SIGTERM, or SIGKILL for the whole tree; seconds until none of its processes is left."""
        assert self._process is not None
        tree = self._tree()
        began = time.perf_counter()
        if kill:
            _signal(tree, signal.SIGKILL)
        else:
            self._process.terminate()
        _, left = psutil.wait_procs(tree, STOP_TIMEOUT_S)
        if left:
            _signal(left, signal.SIGKILL)
            psutil.wait_procs(left, STOP_TIMEOUT_S)
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None
        if left:
            message = f"{self.program.name} did not stop within {STOP_TIMEOUT_S:.0f} s of SIGTERM"
            raise SystemExit(f"{message}; {len(left)} of its processes were killed")
        return time.perf_counter() - began

    def memory_bytes(self) -> int:
        """What the tree takes, as `omlxctl status` counts it: shared pages count once."""
        return sum(footprint(process.pid for process in self._tree()).values())

    def _tree(self) -> list[psutil.Process]:
        assert self._process is not None
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def settle(home: Path) -> None:
    """Wait until omlxd has written all that is to be written: nothing queued, nothing new since."""
    written = -1
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while time.monotonic() < deadline:
        time.sleep(REPORT_S)
        stats = _cache_stats(home)
        if stats["status"] != "True":
            raise SystemExit(f"omlxd's cold tier is off, so nothing survives: {stats['message']}")
        now = sum(engine["written_bytes"] for engine in stats["engines"])
        if now == written and not any(engine["queued_bytes"] for engine in stats["engines"]):
            return
        written = now
    raise SystemExit(f"omlxd was still writing after {SETTLE_TIMEOUT_S:.0f} s")


def _cache_stats(home: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "omlxctl", "--home", str(home), "cache", "stats", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise SystemExit(f"omlxctl cache stats: {done.stderr.strip()}")
    stats: dict[str, Any] = json.loads(done.stdout)
    return stats


def disk_bytes(home: Path) -> int:
    """Allocated for the cold tier; a file that has two names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for path in (home / "cache").rglob("*"):
        stat = path.lstat()
        if not path.is_dir():
            sizes[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
    return sum(sizes.values())


def _toml(text: str) -> str:
    """A basic string: JSON's, but for the surrogate pairs of its escapes."""
    return json.dumps(text, ensure_ascii=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
