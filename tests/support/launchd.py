"""A stand-in for launchd: one user's jobs, as far as the plist of omlxd asks for them.

It reads a plist as launchd does, holds its sockets, starts the program, starts it again or leaves
it down as KeepAlive says, and hands the sockets over through a library that exports launchd's own C
symbol. Each job has a thread that waits: for the process, for a connection, or for an order.
"""

from __future__ import annotations

import os
import plistlib
import resource
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("launch_activate_socket.c")
TIMEOUT_S = 50.0
NOT_FOUND, ALREADY, IO_ERROR = 113, 37, 5
SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
FAMILIES = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}
HONOURED = {
    *("Label", "ProgramArguments", "RunAtLoad", "KeepAlive", "ThrottleInterval", "ExitTimeOut"),
    *("SoftResourceLimits", "Umask", "WorkingDirectory", "EnvironmentVariables", "Sockets"),
    *("StandardErrorPath", "ProcessType", "LimitLoadToSessionType"),  # the last two: no effect here
}


def build_library(folder: Path) -> Path:
    """Compiles the stand-in of `launch_activate_socket`."""
    library = folder / "launch_activate_socket.so"
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return library


@dataclass(frozen=True)
class Ended:
    """One life of a job: its pid, and how it ended; `killed`: ExitTimeOut was over."""

    pid: int
    code: int
    killed: bool


