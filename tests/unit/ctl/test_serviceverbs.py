"""The sequences of launchctl, against exit codes as launchctl gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from omlxctl import exits
from omlxctl.exits import CtlError
from omlxctl.servicerun import carry_out
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
    WriteFile,
)
from omlxctl.serviceverbs import VERBS

JOB = Job(uid=501, path=Path("/A/x.plist"), data=b"new", home=Path("/H"), exit_timeout_s=30)
INSTALLED = replace(JOB, on_disk=b"new")
OLD = replace(JOB, on_disk=b"old")
GUI, USER = (f"{domain}/501/io.omlx.omlxd" for domain in ("gui", "user"))
BREW = "gui/501/homebrew.mxcl.omlxd"


@dataclass
class Mac:
    """A launchd that gives recorded exit codes, and else does what it is told.

    `codes`: verb → codes of its next calls. `lingers`: looks that a job outlives its bootout.
    """

    codes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    logged_in: bool = True
    pid: int | None = None
    answers: bool = True
    lingers: int = 0
    did: list[str] = field(default_factory=list)
    paused_s: float = 0.0

    def __post_init__(self) -> None:
        self._left = {verb: list(codes) for verb, codes in self.codes.items()}
        self._leaving: dict[str, int] = {}
        self._next_pid = 100

    def __call__(self, step: Step) -> Result:
        match step:
            case Command((_, "print", target), _, True):
                return Result(0 if self._knows(target) else 113)
            case Command((_, "-lint", "-"), data):
                return self._answer("lint", data.decode())
            case Command((_, verb, *rest)):
                return self._launchctl(verb, rest)
            case Pause(seconds):
                self.paused_s += seconds
            case MakeFolder(path) | WriteFile(path) | RemoveFile(path):
                self.did.append(f"{type(step).__name__} {path}")
            case AskDaemon(within_s, but):
                return Result(
                    pid=self.pid if self.pid != but and (self.answers or not within_s) else None
                )
        return Result()

    def _knows(self, target: str) -> bool:
        if target in self._leaving:
            self._leaving[target] -= 1
            if self._leaving[target] < 0:
                self.loaded.discard(target)
        return target in self.loaded or (target == "gui/501" and self.logged_in)

    def _answer(self, verb: str, what: str) -> Result:
        self.did.append(f"{verb} {what}")
        return Result(self._left[verb].pop(0) if self._left.get(verb) else 0, "it says so")

    def _launchctl(self, verb: str, rest: Sequence[str]) -> Result:
        result = self._answer(verb, " ".join(rest))
        if verb == "bootout":
            self._leaving[rest[-1]] = self.lingers
            self.pid = None
        elif verb == "bootstrap" and result.code == 0:
            self.loaded.add(f"{rest[0]}/io.omlx.omlxd")
            self._leaving.clear()
        elif verb == "kickstart" and (self.pid is None or "-k" in rest) and self.answers:
            self._next_pid += 1
            self.pid = self._next_pid
        return result


def run(verb: str, mac: Mac, job: Job = JOB) -> Outcome:
    return carry_out(VERBS[verb](job), mac)


def refused(verb: str, mac: Mac, job: Job = JOB) -> CtlError:
    with pytest.raises(CtlError) as caught:
        run(verb, mac, job)
    return caught.value


# ------------------------------------------------------------------ install

FRESH = [
    "lint new",
    "MakeFolder /H",
    "MakeFolder /H/logs",
    "MakeFolder /A",
    "WriteFile /A/x.plist",
    f"enable {GUI}",
    "bootstrap gui/501 /A/x.plist",
    f"kickstart {GUI}",
]


def test_a_first_install() -> None:
    """Folders before bootstrap, enable before bootstrap, kickstart and a look after it."""
    mac = Mac()
    outcome = run("install", mac)
    assert mac.did == FRESH
    assert (outcome.status, outcome.target, outcome.pid) == ("running", GUI, 101)


def test_a_changed_plist_takes_the_old_job_out_first() -> None:
    """bootstrap comes when the old job is gone, which is later than bootout's return."""
    mac = Mac(loaded={GUI}, pid=7, lingers=4)
    outcome = run("install", mac, OLD)
    assert mac.did == [*FRESH[:6], f"bootout {GUI}", *FRESH[6:]]
    assert 0.1 < mac.paused_s < 5
    assert outcome.pid == 101


