"""install, uninstall, start, stop, restart, status: results in, the next step out. Pure.

Each is a generator: it yields a step, is sent the step's result, and returns an Outcome or raises
CtlError. Each may be given twice; the second time there is nothing left to do.
"""

from __future__ import annotations

from omlxctl.servicelaunchctl import (
    ANSWER_PATIENCE_S,
    LAUNCHCTL,
    PLUTIL,
    bootout,
    bootstrap,
    choose_domain,
    enable,
    fail,
    find_daemon,
    find_loaded,
    kickstart,
    refuse_absent,
    refuse_homebrew,
    stale,
    verify,
)
from omlxctl.serviceplist import LABEL
from omlxctl.servicesteps import (
    AskDaemon,
    Command,
    Job,
    MakeFolder,
    Outcome,
    RemoveFile,
    Steps,
    WriteFile,
)


def install(job: Job) -> Steps:
    """The plist in place and in force, and a daemon that answers. Nothing to do is nothing done."""
    yield from refuse_homebrew(job)
    domain, notes = yield from choose_domain(job)
    target = f"{domain}/{LABEL}"
    loaded = yield from find_loaded(job)
    pid = yield from find_daemon(job, loaded)
    if loaded == [target] and job.on_disk == job.data and pid is not None:
        return Outcome("running", f"unchanged: {target} runs", target, pid, notes)
    lint = yield Command((PLUTIL, "-lint", "-"), job.data)
    if lint.code:
        fail("plutil does not take the plist", lint)
    yield MakeFolder(job.home, 0o700)
    yield MakeFolder(job.home / "logs", 0o700)
    yield MakeFolder(job.path.parent, 0o755)
    yield WriteFile(job.path, job.data)
    yield from enable(target)
    for old in loaded:
        yield from bootout(job, old)
    yield from bootstrap(job, domain)
    yield from kickstart(target)
    pid = yield from verify(job, target, but=pid)
    return Outcome("running", f"installed: {target} runs", target, pid, notes)


def uninstall(job: Job) -> Steps:
    """Neither loaded nor at the next login; the home stays."""
    loaded = yield from find_loaded(job)
    for target in loaded:
        yield from bootout(job, target)
    if job.on_disk is None:
        return Outcome("absent", "uninstalled" if loaded else "unchanged: it is not installed")
    yield RemoveFile(job.path)
    return Outcome("absent", f"uninstalled; {job.home} stays as it is")


def start(job: Job) -> Steps:
    """Loaded, and a daemon that answers."""
    refuse_absent(job)
    yield from refuse_homebrew(job)
    loaded = yield from find_loaded(job)
    pid = yield from find_daemon(job, loaded)
    notes = stale(job)
    if loaded and pid is not None:
        return Outcome("running", f"unchanged: {loaded[0]} runs", loaded[0], pid, notes)
    if loaded:
        target = loaded[0]
    else:
        domain, more = yield from choose_domain(job)
        target, notes = f"{domain}/{LABEL}", (*notes, *more)
        yield from enable(target)
        yield from bootstrap(job, domain)
    yield from kickstart(target)
    pid = yield from verify(job, target)
    return Outcome("running", f"started: {target} runs", target, pid, notes)


def stop(job: Job) -> Steps:
    """Unloaded until the next login: while it is loaded, a connection would start it again."""
    loaded = yield from find_loaded(job)
    for target in loaded:
        yield from bootout(job, target)
    told = "stopped until the next login" if loaded else "unchanged: it is not loaded"
    return Outcome("absent" if job.on_disk is None else "stopped", told)


def restart(job: Job) -> Steps:
    """Another process, under the plist that launchd has read."""
    refuse_absent(job)
    loaded = yield from find_loaded(job)
    if not loaded:
        return (yield from start(job))
    target = loaded[0]
    before = (yield AskDaemon()).pid
    again = yield Command((LAUNCHCTL, "kickstart", "-k", target))
    if again.code:
        fail(f"launchctl kickstart -k {target} failed", again)
    # The old one answers until it has drained.
    patience_s = job.exit_timeout_s + ANSWER_PATIENCE_S
    pid = yield from verify(job, target, but=before, within_s=patience_s)
    return Outcome("running", f"restarted: {target} runs", target, pid, stale(job))


def status(job: Job) -> Steps:
    """What is so; changes nothing, and starts nothing."""
    loaded = yield from find_loaded(job)
    pid = (yield AskDaemon()).pid
    notes = stale(job) if job.on_disk is not None else ()
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
