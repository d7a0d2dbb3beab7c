"""What `service` does: gathers what is so, then carries the steps out, or tells them."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from omlxctl import exits
from omlxctl.client import Client, Disconnected, NotRunning, check_length
from omlxctl.configcheck import read_home
from omlxctl.configfiles import write
from omlxctl.exits import CtlError
from omlxctl.servicelaunchctl import HOMEBREW_LABEL
from omlxctl.serviceplist import (
    LABEL,
    Wanted,
    exit_timeout_of,
    missing_variables,
    render,
    stable_program,
    to_bytes,
)
from omlxctl.servicesteps import (
    AskDaemon,
    Command,
    Job,
    MakeFolder,
    Outcome,
    Pause,
    RemoveFile,
    Result,
    Step,
    Steps,
    WriteFile,
)
from omlxctl.target import Target
from omlxd.control.wire import Status
from omlxd.spec.model import Server, Spec

COMMAND_TIMEOUT_S = 120.0  # launchctl returns at once; a drain may make bootout slow
LOOK_EVERY_S = 0.1


def refuse_root(euid: int, environ: Mapping[str, str]) -> None:
    """An agent belongs to a user; under sudo its files would be root's."""
    if euid == 0 or "SUDO_USER" in environ:
        raise CtlError(
            "the service belongs to the user who logs in, so it is not installed as root",
            hint="give the command again without sudo; launchd/README.md is about a Mac without "
            "logins",
        )


def find_program() -> Path:
    """omlxd beside this omlxctl, else the first one on PATH."""
    beside = Path(sys.executable).parent / "omlxd"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("omlxd")
    if found is None:
        raise CtlError(
            f"there is no omlxd beside {sys.executable}, and none on PATH",
            exit_code=exits.NO_SUCH_OBJECT,
            hint="install omlxd and omlxctl together",
        )
    return stable_program(Path(found).absolute())


def read_spec(home: Path) -> Spec:
    """What omlx.toml of the home and its drop-ins say; raises CtlError with their problems."""
    path = home / "omlx.toml"
    reading = read_home(path, home)
    if reading.spec is None:
        raise CtlError(
            f"{path} is not valid, so it does not say where to listen",
            exit_code=exits.INVALID,
            problems=reading.problems,
        )
    return reading.spec


def job_for(
    home: Path, agents: Path, *, uid: int, program: Path, needs_spec: bool = True
) -> tuple[Job, tuple[str, ...]]:
    """The service of that home as it should be, with what is worth a note; raises CtlError.

    `agents`: the folder of the plist. Without `needs_spec`, files with problems are only noted:
    they must not keep anybody from stopping the service.
    """
    path = agents / f"{LABEL}.plist"
    on_disk = path.read_bytes() if path.exists() else None
    timeout_s = exit_timeout_of(on_disk) if on_disk is not None else 0
    notes: tuple[str, ...]
    try:
        server = read_spec(home).server
    except CtlError as error:
        if needs_spec:
            raise
        data, notes = on_disk or b"", (f"{error.message}; see: omlxctl validate",)
    else:
        wanted = Wanted(program, home, server.listen, server.shutdown_grace)
        data, notes = to_bytes(render(wanted)), _notes(server)
        timeout_s = max(timeout_s, wanted.exit_timeout_s)
    job = Job(
        uid=uid,
        path=path,
        data=data,
        home=home,
        exit_timeout_s=timeout_s,
        on_disk=on_disk,
        homebrew=tuple(one for one in _brewed(agents) if one.exists()),
    )
    return job, notes


def _notes(server: Server) -> tuple[str, ...]:
    return tuple(
        f'launchd gives no variables of your shell: write "env:{name}" in server.api_keys as '
        '"file:PATH", with the key in that file'
        for name in missing_variables(server.api_keys)
    )


def _brewed(agents: Path) -> tuple[Path, Path]:
    name = f"{HOMEBREW_LABEL}.plist"
    return agents / name, Path("/Library/LaunchDaemons") / name


# ------------------------------------------------------------------ the steps, for real


def run_command(argv: tuple[str, ...], stdin: bytes) -> Result:
    """The exit code, and what it said on both streams."""
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise CtlError(f"there is no {argv[0]}, which comes with macOS") from error
    except subprocess.TimeoutExpired as error:
        raise CtlError(
            f"{shlex.join(argv)} did not end within {COMMAND_TIMEOUT_S:g} s",
            exit_code=exits.TIMED_OUT,
            hint="give the command again",
        ) from error
    return Result(done.returncode, (done.stderr + done.stdout).decode(errors="replace"))


class Doer:
    """Carries steps out."""

    def __init__(
        self,
        socket_path: Path,
        run: Callable[[tuple[str, ...], bytes], Result] = run_command,
    ) -> None:
        self._socket_path = socket_path
        self._run = run

    def __call__(self, step: Step) -> Result:
        try:
            return self._do(step)
        except OSError as error:
            raise CtlError(f"the service was not changed to the end: {error}") from error

    def _do(self, step: Step) -> Result:
        match step:
            case Command(argv, stdin):
                return self._run(argv, stdin)
            case Pause(seconds):
                time.sleep(seconds)
            case MakeFolder(path, mode):
                path.mkdir(mode=mode, parents=True, exist_ok=True)
            case WriteFile(path, data):
                write(path, data, mode=0o644)
            case RemoveFile(path):
                path.unlink(missing_ok=True)
            case AskDaemon(within_s, but):
                return Result(pid=self._answering(within_s, but))
        return Result()

    def _answering(self, within_s: float, but: int | None) -> int | None:
        deadline = time.monotonic() + within_s
        while True:
            try:
                pid = Client(self._socket_path).get("/v1/status", Status).pid
                if pid != but:
                    return pid
            except (NotRunning, Disconnected):
                pass  # it is not up yet, or on its way down
            if time.monotonic() >= deadline:
                return None
            time.sleep(LOOK_EVERY_S)


def carry_out(steps: Steps, do: Callable[[Step], Result]) -> Outcome:
    """Runs the sequence to its end; raises CtlError."""
    try:
        step = next(steps)
        while True:
            step = steps.send(do(step))
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


# ------------------------------------------------------------------ what a command needs


def prepare(target: Target, *, needs_spec: bool) -> tuple[Job, tuple[str, ...], Doer]:
    """The service of the target's home for this user; raises CtlError."""
    home = target.home_path().absolute()
    socket_path = home / "run" / "omlxd.sock"
    check_length(socket_path)
    agents = Path.home() / "Library" / "LaunchAgents"
    job, notes = job_for(
        home, agents, uid=os.getuid(), program=find_program(), needs_spec=needs_spec
    )
    return job, notes, Doer(socket_path)


def user_name() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
