"""What becomes of the service, step by step: launchctl's answers in, the next step out. Pure.

Each sequence is a generator: it yields a step, is sent the step's result, and returns an Outcome or
raises CtlError. It has no clock: waits are counted in the pauses it asks for. Of `launchctl print`
only the exit code counts, since its text is not meant to be read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from omlxctl import exits
from omlxctl.exits import CtlError
from omlxctl.serviceplist import LABEL

LAUNCHCTL = "/bin/launchctl"
PLUTIL = "/usr/bin/plutil"
HOMEBREW_LABEL = "homebrew.mxcl.omlxd"

# Exit codes of launchctl.
NOT_FOUND = (3, 113)
BUSY = (36, 37)  # in progress, or already so
IO_ERROR = 5  # of bootstrap: the old job is not quite gone, or the plist is not to be had
WRONG_DOMAIN = 125

GONE_MARGIN_S = 10.0
BOOTSTRAP_PATIENCE_S = 15.0
ANSWER_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Command:
    """Run a program; the result has its exit code and what it said."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    only_looks: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """If it is missing, with that mode."""

    path: Path
    mode: int


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Mode 0644, at once or not at all."""

    path: Path
    data: bytes


@dataclass(frozen=True, slots=True)
class RemoveFile:
    path: Path


@dataclass(frozen=True, slots=True)
class AskDaemon:
    """The pid of whoever answers on the control socket, other than `but`; None after `within_s`."""

    within_s: float = 0.0
    but: int | None = None


Step = Command | Pause | MakeFolder | WriteFile | RemoveFile | AskDaemon


