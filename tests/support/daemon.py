"""A real omlxd in a home of its own, for tests that go through all of it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

TIMEOUT_S = 50.0  # of any wait; a test's own time-out is a little longer

Status = dict[str, Any]


def free_port() -> int:
    """A loopback port that nothing uses now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Daemon:
    """One home and the process that serves it. Use as a context manager."""

    def __init__(self, home: Path, config: str, *, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.config = home / "omlx.toml"
        self.env = {**os.environ, "LD_PRELOAD": "", **(env or {})}
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir(mode=0o700, exist_ok=True)
        self.save(config)

    # -------------------------------------------------------------- the process

    def start(self, *args: str) -> Daemon:
        """Start it and wait until the control socket answers."""
        command = [sys.executable, "-m", "omlxd", "--home", str(self.home), *args]
        with (self.home / "stderr.txt").open("ab") as stderr:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=self.env
            )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with suppress(OSError):
                self.status()
                return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"omlxd did not come up:\n{self.stderr()}")
            time.sleep(0.02)  # there is no socket yet to wait on

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(TIMEOUT_S)

    def __enter__(self) -> Daemon:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stderr(self) -> str:
        return (self.home / "stderr.txt").read_text()

    # -------------------------------------------------------------- files

    def save(self, text: str) -> None:
        """As most editors do: a temporary file renamed over the old one."""
        fresh = self.home / ".omlx.toml.new"
        fresh.write_text(text)
        fresh.replace(self.config)

    def log(self, type_: str = "") -> list[dict[str, Any]]:
        """Lines of server.log, of one type if given."""
        path = self.home / "logs" / "server.log"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if not type_ or line["type"] == type_]

    # -------------------------------------------------------------- control socket

    def control(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One call of the control socket: HTTP status and decoded answer."""
        connection = _UnixConnection(self.home / "run" / "omlxd.sock")
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def status(self) -> Status:
        return dict(self.control("GET", "/v1/status")[1])

    def model(self, name: str) -> dict[str, Any]:
        return dict(next(m for m in self.status()["models"] if m["id"] == name))

    @contextmanager
    def snapshots(self) -> Iterator[Iterator[Status]]:
        """The status stream: one snapshot now and one after every change."""
        connection = _UnixConnection(self.home / "run" / "omlxd.sock")
        try:
            connection.request("GET", "/v1/status?watch=1")
            answer = connection.getresponse()
            yield (json.loads(line) for line in iter(answer.readline, b""))
        finally:
            connection.close()

    def until(self, holds: Callable[[Status], bool], what: str = "") -> Status:
        """The first snapshot for which `holds`."""
        last: Status = {}
        try:
            with self.snapshots() as stream:
                for last in stream:
                    if holds(last):
                        return last
        except TimeoutError:
            pass
        raise AssertionError(f"never came: {what}\nlast: {json.dumps(last, indent=1)}")

    def until_phase(self, model: str, phase: str) -> Status:
        def holds(status: Status) -> bool:
            return any(m["id"] == model and m["phase"] == phase for m in status["models"])

        return self.until(holds, f"{model} {phase}")

    def until_generation(self, generation: int) -> Status:
        return self.until(
            lambda s: s["observed_generation"] >= generation, f"generation {generation}"
        )

    def until_listening(self) -> str:
        """Base URL of the first address, once it is bound."""
        status = self.until(lambda s: bool(s["listen"]), "an address is bound")
        return f"http://{status['listen'][0]}"

    # -------------------------------------------------------------- omlxctl

    def ctl(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "omlxctl", "--home", str(self.home), *args]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )


def config(
    models: Path | Sequence[Path],
    *,
    port: int = 0,
    server: str = "",
    body: str = "",
    spares: int = 0,
) -> str:
    """A small omlx.toml: loopback, model folders, no spare worker (they cost a small machine)."""
    folders = [models] if isinstance(models, Path) else list(models)
    return f"""
[server]
listen = "127.0.0.1:{port or free_port()}"
{server}
[paths]
models = {json.dumps([str(folder) for folder in folders])}
[engine]
spare_workers = {spares}
{body}
"""