@dataclass
class Job:
    """A loaded plist."""

    plist: Mapping[str, Any]
    library: Path
    environment: Mapping[str, str]
    throttle_s: float
    starts: list[tuple[float, int]] = field(default_factory=list)  # time, pid
    ends: list[Ended] = field(default_factory=list)
    gone: bool = False

    def __post_init__(self) -> None:
        assert set(self.plist) <= HONOURED, set(self.plist) - HONOURED
        self.sockets = {
            name: [sock for entry in _listed(entries) for sock in _listen(entry)]
            for name, entries in self.plist.get("Sockets", {}).items()
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._timer: threading.Timer | None = None
        self._leaving = self._killed = self._ordered = False
        self._changed = threading.Condition()
        self._order, self._orders = socket.socketpair()
        self._thread = threading.Thread(target=self._live, name=str(self.plist["Label"]))
        self._thread.start()

    # -------------------------------------------------------------- orders

    def kickstart(self, *, kill: bool = False) -> None:
        """Nothing for a job that runs, unless it is to be killed first."""
        with self._changed:
            if self._process is not None and not kill:
                return
            self._ordered = True
        if kill:
            self.signal(signal.SIGTERM)
        self._order.send(b"x")

    def signal(self, number: int) -> None:
        with self._changed:
            if self._process is not None:
                self._process.send_signal(number)

    def leave(self) -> None:
        """Begins to unload: SIGTERM, and SIGKILL after ExitTimeOut. The job is gone later."""
        with self._changed:
            self._leaving = True
            process = self._process
        self._order.send(b"x")
        if process is not None:
            process.terminate()
            patience_s = self.plist.get("ExitTimeOut", 20)
            self._timer = threading.Timer(patience_s, self._kill, (process,))
            self._timer.start()

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            self._killed = True
            process.kill()

    # -------------------------------------------------------------- what a test waits for

    def until(self, holds: Callable[[Job], Any], what: str) -> None:
        with self._changed:
            came = self._changed.wait_for(lambda: holds(self), TIMEOUT_S)
        assert came, f"never came: {what}; starts {self.starts}, ends {self.ends}"

    def until_started(self, times: int) -> int:
        """The pid of that start."""
        self.until(lambda job: len(job.starts) >= times, f"start {times}")
        return self.starts[times - 1][1]

    def until_ended(self, times: int) -> Ended:
        self.until(lambda job: len(job.ends) >= times, f"end {times}")
        return self.ends[times - 1]

    # -------------------------------------------------------------- the thread

    def _live(self) -> None:
        due = bool(self.plist.get("RunAtLoad")) or bool(self.plist.get("KeepAlive"))
        try:
            while not self._leaving:
                if due:
                    self._throttle()
                else:
                    self._idle()
                due = self._run()
        finally:
            held = [sock for socks in self.sockets.values() for sock in socks]
            for sock in (*held, self._order, self._orders):
                sock.close()
            if self._timer is not None:
                self._timer.cancel()
            self._tell(gone=True)

    def _throttle(self) -> None:
        """Waits until the last start is ThrottleInterval ago."""
        interval_s = self.plist.get("ThrottleInterval", self.throttle_s)
        while not self._leaving and self.starts:
            left_s = self.starts[-1][0] + interval_s - time.monotonic()
            if left_s <= 0:
                return
            self._wait(left_s, for_connection=False)

    def _idle(self) -> None:
        """Waits for a connection, or for an order that counts."""
        while not (self._leaving or self._ordered or self._wait(None, for_connection=True)):
            pass

    def _wait(self, timeout_s: float | None, *, for_connection: bool) -> bool:
        """Until an order, the time, or a connection to one of the sockets; whether it was that."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._orders, selectors.EVENT_READ)
            for sock in (s for socks in self.sockets.values() for s in socks if for_connection):
                selector.register(sock, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(timeout_s)]
        if self._orders in ready:
            self._orders.recv(64)
        return bool(set(ready) - {self._orders})

    def _run(self) -> bool:
        """One life; returns whether another one is due."""
        with self._changed:
            if self._leaving:
                return False
            self._ordered = False
            process = self._process = self._spawn()
            self.starts.append((time.monotonic(), process.pid))
            self._changed.notify_all()
        code = process.wait()
        with self._changed:
            self._process = None
            self.ends.append(Ended(process.pid, code, self._killed))
            self._changed.notify_all()
        return self._ordered or self._is_kept_alive(code)

    def _is_kept_alive(self, code: int) -> bool:
        keep = self.plist.get("KeepAlive", False)
        if isinstance(keep, bool):
            return keep
        assert set(keep) == {"SuccessfulExit"}, keep
        return bool(keep["SuccessfulExit"]) is (code == 0)

    def _spawn(self) -> subprocess.Popen[bytes]:
        numbers = {n: [sock.fileno() for sock in socks] for n, socks in self.sockets.items()}
        handed = ";".join(f"{n}={','.join(map(str, found))}" for n, found in numbers.items())
        environment = {"PATH": SYSTEM_PATH, **self.environment}
        environment |= self.plist.get("EnvironmentVariables", {})
        environment |= {"LAUNCHD_SOCKETS": handed, "LD_PRELOAD": str(self.library)}
        with Path(self.plist.get("StandardErrorPath", os.devnull)).open("ab") as stderr:
            process = subprocess.Popen(
                self.plist["ProgramArguments"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=self.plist.get("WorkingDirectory", "/"),
                env=environment,
                umask=self.plist.get("Umask", 0o022),
                pass_fds=[number for found in numbers.values() for number in found],
            )
        files = self.plist.get("SoftResourceLimits", {}).get("NumberOfFiles")
        if files is not None:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (min(files, hard), hard))
        return process

    def _tell(self, *, gone: bool) -> None:
        with self._changed:
            self.gone = gone
            self._changed.notify_all()


class Launchd:
    """Takes launchctl's verbs and gives its exit codes. `throttle_s`: launchd's own is 10 s."""

    def __init__(
        self, library: Path, *, environment: Mapping[str, str], throttle_s: float = 0.5
    ) -> None:
        self._library = library
        self._environment = environment
        self._throttle_s = throttle_s
        self._jobs: dict[str, Job] = {}
        self.calls: list[tuple[str, ...]] = []

    def job(self, target: str) -> Job | None:
        found = self._jobs.get(target)
        return None if found is None or found.gone else found

    def __call__(self, verb: str, *arguments: str) -> int:
        """`launchctl VERB ARGUMENT…`; one domain, that of a login at the console."""
        self.calls.append((verb, *arguments))
        *options, target = arguments
        if verb == "bootstrap":
            return self._bootstrap(options[0], Path(target))
        if verb == "enable" or (
            verb == "print" and target.startswith("gui/") and "." not in target
        ):
            return 0
        job = self.job(target)
        if job is None:
            return NOT_FOUND
        if verb == "kickstart":
            job.kickstart(kill="-k" in options)
        elif verb == "bootout":
            job.leave()
        else:
            assert verb == "print", verb
        return 0

    def _bootstrap(self, domain: str, path: Path) -> int:
        try:
            plist = plistlib.loads(path.read_bytes())
        except (OSError, plistlib.InvalidFileException):
            return IO_ERROR
        target = f"{domain}/{plist['Label']}"
        if self.job(target) is not None:
            return IO_ERROR
        self._jobs[target] = Job(plist, self._library, self._environment, self._throttle_s)
        return 0

    def close(self) -> None:
        """Unloads everything, and waits until it is gone."""
        for job in self._jobs.values():
            if not job.gone:
                job.leave()
        for job in self._jobs.values():
            job.until(lambda job: job.gone, "the job is gone")


def _listed(entry: Any) -> list[Mapping[str, Any]]:
    return list(entry) if isinstance(entry, list) else [entry]


def _listen(entry: Mapping[str, Any]) -> list[socket.socket]:
    """All sockets of one entry under Sockets: a name may have several addresses."""
    family = FAMILIES.get(entry.get("SockFamily", ""), socket.AF_UNSPEC)
    found = socket.getaddrinfo(
        entry["SockNodeName"], entry["SockServiceName"], family, socket.SOCK_STREAM
    )
    socks = []
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(512)
        socks.append(sock)
    return socks