@dataclass(frozen=True, slots=True)
class Result:
    code: int = 0
    said: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """The service as it should be, and what is on disk of it."""

    uid: int
    path: Path  # of the plist
    data: bytes  # of the plist
    home: Path
    exit_timeout_s: float  # the longer one of the plist in force and the new one
    on_disk: bytes | None = None
    homebrew: tuple[Path, ...] = ()  # plists of a Homebrew service that are there

    @property
    def domains(self) -> tuple[str, str]:
        """With a login at the console, and without."""
        return f"gui/{self.uid}", f"user/{self.uid}"

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(f"{domain}/{LABEL}" for domain in self.domains)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`status`: running, loaded (the next connection starts it), stopped or absent."""

    status: str
    told: str
    target: str = ""
    pid: int | None = None
    notes: tuple[str, ...] = ()


Steps = Generator[Step, Result, Outcome]


# ------------------------------------------------------------------ the six verbs


def install(job: Job) -> Steps:
    """The plist in place and in force, and a daemon that answers. Nothing to do is nothing done."""
    yield from _refuse_homebrew(job)
    domain, notes = yield from _domain(job)
    target = f"{domain}/{LABEL}"
    loaded = yield from _loaded(job)
    pid = yield from _running(job, loaded)
    if loaded == [target] and job.on_disk == job.data and pid is not None:
        return Outcome("running", f"unchanged: {target} runs", target, pid, notes)
    lint = yield Command((PLUTIL, "-lint", "-"), job.data)
    if lint.code:
        _fail("plutil does not take the plist", lint)
    yield MakeFolder(job.home, 0o700)
    yield MakeFolder(job.home / "logs", 0o700)
    yield MakeFolder(job.path.parent, 0o755)
    yield WriteFile(job.path, job.data)
    yield from _enable(target)
    for old in loaded:
        yield from _bootout(job, old)
    yield from _bootstrap(job, domain)
    yield from _kickstart(target)
    pid = yield from _verified(job, target, but=pid)
    return Outcome("running", f"installed: {target} runs", target, pid, notes)


def uninstall(job: Job) -> Steps:
    """Neither loaded nor at the next login; the home stays."""
    loaded = yield from _loaded(job)
    for target in loaded:
        yield from _bootout(job, target)
    if job.on_disk is None:
        return Outcome("absent", "uninstalled" if loaded else "unchanged: it is not installed")
    yield RemoveFile(job.path)
    return Outcome("absent", f"uninstalled; {job.home} stays as it is")


def start(job: Job) -> Steps:
    """Loaded, and a daemon that answers."""
    _refuse_absent(job)
    yield from _refuse_homebrew(job)
    loaded = yield from _loaded(job)
    pid = yield from _running(job, loaded)
    notes = _stale(job)
    if loaded and pid is not None:
        return Outcome("running", f"unchanged: {loaded[0]} runs", loaded[0], pid, notes)
    if loaded:
        target = loaded[0]
    else:
        domain, more = yield from _domain(job)
        target, notes = f"{domain}/{LABEL}", (*notes, *more)
        yield from _enable(target)
        yield from _bootstrap(job, domain)
    yield from _kickstart(target)
    pid = yield from _verified(job, target)
    return Outcome("running", f"started: {target} runs", target, pid, notes)


def stop(job: Job) -> Steps:
    """Unloaded until the next login: while it is loaded, a connection would start it again."""
    loaded = yield from _loaded(job)
    for target in loaded:
        yield from _bootout(job, target)
    told = "stopped until the next login" if loaded else "unchanged: it is not loaded"
    return Outcome("absent" if job.on_disk is None else "stopped", told)


def restart(job: Job) -> Steps:
    """Another process, under the plist that launchd has read."""
    _refuse_absent(job)
    loaded = yield from _loaded(job)
    if not loaded:
        return (yield from start(job))
    target = loaded[0]
    before = (yield AskDaemon()).pid
    again = yield Command((LAUNCHCTL, "kickstart", "-k", target))
    if again.code:
        _fail(f"launchctl kickstart -k {target} failed", again)
    pid = yield from _verified(job, target, but=before)
    return Outcome("running", f"restarted: {target} runs", target, pid, _stale(job))


def status(job: Job) -> Steps:
    """What is so; changes nothing, and starts nothing."""
    loaded = yield from _loaded(job)
    pid = (yield AskDaemon()).pid
    notes = _stale(job) if job.on_disk is not None else ()
    if not loaded:
        if pid is not None:
            notes = (*notes, f"omlxd (pid {pid}) serves {job.home}, but launchd did not start it")
        known = ("stopped", "it is installed, and not loaded: omlxctl service start")
        absent = ("absent", "it is not installed: omlxctl service install")
        return Outcome(*(absent if job.on_disk is None else known), notes=notes)
    target = loaded[0]
    if pid is None:
        return Outcome("loaded", "it is down, the next connection starts it", target, None, notes)
    return Outcome("running", f"{target} runs", target, pid, notes)


VERBS = {
    "install": install,
    "uninstall": uninstall,
    "start": start,
    "stop": stop,
    "restart": restart,
    "status": status,
}


# ------------------------------------------------------------------ parts of them


def _refuse_absent(job: Job) -> None:
    if job.on_disk is None:
        raise CtlError(
            f"the service is not installed: there is no {job.path}",
            exit_code=exits.NO_SUCH_OBJECT,
            hint="omlxctl service install",
        )


def _refuse_homebrew(job: Job) -> Generator[Step, Result, None]:
    """Two jobs would want one port."""
    loaded = False
    for domain in (*job.domains, "system"):
        loaded = loaded or (yield _print(f"{domain}/{HOMEBREW_LABEL}")).code == 0
    if loaded or job.homebrew:
        where = ", ".join(map(str, job.homebrew)) or HOMEBREW_LABEL
        raise CtlError(
            f"Homebrew runs omlxd as a service already ({where})",
            exit_code=exits.CONFLICT,
            hint="keep that one, or stop it first: brew services stop omlxd",
        )


def _domain(job: Job) -> Generator[Step, Result, tuple[str, tuple[str, ...]]]:
    gui, user = job.domains
    if (yield _print(gui)).code == 0:
        return gui, ()
    note = (
        f"nobody is logged in at the console, so the service goes into {user}; "
        "install it again after a login there"
    )
    return user, (note,)


def _loaded(job: Job) -> Generator[Step, Result, list[str]]:
    """Where the job is known; after a change between ssh and console it may be both."""
    found = []
    for target in job.targets:
        if (yield _print(target)).code == 0:
            found.append(target)
    return found


def _running(job: Job, loaded: Sequence[str]) -> Generator[Step, Result, int | None]:
    """The daemon's pid; raises if it is not launchd's, which would wait for its end."""
    pid = (yield AskDaemon()).pid
    if pid is not None and not loaded:
        raise CtlError(
            f"omlxd (pid {pid}) serves {job.home} already, and launchd did not start it",
            exit_code=exits.CONFLICT,
            hint="stop that one first: Ctrl-C where it runs, or kill it",
        )
    return pid


def _enable(target: str) -> Generator[Step, Result, None]:
    """What was disabled once stays so, whatever the plist says."""
    result = yield Command((LAUNCHCTL, "enable", target))
    if result.code:
        _fail(f"launchctl enable {target} failed", result)


def _bootout(job: Job, target: str) -> Generator[Step, Result, None]:
    """Unloads the job and waits until it is gone, which is later than bootout's return."""
    result = yield Command((LAUNCHCTL, "bootout", target))
    if result.code not in (0, *NOT_FOUND, *BUSY):
        _fail(f"launchctl bootout {target} failed", result)
    patience_s = job.exit_timeout_s + GONE_MARGIN_S
    for pause in _pauses(patience_s, first_s=0.1, longest_s=1.0):
        if (yield _print(target)).code:
            return
        yield pause
    raise CtlError(
        f"{target} is not gone {patience_s:g} s after bootout",
        exit_code=exits.TIMED_OUT,
        hint="see what it does with: omlxctl logs; then give the command again",
    )


