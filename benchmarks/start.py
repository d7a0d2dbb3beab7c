"""How long omlxd takes to answer, what it holds at rest, and how long `omlxctl status` takes.

    python benchmarks/start.py [--rounds N]

Medians over N daemons, each with a fresh home and no model. "First answer" is from spawning the
process to the last byte of GET /v1/status on the control socket.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

BIN = Path(__file__).resolve().parent.parent / ".venv" / "bin"
REQUEST = b"GET /v1/status HTTP/1.1\r\nHost: omlxd\r\nConnection: close\r\n\r\n"
SPEC = '[server]\nlisten = "127.0.0.1:{port}"\n\n[engine]\nspare_workers = 0\n'
START_TIMEOUT_S = 30.0
STATUS_CALLS = 5


@dataclass(frozen=True, slots=True)
class Round:
    first_answer_s: float
    rss_bytes: int
    omlxctl_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description="Start-up, memory at rest, omlxctl.")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = [_round() for _ in range(parser.parse_args().rounds)]
    print(f"start-up, medians of {len(rounds)}")
    first = statistics.median(r.first_answer_s for r in rounds)
    rss = statistics.median(r.rss_bytes for r in rounds)
    status = statistics.median(r.omlxctl_s for r in rounds)
    print(f"  spawn to first answer  {first * 1000:7.0f} ms")
    print(f"  daemon at rest         {rss / 2**20:7.1f} MB resident")
    print(f"  omlxctl status         {status * 1000:7.0f} ms")
    return 0


def _round() -> Round:
    home = Path(tempfile.mkdtemp(prefix="omlx-"))
    (home / "omlx.toml").write_text(SPEC.format(port=_free_port()), encoding="utf-8")
    spawned = time.perf_counter()
    with subprocess.Popen(
        [BIN / "omlxd", "--home", home], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as daemon:
        try:
            _wait_for_answer(home / "run" / "omlxd.sock", daemon)
            first_answer_s = time.perf_counter() - spawned
            calls = [_omlxctl_status_s(home) for _ in range(STATUS_CALLS)]
            rss_bytes = psutil.Process(daemon.pid).memory_info().rss
        finally:
            daemon.terminate()
    shutil.rmtree(home)
    return Round(first_answer_s, rss_bytes, statistics.median(calls))


def _wait_for_answer(path: Path, daemon: subprocess.Popen[bytes]) -> None:
    deadline = time.perf_counter() + START_TIMEOUT_S
    while time.perf_counter() < deadline:
        if daemon.poll() is not None:
            raise SystemExit(f"omlxd ended with exit code {daemon.returncode}")
        try:
            answer = _get_status(path)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.002)
            continue
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the control socket answered {head.splitlines()[0].decode()}")
        json.loads(body)
        return
    raise SystemExit(f"no answer on {path} within {START_TIMEOUT_S:.0f} s")


def _get_status(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(path))
        control.sendall(REQUEST)
        chunks = []
        while chunk := control.recv(65536):
            chunks.append(chunk)
    return b"".join(chunks)


def _omlxctl_status_s(home: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        [BIN / "omlxctl", "--home", home, "status"], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - began


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