def test_an_unchanged_one_that_runs_is_left_alone() -> None:
    """Giving the command twice restarts nothing."""
    mac = Mac(loaded={GUI}, pid=7)
    assert run("install", mac, INSTALLED).told.startswith("unchanged")
    assert mac.did == []


def test_without_a_login_it_goes_into_the_users_domain() -> None:
    """And says so; a job from an earlier login is taken out."""
    mac = Mac(logged_in=False, loaded={GUI}, pid=7)
    outcome = run("install", mac, INSTALLED)
    assert f"bootout {GUI}" in mac.did
    assert "bootstrap user/501 /A/x.plist" in mac.did
    assert outcome.target == USER
    assert "nobody is logged in" in outcome.notes[0]


@pytest.mark.parametrize("code", [3, 113, 36, 37])
def test_codes_of_bootout_that_are_no_failure(code: int) -> None:
    """Not found is gone; in progress is waited for."""
    mac = Mac({"bootout": [code]}, loaded={GUI}, pid=7)
    assert run("install", mac, OLD).status == "running"


@pytest.mark.parametrize(("code", "hint"), [(125, "domain cannot hold"), (1, "launchctl error")])
def test_codes_of_bootout_that_are(code: int, hint: str) -> None:
    """The old job stays, and the message has the code and what launchctl said."""
    error = refused("install", Mac({"bootout": [code]}, loaded={GUI}, pid=7), OLD)
    assert f"with exit code {code}: it says so" in error.message
    assert hint in error.hint


def test_a_job_that_does_not_go() -> None:
    """It is waited for as long as launchd may take to kill it, and ten seconds."""
    mac = Mac(loaded={GUI}, pid=7, lingers=10_000)
    error = refused("install", mac, OLD)
    assert error.exit_code == exits.TIMED_OUT
    assert mac.paused_s == pytest.approx(40)
    assert not any(line.startswith("bootstrap") for line in mac.did)


@pytest.mark.parametrize("codes", [[5], [37], [5, 37, 5]])
def test_codes_of_bootstrap_that_are_tried_again(codes: list[int]) -> None:
    """The old job is not quite gone."""
    mac = Mac({"bootstrap": codes})
    assert run("install", mac).status == "running"
    assert sum(line.startswith("bootstrap") for line in mac.did) == len(codes) + 1


def test_a_bootstrap_that_never_works() -> None:
    """After fifteen seconds the causes are told."""
    mac = Mac({"bootstrap": [5] * 99})
    error = refused("install", mac)
    assert "bootstrap gui/501 failed, and the service is not loaded" in error.message
    assert "Login Items" in error.hint
    assert mac.paused_s == pytest.approx(15)


def test_a_bootstrap_that_is_done_already() -> None:
    """37 with a job that is known is success."""

    class Busy(Mac):
        def _launchctl(self, verb: str, rest: Sequence[str]) -> Result:
            if verb == "bootstrap":
                self.loaded.add(GUI)
            return super()._launchctl(verb, rest)

    mac = Busy({"bootstrap": [37] * 99})
    assert run("install", mac).status == "running"
    assert mac.paused_s == 0


@pytest.mark.parametrize(("verb", "code"), [("bootstrap", 125), ("bootstrap", 119), ("enable", 1)])
def test_other_codes_end_it(verb: str, code: int) -> None:
    """They are not tried again."""
    mac = Mac({verb: [code] * 9})
    assert f"exit code {code}" in refused("install", mac).message
    assert (mac.did[-1].split()[0], mac.paused_s) == (verb, 0)


def test_a_job_that_kickstart_finds_running() -> None:
    """37 is what was wanted."""
    assert run("install", Mac({"kickstart": [37]})).status == "running"


def test_a_kickstart_that_fails() -> None:
    """Any other code is a failure."""
    assert "kickstart" in refused("install", Mac({"kickstart": [3]})).message


def test_a_daemon_that_never_answers() -> None:
    """The files that say why are named."""
    error = refused("install", Mac(answers=False))
    assert error.exit_code == exits.TIMED_OUT
    assert "/H/logs/stderr.log" in error.hint


