"""omlxctl service, where there is no launchd, and its steps carried out on real files."""

# ruff: noqa: ASYNC240 (small files in a temporary folder, and nothing else on the loop)

from __future__ import annotations

import asyncio
import json
import plistlib
import stat
import sys
from pathlib import Path

import pytest

from omlxctl import exits
from omlxctl.exits import CtlError
from omlxctl.servicedry import Rehearsal, ThoughtOf
from omlxctl.servicerun import Doer, carry_out, find_program, job_for, refuse_root, run_command
from omlxctl.servicesteps import (
    AskDaemon,
    Command,
    Job,
    MakeFolder,
    Outcome,
    RemoveFile,
    Result,
    WriteFile,
)
from omlxctl.serviceverbs import VERBS
from omlxctl.serviceview import document, told
from tests.fakes.fake_control import FakeControl
from tests.support.ctl import Ctl

elsewhere = pytest.mark.skipif(sys.platform == "darwin", reason="a Mac would do it")
GOOD = '[server]\nlisten = "127.0.0.1:8123"\nshutdown_grace = "45s"\napi_keys = ["env:TEAM_KEY"]\n'
PROGRAM = Path("/x/bin/omlxd")


def commands(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("/")]


# ------------------------------------------------------------------ the command


@elsewhere
async def test_another_system_is_told_what_a_mac_would_do(down: Ctl, tmp_path: Path) -> None:
    """Commands and plist on standard output, the reason on standard error, nothing on disk."""
    (down.home / "omlx.toml").write_text(GOOD)
    done = await down("service", "install", env={"HOME": str(tmp_path)})
    assert done.code == 1
    assert "this is not macOS, so there is no launchd" in done.err
    assert "TEAM_KEY" in done.err
    assert [line.split()[1] for line in commands(done.out)] == [
        "-lint",
        "enable",
        "bootstrap",
        "kickstart",
    ]
    assert "<string>8123</string>" in done.out
    assert list(tmp_path.iterdir()) == []


@elsewhere
@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("uninstall", ["bootout"]),
        ("start", ["enable", "bootstrap", "kickstart"]),
        ("stop", ["bootout"]),
        ("restart", ["kickstart"]),
        ("status", []),
    ],
)
async def test_every_verb_can_be_tried(down: Ctl, verb: str, expected: list[str]) -> None:
    """--dry-run ends with 0, and without it the same is no success here."""
    dry = await down("service", verb, "--dry-run")
    assert (dry.code, [line.split()[1] for line in commands(dry.out)]) == (0, expected)
    real = await down("service", verb)
    assert (real.code, real.out) == (1, dry.out)
    assert "not macOS" in real.err


async def test_json_has_plist_and_commands(down: Ctl) -> None:
    """One document, with what would be run."""
    done = await down("service", "install", "--dry-run", "--json")
    found = json.loads(done.out)
    assert (found["action"], found["dry_run"], found["name"]) == ("install", True, "io.omlx.omlxd")
    plist = plistlib.loads(found["plist"].encode())
    assert plist["ProgramArguments"][1:] == ["--home", str(down.home)]
    assert found["file"].endswith("/Library/LaunchAgents/io.omlx.omlxd.plist")
    assert any("bootstrap" in command for command in found["commands"])


async def test_a_bad_file_is_not_installed(down: Ctl) -> None:
    """It does not say where to listen; the problem has its place, and the code is 7."""
    (down.home / "omlx.toml").write_text("[server]\nlisten = 7\n")
    done = await down("service", "install", "--dry-run")
    assert (done.code, done.out) == (exits.INVALID, "")
    assert "omlx.toml:2:1" in done.err


async def test_a_bad_file_stops_nobody_from_stopping(down: Ctl) -> None:
    """Only install needs a valid one."""
    (down.home / "omlx.toml").write_text("nonsense")
    done = await down("service", "stop", "--dry-run")
    assert done.code == 0
    assert "omlxctl validate" in done.err


async def test_a_home_that_is_too_long_is_refused(down: Ctl) -> None:
    """launchd would start the daemon again every ten seconds."""
    done = await down("service", "install", "--dry-run", "--home", "/" + "x" * 200)
    assert done.code == exits.USAGE
    assert "bytes long" in done.err


# ------------------------------------------------------------------ what it is made from