def _bootstrap(job: Job, domain: str) -> Generator[Step, Result, None]:
    target = f"{domain}/{LABEL}"
    command = Command((LAUNCHCTL, "bootstrap", domain, str(job.path)))
    result = yield command
    for pause in _pauses(BOOTSTRAP_PATIENCE_S, first_s=0.5, longest_s=2.0):
        if result.code == 0:
            return
        if result.code not in (IO_ERROR, *BUSY):
            break
        if result.code in BUSY and (yield _print(target)).code == 0:
            return
        yield pause
        result = yield command
    if result.code:
        _fail(f"launchctl bootstrap {domain} failed, and the service is not loaded", result)


def _kickstart(target: str) -> Generator[Step, Result, None]:
    """RunAtLoad alone leaves a fresh job unstarted at times."""
    result = yield Command((LAUNCHCTL, "kickstart", target))
    if result.code not in (0, *BUSY):
        _fail(f"launchctl kickstart {target} failed", result)


def _verified(
    job: Job, target: str, *, but: int | None = None
) -> Generator[Step, Result, int | None]:
    """The new daemon's pid; raises if launchd lost the job or nobody answers."""
    look = yield _print(target)
    if look.code:
        _fail(f"launchd does not know {target} after all", look)
    pid = (yield AskDaemon(ANSWER_PATIENCE_S, but)).pid
    if pid is None:
        raise CtlError(
            f"launchd has started {target}, and nothing answered for {ANSWER_PATIENCE_S:g} s",
            exit_code=exits.TIMED_OUT,
            hint=f"see {job.home}/logs/stderr.log and: omlxctl logs",
        )
    return pid


def _stale(job: Job) -> tuple[str, ...]:
    if job.on_disk in (None, job.data):
        return ()
    return (f"{job.path} is not what omlx.toml asks for now: omlxctl service install",)


def _print(target: str) -> Command:
    return Command((LAUNCHCTL, "print", target), only_looks=True)


def _pauses(patience_s: float, *, first_s: float, longest_s: float) -> Iterator[Pause]:
    """Pauses that double up to the longest, until they make `patience_s` in all."""
    spent_s, next_s = 0.0, first_s
    while spent_s < patience_s:
        pause_s = min(next_s, patience_s - spent_s)
        yield Pause(pause_s)
        spent_s, next_s = spent_s + pause_s, min(2 * next_s, longest_s)


_CAUSES = {
    IO_ERROR: (
        "launchd gives this code for many causes: the old job is still going, the plist is not "
        "yours or writable by others, it lies on a volume or in a folder that launchd may not "
        "read, or the item is switched off in System Settings > General > Login Items"
    ),
    WRONG_DOMAIN: (
        "the domain cannot hold this job; log in at the console, or install it over ssh with "
        "nobody logged in there"
    ),
}


def _fail(what: str, result: Result) -> NoReturn:
    said = f": {result.said.strip()}" if result.said.strip() else ""
    hint = _CAUSES.get(result.code, "launchctl error CODE explains the code")
    raise CtlError(f"{what} with exit code {result.code}{said}", hint=hint)