def test_a_plist_that_plutil_refuses() -> None:
    """Nothing is written."""
    mac = Mac({"lint": [1]})
    assert "plutil" in refused("install", mac).message
    assert mac.did == ["lint new"]


def test_homebrews_service_is_not_doubled() -> None:
    """Whether it is loaded, or only its plist is there; nothing is changed."""
    plist = Path("/A/homebrew.mxcl.omlxd.plist")
    for mac, job in (
        (Mac(loaded={BREW}), JOB),
        (Mac(loaded={"system/homebrew.mxcl.omlxd"}), JOB),
        (Mac(), replace(JOB, homebrew=(plist,))),
    ):
        error = refused("install", mac, job)
        assert (error.exit_code, mac.did) == (exits.CONFLICT, [])
        assert "brew services stop omlxd" in error.hint


def test_a_daemon_by_hand_is_named() -> None:
    """The service would only wait for its end."""
    for verb, job in (("install", JOB), ("start", INSTALLED)):
        mac = Mac(pid=7)
        error = refused(verb, mac, job)
        assert (error.exit_code, mac.did) == (exits.CONFLICT, [])
        assert "pid 7" in error.message


# ------------------------------------------------------------------ the others


def test_uninstall_takes_out_every_job_and_the_plist() -> None:
    """In both domains; twice is nothing."""
    mac = Mac(loaded={GUI, USER}, pid=7)
    assert run("uninstall", mac, INSTALLED).status == "absent"
    assert mac.did == [f"bootout {GUI}", f"bootout {USER}", "RemoveFile /A/x.plist"]
    assert run("uninstall", Mac()).told.startswith("unchanged")


def test_stop_is_bootout() -> None:
    """While it is loaded a connection would start it; the plist stays for the next login."""
    mac = Mac(loaded={GUI}, pid=7)
    assert run("stop", mac, INSTALLED).status == "stopped"
    assert mac.did == [f"bootout {GUI}"]
    assert run("stop", Mac(), INSTALLED).told.startswith("unchanged")


def test_start_loads_what_is_installed() -> None:
    """One that is loaded is only kicked, one that runs is left."""
    mac = Mac()
    assert run("start", mac, INSTALLED).pid == 101
    assert mac.did == FRESH[5:]
    loaded = Mac(loaded={GUI})
    assert run("start", loaded, INSTALLED).pid == 101
    assert loaded.did == [f"kickstart {GUI}"]
    running = Mac(loaded={GUI}, pid=7)
    assert run("start", running, INSTALLED).pid == 7
    assert running.did == []


def test_restart_waits_for_another_process() -> None:
    """The one that drains still answers, and does not count."""
    mac = Mac(loaded={GUI}, pid=7)
    assert run("restart", mac, INSTALLED).pid == 101
    assert mac.did == [f"kickstart -k {GUI}"]
    assert run("restart", Mac(), INSTALLED).told.startswith("started")
    error = refused("restart", Mac({"kickstart": [3]}, loaded={GUI}, pid=7), INSTALLED)
    assert "kickstart -k" in error.message


def test_what_is_not_installed_is_not_started() -> None:
    """With the command that installs it."""
    for verb in ("start", "restart"):
        error = refused(verb, Mac())
        assert (error.exit_code, error.hint) == (exits.NO_SUCH_OBJECT, "omlxctl service install")


@pytest.mark.parametrize(
    ("mac", "job", "expected"),
    [
        (Mac(loaded={GUI}, pid=7), INSTALLED, ("running", 7)),
        (Mac(loaded={GUI}), INSTALLED, ("loaded", None)),
        (Mac(), INSTALLED, ("stopped", None)),
        (Mac(), JOB, ("absent", None)),
    ],
)
def test_status_only_looks(mac: Mac, job: Job, expected: tuple[str, int | None]) -> None:
    """Four states, and nothing is done."""
    outcome = run("status", mac, job)
    assert (outcome.status, outcome.pid) == expected
    assert (mac.did, outcome.notes) == ([], ())


def test_status_has_notes() -> None:
    """A plist that is out of date, and a daemon that launchd did not start."""
    out_of_date = run("status", Mac(loaded={GUI}, pid=7), OLD)
    assert "omlxctl service install" in out_of_date.notes[0]
    by_hand = run("status", Mac(pid=7), INSTALLED)
    assert "launchd did not start it" in by_hand.notes[0]