def test_the_service_of_a_home(tmp_path: Path) -> None:
    """Addresses and grace of the file, the longer timeout of old and new, what to mind."""
    home, agents = tmp_path / "home", tmp_path / "agents"
    home.mkdir()
    agents.mkdir()
    (home / "omlx.toml").write_text(GOOD)
    (agents / "io.omlx.omlxd.plist").write_bytes(plistlib.dumps({"ExitTimeOut": 70}))
    (agents / "homebrew.mxcl.omlxd.plist").touch()
    job, notes = job_for(home, agents, uid=501, program=PROGRAM)
    assert plistlib.loads(job.data)["ExitTimeOut"] == 55
    assert job.exit_timeout_s == 70
    assert agents / "homebrew.mxcl.omlxd.plist" in job.homebrew
    assert ['"env:TEAM_KEY"' in note for note in notes] == [True]


def test_the_program_is_the_one_beside_us() -> None:
    """An older one on PATH is not taken."""
    assert find_program() == Path(sys.executable).parent / "omlxd"


@pytest.mark.parametrize(("euid", "environ"), [(0, {}), (501, {"SUDO_USER": "you"})])
def test_root_is_refused(euid: int, environ: dict[str, str]) -> None:
    """The files would be root's."""
    with pytest.raises(CtlError, match="not installed as root"):
        refuse_root(euid, environ)
    refuse_root(501, {})


# ------------------------------------------------------------------ steps for real


def test_files_and_folders(tmp_path: Path) -> None:
    """The plist is 0644 whatever the umask, folders have their mode, removing twice is fine."""
    do = Doer(tmp_path / "sock")
    folder, path = tmp_path / "a", tmp_path / "a" / "x.plist"
    do(MakeFolder(folder, 0o700))
    do(MakeFolder(folder, 0o755))
    do(WriteFile(path, b"one"))
    do(WriteFile(path, b"two"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) == (0o644, b"two")
    assert [one.name for one in folder.iterdir()] == ["x.plist"]
    do(RemoveFile(path))
    do(RemoveFile(path))
    assert not path.exists()
    with pytest.raises(CtlError, match="not changed to the end"):
        do(WriteFile(tmp_path / "none" / "x", b""))


def test_commands(tmp_path: Path) -> None:
    """Exit code and words of both streams; a program that is not there is named."""
    command = Command(("/bin/sh", "-c", "cat; echo no >&2; exit 5"), b"in ")
    assert Doer(tmp_path)(command) == Result(5, "no\nin ")
    with pytest.raises(CtlError, match="there is no /nonexistent/launchctl"):
        run_command(("/nonexistent/launchctl",), b"")


def test_who_answers(tmp_path: Path) -> None:
    """Nobody is None, after the time that was given."""
    assert Doer(tmp_path / "sock")(AskDaemon()) == Result(pid=None)
    assert Doer(tmp_path / "sock")(AskDaemon(within_s=0.05)) == Result(pid=None)


async def test_a_running_daemon_answers(up: Ctl, fake_daemon: FakeControl) -> None:
    """Its pid, unless it is the one that is to go."""
    do = Doer(up.home / "run" / "omlxd.sock")
    found = await asyncio.to_thread(do, AskDaemon())
    assert found.pid == fake_daemon.current.pid
    other = await asyncio.to_thread(do, AskDaemon(but=found.pid))
    assert other.pid is None


# ------------------------------------------------------------------ telling


def test_a_rehearsal_on_a_mac_looks_and_changes_nothing() -> None:
    """It asks for what is, and goes on as if each step had worked."""
    job = Job(501, Path("/A/x.plist"), b"new", Path("/H"), 30, on_disk=b"old")
    looked: list[object] = []
    mac = ThoughtOf(runs=True)

    def look(step: object) -> Result:
        assert isinstance(step, AskDaemon) or (isinstance(step, Command) and step.only_looks)
        looked.append(step)
        return mac(step)

    rehearsal = Rehearsal(look)
    carry_out(VERBS["install"](job), rehearsal)
    verbs = [step.argv[1] for step in rehearsal.told if isinstance(step, Command)]
    assert verbs == ["-lint", "enable", "bootout", "bootstrap", "kickstart"]
    assert looked


def test_the_document_is_stable() -> None:
    """Fields of `service --json`."""
    job = Job(501, Path("/A/x.plist"), b"new", Path("/H"), 30, on_disk=b"old")
    outcome = Outcome("running", "it runs", "gui/501/io.omlx.omlxd", 7, ("mind this",))
    found = document("status", job, outcome, ("and this",))
    assert found | {"user": "you"} == {
        "api_version": 1,
        "action": "status",
        "name": "io.omlx.omlxd",
        "status": "running",
        "user": "you",
        "domain": "gui/501",
        "pid": 7,
        "file": "/A/x.plist",
        "up_to_date": False,
        "message": "it runs",
        "notes": ["and this", "mind this"],
    }
    assert told(outcome) == "it runs, pid 7"
    assert told(Outcome("absent", "gone")) == "gone"
