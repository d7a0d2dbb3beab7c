"""What launchctl is asked for, and what its exit codes mean. Pure.

Generators, as in `serviceverbs`. They have no clock: waits are counted in the pauses they ask for.
Of `launchctl print` only the exit code counts, since its text is not meant to be read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import NoReturn

from omlxctl import exits
from omlxctl.exits import CtlError
from omlxctl.serviceplist import LABEL
from omlxctl.servicesteps import AskDaemon, Command, Job, Pause, Result, Step

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


def refuse_absent(job: Job) -> None:
    if job.on_disk is None:
        raise CtlError(
            f"the service is not installed: there is no {job.path}",
            exit_code=exits.NO_SUCH_OBJECT,
            hint="omlxctl service install",
        )


def refuse_homebrew(job: Job) -> Generator[Step, Result, None]:
    """Two jobs would want one port."""
    loaded = False
    for domain in (*job.domains, "system"):
        loaded = loaded or (yield look(f"{domain}/{HOMEBREW_LABEL}")).code == 0
    if loaded or job.homebrew:
        where = ", ".join(map(str, job.homebrew)) or HOMEBREW_LABEL
        raise CtlError(
            f"Homebrew runs omlxd as a service already ({where})",
            exit_code=exits.CONFLICT,
            hint="keep that one, or stop it first: brew services stop omlxd",
        )


def choose_domain(job: Job) -> Generator[Step, Result, tuple[str, tuple[str, ...]]]:
    gui, user = job.domains
    if (yield look(gui)).code == 0:
        return gui, ()
    note = (
        f"nobody is logged in at the console, so the service goes into {user}; "
        "install it again after a login there"
    )
    return user, (note,)


def find_loaded(job: Job) -> Generator[Step, Result, list[str]]:
    """Where the job is known; after a change between ssh and console it may be both."""
    found = []
    for target in job.targets:
        if (yield look(target)).code == 0:
            found.append(target)
    return found


def find_daemon(job: Job, loaded: Sequence[str]) -> Generator[Step, Result, int | None]:
    """The daemon's pid; raises if it is not launchd's, which would wait for its end."""
    pid = (yield AskDaemon()).pid
    if pid is not None and not loaded:
        raise CtlError(
            f"omlxd (pid {pid}) serves {job.home} already, and launchd did not start it",
            exit_code=exits.CONFLICT,
            hint="stop that one first: Ctrl-C where it runs, or kill it",
        )
    return pid


def enable(target: str) -> Generator[Step, Result, None]:
    """What was disabled once stays so, whatever the plist says."""
    result = yield Command((LAUNCHCTL, "enable", target))
    if result.code:
        fail(f"launchctl enable {target} failed", result)


def bootout(job: Job, target: str) -> Generator[Step, Result, None]:
    """Unloads the job and waits until it is gone, which is later than bootout's return."""
    result = yield Command((LAUNCHCTL, "bootout", target))
    if result.code not in (0, *NOT_FOUND, *BUSY):
        fail(f"launchctl bootout {target} failed", result)
    patience_s = job.exit_timeout_s + GONE_MARGIN_S
    for pause in _pauses(patience_s, first_s=0.1, longest_s=1.0):
        if (yield look(target)).code:
            return
        yield pause
    raise CtlError(
        f"{target} is not gone {patience_s:g} s after bootout",
        exit_code=exits.TIMED_OUT,
        hint="see what it does with: omlxctl logs; then give the command again",
    )


def bootstrap(job: Job, domain: str) -> Generator[Step, Result, None]:
    target = f"{domain}/{LABEL}"
    command = Command((LAUNCHCTL, "bootstrap", domain, str(job.path)))
    result = yield command
    for pause in _pauses(BOOTSTRAP_PATIENCE_S, first_s=0.5, longest_s=2.0):
        if result.code == 0:
            return
        if result.code not in (IO_ERROR, *BUSY):
            break
        if result.code in BUSY and (yield look(target)).code == 0:
            return
        yield pause
        result = yield command
    if result.code:
        fail(f"launchctl bootstrap {domain} failed, and the service is not loaded", result)


def kickstart(target: str) -> Generator[Step, Result, None]:
    """RunAtLoad alone leaves a fresh job unstarted at times."""
    result = yield Command((LAUNCHCTL, "kickstart", target))
    if result.code not in (0, *BUSY):
        fail(f"launchctl kickstart {target} failed", result)


def verify(
    job: Job, target: str, *, but: int | None = None, within_s: float = ANSWER_PATIENCE_S
) -> Generator[Step, Result, int | None]:
    """The new daemon's pid; raises if launchd lost the job or nobody answers."""
    known = yield look(target)
    if known.code:
        fail(f"launchd does not know {target} after all", known)
    pid = (yield AskDaemon(within_s, but)).pid
    if pid is None:
        raise CtlError(
            f"launchd has started {target}, and nothing answered for {within_s:g} s",
            exit_code=exits.TIMED_OUT,
            hint=f"see {job.home}/logs/stderr.log and: omlxctl logs",
        )
    return pid


def stale(job: Job) -> tuple[str, ...]:
    if job.on_disk in (None, job.data):
        return ()
    return (f"{job.path} is not what omlx.toml asks for now: omlxctl service install",)


def look(target: str) -> Command:
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


def fail(what: str, result: Result) -> NoReturn:
    said = f": {result.said.strip()}" if result.said.strip() else ""
    hint = _CAUSES.get(result.code, "launchctl error CODE explains the code")
    raise CtlError(f"{what} with exit code {result.code}{said}", hint=hint)
